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


def main() -> None:
    """All kinds with their bank, and some smaller ones without."""
    for kind in KINDS:
        write(kind, kind.replace(" ", "-"))
    for kind, dtype in SMALLER:
        write(kind, f"{kind}-{dtype}", bank=False, dtype=dtype)


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
