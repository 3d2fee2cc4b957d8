"""Reads the device now and then, and decides what to try when steps fail.

A failed step changes nothing (the optimizer skips it on the device). The guard counts such steps,
falls back to a slower and safer solve, or lowers the learning rate from the best bank so far, and
raises when nothing is left to try.
"""

import torch

from protopinv.errors import TrainingError
from protopinv.train.step import Step
from protopinv.train.stopping import Best, put_back

MOST_RATE_CUTS = 6
RATE_CUT = 0.3


class Guard:
    """``watch`` counts steps, ``review`` reads their failures when that is due."""

    def __init__(self, step: Step, best: Best) -> None:
        self._step = step
        self._best = best
        self._ladder = _fallbacks(step.form, step.precision)
        self._judged = [0, 0]
        self.rate_cuts = 0
        self._every = 16 if step.trained[0].is_cuda else 1
        self.steps = 0
        self.events: list[str] = []

    @property
    def skipped_steps(self) -> int:
        """Steps that were not taken, as of the last review."""
        return sum(self._judged)

    def watch(self) -> None:
        """Count a step."""
        self.steps += 1

    def due(self, ahead: int = 0) -> bool:
        """Whether the host should read, now or some steps ahead: always at first, later rarely."""
        steps = self.steps + ahead
        return steps < 4 or steps % self._every == 0

    def count(self) -> tuple[int, int]:
        """Read the counters: failed solves and failed data passes since the last count."""
        seen = self._step.failures.tolist()
        solves, data = (new - old for new, old in zip(seen, self._judged, strict=True))
        self._judged = seen
        return solves, data

    def review(self) -> None:
        """After new failures change something, or raise TrainingError when nothing is left."""
        failed_solves, failed_data = self.count()
        if failed_solves and self._ladder:
            self._fall_back()
        elif failed_solves:
            self._cut_rate(
                "The prototype matrices must be solvable. They stayed too ill-conditioned in "
                f"every form, up to {_name(self._step.form, self._step.precision)}",
                "Raise ridge, lower lr, or set scaling='feature'.",
            )
        elif failed_data:
            self._cut_rate(
                "The loss must stay finite. It was not",
                self._step.advice,
            )

    def _fall_back(self) -> None:
        self._step.form, self._step.precision = self._ladder.pop(0)
        name = _name(self._step.form, self._step.precision)
        self.events.append(f"step {self.steps}: ill-conditioned solve, went on with {name}")

    def _cut_rate(self, complaint: str, advice: str) -> None:
        none_worked = self.skipped_steps == self.steps
        if none_worked or self.rate_cuts == MOST_RATE_CUTS:
            cuts = f"after {self.rate_cuts} cuts of the learning rate"
            raise TrainingError(f"{complaint}, at step {self.steps}, {cuts}. {advice}")
        self.rate_cuts += 1
        peak = self._step.optimizer.peak * RATE_CUT
        put_back(self._step.trained, self._best.tensors)
        put_back(self._step.kept, self._best.tensors)
        self._step.optimizer.restart(peak)
        self.events.append(
            f"step {self.steps}: step failed, back to the best bank with lr {peak:.3g}"
        )


def _fallbacks(form: str, precision: torch.dtype) -> list[tuple[str, torch.dtype]]:
    """What to try after (form, precision), in this order."""
    ladder = dict.fromkeys([(form, precision), (form, torch.float64), ("svd", torch.float64)])
    return list(ladder)[1:]


def _name(form: str, precision: torch.dtype) -> str:
    method = "SVD" if form == "svd" else "Cholesky"
    return f"{method} in {str(precision).removeprefix('torch.')}"
