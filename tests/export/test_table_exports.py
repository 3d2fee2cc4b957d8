"""Models of frames outside Python: the same answers from the same values."""

import ctypes
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import ExportError, UnreadableWarning
from protopinv.estimators.rows import rows_to_predict
from protopinv.export import describe
from protopinv.rows import frame_columns
from protopinv.tables.values import DATE_FORMATS, ISO, values_of

N = 1_500
GCC, CLANG, NODE = map(shutil.which, ("gcc", "clang", "node"))
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
# Two forms that both read most dates: whoever comes first is taken, and that is another test.
AMBIGUOUS = tuple(form for form in DATE_FORMATS if form.startswith("%d/%m/%Y"))
HOSTILE = '</script>*/ "q\n?'
RANKS, FIELDS = ("junior", "senior", "chief"), ("nurse", "driver", "clerk", "cook", "pilot")
PLACES = ("school", "harbour", "museum", "station")


def people() -> pd.DataFrame:
    """Every kind of column, gaps, a name that answers have, and names that try to escape."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, N).astype(float),
            "label": random.choice(["Rome", "Oslo", HOSTILE], N).astype(object),
            HOSTILE: random.choice([f"street {k}" for k in range(60)], N).astype(object),
            "member": random.random(N) < 0.5,
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, N), "D"),
            "seen": pd.Timestamp("1969-01-01") + pd.to_timedelta(random.integers(0, 10**6, N), "m"),
            "id": [f"customer {k}" for k in range(N)],
            "title": [" ".join(map(random.choice, (RANKS, FIELDS, PLACES))) for _ in range(N)],
            "note": [
                f"{' '.join(random.choice(FIELDS + PLACES + RANKS, 4))} number {k}"
                for k in range(N)
            ],
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "label"] = None
    frame.loc[::13, "seen"] = pd.NaT
    return frame


def others() -> pd.DataFrame:
    """Rows with values that were never there."""
    frame = people().head(200)
    frame.loc[::3, "label"] = "Paris"
    frame["age"] = np.linspace(-50, 200, 200)
    return frame


@pytest.fixture(scope="module")
def classifier() -> ProtoPINVClassifier:
    X = people()
    y = np.where((X["label"] == "Rome") | (X["age"] > 60), "yes", HOSTILE)
    return ProtoPINVClassifier(effort="quick", max_epochs=8, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def regressor() -> ProtoPINVRegressor:
    X = people()
    y = X["age"].fillna(30) + 20 * (X["label"] == "Rome")
    return ProtoPINVRegressor(effort="quick", max_epochs=8, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def gone_on() -> ProtoPINVClassifier:
    """With a label and streets that came after the fit."""
    X = people()
    y = np.where((X["label"] == "Rome") | (X["age"] > 60), "yes", HOSTILE)
    model = ProtoPINVClassifier(effort="quick", max_epochs=8, random_state=0)
    known = X[HOSTILE] > "street 2"
    model.fit(X[known], y[known])
    late = X.assign(label=X["label"].where(np.arange(N) % 3 > 0, "Paris"))[~known]
    model.partial_fit(late, np.where(late["label"] == "Paris", "yes", HOSTILE))
    assert "label = Paris" in model.table_.feature_names
    assert len(model.table_.columns[2].values) == 60 > len(set(X[HOSTILE][known]))
    return model


SMALL = {"n_prototypes": 12, "hidden_sizes": 10, "max_epochs": 8, "random_state": 0}


@pytest.fixture(scope="module")
def ensemble() -> ProtoPINVClassifier:
    """Networks on numbers and networks on steps, whose outputs are added up."""
    X = people()
    y = np.where((X["label"] == "Rome") | (X["age"] % 20 < 10), "yes", HOSTILE)
    return averaged(ProtoPINVClassifier, X, y)


def averaged(kind: Any, X: Any, y: Any) -> Any:
    """An ensemble of one network on numbers and one on steps, whatever folds would have chosen."""
    raw, stepped = (
        kind(**SMALL, ensemble_size=1, number_encoding=encoding).fit(X, y)
        for encoding in ("raw", "both")
    )
    halves = [replace(model.model_, weight=0.5) for model in (raw, stepped)]
    raw.model_ = halves[0].joined(halves[1:])
    assert [part.steps is None for part in raw.model_.parts] == [True, False]
    return raw


@pytest.fixture(scope="module")
def ensemble_of_numbers() -> ProtoPINVRegressor:
    X = people()
    y = X["age"].fillna(30) + 20 * (X["label"] == "Rome")
    model = averaged(ProtoPINVRegressor, X, y)
    assert model.objective_.low is not None
    return model


KINDS = ["classifier", "regressor", "gone_on", "ensemble", "ensemble_of_numbers"]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def model_rows(model: Any, X: pd.DataFrame) -> np.ndarray:
    """The codes of rows, as ``Model.outputs`` takes them."""
    return rows_to_predict(model, X, model.model_)


def answers(model: Any, X: pd.DataFrame) -> np.ndarray:
    if isinstance(model, ProtoPINVClassifier):
        return model.predict_proba(X)
    return model.predict(X)[:, None] / 100


def test_the_parts_of_a_table_are_what_the_table_does(model: Any) -> None:
    codes, encode = model_rows(model, others()), describe(model.model_).encode
    features = encode(torch.from_numpy(codes - encode.origins))
    np.testing.assert_allclose(features, model.table_.features(codes), atol=1e-9)


def test_onnx_takes_a_column_each(model: Any, tmp_path: Path) -> None:
    X, path = others(), tmp_path / "m.onnx"
    model.export(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path)
    assert [given.name for given in session.get_inputs()][:2] == ["age", "label_"]
    columns, feed = frame_columns(X), {}
    for given, column in zip(session.get_inputs(), model.table_.columns, strict=True):
        values = values_of(columns[column.source], column.source)
        if column.kind == "category":
            texts = [text or "" for text in values.as_texts()]
            feed[given.name] = np.array(texts, dtype=object)[:, None]
        else:
            kind = np.float64 if column.kind == "date" else np.float32
            feed[given.name] = column.code(values).astype(kind)[:, None]
    is_classifier = isinstance(model, ProtoPINVClassifier)
    name = "probabilities" if is_classifier else "variable"
    found = session.run([name], feed)[0] / (1 if is_classifier else 100)
    np.testing.assert_allclose(found, answers(model, X), atol=1e-4)


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_javascript_takes_values_as_they_are(model: Any, tmp_path: Path) -> None:
    X = others()
    model.export(tmp_path / "m.mjs")
    dates = {name: X[name].dt.strftime("%Y-%m-%dT%H:%M:%S") for name in ("joined", "seen")}
    codes = dict(zip(model.model_.used_names, model_rows(model, X).T, strict=True))
    texts = {name: code for name, code in codes.items() if "n-grams" in name}
    assert texts
    rows = json.loads(X.assign(**dates, **texts).to_json(orient="records", double_precision=15))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    call = "predictProba" if isinstance(model, ProtoPINVClassifier) else "predict"
    (tmp_path / "t.mjs").write_text(
        "import * as m from './m.mjs';\nimport fs from 'fs';\n"
        "const rows = JSON.parse(fs.readFileSync('rows.json'));\n"
        "const arrays = rows.map((row) => m.columns.map(({ name }) => row[name]));\n"
        f"console.log(JSON.stringify([m.{call}(rows), m.{call}(arrays)]));\n"
        "for (const bad of [[{}], [3], [[1]], 3, [arrays[0].with(0, Infinity)]])\n"
        "  try { m.predict(bad); console.log('accepted'); } catch (e) { console.log(e.message); }\n"
    )
    command = [NODE, "t.mjs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    first, *refused = done.stdout.splitlines()
    for each in json.loads(first):
        scale = 1 if call == "predictProba" else 100
        found = np.array(each, dtype=float).reshape(len(X), -1) / scale
        np.testing.assert_allclose(found, answers(model, X), atol=5e-6)
    assert [line[:9] for line in refused] == ["Rows must"] * 4 + ["Numbers m"]


@pytest.mark.skipif(GCC is None, reason="needs gcc")
def test_c_takes_codes_and_knows_the_names_of_categories(model: Any, tmp_path: Path) -> None:
    X = others()
    model.export(tmp_path / "m.c")
    watched = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    for compiler, flags in ((GCC, watched), (CLANG, [])):
        if compiler is None:
            continue
        command = [compiler, *STRICT, *flags, "m.c", "m_test.c", "-lm", "-o", "t"]
        subprocess.run(command, cwd=tmp_path, check=True)
        subprocess.run(["./t"], cwd=tmp_path, check=True, capture_output=True)
    command = [GCC, "-std=c99", "-shared", "-fPIC", "m.c", "-lm", "-o", "m.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "m.so"))
    library.m_code.restype = ctypes.c_float
    columns = model.table_.columns
    for number, column in enumerate(columns):
        values = column.values if column.kind == "category" else ()
        found = [library.m_code(number, value.encode()) for value in values]
        assert found == list(range(len(values)))
        assert library.m_code(number, b"nobody") == -1
    rows = describe(model.model_).rows(model_rows(model, X)).astype(np.float32)
    is_classifier = isinstance(model, ProtoPINVClassifier)
    call = library.m_probabilities if is_classifier else library.m_predict
    found = np.empty((len(rows), model.objective_.n_outputs), np.float32)
    for row, answer in zip(np.ascontiguousarray(rows), found, strict=True):
        call(row.ctypes.data_as(ctypes.c_void_p), answer.ctypes.data_as(ctypes.c_void_p))
    np.testing.assert_allclose(found / (1 if is_classifier else 100), answers(model, X), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
def test_smaller_files_predict_nearly_the_same(model: Any, dtype: str, tmp_path: Path) -> None:
    X = others()
    model.export(tmp_path / "m.safetensors", dtype=dtype)
    back = load(tmp_path / "m.safetensors")
    assert len(back.model_.parts) == len(model.model_.parts)
    found, expected = answers(back, X), answers(model, X)
    off = np.sqrt(((found - expected) ** 2).mean()) / expected.std()
    assert off <= {"float64": 0, "float32": 1e-6, "float16": 2e-2, "int8": 0.2}[dtype]


def test_a_frame_is_refused_in_whole_numbers(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"takes rows of numbers\. This model takes a fr"):
        model.export(tmp_path / "m.c", dtype="int8")
    assert list(tmp_path.iterdir()) == []


def test_an_export_says_what_it_moves(classifier: ProtoPINVClassifier, tmp_path: Path) -> None:
    X = others()
    exported = classifier.export(tmp_path / "m.c", X=X, y=classifier.predict(X))
    assert exported.change["same_labels"] == 1
    assert exported.change["accuracy_before"] == 1


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_javascript_reads_dates_in_every_form_that_python_does(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    moments = pd.Timestamp("2019-01-31") + pd.to_timedelta(random.integers(0, 10**6, 300), "m")
    forms = [form for form in DATE_FORMATS if form not in (ISO, *AMBIGUOUS)]
    X = pd.DataFrame({form: [m.strftime(form) for m in moments] for form in forms})
    model = ProtoPINVRegressor(effort="quick", max_epochs=3, random_state=0)
    model.fit(X, moments.day_of_year.to_numpy(dtype=float))
    assert [column.form for column in model.table_.columns] == forms
    X.iloc[0] = "31 of never"  # no date in any form
    model.export(tmp_path / "m.mjs")
    (tmp_path / "rows.json").write_text(X.to_json(orient="records"))
    (tmp_path / "t.mjs").write_text(
        "import * as m from './m.mjs';\nimport fs from 'fs';\n"
        "console.log(JSON.stringify(m.predict(JSON.parse(fs.readFileSync('rows.json')))));\n"
    )
    done = subprocess.run([NODE, "t.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    with pytest.warns(UnreadableWarning):
        expected = model.predict(X)
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-4)


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_javascript_reads_numbers_in_every_form_that_python_does(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(0, 2_000, 300).round(2)
    dollars = [f"${x:,.2f}" if x > 0 else f"(${-x:,.2f})" for x in numbers]
    X = pd.DataFrame(
        {
            "$1,234.56": dollars,
            "1.234,56 €": [f"{x:,.2f} €".translate(str.maketrans(",.", ".,")) for x in numbers],
            "1 234,56": [f"{x:,.2f}".translate(str.maketrans(",.", "\u00a0,")) for x in numbers],
            "1'234.56": [f"{x:,.2f}".replace(",", "\u2019") for x in numbers],
            "1,234.56 m2": [f"{x:.2f} m2".replace("-", "\u2212") for x in numbers],
            "20:51": [f"{int(abs(x)) % 24}:{int(abs(x)) % 60:02}" for x in numbers],
            "20:51:36": [f"{int(abs(x))}:{int(abs(x)) % 60:02}:07.5" for x in numbers],
        }
    )
    model = ProtoPINVRegressor(effort="quick", max_epochs=3, random_state=0).fit(X, numbers)
    assert [column.form for column in model.table_.columns] == list(X)
    X.iloc[0], X.iloc[1] = "--5", "."  # no number in any form
    X.iloc[2] = "-"  # a gap
    model.export(tmp_path / "m.mjs")
    (tmp_path / "rows.json").write_text(X.to_json(orient="records"))
    (tmp_path / "t.mjs").write_text(
        "import * as m from './m.mjs';\nimport fs from 'fs';\n"
        "console.log(JSON.stringify(m.predict(JSON.parse(fs.readFileSync('rows.json')))));\n"
    )
    done = subprocess.run([NODE, "t.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    with pytest.warns(UnreadableWarning):
        expected = model.predict(X)
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-5)
