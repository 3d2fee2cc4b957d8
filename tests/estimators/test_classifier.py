"""What users of scikit-learn expect: frames, names, strings, seeds, pipelines, pickles."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protopinv import ConvStem, ImageCopies, ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.data import load_data
from protopinv.errors import ConfigError
from protopinv.estimators.parameters import COPIES, STEM
from protopinv.network import propagate
from protopinv.train.config import FIELDS, TrainConfig
from protopinv.train.survey import hold_out


def quick(**options: object) -> ProtoPINVClassifier:
    chosen = {
        "effort": "quick",
        "n_prototypes": 15,
        "hidden_sizes": (12,),
        "max_epochs": 60,
        "random_state": 0,
    }
    return ProtoPINVClassifier(**{**chosen, **options})


def test_every_hyperparameter_is_a_constructor_argument_with_the_same_default() -> None:
    images = {*STEM, *COPIES}
    for estimator, own, others in (
        (ProtoPINVClassifier(), {"class_weight"}, {"loss"}),
        (ProtoPINVRegressor(), {"bounded"}, {"label_smoothing"}),
    ):
        params = estimator.get_params()
        fields = {*FIELDS} - images - others
        beside = {"stem", "copies", "device", "random_state", "verbose", "warm_start", "columns"}
        beside |= {"memory", "max_prototypes"}
        assert set(params) == fields | beside | own
        assert {name: params[name] for name in fields} == {
            name: getattr(TrainConfig, name) for name in fields
        }
    nested = nested_defaults(ProtoPINVClassifier(stem=ConvStem(), copies=ImageCopies()))
    assert {**nested, "stem": "auto", "image_copies": 0} == {
        name: getattr(TrainConfig, name) for name in images
    }


def nested_defaults(model: ProtoPINVClassifier) -> dict[str, object]:
    params = model.get_params()
    stem = {name: params[f"stem__{part}"] for name, part in STEM.items()}
    return stem | {name: params[f"copies__{part}"] for name, part in COPIES.items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_sizes": (12, 8, 6)},
        {"hidden_sizes": 12},
        {"activation": "silu"},
        {"activation": "gelu"},
        {"activation": "tanh"},
        {"activation": "sigmoid"},
        {"ridge": (1.0, 0.1), "learn_ridge": (False, True)},
        {"weight_penalty": 1e-4},
        {"temperature": 0.5},
        {"input_init": "normal"},
        {"scaling": "global"},
        {"scaling": "none"},
        {"projection": "none"},
        {"projection": "pls", "n_components": 3},
        {"batch_size": 16},
        {"schedule": "constant"},
        {"hidden_dropout": 0.05, "input_noise": 0.1, "label_smoothing": 0.05},
        {"normalize_inputs": True},
        {"early_stopping": True, "max_epochs": 200},
        {"validation_fraction": 0.2},
        {"solver": "svd"},
        {"solver": "primal"},
        {"solver": "dual"},
        {"dtype": "float64"},
        {"dtype": "float32"},
        {"early_stopping": "cross", "n_members": 1},
        {"early_stopping": False, "n_members": 3},
        {"learn_scale": True, "scale_lr_ratio": 0.5},
        {"condition_penalty": 1e-3},
        {"output_init": "normal"},
        {"mixup": 0.1, "averaging": 0.8},
        {"optimizer": "muon"},
        {"hidden_decay": 0.01, "input_decay": 0.01, "output_decay": 0.01},
    ],
    ids=str,
)
def test_every_option_learns_separable_classes(blobs, options: dict[str, object]) -> None:
    X, y = blobs
    assert quick(**options).fit(X[:60], y[:60]).score(X[60:], y[60:]) == 1


def test_digits_are_learned() -> None:
    train, test = load_data("digits", split="train"), load_data("digits", split="test")
    model = ProtoPINVClassifier(
        n_prototypes=60, hidden_sizes=(128,), max_epochs=100, random_state=0
    )
    assert model.fit(train.X, train.y).score(test.X, test.y) > 0.95


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_give_names_and_the_same_predictions_as_arrays(blobs, frame) -> None:
    X, y = blobs
    names = [f"f{column}" for column in range(X.shape[1])]
    table = frame(dict(zip(names, X.T, strict=True)))
    model = quick().fit(table, y)
    assert model.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(model.predict_proba(table), quick().fit(X, y).predict_proba(X))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["ant", "bee", "cat"]),
        np.array(["ant", "bee", "cat"], dtype=object),
        np.array([-5, 0, 10**12]),
        np.array([1.0, 2.0, 3.0]),
        pd.Series(["ant", "bee", "cat"]).to_numpy(),
    ],
    ids=["str", "object", "int", "float", "pandas"],
)
def test_any_labels_come_back_as_they_were(blobs, labels: np.ndarray, tmp_path) -> None:
    X, y = blobs
    model = quick().fit(X, labels[y])
    assert model.predict(X).tolist() == labels[y].tolist()
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    assert back.predict(X).tolist() == labels[y].tolist()
    assert back.classes_.dtype == model.classes_.dtype


def test_two_classes_have_one_decision(blobs) -> None:
    X, y = blobs
    model = quick().fit(X, y > 0)
    decision = model.decision_function(X)
    assert decision.shape == (90,)
    assert ((decision > 0) == model.predict(X)).all()
    assert model.classes_.dtype == bool


def test_probabilities_are_the_softmax_of_the_decision(blobs) -> None:
    X, y = blobs
    model = quick().fit(X, y)
    outputs = torch.from_numpy(model.decision_function(X))
    np.testing.assert_allclose(model.predict_proba(X), torch.softmax(outputs, 1))
    np.testing.assert_allclose(model.predict_log_proba(X), torch.log_softmax(outputs, 1))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("members", [1, 5])
def test_folding_changes_no_prediction(blobs, members: int) -> None:
    """Solved weights behind the feature map, and one plain network, are the same function.

    With several members it is their mean.
    """
    from protopinv.network import solve_weights

    X, y = blobs
    model = quick(projection="pls", hidden_sizes=(9, 7), learn_scale=True, n_members=members)
    bank = model.fit(X, y).bank_.to("cpu", torch.float64)
    assert bank.n_members == members
    seen = model.features_.project(torch.from_numpy(X))
    unfolded = []
    for number in range(members):
        weights = solve_weights(bank.member(number), model.config_.architecture).weights
        unfolded.append(propagate(seen, weights, "relu"))
    expected = torch.stack(unfolded).mean(0).numpy()
    answers = model.decision_function(X)
    sharpness = answers[0, 0] / expected[0, 0]  # folds have said how sure to be
    np.testing.assert_allclose(answers, sharpness * expected, rtol=1e-9, atol=1e-9)


def test_the_seed_decides_everything(blobs) -> None:
    X, y = blobs
    noisy = {"input_noise": 0.3, "hidden_dropout": 0.1, "batch_size": 20, "early_stopping": True}
    first, again, other = (
        quick(**noisy, random_state=seed).fit(X, y).decision_function(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_clone_and_pickle_are_the_identity(blobs) -> None:
    X, y = blobs
    model = quick(hidden_sizes=[12, 8], ridge=np.array([1.0, 2.0, 3.0]), n_prototypes=np.int64(9))
    copied = clone(model)
    for name, value in model.get_params().items():
        np.testing.assert_array_equal(copied.get_params()[name], value)
    back = pickle.loads(pickle.dumps(model.fit(X, y)))
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))


def test_pipelines_and_searches_work() -> None:
    X, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), quick(scaling="none"))
    search = GridSearchCV(pipeline, {"protopinvclassifier__ridge": [1.0, 10.0]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.94
    assert cross_val_score(quick(), X, y, cv=2).mean() > 0.94


def test_validation_watches_without_early_stopping(blobs) -> None:
    X, y = blobs
    model = quick(validation_fraction=0.2, early_stopping=False).fit(X, y)
    assert len(model.history_.validation_score) == model.n_iter_ == 60
    assert model.history_.kept_epoch == 59


def test_held_out_rows_change_no_weight(blobs) -> None:
    X, y = blobs
    first = quick(validation_fraction=0.2, early_stopping=False).fit(X, y)
    held_out = hold_out(y, 0.2, int(np.random.RandomState(0).randint(2**31 - 1)))
    moved = X.copy()
    moved[held_out] += 100
    second = quick(validation_fraction=0.2, early_stopping=False).fit(moved, y)
    assert all(map(torch.equal, first.network_.weights, second.network_.weights))
    assert first.history_.validation_score != second.history_.validation_score


def test_integer_pixels_need_no_conversion(blobs) -> None:
    X, y = blobs
    pixels = (255 * (X - X.min()) / np.ptp(X)).astype(np.uint8)
    model = quick().fit(pixels, y)
    np.testing.assert_array_equal(model.predict(pixels), model.predict(pixels.astype(float)))
    assert model.score(pixels, y) == 1


def test_an_impossible_device_gives_one_clear_error(blobs, monkeypatch) -> None:
    with pytest.raises(ConfigError, match=r"device must be one of .*\. Got 'tpu'\."):
        quick(device="tpu").fit(*blobs)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"needs a GPU that torch can use\..*device='auto'"):
        quick(device="cuda").fit(*blobs)


def test_progress_goes_to_stderr_and_only_when_asked(blobs, capfd) -> None:
    quick().fit(*blobs)
    assert capfd.readouterr() == ("", "")
    quick(verbose=1, validation_fraction=0.1, early_stopping=False).fit(*blobs)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "epoch 60/60 loss " in captured.err
    assert "validation loss 0.0" in captured.err


class TestPredictingFast:
    """Rows that are clearly valid skip checks that cost more than a prediction."""

    def test_however_rows_come_the_probabilities_are_the_same(self, blobs) -> None:
        X, y = blobs
        model = ProtoPINVClassifier(n_prototypes=10, hidden_sizes=8, max_epochs=5).fit(X, y)
        expected = model.predict_proba(X.tolist())
        frozen = X.copy()
        frozen.flags.writeable = False
        for rows in (X, np.asfortranarray(X), X[::-1][::-1], frozen, pd.DataFrame(X).to_numpy()):
            np.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-12)
        one_by_one = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(len(X))])
        np.testing.assert_allclose(one_by_one, expected, rtol=1e-10)
        assert (frozen == X).all()

    @pytest.mark.parametrize("fault", [-np.inf, np.inf])
    def test_numbers_that_are_not_finite_are_still_refused(self, blobs, fault: float) -> None:
        X, y = blobs
        model = ProtoPINVClassifier(n_prototypes=10, hidden_sizes=8, max_epochs=5).fit(X, y)
        poisoned = X[:2].copy()
        poisoned[1, 2] = fault
        with pytest.raises(ValueError, match="infinity"):
            model.predict_proba(poisoned)
        with pytest.raises(ValueError, match="features"):
            model.predict_proba(X[:1, :3])
        with pytest.raises(ValueError, match="0 sample"):
            model.predict_proba(X[:0])
