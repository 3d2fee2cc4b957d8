"""Conditioning and allocation while a bank trains."""

from dataclasses import dataclass, field

from protopinv.diagnose.conditioning import Diagnosis, diagnose
from protopinv.network import Architecture
from protopinv.train.loop import EpochReport


@dataclass(frozen=True)
class TracePoint:
    """A bank after an epoch (counted from zero): its diagnosis, and its prototypes a class."""

    epoch: int
    diagnosis: Diagnosis
    counts: tuple[int, ...]


@dataclass
class Trace:
    """An observer for ``fit``: looks at the bank every few epochs.

    >>> trace = Trace(architecture_of(model.config()), every=25)
    >>> model.fit(X, y, observer=trace)
    >>> [point.diagnosis.layers[0].condition for point in trace.points]
    """

    architecture: Architecture
    every: int = 1
    points: list[TracePoint] = field(default_factory=list)

    def __call__(self, report: EpochReport) -> None:
        """Measure, if this epoch's turn has come; that waits for the device."""
        if report.epoch % self.every:
            return
        outputs = report.state.outputs.detach().cpu()
        counts = outputs.argmax(dim=1).bincount(minlength=outputs.shape[1])
        diagnosis = diagnose(report.state, self.architecture)
        self.points.append(TracePoint(report.epoch, diagnosis, tuple(counts.tolist())))
