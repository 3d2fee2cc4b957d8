"""What must hold on a GPU; everything here is skipped where there is none."""

import pickle

import numpy as np
import pytest
import torch

from protopinv import ProtoPINVClassifier
from protopinv.data import load_data
from protopinv.train.config import TrainConfig
from protopinv.train.losses import CrossEntropy
from protopinv.train.model import architecture_of
from protopinv.train.prepare import LabelledRows, features_of, first_bank, project_rows
from protopinv.train.step import Step

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU that torch can use"
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 16},
        {"input_noise": 0.1, "early_stopping": True},
        {"hidden_sizes": (12, 8), "hidden_dropout": 0.05, "learn_ridge": True},
        {"projection": "pls", "n_components": 3},
        {"solver": "svd"},
        {"dtype": "float64"},
    ],
    ids=str,
)
def test_a_gpu_learns_and_the_host_predicts_the_same(blobs, options: dict[str, object]) -> None:
    X, y = blobs
    chosen = {"hidden_sizes": (12,), "max_epochs": 60, "random_state": 0, **options}
    on_gpu = ProtoPINVClassifier(15, device="cuda", **chosen).fit(X, y)
    assert on_gpu.score(X, y) == 1
    on_host = pickle.loads(pickle.dumps(on_gpu)).set_params(device="cpu")
    np.testing.assert_allclose(on_host.predict_proba(X), on_gpu.predict_proba(X), atol=1e-9)


def test_gpu_and_host_train_the_same_bank_within_rounding(blobs) -> None:
    X, y = blobs
    chosen = {"hidden_sizes": (12,), "max_epochs": 20, "random_state": 0, "dtype": "float64"}
    on_gpu, on_host = (
        ProtoPINVClassifier(15, device=device, **chosen).fit(X, y) for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(on_gpu.history_.loss, on_host.history_.loss, rtol=1e-6)


def test_a_step_never_makes_the_host_wait() -> None:
    config = TrainConfig(
        input_noise=0.3, hidden_dropout=0.1, weight_penalty=1e-5, learn_ridge=True, scaling="global"
    )
    data, device = load_data("digits", split="train"), torch.device("cuda")
    source, chosen = LabelledRows(data.X, data.y, 10), np.arange(len(data.X))
    features = features_of(source, chosen, config, device)
    rows = project_rows(source, chosen, features, config, device)
    step = Step(
        first_bank(rows, 10, config, torch.Generator().manual_seed(0)).leaves(),
        architecture_of(config),
        config,
        CrossEntropy(0.1),
        chunk=500,
        generator=torch.Generator(device).manual_seed(0),
    )
    step(rows, 0.1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(rows, 0.1)
        step.evaluate(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
