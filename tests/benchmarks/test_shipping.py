"""The study of exports runs on a small model, and says what it found."""

import shutil

import pytest

from benchmarks.shipping.models import Shipped, digits, models
from benchmarks.shipping.study import ShippingPlan, _shipped, shipping_tables
from protopinv import ProtoPINVClassifier


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("gcc", "node", "size")),
    reason="needs gcc, size and node",
)
def test_a_small_model_is_compared_in_every_format() -> None:
    estimator = ProtoPINVClassifier(
        n_prototypes=30,
        hidden_sizes=16,
        activation="relu",
        scaling="global",
        max_epochs=10,
        number_encoding="raw",
        ensemble_size=1,
    )
    cell = _shipped(Shipped(estimator, digits), ShippingPlan(quick=True, repeats=2))
    for kind in ("onnx", "c", "mjs"):
        assert cell[kind]["largest"] < 1e-4
        assert cell[kind]["same_labels"] == 1
    assert cell["int8"]["same_bits"]
    assert cell["int8"]["constants"] < cell["c"]["constants"] / 2
    assert cell["int8"]["code"] < 3000
    assert set(cell["speed"]) >= {"protopinv", "scikit-learn", "onnxruntime", "C", "C, int8"}
    tables = shipping_tables({"cells": {"digits": cell}})
    assert "bit for bit its emulator" in "\n".join(tables["agreement"])


def test_models_of_every_kind_are_there() -> None:
    names = " ".join(models(quick=True))
    for kind in ("paper", "stem", "members", "number", "labels", "digits"):
        assert kind in names
