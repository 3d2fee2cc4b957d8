"""Conditioning and allocation while a bank trains."""

from dataclasses import dataclass, field

from protopinv.bank import Bank
from protopinv.diagnose.conditioning import Diagnosis, diagnose
from protopinv.errors import ConfigError
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
    """An observer for ``fit``: looks at the bank every few epochs, at the first of several.

    >>> trace = Trace(architecture_of(model.config()), every=25)
    >>> model.fit(X, y, observer=trace)
    >>> [point.diagnosis.layers[0].condition for point in trace.points]
    """

    architecture: Architecture
    every: int = 1
    points: list[TracePoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"every must be 1 or more. Got {self.every}. Raise it.")

    def __call__(self, report: EpochReport) -> None:
        """Measure, if this epoch's turn has come; that waits for the device."""
        if not isinstance(report.state, Bank):
            raise ConfigError(
                "A trace watches a bank. This training has none. Use it with ProtoPINVClassifier."
            )
        if report.epoch % self.every:
            return
        bank = report.state.member(0)
        outputs = bank.outputs.detach().cpu()
        counts = outputs.argmax(dim=1).bincount(minlength=outputs.shape[1])
        diagnosis = diagnose(bank, self.architecture)
        self.points.append(TracePoint(report.epoch, diagnosis, tuple(counts.tolist())))
