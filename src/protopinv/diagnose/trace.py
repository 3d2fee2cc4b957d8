"""Conditioning and allocation while a bank trains."""

from dataclasses import dataclass, field

from protopinv.bank import Bank
from protopinv.diagnose.conditioning import Diagnosis, diagnose
from protopinv.errors import ConfigError
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.loop import EpochReport


@dataclass(frozen=True)
class TracePoint:
    """A bank after an epoch (counted from zero): its diagnosis, and its prototypes a class."""

    epoch: int
    diagnosis: Diagnosis
    counts: tuple[int, ...]


@dataclass
class Trace:
    """An observer for ``fit``: looks at a bank every few epochs.

    It is the first of those that are trained together, which learns from all rows, with its own
    activation. Where several candidates are looked at, ``points`` are of the one that is trained to
    the end, from its first epoch on; those of all are in ``looks``, by configuration. The bank is
    as it was after that epoch, whichever epoch is kept in the end.

    >>> trace = Trace(every=25)
    >>> model.fit(X, y, observer=trace)
    >>> [point.diagnosis.layers[0].condition for point in trace.points]
    """

    every: int = 1
    points: list[TracePoint] = field(default_factory=list)
    looks: dict[TrainConfig, list[TracePoint]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"every must be 1 or more. Got {self.every}. Raise it.")

    def __call__(self, report: EpochReport) -> None:
        """Measure, if this epoch's turn has come; that waits for the device."""
        if not isinstance(report.state, Bank) or report.config is None:
            raise ConfigError(
                "A trace watches a bank. This training has none. Use it with ProtoPINVClassifier."
            )
        if report.look is None and not self.points:
            self.points.extend(self.looks.get(report.config, ()))
        if report.epoch % self.every:
            return
        bank = report.state.member(0)
        outputs = bank.outputs.detach().cpu()
        counts = outputs.argmax(dim=1).bincount(minlength=outputs.shape[1])
        diagnosis = diagnose(bank, architecture_of(report.config))
        point = TracePoint(report.epoch, diagnosis, tuple(counts.tolist()))
        if report.look is None:
            self.points.append(point)
        else:
            self.looks.setdefault(report.config, []).append(point)
