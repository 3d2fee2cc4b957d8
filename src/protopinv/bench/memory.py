"""Peak memory of a fit over its data: ``python -m protopinv.bench.memory``, in a process alone.

Linux only: the highest resident size while a model is fitted, less the size just before, when the
images and all packages are loaded and every library has been used once.
"""

from pathlib import Path

from protopinv.bench.shape import SHAPE
from protopinv.data import load_data
from protopinv.estimators import ProtoPINVClassifier

STATUS = Path("/proc/self/status")


def peak_megabytes() -> float:
    """Of three full-batch epochs on MNIST with the paper's shape."""
    data = load_data("mnist", split="train")
    ProtoPINVClassifier(n_prototypes=4, hidden_sizes=4, max_epochs=1).fit(
        data.X[:100], data.y[:100]
    )
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _resident("VmRSS")
    short = {**SHAPE, "max_epochs": 3, "warmup_epochs": 1, "validation_fraction": 0.1}
    ProtoPINVClassifier(**short).fit(data.X, data.y)
    return (_resident("VmHWM") - before) / 1024


def _resident(field: str) -> int:
    """A size in kilobytes."""
    lines = STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


if __name__ == "__main__":
    print(peak_megabytes())  # noqa: T201
