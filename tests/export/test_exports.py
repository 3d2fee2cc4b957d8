"""Every format answers as Python does, for every kind of model, or says that it cannot hold it."""

import ctypes
import html
import json
import pickle
import re
import shutil
import subprocess
import warnings
from copy import deepcopy
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from export_kinds import BEHIND, ENSEMBLES, HOSTILE, KINDS, STEMS, WHOLE, flat, given, model
from onnx.reference import ReferenceEvaluator
from sklearn.neural_network import MLPClassifier, MLPRegressor

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import (
    ConfigError,
    DataError,
    ExportError,
    ExportWarning,
    ModelFileError,
    OutputError,
)
from protopinv.export import describe, quantise
from protopinv.export.c import write_c
from protopinv.export.card import card
from protopinv.export.entry import Front
from protopinv.export.steps import CURVES, Step
from protopinv.objective import Classes, Labels, Numbers
from protopinv.tables.parts import Part

GCC, NODE = shutil.which("gcc"), shutil.which("node")
needs_gcc = pytest.mark.skipif(GCC is None, reason="needs gcc")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]


def outputs(kind: str, X: np.ndarray) -> np.ndarray:
    return model(kind)._outputs(X).numpy()


def close(found: np.ndarray, kind: str, X: np.ndarray, share: float = 2e-6) -> None:
    """Equal up to rounding in float32, by the size of the outputs."""
    wanted = outputs(kind, X)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=share * np.abs(wanted).max() * 10)


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("name", ["net.h", "net_test.c"])
def test_a_file_that_nobody_named_is_replaced_by_an_export_only_if_it_is_one(
    tmp_path: Path, name: str
) -> None:
    for _ in range(2):
        model("number").export(tmp_path / "net.c")
    (tmp_path / name).write_text("/* of another program */\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OutputError, match=rf"{name} is a file of another program\. Rename it"):
        model("number").export(tmp_path / "net.c")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_description_does_what_the_model_does(kind: str) -> None:
    X, described = flat(kind), describe(model(kind).model_)
    share = 1e-5 if kind in STEMS else 1e-10  # stems work in float32
    close(described.outputs(X), kind, X, share)
    if isinstance(described.model.objective, Numbers):
        numbers = described.model.objective.decode(described.outputs(X))
        np.testing.assert_allclose(np.squeeze(numbers), model(kind).predict(X))
    else:
        found = model(kind).model_.probabilities(torch.from_numpy(described.outputs(X)))
        np.testing.assert_allclose(found, model(kind).predict_proba(X), atol=1e-4)


def test_a_layer_of_few_directions_is_two_factors() -> None:
    names = [type(step).__name__ for step in describe(model("factored").model_).steps]
    assert names == ["Shift", "Affine", "Affine", "Activate", "Affine"]
    names = [type(step).__name__ for step in describe(model("squashed").model_).steps]
    assert names[0] == "Bend"
    picked, bend, *_ = describe(model("unused").model_).steps
    assert picked.columns.tolist() == [1, 2, 3, 5, 6, 7]
    assert len(bend.chosen) == 6


def test_every_step_and_every_part_has_a_function_in_c_and_in_javascript() -> None:
    assets = resources.files("protopinv.export") / "assets"
    kinds = [kind for kind in Step.__subclasses__() if kind.__module__ == Step.__module__]
    names = {kind.__name__.lower() for kind in (*kinds, *get_args(Part))}
    assert {"affine", "look"} < names
    script = (assets / "model.mjs").read_text()
    for name in names:
        assert re.search(rf"(^  {name}: \(|^steps.{name} = )", script, flags=re.MULTILINE), name
    functions = re.findall(
        r"^static void (\w+)\(", (assets / "functions.c").read_text(), re.MULTILINE
    )
    # the columns of a frame are calls of their parts, each curve is a function of its own, and
    # branches are calls of their steps, each of which is added
    own = {"encode": "look", "bend": "squash", "sum": "add"}
    assert {own.get(name, name) for name in names} | set(CURVES) <= set(functions)


def test_kinds_of_models_are_what_they_are_called() -> None:
    # which candidates folds choose is a matter of rounding for some: most are of both sorts
    sorts = []
    for kind in ENSEMBLES:
        parts = model(kind).model_.parts
        sorts.append({part.steps is None for part in parts})
        assert sum(part.weight for part in parts) == pytest.approx(1)
    assert sorts.count({True, False}) > len(ENSEMBLES) // 2
    assert model("number").model_.objective.low is not None
    assert model("bounded numbers").model_.objective.low is not None
    for kind in ("stepped", "stepped and clipped", *BEHIND):
        fitted = model(kind).model_
        assert fitted.steps is not None
        assert not fitted.others
    assert len(model("stepped").model_.steps.raw) == 1  # the column that says yes or no
    assert model("projected steps").model_.features.basis is not None
    assert model("cut steps").model_.steps.inside is not None


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_answers_the_same_in_two_runtimes(kind: str, tmp_path: Path) -> None:
    path, X = tmp_path / "m.onnx", flat(kind)
    model(kind).export(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    rows = X.astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] == ["X"]
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": rows}), strict=True))
    other = dict(zip(names, ReferenceEvaluator(str(path)).run(None, {"X": rows}), strict=True))
    if "variable" in found:
        assert names == ["variable"]
        wanted = model(kind).predict(X).reshape(len(X), -1)
        size = np.abs(wanted).max(0)
        for each in (found, other):
            np.testing.assert_allclose(each["variable"] / size, wanted / size, 1e-5, 1e-6)
        return
    assert names == ["label", "probabilities"]
    for each in (found, other):
        np.testing.assert_allclose(each["probabilities"], model(kind).predict_proba(X), atol=1e-4)
    assert (found["label"] == model(kind).predict(X)).mean() > 0.995
    one = session.run(["label"], {"X": rows[:1]})[0]  # any number of rows
    np.testing.assert_array_equal(one[0], found["label"][0])


def test_onnx_says_what_it_is(tmp_path: Path) -> None:
    model("texts").export(tmp_path / "m.onnx")
    written = onnx.load(tmp_path / "m.onnx")
    facts = {entry.key: entry.value for entry in written.metadata_props}
    assert sorted(json.loads(facts["classes"])) == sorted(set(model("texts").classes_))
    assert facts["task"] == "classification"
    assert written.opset_import[0].version == 13
    assert not any(node.op_type == "ZipMap" for node in written.graph.node)


def compiled(source: Path, *flags: str, compiler: str | None = None) -> ctypes.CDLL:
    library = source.with_suffix(".so")
    command = [compiler or GCC, *STRICT, *flags, "-shared", "-fPIC", str(source)]
    run([*command, "-o", str(library), "-lm"])
    return ctypes.CDLL(str(library))


def call(function, X: np.ndarray, k: int, kind=ctypes.c_float) -> np.ndarray:
    """A C function from a row to k numbers, for every row."""
    found = np.zeros((len(X), k), dtype=kind)
    for row, answer in zip(np.ascontiguousarray(X, dtype=np.float32), found, strict=True):
        pointers = (row.ctypes.data_as(ctypes.c_void_p), answer.ctypes.data_as(ctypes.c_void_p))
        function(*pointers)
    return found


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_c_answers_the_same(kind: str, tmp_path: Path) -> None:
    X, source = flat(kind), tmp_path / "net.c"
    exported = model(kind).export(source)
    assert exported.files == tuple(tmp_path / name for name in ("net.c", "net.h", "net_test.c"))
    library, k = compiled(source), outputs(kind, X[:1]).shape[1]
    close(call(library.net_outputs, X, k), kind, X)
    objective = model(kind).objective_
    if isinstance(objective, Classes):
        numbers = [
            library.net_predict(row.ctypes.data_as(ctypes.c_void_p)) for row in X.astype("f4")
        ]
        assert (objective.labels[numbers] == model(kind).predict(X)).mean() > 0.995
        found = call(library.net_probabilities, X, k)
        np.testing.assert_allclose(found, model(kind).predict_proba(X), atol=1e-4)
        names = (ctypes.c_char_p * k).in_dll(library, "net_names")
        assert [name.decode() for name in names] == [str(label) for label in objective.labels]
    elif isinstance(objective, Labels):
        found = call(library.net_predict, X, k, ctypes.c_ubyte)
        assert (found == model(kind).predict(X)).mean() > 0.995
    else:
        wanted = model(kind).predict(X).reshape(len(X), -1)
        found, size = call(library.net_predict, X, k), np.abs(wanted).max(0)
        np.testing.assert_allclose(found / size, wanted / size, rtol=1e-5, atol=1e-6)


@needs_gcc
@pytest.mark.parametrize("kind", WHOLE)
def test_c_in_whole_numbers_is_its_emulator_bit_for_bit(kind: str, tmp_path: Path) -> None:
    source, seen = tmp_path / "net.c", flat(kind, seed=0)
    X = np.vstack([flat(kind), 50 * flat(kind), -50 * flat(kind)])  # far outside the ranges too
    X[0] = np.nan  # no number is as small as can be
    model(kind).export(source, dtype="int8", calibration=seen)
    emulator = quantise(describe(model(kind).model_), seen)
    library, k = compiled(source, "-O2"), model(kind).objective_.n_outputs
    np.testing.assert_array_equal(call(library.net_whole, X, k, ctypes.c_int32), emulator.whole(X))
    found = call(library.net_outputs, X, k)
    np.testing.assert_array_equal(found, emulator.outputs(X).astype(np.float32))
    same = emulator.outputs(seen).argmax(1) == outputs(kind, seen).argmax(1)
    assert same.mean() > 0.93


@needs_gcc
def test_sums_of_branches_stay_within_32_bits(tmp_path: Path) -> None:
    """Whatever rows come: outputs end at the largest number, and never turn their sign."""
    X, description = flat("ensemble"), describe(model("ensemble").model_)
    plain = quantise(description, X)
    branches = []
    for branch in plain.branches:
        *inner, last = branch.layers
        larger = replace(last, shift=np.maximum(last.shift - 8, 1))
        branches.append(replace(branch, layers=(*inner, larger)))
    overflowing = replace(plain, branches=tuple(branches))
    texts, _ = write_c(description, "net", [], overflowing)
    for end, text in texts.items():
        (tmp_path / f"net{end}").write_text(text)
    library, expected = compiled(tmp_path / "net.c", "-O2"), overflowing.whole(X)
    assert np.abs(expected).max() == 2**31 - 1
    assert np.abs(sum(branch(X) for branch in branches)).max() >= 2**31
    found = call(library.net_whole, X, expected.shape[1], ctypes.c_int32)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "n_levels", "lowest"), [("stepped", 254, -127), ("stepped and clipped", 15, -128)]
)
def test_a_step_in_whole_numbers_is_as_exact_as_these(
    kind: str, n_levels: int, lowest: int
) -> None:
    """All of int8 for a step of a straight column, and 4 bits for one of a bent column."""
    X, description = flat(kind).astype("f4"), describe(model(kind).model_)
    before, (rise, first, *_) = description.steps[:1], description.steps[1:]
    exact = rise(before[0](torch.from_numpy(X).double())).numpy()
    entry, _ = Front(before, X.astype("f8"), description.deviations).entry(rise, first)
    n_raw = len(rise.raw)
    found = (entry(X)[:, n_raw:] - lowest) / (127 - lowest)
    off = np.abs(found - exact[:, n_raw:])
    assert off.max() <= 0.5 / n_levels + 1e-3


def test_a_label_in_whole_numbers_needs_no_mathematics(tmp_path: Path) -> None:
    for kind in ("squashed", "members", "ensemble", "stepped"):
        model(kind).export(tmp_path / "net.c", dtype="int8", calibration=flat(kind))
        code = (tmp_path / "net.c").read_text()
        before = code.partition("_probabilities(")[0]
        for name in ("expf", "tanhf", "asinhf", "erff", "sqrtf", "cosf"):
            assert name not in before


@pytest.mark.parametrize("kind", BEHIND)
def test_steps_of_what_is_no_column_are_refused_in_whole_numbers(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"int8 holds steps of columns\. This model projects"):
        model(kind).export(tmp_path / "net.c", dtype="int8", calibration=flat(kind))
    assert list(tmp_path.iterdir()) == []


@needs_gcc
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["texts", "squashed", "clipped", "members", "ensemble", "stem"])
def test_stored_cases_pass_and_sanitizers_are_silent(kind: str, dtype: str, tmp_path: Path) -> None:
    if (kind, dtype) == ("stem", "int8"):
        with pytest.raises(ExportError, match=r"int8 holds layers.*convolutional stem"):
            model(kind).export(tmp_path / "net.c", dtype=dtype)
        assert list(tmp_path.iterdir()) == []
        return
    model(kind).export(tmp_path / "net.c", dtype=dtype)
    sources = [str(tmp_path / name) for name in ("net.c", "net_test.c")]
    watched = ["-fsanitize=address,undefined", "-fno-sanitize-recover", "-g"]
    program = str(tmp_path / "cases")
    run([GCC, *STRICT, *watched, *sources, "-o", program, "-lm"])
    assert "8 cases, largest difference" in run([program])


@needs_gcc
def test_the_header_serves_cpp_and_other_compilers(tmp_path: Path) -> None:
    model("texts").export(tmp_path / "my-net.c")
    user = tmp_path / "user.cpp"
    user.write_text(
        '#include "my-net.h"\nint main() { float x[6] = {}; return my_net_predict(x) < 0; }\n'
    )
    if (cpp := shutil.which("g++")) is not None:
        run([GCC, *STRICT, "-c", str(tmp_path / "my-net.c"), "-o", str(tmp_path / "net.o")])
        flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
        run([cpp, *flags, str(user), str(tmp_path / "net.o"), "-o", str(tmp_path / "user")])
        run([str(tmp_path / "user")])
    if (clang := shutil.which("clang")) is not None:
        for dtype in ("float32", "int8"):
            model("texts").export(tmp_path / "my-net.c", dtype=dtype)
            compiled(tmp_path / "my-net.c", compiler=clang)


@needs_gcc
def test_memory_is_what_is_said(tmp_path: Path) -> None:
    for kind in ("members", "squashed", "ensemble", "stepped"):
        for dtype in ("float32", "int8"):
            exported = model(kind).export(tmp_path / "net.c", dtype=dtype)
            run([GCC, *STRICT, "-O0", "-c", str(tmp_path / "net.c"), "-o", str(tmp_path / "net.o")])
            table = run(["nm", "-S", "-t", "d", str(tmp_path / "net.o")]).splitlines()
            sizes = {"r": 0, "b": 0}
            for line in table:
                parts = line.split()
                if len(parts) == 4 and parts[2].lower() in sizes:
                    sizes[parts[2].lower()] += int(parts[1])
            assert sizes["b"] == exported.static_bytes
            names = sum(len(str(label).encode()) + 5 for label in model(kind).classes_)
            assert sizes["r"] + names == exported.constant_bytes


@needs_node
@pytest.mark.parametrize("kind", KINDS)
def test_javascript_answers_the_same(kind: str, tmp_path: Path) -> None:
    X = flat(kind)
    model(kind).export(tmp_path / "net.mjs")
    (tmp_path / "rows.json").write_text(json.dumps(X.tolist()))
    (tmp_path / "use.mjs").write_text(
        'import * as net from "./net.mjs";\n'
        'import { readFileSync } from "node:fs";\n'
        "const rows = JSON.parse(readFileSync(process.argv[2]));\n"
        "const probabilities = net.predictProba ? net.predictProba(rows) : null;\n"
        "console.log(JSON.stringify({ outputs: net.outputs(rows), labels: net.predict(rows),\n"
        "  probabilities, info: net.info }));\n"
    )
    answer = json.loads(run([NODE, str(tmp_path / "use.mjs"), str(tmp_path / "rows.json")]))
    close(np.array(answer["outputs"]), kind, X)
    labels = np.array(answer["labels"], dtype=object)
    if answer["probabilities"] is None:
        np.testing.assert_allclose(
            labels.astype(float), model(kind).predict(X), rtol=1e-5, atol=1e-6
        )
        return
    assert (labels == model(kind).predict(X)).mean() > 0.995
    np.testing.assert_allclose(answer["probabilities"], model(kind).predict_proba(X), atol=1e-5)
    if kind == "texts":
        assert answer["info"]["classes"] == model(kind).classes_.tolist()


@needs_node
def test_javascript_refuses_rows_it_was_not_made_for(tmp_path: Path) -> None:
    model("classes").export(tmp_path / "net.mjs")
    program = (
        f'import {{ predict }} from "{tmp_path}/net.mjs";\n'
        "for (const rows of [[[1, 2]], [[1, 2, 3, 4, 5, NaN]], 3]) {\n"
        "  try { predict(rows); console.log('taken'); } catch (e) { console.log(e.message); }\n}\n"
    )
    said = run([NODE, "--input-type=module", "-e", program]).splitlines()
    assert said[0] == "Rows must have 6 numbers. Row 0 has 2."
    assert said[1] == "Rows must hold finite numbers. Row 0 holds NaN."
    assert said[2].startswith("Rows must be an array.")


@pytest.mark.parametrize("kind", KINDS)
def test_a_torch_module_answers_the_same_and_learns(kind: str) -> None:
    X = flat(kind)
    module = model(kind).to_torch()
    found = module(torch.from_numpy(X).float())
    wanted = outputs(kind, X)
    if vars(model(kind).model_.objective).get("low") is not None:  # within bounds
        wanted = model(kind).predict(X).reshape(len(X), -1)
    np.testing.assert_allclose(found.detach(), wanted, atol=2e-5 * np.abs(wanted).max())
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learn_is_given_its_own_network_or_told_why_not(kind: str) -> None:
    X, estimator = flat(kind), model(kind)
    is_one = not estimator.model_.others and estimator.model_.steps is None
    held = (
        is_one
        and estimator.front_ is None
        and estimator.network_.activation
        in (
            "relu",
            "tanh",
            "sigmoid",
            "identity",
        )
    )
    if not held:
        with pytest.raises(ExportError, match="scikit-learn's networks have"):
            estimator.to_sklearn()
        return
    network = estimator.to_sklearn()
    if hasattr(estimator, "predict_proba"):
        assert type(network) is MLPClassifier
        np.testing.assert_array_equal(network.predict(X), estimator.predict(X))
        found = network.predict_proba(X)
        np.testing.assert_allclose(found, estimator.predict_proba(X), atol=1e-12)
    else:
        assert type(network) is MLPRegressor
        np.testing.assert_allclose(network.predict(X), estimator.predict(X), rtol=1e-12)
    again = clone_of(network)
    again.partial_fit(X, estimator.predict(X))
    assert np.isfinite(again.loss_)
    assert not np.array_equal(again.coefs_[0], network.coefs_[0])


def clone_of(network):
    """A fitted network with weights of its own."""
    return pickle.loads(pickle.dumps(network))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_smaller_files_predict_nearly_the_same(kind: str, dtype: str, tmp_path: Path) -> None:
    X, path = flat(kind), tmp_path / "m.safetensors"
    exported = model(kind).export(path, dtype=dtype, X=given(kind, 1))
    small = load(path)
    found, wanted = small._outputs(X).numpy(), outputs(kind, X)
    off = np.sqrt(((found - wanted) ** 2).mean()) / wanted.std()
    assert off <= {"float64": 0, "float32": 1e-6, "float16": 2e-2, "int8": 0.2}[dtype]
    assert exported.change["rows"] == len(X)
    with pytest.raises(ModelFileError, match="prototypes of a model"):
        small.diagnose()


def test_a_model_without_its_bank_cannot_go_on_and_one_with_it_can(tmp_path: Path) -> None:
    X, path = flat("classes"), tmp_path / "m.safetensors"
    y = model("classes").predict(X)
    for bank in (True, False):
        model("classes").save(path, bank=bank)
        back = load(path).set_params(warm_start=True, max_epochs=1)
        if bank:
            here = deepcopy(model("classes")).set_params(warm_start=True, max_epochs=1)
            answers = [each.fit(X, y).predict_proba(X) for each in (back, here)]
            np.testing.assert_array_equal(*answers)
            continue
        with pytest.raises(ModelFileError, match="prototypes of a model"):
            back.fit(X, y)


def test_what_the_change_costs_is_said(tmp_path: Path) -> None:
    X = flat("classes")
    y = model("classes").predict(X)
    exported = model("classes").export(tmp_path / "net.c", dtype="int8", X=X, y=y)
    assert exported.change["accuracy_before"] == 1
    assert exported.change["accuracy_after"] == exported.change["same_labels"] > 0.9
    numbers = model("number").export(
        tmp_path / "net.c", dtype="int8", X=X, y=model("number").predict(X)
    )
    assert numbers.change["r2_before"] == pytest.approx(1)
    assert 0.9 < numbers.change["r2_after"] < 1
    with pytest.raises(ConfigError, match="Targets belong to rows"):
        model("number").export(tmp_path / "net.c", y=y)


def test_formats_say_what_they_cannot_hold_before_they_write(tmp_path: Path) -> None:
    estimator = model("classes")
    for name, options, message in [
        ("m.onnx", {"dtype": "int8"}, "ONNX is written in float32"),
        ("m.mjs", {"dtype": "float16"}, "JavaScript is written in float32"),
        ("ün.c", {}, "letters, digits"),
    ]:
        with pytest.raises(ExportError, match=message):
            estimator.export(tmp_path / name, **options)
    for name in ("m.pkl", "m", "m.C"):
        with pytest.raises(
            OutputError, match=r"export must end in \.onnx, .* Got '.*'\. Rename it"
        ):
            estimator.export(tmp_path / name)
    with pytest.raises(OutputError, match="is no"):
        estimator.export(tmp_path / "no" / "m.c")
    with pytest.raises(ConfigError, match="numbers of a model file must be"):
        estimator.export(tmp_path / "m.safetensors", dtype="int4")
    assert list(tmp_path.iterdir()) == []


def test_whole_numbers_without_rows_are_calibrated_on_rows_that_are_made_up(tmp_path: Path) -> None:
    X = flat("classes")
    model("classes").save(tmp_path / "m.safetensors")
    with pytest.warns(ExportWarning, match="made-up rows took their place"):
        exported = load(tmp_path / "m.safetensors").export(tmp_path / "m.c", dtype="int8", X=X)
    assert exported.change["same_labels"] > 0.95


def far_off(scale: float, target: float = 1.0) -> ProtoPINVRegressor:
    """A regressor with one feature, and one target of two, of another size than the rest."""
    X = given("numbers") * np.array([scale, 1, 1, 1, 1, 1])
    y = np.column_stack([X[:, 0] / scale, X[:, 4]]) * np.array([target, 1.0])
    return ProtoPINVRegressor(n_prototypes=12, hidden_sizes=30, max_epochs=20, random_state=0).fit(
        X, y
    )


def test_what_float32_loses_is_told_and_what_it_cannot_hold_refused(tmp_path: Path) -> None:
    X = given("numbers")
    estimator = type(model("number"))(**{**model("number").get_params(), "scaling": "feature"})
    stamps = X + np.array([1.7e9, 0, 0, 0, 0, 0])  # seconds, of which float32 knows hundreds
    estimator.fit(stamps, X[:, 0])
    exported = estimator.export(tmp_path / "net.onnx", X=stamps)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    found = session.run(None, {"X": stamps.astype(np.float32)})[0][:, 0]
    wanted = estimator.predict(stamps)
    off = np.sqrt(((found - wanted) ** 2).mean()) / wanted.std()
    assert exported.change["difference_by_spread"] == pytest.approx(off, rel=0.05)
    assert off > 0.1
    with pytest.raises(ExportError, match="holds numbers of float32"):
        far_off(1e-42).export(tmp_path / "net.c")
    assert not (tmp_path / "net.c").exists()


@needs_gcc
def test_targets_of_other_sizes_have_scales_of_their_own(tmp_path: Path) -> None:
    estimator = far_off(1.0, 1e7)
    X = given("numbers")
    exported = estimator.export(tmp_path / "net.c", dtype="int8", calibration=X, X=X)
    assert exported.change["difference_by_spread"] < 0.2  # of either
    found = call(compiled(tmp_path / "net.c").net_predict, X, 2)
    wanted = estimator.predict(X)
    assert (np.sqrt(((found - wanted) ** 2).mean(0)) < 0.2 * wanted.std(0)).all()
    for dtype in ("float32", "int8"):  # stored cases are judged in the units of each output
        estimator.export(tmp_path / "net.c", dtype=dtype, calibration=None)
        sources = [str(tmp_path / name) for name in ("net.c", "net_test.c")]
        run([GCC, *STRICT, *sources, "-o", str(tmp_path / "cases"), "-lm"])
        run([str(tmp_path / "cases")])


def test_many_rows_of_large_numbers_are_not_rounded_away(monkeypatch) -> None:
    """Thin factors of the first layer must hold for a feature whose weights are tiny."""
    monkeypatch.setattr("protopinv.network.MUCH_WORK", 1)
    X = given("numbers") * np.array([1e14, 1, 1, 1, 1, 1])
    estimator = ProtoPINVClassifier(
        n_prototypes=2, hidden_sizes=40, max_epochs=5, scaling="feature", random_state=0
    ).fit(X, X[:, 0] > 0)
    many, one_by_one = estimator.predict_proba(X), [estimator.predict_proba(x[None]) for x in X]
    np.testing.assert_allclose(many, np.vstack(one_by_one), atol=1e-9)


def test_rows_to_compare_on_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    estimator, X = model("classes"), flat("classes")
    y = estimator.predict(X)
    column = estimator.export(tmp_path / "a.safetensors", dtype="int8", X=X, y=y[:, None])
    assert column.change["accuracy_before"] == 1
    for options, message in [
        ({"X": X[:, :3]}, "features"),
        ({"X": X, "y": np.r_[y, y]}, "one row per sample"),
        ({"X": X * np.inf}, "infinity"),
        ({"calibration": X[:, :3], "dtype": "int8"}, "features"),
        ({"calibration": X}, "Calibration is for int8"),
    ]:
        with pytest.raises((ConfigError, DataError), match=message):
            estimator.export(tmp_path / "net.c", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_network_that_answers_with_a_constant_is_exported_too(tmp_path: Path) -> None:
    X = np.ones((60, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = ProtoPINVRegressor(n_prototypes=5, hidden_sizes=6, max_epochs=3).fit(
            X, np.arange(60.0)
        )
    for name in ("net.onnx", "net.c", "net.mjs", "small.safetensors"):
        estimator.export(tmp_path / name)
    assert "# m" in card(estimator.model_, "m", "1")


def test_rows_stay_at_home_unless_asked(tmp_path: Path) -> None:
    X = given("numbers")
    marked = X.copy()
    marked[0, 0] = 1234.5625  # the first row is among the examples
    estimator = ProtoPINVRegressor(n_prototypes=5, hidden_sizes=6, max_epochs=3).fit(
        marked, X[:, 0]
    )
    for examples in (True, False):
        estimator.export(tmp_path / "net.c", examples=examples)
        estimator.export(tmp_path / "net.safetensors", examples=examples)
        assert ("1234.5625" in (tmp_path / "net_test.c").read_text()) == examples
        raw = np.array([1234.5625]).tobytes()
        assert (raw in (tmp_path / "net.safetensors").read_bytes()) == examples


def test_labels_that_a_format_would_change_are_refused(tmp_path: Path) -> None:
    X = given("classes")
    large = np.where(X[:, 0] > 0, 2**53 + 1, 3)
    estimator = ProtoPINVClassifier(n_prototypes=5, hidden_sizes=6, max_epochs=3).fit(X, large)
    with pytest.raises(ExportError, match="Labels of JavaScript"):
        estimator.export(tmp_path / "net.mjs")
    estimator.export(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    found = session.run(["label"], {"X": X.astype(np.float32)})[0]
    assert set(found.tolist()) <= {2**53 + 1, 3}
    zero = np.where(X[:, 0] > 0, "a\0b", "c").astype(object)
    estimator.fit(X, zero)
    with pytest.raises(ExportError, match="zero byte"):
        estimator.export(tmp_path / "net.c")
    with pytest.raises(ExportError, match=r"math\.h is one"):
        model("classes").export(tmp_path / "math.c")
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_names_from_strangers_stay_names(tmp_path: Path) -> None:
    import pandas as pd

    names = [*HOSTILE, "plain"]
    X = pd.DataFrame(flat("texts"), columns=names)
    estimator = type(model("texts"))(**model("texts").get_params())
    estimator.fit(X, np.array(HOSTILE, dtype=object)[np.arange(len(X)) % 5])
    if GCC is not None:
        estimator.export(tmp_path / "net.c")
        compiled(tmp_path / "net.c", "-Wcomment")
        assert "*/ int x" not in (tmp_path / "net.h").read_text()  # all of it is in comments
    estimator.export(tmp_path / "net.mjs")
    script = (tmp_path / "net.mjs").read_text()
    assert "</script>" not in script
    if NODE is not None:
        program = f'import {{ info }} from "{tmp_path}/net.mjs"; console.log(JSON.stringify(info));'
        info = json.loads(run([NODE, "--input-type=module", "-e", program]))
        assert info["features"] == names
        assert info["classes"] == sorted(HOSTILE)
    estimator.export(tmp_path / "net.onnx")
    facts = {entry.key: entry.value for entry in onnx.load(tmp_path / "net.onnx").metadata_props}
    assert json.loads(facts["feature_names"]) == names


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_javascript_runs_inside_a_page(tmp_path: Path) -> None:
    """With class names that would end the script, if they were not escaped."""
    X = flat("texts")[:5]
    model("texts").export(tmp_path / "net.mjs")
    script = (tmp_path / "net.mjs").read_text()
    use = (
        f"const rows = {X.tolist()};\n"
        "document.body.textContent = JSON.stringify([predict(rows), predictProba(rows)]);"
    )
    page = tmp_path / "page.html"
    page.write_text(f'<meta charset="utf-8"><body><script type="module">\n{script}\n{use}</script>')
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    shown = run(
        [CHROMIUM, *flags, profile, "--virtual-time-budget=5000", "--dump-dom", page.as_uri()]
    )
    text = html.unescape(shown.partition("<body>")[2].partition("</body>")[0])
    labels, probabilities = json.loads(text)
    assert labels == model("texts").predict(X).tolist()
    np.testing.assert_allclose(probabilities, model("texts").predict_proba(X), atol=1e-5)
