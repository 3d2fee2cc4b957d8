"""Updates of what is trained, with a rate and a decoupled decay for each block of tensors.

Every tensor has a leading axis of members. The guard may lower the rate of one of them, and a
member is left alone when its step is to be skipped.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from protopinv.kernels import side_by_side, usable
from protopinv.train.state import Resumable

# Of Adam, as in torch.
BETAS = (0.9, 0.999)
EPSILON = 1e-8
MOMENTUM = 0.95
# Entries of an orthogonal update are made this large, times the rate: about what Adam's are.
UPDATE_SIZE = 0.2
# Rounds of x -> a x + b x^3 + c x^5 that bring singular values from 0.01 to about 1 (K. Jordan).
ROUNDS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)

Gradients = Sequence[Tensor | None]


@dataclass(frozen=True)
class ParameterGroup:
    """Tensors that share a decay and a ratio to the peak learning rate."""

    tensors: Sequence[Tensor]
    decay: float = 0.0
    ratio: float = 1.0


def rate_factor(step: int, *, total: int, warmup: int, schedule: str) -> float:
    """The learning rate as a factor of its peak.

    Linear up to 1 over ``warmup`` steps, then constant or half a cosine down to 0.
    """
    warmup = min(warmup, total // 2)
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


class Optimizer(Resumable):
    """AdamW over groups, by a kernel of ours on a GPU and by torch's fused one elsewhere.

    ``peak`` is the highest learning rate of every member. On a GPU the rate is a tensor, so that a
    graph can hold an update. ``torch.optim`` is not asked: it imports a compiler, which takes
    longer than many a fit.
    """

    state_names: ClassVar[tuple[str, ...]] = ("peak", "restarts", "_moments", "_steps", "_alike")

    def __init__(self, groups: Sequence[ParameterGroup], peak: float) -> None:
        self.groups = groups
        self.tensors = [tensor for group in groups for tensor in group.tensors]
        self._group_of = [group for group in groups for _ in group.tensors]
        first = self.tensors[0]
        self.peak = [float(peak)] * len(first)
        self.restarts = 0
        # in the precision of what is trained: a rounded rate shows after a few steps in float64
        self._factor: Tensor | float = first.new_ones(()) if first.is_cuda else 1.0
        self._moments = {
            place: (torch.zeros_like(tensor), torch.zeros_like(tensor))
            for place, tensor in enumerate(self.tensors)
        }
        self._steps = torch.zeros(len(first), device=first.device)
        # As long as all members have taken the same steps at the same rate, one call serves all.
        self._alike = True
        self._place_rates()

    def set_rate(self, factor: float) -> None:
        """Take the next steps at ``factor`` times the peak rate."""
        if isinstance(self._factor, Tensor):
            self._factor.fill_(factor)
        else:
            self._factor = factor

    @torch.no_grad()
    def step(self, gradients: Gradients, skip: Bool[Tensor, " m"] | None) -> None:
        """One update, a gradient for each tensor; members to skip do not change.

        ``None`` skips nobody. On a GPU the decision stays on the device.
        """
        mine = {place: G for place in self._moments if (G := gradients[place]) is not None}
        if self._alike and skip is None and not isinstance(self._factor, Tensor):
            self._steps += 1
            self._fused(mine)
            return
        self._alike = False
        skipped = torch.zeros_like(self._steps, dtype=torch.bool) if skip is None else skip
        self._steps.add_(~skipped)
        works = [partial(self._update, place, G, skipped) for place, G in mine.items()]
        side_by_side(works, self._steps.device)

    def restart(self, member: int, peak: float) -> None:
        """Forget all momenta of a member, and continue with another peak rate."""
        self.peak[member] = peak
        self._alike = self._alike and len(self.peak) == 1
        self._steps[member] = 0
        for moments in self._moments.values():
            for moment in moments:
                moment[member] = 0
        self._place_rates()
        self.restarts += 1

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same optimizer."""
        super().restore(state)
        self._place_rates()

    def _place_rates(self) -> None:
        """Peak rates and decays of every block on the device, one a member."""
        first = self.tensors[0]
        peak = torch.tensor(self.peak, dtype=first.dtype, device=first.device)
        self._rates = [
            (peak * group.ratio, torch.full_like(peak, group.decay)) for group in self._group_of
        ]

    def _fused(self, gradients: Mapping[int, Tensor]) -> None:
        """Torch's fused update of all members, which have taken the same steps."""
        alike: dict[tuple[float, float], list[int]] = {}
        for place in gradients:
            group = self._group_of[place]
            alike.setdefault((group.decay, group.ratio), []).append(place)
        for (decay, ratio), places in alike.items():
            torch._fused_adamw_(
                [self.tensors[place] for place in places],
                [gradients[place].contiguous() for place in places],
                [self._moments[place][0] for place in places],
                [self._moments[place][1] for place in places],
                [],
                [self._steps[0]] * len(places),
                lr=self.peak[0] * ratio * float(self._factor),
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def _update(self, place: int, gradient: Tensor, skip: Bool[Tensor, " m"]) -> None:
        """The update of one tensor, which asks nothing of a GPU's host."""
        tensor, (mean, square) = self.tensors[place], self._moments[place]
        (rates, decays), factor = self._rates[place], self._factor
        if isinstance(factor, Tensor) and usable(tensor) and tensor.dtype == torch.float32:
            from protopinv.kernels.update import adam_update

            adam_update(
                tensor,
                gradient.contiguous(),
                mean,
                square,
                steps=self._steps,
                skip=skip,
                factor=factor,
                rates=rates,
                decays=decays,
                betas=BETAS,
                eps=EPSILON,
            )
            return
        steps, left_alone, rate, decay = (
            each.view(-1, *[1] * (tensor.ndim - 1))
            for each in (self._steps.to(tensor.dtype), skip, rates * factor, decays)
        )
        new_mean = torch.lerp(mean, gradient, 1 - BETAS[0])
        new_square = BETAS[1] * square + (1 - BETAS[1]) * gradient.square()
        size = (new_square / (1 - BETAS[1] ** steps)).sqrt() + EPSILON
        new = tensor * (1 - rate * decay) - rate * (new_mean / (1 - BETAS[0] ** steps)) / size
        for old, value in ((tensor, new), (mean, new_mean), (square, new_square)):
            old.copy_(torch.where(left_alone, old, value))


class Muon(Optimizer):
    """Momentum whose singular values are all brought to about one, for matrices; Adam for the rest.

    Adam scales every entry by itself; this moves all directions of a matrix alike, so that rare
    ones are learned as fast as common ones. ``torch.optim.Muon`` takes no batches of matrices.
    """

    state_names = (*Optimizer.state_names, "_momenta")

    def __init__(self, groups: Sequence[ParameterGroup], peak: float) -> None:
        super().__init__(groups, peak)
        matrices = [place for place, tensor in enumerate(self.tensors) if tensor.ndim == 3]
        self._momenta = {place: self._moments.pop(place)[0] for place in matrices}

    @torch.no_grad()
    def step(self, gradients: Gradients, skip: Bool[Tensor, " m"] | None) -> None:
        """One update; members to skip do not change."""
        super().step(gradients, skip)
        for place, momentum in self._momenta.items():
            tensor, gradient = self.tensors[place], gradients[place]
            if gradient is None:
                continue
            peak, decay = (each[:, None, None] for each in self._rates[place])
            rate = peak * self._factor
            new = gradient + MOMENTUM * momentum
            direction = orthogonal(gradient + MOMENTUM * new)
            size = UPDATE_SIZE * max(tensor.shape[1:]) ** 0.5 * rate
            moved = tensor * (1 - rate * decay) - size * direction
            for old, value in ((momentum, new), (tensor, moved)):
                old.copy_(value if skip is None else torch.where(skip[:, None, None], old, value))

    def restart(self, member: int, peak: float) -> None:
        """Forget all momenta of a member, and continue with another peak rate."""
        super().restart(member, peak)
        for momentum in self._momenta.values():
            momentum[member] = 0


OPTIMIZERS = {"adam": Optimizer, "muon": Muon}


def orthogonal(G: Float[Tensor, "*m a b"]) -> Float[Tensor, "*m a b"]:
    """G with its singular values brought to about one, by products alone."""
    a, b, c = QUINTIC
    wide = G.shape[-2] <= G.shape[-1]
    X: Tensor = G if wide else G.mT
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(G.dtype).tiny)
    for _ in range(ROUNDS):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X if wide else X.mT
