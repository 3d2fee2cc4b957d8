"""Save and load are the identity, bit for bit; whatever else a file holds is one clear error."""

import json
import pickle
import re
import resource
import struct
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load as safetensors_load
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError

from protopinv import ImageCopies, ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import ModelFileError, OutputError
from protopinv.model_file import summary as summary_module
from protopinv.model_file.header import FORMAT
from protopinv.model_file.rules import ENDINGS, OBJECTIVES, PARAMETERS
from protopinv.model_file.summary import summary
from protopinv.train.config import FIELDS
from protopinv.train.history import Ending


@pytest.fixture(scope="module")
def model(blobs) -> ProtoPINVClassifier:
    X, y = blobs
    return ProtoPINVClassifier(
        n_prototypes=9,
        hidden_sizes=(8, 6),
        ridge=(3.0, 2.0, 1.0),
        learn_ridge=True,
        early_stopping=True,
        max_epochs=30,
        random_state=4,
    ).fit(X, y)


@pytest.fixture
def path(model: ProtoPINVClassifier, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


GOLDEN = Path(__file__).parent / "golden"
DROPPED = "(dropped)"


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a file, copied out of it, and its metadata."""
    return safetensors_load(path.read_bytes()), safe_open(path, framework="pt").metadata()


def rewrite(path: Path, **changes: object) -> None:
    """The same file with some header values changed; DROPPED drops its key.

    A dict for "objective" changes some of its values.
    """
    tensors, metadata = contents(path)
    header = json.loads(metadata[FORMAT])
    if isinstance(changes.get("objective"), dict):
        changes["objective"] = {**header["objective"], **changes["objective"]}
    header |= changes
    kept = {key: value for key, value in header.items() if value != DROPPED}
    save_file(tensors, path, metadata={FORMAT: json.dumps(kept)})


def test_a_loaded_model_is_the_saved_one(model: ProtoPINVClassifier, path: Path, blobs) -> None:
    X, y = blobs
    back = load(path)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.config_ == model.config_
    assert back.get_params() == model.get_params()
    assert back.get_params()["lr"] == "auto"  # as it was given, not as it was used
    assert back.history_ == model.history_
    assert all(map(torch.equal, back.bank_.trained, model.bank_.trained))
    assert back.n_features_in_ == 5
    assert back.score(X, y) == model.score(X, y)


def test_files_from_before_sharpness_was_stored_have_it_in_their_last_layer(
    model: ProtoPINVClassifier, path: Path
) -> None:
    assert model.model_.calibration != pytest.approx(
        1, abs=0.01
    )  # held-out rows had something to say
    assert load(path).model_.calibration == model.model_.calibration
    rewrite(path, sharpness=DROPPED)
    assert load(path).model_.calibration == pytest.approx(model.model_.calibration, rel=1e-12)
    assert load(GOLDEN / "continued.safetensors").model_.calibration == pytest.approx(
        1
    )  # nobody was asked


def test_banks_that_make_no_network_are_refused_where_they_are_needed(path: Path) -> None:
    tensors, metadata = contents(path)
    tensors["bank.outputs"] = torch.full_like(tensors["bank.outputs"].double(), 1.7e308)
    save_file(tensors, path, metadata=metadata)
    load(path)  # they are not asked for anything
    rewrite(path, sharpness=DROPPED)
    with pytest.raises(ModelFileError, match="banks that make no network"):
        load(path)


QUICK = {"n_prototypes": 9, "hidden_sizes": 8, "max_epochs": 5, "random_state": 0}


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (ProtoPINVClassifier(**QUICK, class_weight={0: 2.0, 1: 1.0, 2: 0.5}), "class"),
        (ProtoPINVClassifier(**QUICK, class_weight="balanced", warm_start=True), "class"),
        (ProtoPINVClassifier(**QUICK, learn_scale=True), "class"),
        (ProtoPINVClassifier(**QUICK, image_shape=(1, 5), copies=ImageCopies(2)), "class"),
        (ProtoPINVClassifier(**QUICK), "labels"),
        (ProtoPINVRegressor(**QUICK), "number"),
        (ProtoPINVRegressor(**QUICK, loss="huber", early_stopping=False), "numbers"),
    ],
    ids=["dict", "balanced", "scale", "copies", "labels", "number", "numbers"],
)
def test_every_kind_of_model_comes_back_bit_by_bit(estimator, target, blobs, tmp_path) -> None:
    X, y = blobs
    targets = {
        "class": y,
        "labels": (X[:, :3] > X[:, :3].mean(0)).astype(int),
        "number": X[:, 0] * 1e6 - 1e9,
        "numbers": X[:, :2] + y[:, None],
    }
    model = estimator.fit(X, targets[target])
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    assert type(back) is type(model)
    for name in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, name):
            mine, theirs = getattr(back, name)(X), getattr(model, name)(X)
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
    assert plain_params(back) == plain_params(model)
    assert back.objective_.describe() == model.objective_.describe()
    assert back.config_ == model.config_
    assert back.n_iter_ == model.n_iter_
    again = [each.fit(X, targets[target]).predict(X) for each in (back, model)]
    np.testing.assert_array_equal(*again)


def plain_params(model) -> dict[str, object]:
    """All parameters, those of a stem and of copies by their own names."""
    params = model.get_params()
    return {name: value for name, value in params.items() if name not in ("stem", "copies")}


def test_saving_again_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    load(path).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_the_header_is_plain_json_and_says_what_the_file_is(path: Path) -> None:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][FORMAT])
    assert header["format"] == "1.2"
    assert header["needs"] == ["memory"]
    assert header["task"] == "classification"
    assert header["objective"]["classes"] == [0, 1, 2]
    assert header["feature_names"] is None
    assert header["config"]["hidden_sizes"] == [8, 6]
    assert header["config"]["lr"] == 0.1
    assert header["parameters"]["lr"] == "auto"


def test_a_loaded_model_can_be_pickled_and_refitted(path: Path, blobs) -> None:
    X, y = blobs
    back = pickle.loads(pickle.dumps(load(path)))
    np.testing.assert_array_equal(back.predict(X), load(path).predict(X))
    first = back.predict_proba(X)
    np.testing.assert_array_equal(back.fit(X, y).predict_proba(X), first)  # the seed is kept


def test_every_cut_of_the_file_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"must be whole and in safetensors format\."):
            load(path)


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", pickle.dumps({"a": 1}), b"\xff" * 64])
def test_foreign_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ModelFileError, match="must be whole and in safetensors format"):
        load(tmp_path / "x")


def test_a_safetensors_file_of_another_program_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "x")
    with pytest.raises(ModelFileError, match="must come from protopinv"):
        load(tmp_path / "x")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(ModelFileError, match=r"must exist\. There is none at"):
            load(place)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "99.0", "written_by": "protopinv 9"}, "99.0, written by protopinv 9. Upgrade"),
        ({"format": "2.0"}, r"reads model files of format 1\..*Upgrade"),
        ({"format": DROPPED, "format_version": 2}, "older than format 1.0, or damaged. Train"),
        ({"format": 1}, "older than format 1.0, or damaged"),
        ({"format": True}, "older than format 1.0, or damaged"),
        ({"format": "1.0.0"}, "older than format 1.0, or damaged"),
        ({"needs": ["time travel"]}, r"cannot read all that .* \['time travel'\].*Upgrade"),
        ({"network_dtype": "int4"}, "network_dtype is 'int4', not one of 'float64'"),
        ({"sharpness": 0}, "sharpness is 0, not a positive number, or null"),
        ({"sharpness": -1.5}, "sharpness is -1.5, not a positive number"),
        ({"sharpness": True}, "sharpness is True, not a positive number"),
        ({"sharpness": "very"}, "sharpness is 'very', not a positive number"),
        ({"sharpness": 10**400}, "sharpness is 1000.*, not a positive number"),
        ({"parameters": []}, r"parameters is \[\], not an object"),
        ({"objective": []}, r"objective is \[\], not an object"),
        ({"config": []}, r"config is \[\], not an object"),
        ({"history": []}, r"history is \[\], not an object"),
        ({"objective": {"classes": {"0": 1}}}, "objective.classes is .*, not a list of numbers or"),
        (
            {"objective": {"classes": [[0], [1], [2]]}},
            "objective.classes is .*, not a list of numbers or texts",
        ),
        ({"objective": {"classes": [0, 1, 1]}}, "a class appears twice"),
        ({"objective": {"classes_dtype": "unheard"}}, "classes_dtype is 'unheard', not a type"),
        ({"objective": {"classes_dtype": "<U400000000"}}, "labels of type"),
        ({"objective": {"classes_dtype": "|b1"}}, "labels that are not of their type"),
        ({"feature_names": [1, 2, 3, 4, 5]}, "feature_names is .*, not a list of texts, or null"),
        ({"objective": {"classes": [0, 1]}}, "3 outputs for 2 targets"),
        ({"feature_names": ["a"]}, "1 feature names for 5 features"),
        ({"activation": "wave"}, "unknown activation 'wave'"),
        ({"history": DROPPED}, "must fit together"),
        ({"history": {"unheard": 1}}, "history.seconds is missing"),
        ({"config": {"lr": -1}}, r"a configuration this version knows.*lr must be"),
        ({"config": {"unheard": 1}}, "a configuration this version knows"),
        ({"parameters": {"lr": -1}}, r"a configuration this version knows.*lr must be"),
        ({"parameters": {"unheard": 1}}, "a configuration this version knows"),
        ({"parameters": {"stem": "sift"}}, "a configuration this version knows"),
        ({"task": "regression"}, "objective.centre is missing"),
        ({"task": "ranking"}, r"models for classification, .* holds one for 'ranking'\. Upgrade"),
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_is_refused(
    path: Path, changes: dict[str, object], message: str
) -> None:
    rewrite(path, **changes)
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize("dropped", ["bank.inputs", "network.0", "network.2", "features.mean"])
def test_a_file_without_one_of_its_tensors_is_refused(path: Path, dropped: str) -> None:
    tensors, metadata = contents(path)
    del tensors[dropped]
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(ModelFileError, match="must fit together"):
        load(path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("network.0", lambda tensor: tensor.float(), "not all its layers in float64"),
        ("network.1", lambda tensor: tensor[:-1].clone(), "do not follow each other"),
        ("network.1", lambda tensor: tensor.repeat(2, 1, 1), "do not follow each other"),
        ("network.0", lambda tensor: tensor[None].clone(), "neither matrices nor blocks"),
        ("network.0", lambda tensor: tensor * torch.nan, "not finite"),
        ("bank.inputs", lambda tensor: tensor * torch.inf, "not finite"),
        ("bank.outputs", lambda tensor: tensor[:-1].clone(), "must fit together"),
        ("bank.outputs", lambda tensor: tensor[:, :-1].clone(), "must fit together"),
        ("bank.outputs", lambda tensor: tensor[0].clone(), "has other dimensions"),
        ("bank.outputs", lambda tensor: tensor[:, :, :-1].clone(), "3 outputs for prototypes of 2"),
        ("bank.raw_ridge", lambda tensor: tensor[:, :-1].clone(), "must fit together"),
        ("bank.learnable_ridge", lambda tensor: tensor[:, :-1].clone(), "must fit together"),
        ("features.mean", lambda tensor: tensor[:-1].clone(), "must fit together"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(path: Path, name: str, change, message: str) -> None:
    tensors, metadata = contents(path)
    tensors[name] = change(tensors[name])
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_a_loaded_model_does_not_follow_its_file(path: Path, blobs) -> None:
    X, _ = blobs
    model = load(path)
    before = model.predict_proba(X)
    with path.open("r+b") as file:
        file.seek(-4096, 2)
        file.write(b"\0" * 4096)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_history_that_is_not_finite_is_kept(model: ProtoPINVClassifier, path: Path) -> None:
    broken = load(path)
    broken.history_.loss[0] = float("nan")
    broken.save(path)
    assert np.isnan(load(path).history_.loss[0])


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    model: ProtoPINVClassifier, path: Path
) -> None:
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"model\.safetensors was not \(File too large\)"):
            model.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_place_that_cannot_be_written_is_refused(
    model: ProtoPINVClassifier, tmp_path: Path
) -> None:
    missing = tmp_path / "no" / "m.safetensors"
    with pytest.raises(OutputError, match=re.escape(f"There is no {missing.parent}. Create it")):
        model.save(missing)
    folder = tmp_path / "m.safetensors"
    folder.mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        model.save(folder)
    folder.rmdir()
    for name in ("m.pkl", "m.safetensors.bak", "m"):
        with pytest.raises(OutputError, match=rf"must end in \.safetensors\. Got '{name}'"):
            model.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_anywhere_are_saved(blobs, tmp_path: Path) -> None:
    X, y = blobs
    weights = dict.fromkeys(np.unique(y), np.float64(1.5))
    model = ProtoPINVClassifier(
        n_prototypes=np.int64(9), hidden_sizes=(np.int64(8),), max_epochs=2, class_weight=weights
    ).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").class_weight == {0: 1.5, 1: 1.5, 2: 1.5}


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.safetensors")))
def test_a_look_at_a_file_says_what_its_model_is(name: str) -> None:
    path = GOLDEN / f"{name}.safetensors"
    facts, model = summary(path), load(path)
    bank, memory = getattr(model, "bank_", None), model.memory_
    outputs = facts.get("classes") or facts.get("labels") or facts.get("targets")
    if isinstance(outputs, list):
        assert outputs == model.classes_.tolist()
    else:
        assert outputs == model.objective_.n_outputs
    assert facts["layers"] == list(model.network_.sizes)
    assert facts["activation"] == model.network_.activation
    assert facts["shipped_numbers"] == model.n_shipped_
    assert (facts["front"] is None) == (model.front_ is None)
    assert facts["columns"] == (model.table_ and str(model.table_).splitlines())
    assert facts["memory_numbers"] == (memory and memory.n_numbers)
    assert facts["trained_numbers"] == (bank and model.model_.n_trained)
    assert facts["ensemble"] == len(model.model_.parts)
    assert facts["members"] == (bank and bank.n_members)
    assert facts["prototypes"] == (bank and bank.n_prototypes)
    assert facts["projected_features"] == (bank and model.features_.n_components)
    if bank is not None:
        assert facts["ridge"] == pytest.approx(bank.member(0).ridge.tolist(), rel=1e-6)
    assert json.dumps(facts["history"]) == json.dumps(
        {key: model.history_.to_dict()[key] for key in facts["history"]}
    )
    assert facts["config"]["max_epochs"] == model.max_epochs


def test_a_look_at_what_is_no_model_is_refused(path: Path, tmp_path: Path) -> None:
    for changes in ({"objective": DROPPED}, {"task": "guessing"}, {"format": "2.0"}):
        copy = tmp_path / "copy.safetensors"
        copy.write_bytes(path.read_bytes())
        rewrite(copy, **changes)
        with pytest.raises(
            ModelFileError, match=r"must fit together|reads model files of|reads models for"
        ):
            summary(copy)
    (tmp_path / "text").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ModelFileError, match="must be whole"):
        summary(tmp_path / "text")


def test_an_unfitted_model_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        ProtoPINVClassifier().save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_is_too_long_has_every_so_many_epochs_in_its_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(path)
    loss, best = model.history_.loss, model.history_.kept_epoch
    monkeypatch.setattr("protopinv.model_file.saving.MOST_LISTED", 60)
    model.save(path)
    history = load(path).history_
    assert 1 < history.n_epochs < len(loss)
    every = -(-len(loss) // history.n_epochs)
    assert history.loss == loss[::every]
    assert history.kept_epoch == best // every


@pytest.mark.parametrize("size", [1e-140, 1e60, 1e140])
@pytest.mark.parametrize("options", [{}, {"scaling": "squash"}, {"scaling": "clip", "memory": 0}])
def test_rows_beyond_float32_are_no_reason_that_a_file_does_not_load(
    size: float, options: dict[str, object], blobs, tmp_path: Path
) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(**QUICK, **options).fit(size * X, y)
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.predict(size * X), model.predict(size * X))


def test_words_of_a_file_are_those_of_what_writes_them() -> None:
    assert get_args(Ending) == ENDINGS
    assert set(summary_module.OUTPUTS) == set(OBJECTIVES)
    names = {*vars(ProtoPINVClassifier()), *vars(ProtoPINVRegressor())}
    assert names - {"copies"} <= {*FIELDS, *PARAMETERS}
    assert set(PARAMETERS) <= names


def test_a_limit_that_nobody_reaches_and_a_whole_temperature_are_saved(blobs, tmp_path) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(**QUICK, memory=10**30, temperature=10**25).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    assert back.memory == 10**30
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
