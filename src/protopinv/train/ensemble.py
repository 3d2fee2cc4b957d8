"""The ensemble: candidates are averaged, weighted by their out-of-fold predictions, and calibrated.

Weights come from greedy selection with replacement (Caruana, Niculescu-Mizil, Crew and Ksikes,
"Ensemble Selection from Libraries of Models", 2004): again and again the candidate is added that
lowers the loss of the mean most.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from protopinv.objective import Objective
from protopinv.objective.objective import Outputs
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.step import TrainingStep

# Selections; a weight is a multiple of one in so many.
ROUNDS = 20


@dataclass(frozen=True)
class HeldOut:
    """Outputs for rows that banks were not trained on: out of fold, or of a hold-out."""

    objective: Objective
    outputs: Outputs
    targets: Shaped[Tensor, "n *target"]
    weight: Tensor

    def loss(self, outputs: Outputs) -> float:
        """The mean loss that other outputs for these rows would have."""
        if float(self.weight.sum()) <= 0:
            return math.inf
        losses = self.objective.judge(outputs, self.targets).plain[0]
        loss = float(losses.double() @ (self.weight / self.weight.sum()).double())
        return loss if math.isfinite(loss) else math.inf

    def calibration(self, outputs: Outputs | None = None) -> tuple[float, float]:
        """Temperature scaling of these or other outputs: the factor, and the loss with it."""
        outputs = self.outputs if outputs is None else outputs
        return self.objective.sharpness(outputs, self.targets, self.weight)


def held_out(step: TrainingStep, judged: Rows | None, validation: AnyRows | None) -> HeldOut | None:
    """The predictions of all members for the rows that they leave out; None without such rows."""
    # rows that are only watched change nothing
    if judged is None or (validation is not None and step.config.early_stopping is not True):
        return None
    outputs = []
    for part, by_member in step.outputs(judged):
        if part.held is None:
            outputs.append(by_member.mean(0, keepdim=True))
        else:  # out-of-fold predictions
            holds = (part.held > 0).to(by_member.dtype)
            share = holds / holds.sum(0).clamp_min(1)
            outputs.append((by_member * share[:, None]).sum(0, keepdim=True))
    if judged.held is not None:
        weight = judged.held.sum(0)
    else:
        weight = judged.X.new_ones(len(judged)) if judged.weight is None else judged.weight[0]
    return HeldOut(step.objective, torch.cat(outputs, dim=2), judged.y, weight)


def combined(
    candidates: Sequence[HeldOut | None], weights: Sequence[float] = ()
) -> list[tuple[float, float]]:
    """The weight of each candidate in the mean, and the factor that calibrates its outputs.

    Weights may be known already. Each is calibrated by itself first, then their mean.
    """
    judged = [each for each in candidates if each is not None]
    if len(judged) < len(candidates):
        return [(weight, 1.0) for weight in weights or [1 / len(candidates)] * len(candidates)]
    factors = [each.calibration()[0] for each in judged]
    if len(judged) == 1:
        return [(1.0, factors[0])]
    outputs = [each.outputs * factor for each, factor in zip(judged, factors, strict=True)]
    weights = weights or greedy(judged[0], outputs)
    mean = torch.stack([each * w for each, w in zip(outputs, weights, strict=True)]).sum(0)
    shared, _ = judged[0].calibration(mean)
    return [(weight, shared * factor) for weight, factor in zip(weights, factors, strict=True)]


def greedy(judge: HeldOut, outputs: Sequence[Outputs]) -> list[float]:
    """How often each of the outputs is selected, as a share."""
    counts, total = [0] * len(outputs), torch.zeros_like(outputs[0])
    for number in range(1, ROUNDS + 1):
        losses = [judge.loss((total + each) / number) for each in outputs]
        best = losses.index(min(losses))
        counts[best] += 1
        total = total + outputs[best]
    return [count / ROUNDS for count in counts]
