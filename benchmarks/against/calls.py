"""What a call passes through: files, functions and depth, of whatever protopinv is imported.

python -m benchmarks.against.calls traces the four calls of most users and prints JSON. It calls
what users can call and nothing else, so that older versions can run it too.
"""

import contextlib
import csv
import io
import json
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

from sklearn.datasets import load_iris


class Tracer:
    """Counts files and functions of one folder that are entered, and how deep they are nested.

    Comprehensions and lambdas belong to the function they stand in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.functions: set[tuple[str, str]] = set()
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """The function that Python calls for every call."""
        if event != "call" or not self._counts(frame):
            return
        self.functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))
        depth, outer = 0, cast(FrameType | None, frame)
        while outer is not None:
            depth += self._counts(outer)
            outer = outer.f_back
        self.depth = max(self.depth, depth)

    def _counts(self, frame: FrameType) -> bool:
        code = frame.f_code
        return code.co_filename.startswith(self.folder) and not code.co_name.startswith("<")


def traced(call: Callable[[], Any], folder: Path) -> dict[str, int]:
    """Files, functions and depth of one call, in all of its threads."""
    tracer = Tracer(folder)
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {file for file, _ in tracer.functions}
    return {"files": len(files), "functions": len(tracer.functions), "depth": tracer.depth}


def calls() -> dict[str, dict[str, int]]:
    """The four calls of most users, on iris."""
    import protopinv
    from protopinv.cli import main

    folder = Path(protopinv.__file__).parent
    X, y = load_iris(return_X_y=True)
    model = protopinv.ProtoPINVClassifier(random_state=0)
    counts = {
        "fit": traced(lambda: model.fit(X, y), folder),
        "predict_proba": traced(lambda: model.predict_proba(X), folder),
        "partial_fit": traced(lambda: model.partial_fit(X[:30], y[:30]), folder),
    }
    with tempfile.TemporaryDirectory() as name:
        table, saved = Path(name) / "iris.csv", Path(name) / "m.safetensors"
        with table.open("w", newline="") as file:
            rows = [[*row, label] for row, label in zip(X.tolist(), y.tolist(), strict=True)]
            csv.writer(file).writerows([["a", "b", "c", "d", "species"], *rows])
        sys.argv = ["protopinv", "train", str(table), "--target", "species", "-o", str(saved)]

        def train() -> None:
            with contextlib.suppress(SystemExit):
                main()
            if not saved.exists():
                raise RuntimeError("protopinv train has written no model")

        streams = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            counts["protopinv train"] = traced(train, folder)
    return counts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(calls()))
