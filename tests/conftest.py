"""Threads are pinned before torch is imported: small matrices on many threads crawl."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["SCIPY_ARRAY_API"] = "1"  # without it scikit-learn skips one of its estimator checks
os.environ["PROTOPINV_KERNELS"] = "on"  # a GPU would take them for long fits alone

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Three well separated classes in five features: any working classifier gets them right."""
    random = np.random.RandomState(0)
    y = np.arange(90) % 3
    centres = 4 * random.standard_normal((3, 5))
    return centres[y] + 0.3 * random.standard_normal((90, 5)), y
