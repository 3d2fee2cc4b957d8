"""Write the golden files that are missing: one of each kind, and what it predicts.

    python tests/golden/make.py

A file that is there is never written again: it stands for the version that wrote it.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "export"))

from export_kinds import KINDS, flat, model  # noqa: E402

SMALLER = [("factored", "int8"), ("classes", "float16"), ("number", "float32")]
SMALLER += [("ensemble", "int8"), ("projected steps", "float16")]


def main() -> None:
    """All kinds with their bank, and some smaller ones without."""
    for kind in KINDS:
        write(kind, kind.replace(" ", "-"))
    for kind, dtype in SMALLER:
        write(kind, f"{kind}-{dtype}".replace(" ", "-"), bank=False, dtype=dtype)
    write_frame()
    write_ngrams()
    write_continued()
    write_long_names()


def write_long_names() -> None:
    """A model of a frame whose names are longer than a header."""
    path = HERE / "long-names.safetensors"
    if path.exists():
        return
    import pandas as pd

    from protopinv import ProtoPINVClassifier

    random = np.random.default_rng(0)
    rows = np.round(random.normal(size=(60, 120)), 3)
    names = [f"column {k}, {'ünïcode ' * 20}" for k in range(120)]
    y = np.where(rows[:, 0] > 0, "yes", "no")
    small = {"n_prototypes": 4, "hidden_sizes": 3, "n_members": 1, "max_epochs": 5, "memory": 0}
    made = ProtoPINVClassifier(early_stopping=False, scaling="feature", random_state=0, **small)
    made.fit(pd.DataFrame(rows, columns=names), y).save(path)
    frame = pd.DataFrame(rows[:5], columns=names)
    answers = {"rows": rows[:5].tolist(), "predictions": made.predict(frame).tolist()}
    answers["probabilities"] = np.round(made.predict_proba(frame), 9).tolist()
    path.with_suffix(".json").write_text(json.dumps(answers) + "\n")


def write_continued() -> None:
    """A model that learned a class after its fit, with directions and tails in its memory."""
    path = HERE / "continued.safetensors"
    if path.exists():
        return
    from protopinv import ProtoPINVClassifier

    random = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = np.round(random.normal(size=(300, 12)) + 3 * np.eye(12)[y], 3)
    small = {"n_prototypes": 8, "hidden_sizes": 6, "n_members": 1, "max_epochs": 5, "memory": 150}
    made = ProtoPINVClassifier(early_stopping=False, scaling="feature", random_state=0, **small)
    made.fit(X[y < 2], y[y < 2]).partial_fit(X[y == 2], y[y == 2]).freeze(4).save(path)
    kept = {"rows": X[:5].tolist(), "predictions": made.predict(X[:5]).tolist()}
    kept["probabilities"] = np.round(made.predict_proba(X[:5]), 9).tolist()
    path.with_suffix(".json").write_text(json.dumps(kept) + "\n")


def write_frame() -> None:
    """A model of a table with every kind of column."""
    path = HERE / "frame.safetensors"
    if path.exists():
        return
    import pandas as pd

    from protopinv import ProtoPINVClassifier

    random, n = np.random.default_rng(0), 1_200
    X = pd.DataFrame(
        {
            "age": [None if k % 7 == 0 else float(random.integers(18, 60)) for k in range(n)],
            "city": [random.choice(["Rome", "Oslo", None]) for _ in range(n)],
            "street": [f"street {random.integers(40)}" for _ in range(n)],
            "since": [f"{2015 + k % 5}-0{1 + k % 9}-10 1{k % 10}:30" for k in range(n)],
            "id": [f"customer {k}" for k in range(n)],
        }
    )
    y = np.where((X["city"] == "Rome") | (X["age"] > 45), "yes", "no")
    made = ProtoPINVClassifier(
        n_prototypes=8, hidden_sizes=6, n_members=1, max_epochs=5, early_stopping=False
    )
    made.set_params(random_state=0).fit(X, y).save(path)
    rows = X.head(5).astype(object).where(X.head(5).notna(), None).to_numpy()
    frame = pd.DataFrame(rows, columns=X.columns)
    kept = {"rows": rows.tolist(), "predictions": made.predict(frame).tolist()}
    kept["probabilities"] = np.round(made.predict_proba(frame), 9).tolist()
    path.with_suffix(".json").write_text(json.dumps(kept) + "\n")


def write_ngrams() -> None:
    """A model of a category whose values share words, and of text that never repeats."""
    path = HERE / "frame-ngrams.safetensors"
    if path.exists():
        return
    import pandas as pd

    from protopinv import ProtoPINVClassifier

    fields, places = ("nurse", "driver", "clerk", "pilot"), ("school", "museum", "harbour", "bank")
    titles = [f"{rank} {f}, {p}" for f in fields for p in places for rank in ("senior", "chief")]
    random = np.random.default_rng(0)
    words = [*fields, *places, "meets", "leaves"]
    X = pd.DataFrame(
        {
            "title": (titles * 2)[:54],
            "note": [" ".join(random.choice(words, 4)) + f" {k}" for k in range(54)],
        }
    )
    y = np.where(X["title"].str.contains("nurse|pilot"), "yes", "no")
    small = {"n_prototypes": 4, "hidden_sizes": 3, "n_members": 1, "max_epochs": 5, "memory": 0}
    made = ProtoPINVClassifier(early_stopping=False, scaling="feature", random_state=0, **small)
    made.fit(X, y).save(path)
    rows = [*X.head(4).to_numpy().tolist(), ["Chief of pilots, bank", None]]
    frame = pd.DataFrame(rows, columns=X.columns)
    answers = {"rows": rows, "predictions": made.predict(frame).tolist()}
    answers["probabilities"] = np.round(made.predict_proba(frame), 9).tolist()
    path.with_suffix(".json").write_text(json.dumps(answers) + "\n")


def write(kind: str, name: str, **options: object) -> None:
    """One file, with its predictions beside it."""
    path = HERE / f"{name}.safetensors"
    if path.exists():
        return
    from protopinv import load

    model(kind).save(path, **options)
    X, written = flat(kind)[:5], load(path)
    kept = {"rows": X.tolist(), "predictions": written.predict(X).tolist()}
    if hasattr(written, "predict_proba"):
        kept["probabilities"] = np.round(written.predict_proba(X), 9).tolist()
    path.with_suffix(".json").write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
