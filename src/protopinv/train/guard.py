"""Reads the device now and then, and decides what to try when steps fail.

A failed step of a member changes nothing (the optimizer skips it on the device). The guard counts
such steps, falls back to a slower and safer solve, or lowers the learning rate of that member from
its best bank so far. A member for which nothing is left to try is given up; when none is left, the
guard raises.
"""

from collections.abc import Mapping
from typing import Any

import torch

from protopinv.errors import TrainingError
from protopinv.train.bank_pass import SolverSettings
from protopinv.train.step import Step
from protopinv.train.stopping import Best

MOST_RATE_CUTS = 6
RATE_CUT = 0.3


class Guard:
    """``review`` reads the failures of steps when that is ``due``.

    ``steps`` counts what was tried; ``rate_cuts`` and ``given_up`` have one entry a member.
    """

    def __init__(self, step: Step, best: Best) -> None:
        self._step = step
        self._best = best
        first, exact = step.solver, torch.float64
        # what to try after the first settings, in this order
        ladder = [first, SolverSettings(first.form, exact), SolverSettings("svd", exact)]
        self._ladder = list(dict.fromkeys(ladder))[1:]
        self._judged = [[0, 0] for _ in range(step.n_members)]
        self.rate_cuts = [0] * step.n_members
        self.given_up = [False] * step.n_members
        self._every = 16 if step.trained[0].is_cuda else 1
        self.steps = 0
        self.events: list[str] = []

    @property
    def skipped_steps(self) -> list[int]:
        """Steps that were not taken, of each member, as of the last review."""
        return [sum(counts) for counts in self._judged]

    def due(self, ahead: int = 0, every: int | None = None) -> bool:
        """Whether the host should read, now or some steps ahead: always at first, later rarely."""
        steps = self.steps + ahead
        return steps < 4 or steps % (every or self._every) == 0

    def count(self) -> list[tuple[int, int]]:
        """Read the counters: failed solves and failed data passes of each since the last count."""
        seen = self._step.failures.tolist()
        new = [
            (now[0] - before[0], now[1] - before[1])
            for now, before in zip(seen, self._judged, strict=True)
        ]
        self._judged = seen
        return new

    def review(self) -> None:
        """After new failures change something, or raise TrainingError when nothing is left."""
        counted = self.count()
        failed = [
            (member, solves)
            for member, (solves, data) in enumerate(counted)
            if (solves or data) and not self.given_up[member]
        ]
        if any(solves for _, solves in failed) and self._ladder:
            self._fall_back()
            return
        for member, solves in failed:
            if solves:
                self._cut_rate(
                    member,
                    "The prototype matrices must be solvable. They stayed too ill-conditioned in "
                    f"every form, up to {_name(self._step.solver)}",
                    "Raise ridge, lower lr, or set scaling='feature'.",
                )
            else:
                self._cut_rate(member, "The loss must stay finite. It was not", self._step.advice)

    def dump(self) -> dict[str, Any]:
        """All that lives through a run, under names."""
        return {
            "ladder": len(self._ladder),
            "judged": self._judged,
            "rate_cuts": self.rate_cuts,
            "given_up": self.given_up,
            "steps": self.steps,
            "events": self.events,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._ladder = self._ladder[len(self._ladder) - state["ladder"] :]
        self._judged = [list(counts) for counts in state["judged"]]
        self.rate_cuts, self.given_up = list(state["rate_cuts"]), list(state["given_up"])
        self.steps, self.events = state["steps"], list(state["events"])

    def _fall_back(self) -> None:
        self._step.solve_by(self._ladder.pop(0))
        name = _name(self._step.solver)
        self.events.append(f"step {self.steps}: ill-conditioned solve, went on with {name}")

    def _cut_rate(self, member: int, complaint: str, advice: str) -> None:
        none_worked = self.skipped_steps[member] == self.steps
        if none_worked or self.rate_cuts[member] == MOST_RATE_CUTS:
            self.given_up[member] = True
            cuts = f"after {self.rate_cuts[member]} cuts of the learning rate"
            if all(self.given_up):
                raise TrainingError(f"{complaint}, at step {self.steps}, {cuts}. {advice}")
            self.events.append(f"step {self.steps}: gave up member {member} {cuts}")
            return
        self.rate_cuts[member] += 1
        peak = self._step.optimizer.peak[member] * RATE_CUT
        self._step.go_back(self._best.tensors, member)
        self._step.optimizer.restart(member, peak)
        whose = "the best bank" if self._step.n_members == 1 else f"the best bank {member}"
        self.events.append(f"step {self.steps}: step failed, back to {whose} with lr {peak:.3g}")


def _name(solver: SolverSettings) -> str:
    method = "SVD" if solver.form == "svd" else "Cholesky"
    return f"{method} in {str(solver.precision).removeprefix('torch.')}"
