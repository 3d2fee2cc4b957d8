"""Updates of what is trained, with a rate and a decoupled decay of its own for each block.

Every tensor has a leading axis of members, each of which may have a rate and a decay of its own,
and is left alone when its step is to be skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from protopinv.kernels import usable
from protopinv.kernels.streams import side_by_side
from protopinv.objective import Knob
from protopinv.train.stopping import put_back

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
class Block:
    """Tensors that share a decay and a ratio to the peak learning rate."""

    tensors: Sequence[Tensor]
    decay: Knob = 0.0
    ratio: Knob = 1.0


class Optimizer:
    """AdamW over blocks. On a GPU the rate is a tensor, so that a graph can hold an update.

    ``peak`` is the highest learning rate of every member.
    """

    def __init__(self, blocks: Sequence[Block], peak: Knob) -> None:
        self.blocks = blocks
        self.tensors = [tensor for block in blocks for tensor in block.tensors]
        first = self.tensors[0]
        self.peak = _by_member(peak, len(first))
        self.restarts = 0
        # in the precision of what is trained: a rounded rate shows after a few steps in float64
        self._factor: Tensor | float = first.new_ones(()) if first.is_cuda else 1.0
        self._adam = _Adam([self._settings(block) for block in blocks], self.peak)

    def set_rate(self, factor: float) -> None:
        """Take the next steps at ``factor`` times the peak rate."""
        if isinstance(self._factor, Tensor):
            self._factor.fill_(factor)
        else:
            self._factor = factor

    @torch.no_grad()
    def step(self, gradients: Gradients, skip: Bool[Tensor, " m"] | None) -> None:
        """One update, a gradient for each tensor; none of the members to skip.

        ``None`` skips nobody. On a GPU the decision stays on the device.
        """
        self._adam.step(self._for_adam(gradients), skip, self._factor)

    def restart(self, member: int, peak: float) -> None:
        """Forget all momenta of a member, and go on with another peak rate."""
        self.peak[member] = peak
        self._adam.forget(member, self.peak)
        self.restarts += 1

    def dump(self) -> dict[str, Any]:
        """All that lives through a run, under names."""
        return {"peak": list(self.peak), "restarts": self.restarts, "adam": self._adam.dump()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same optimizer."""
        self.peak[:] = state["peak"]
        self.restarts = state["restarts"]
        self._adam.restore(state["adam"])

    def _settings(self, block: Block) -> "_Settings":
        m = len(self.tensors[0])
        tensors = [tensor for tensor in block.tensors if self._suits_adam(tensor)]
        return _Settings(tensors, _by_member(block.decay, m), _by_member(block.ratio, m))

    def _for_adam(self, gradients: Gradients) -> Gradients:
        pairs = zip(self.tensors, gradients, strict=True)
        return [gradient for tensor, gradient in pairs if self._suits_adam(tensor)]

    def _suits_adam(self, tensor: Tensor) -> bool:  # noqa: ARG002
        """Whether Adam updates this tensor."""
        return True


@dataclass(frozen=True)
class _Settings:
    """Tensors that share a decay and a ratio; both on the host, one a member."""

    tensors: Sequence[Tensor]
    decays: list[float]
    ratios: list[float]


def _by_member(knob: Knob, m: int) -> list[float]:
    """One number a member, on the host."""
    return knob.tolist() if isinstance(knob, Tensor) else [float(knob)] * m


class _Adam:
    """AdamW of some blocks, by a kernel of ours on a GPU and by torch's fused one elsewhere.

    ``torch.optim`` is not asked: it imports a compiler, which takes longer than many a fit.
    """

    def __init__(self, blocks: Sequence[_Settings], peak: Sequence[float]) -> None:
        self._blocks = blocks
        self._tensors = [tensor for block in blocks for tensor in block.tensors]
        self._block_of = [i for i, block in enumerate(blocks) for _ in block.tensors]
        self._moments = [(torch.zeros_like(t), torch.zeros_like(t)) for t in self._tensors]
        self._peak = peak
        device = self._tensors[0].device if self._tensors else torch.device("cpu")
        self._steps = torch.zeros(len(peak), device=device)
        self._nobody = torch.zeros(len(peak), dtype=torch.bool, device=device)
        # As long as all members have taken the same steps at the same rate, one call serves all.
        settings = [peak, *(b.decays for b in blocks), *(b.ratios for b in blocks)]
        self._alike = all(len(set(numbers)) == 1 for numbers in settings)
        self._groups = self._grouped()
        self._place_rates()

    def _grouped(self) -> list[tuple[_Settings, list[int]]]:
        """Places of tensors whose decays and ratios are the same: one call can update them."""
        groups: dict[tuple[tuple[float, ...], ...], tuple[_Settings, list[int]]] = {}
        for place, number in enumerate(self._block_of):
            block = self._blocks[number]
            key = (tuple(block.decays), tuple(block.ratios))
            groups.setdefault(key, (block, []))[1].append(place)
        return list(groups.values())

    def _place_rates(self) -> None:
        """Peak rates and decays on the device, for the kernel."""
        if not self._steps.is_cuda:
            return
        self._rates = [
            torch.tensor(
                [[p * r for p, r in zip(self._peak, b.ratios, strict=True)], b.decays],
                device=self._steps.device,
                dtype=self._tensors[0].dtype if self._tensors else torch.float32,
            )
            for b in self._blocks
        ]

    def step(
        self, gradients: Gradients, skip: Bool[Tensor, " m"] | None, factor: Tensor | float
    ) -> None:
        """One update at ``factor`` times the peak rate; members to skip do not change."""
        if not self._tensors:
            return
        if isinstance(factor, Tensor):
            self._on_gpu(gradients, self._nobody if skip is None else skip, factor)
            return
        if self._alike and skip is None:
            self._steps += 1
            self._fused(gradients, None, factor)
            return
        self._alike = False
        skipped = self._nobody if skip is None else skip
        for member, left_alone in enumerate(skipped.tolist()):
            if not left_alone:
                self._steps[member] += 1
                self._fused(gradients, member, factor)

    def forget(self, member: int, peak: Sequence[float]) -> None:
        """Begin anew with one member."""
        self._peak = peak
        self._alike = self._alike and len(peak) == 1
        self._steps[member] = 0
        for moments in self._moments:
            for moment in moments:
                moment[member] = 0
        self._place_rates()

    def dump(self) -> dict[str, Any]:
        """Moments of every tensor, and the steps of every member."""
        moments = [list(pair) for pair in self._moments]
        return {"moments": moments, "steps": self._steps, "alike": self._alike}

    def restore(self, state: Mapping[str, Any]) -> None:
        """In place, for a graph may hold these tensors."""
        for mine, given in zip(self._moments, state["moments"], strict=True):
            put_back(mine, given)
        self._steps.copy_(state["steps"])
        self._alike = state["alike"]
        self._place_rates()

    def _fused(self, gradients: Gradients, member: int | None, factor: float) -> None:
        """Torch's fused update, of all members at once or of one of them."""
        at = member or 0
        for settings, places in self._groups:
            given = [
                (self._tensors[place], gradient.contiguous(), *self._moments[place])
                for place in places
                if (gradient := gradients[place]) is not None
            ]
            if not given:
                continue
            tensors, slopes, means, squares = (
                list(parts) if member is None else [part[member] for part in parts]
                for parts in zip(*given, strict=True)
            )
            torch._fused_adamw_(
                tensors,
                slopes,
                means,
                squares,
                [],
                [self._steps[at]] * len(given),
                lr=self._peak[at] * settings.ratios[at] * factor,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=settings.decays[at],
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def _on_gpu(self, gradients: Gradients, skip: Bool[Tensor, " m"], factor: Tensor) -> None:
        self._steps.add_(~skip)
        works = [
            partial(self._update, place, gradient.contiguous(), skip, factor)
            for place, gradient in enumerate(gradients)
            if gradient is not None
        ]
        side_by_side(works, self._steps.device)

    def _update(
        self, place: int, gradient: Tensor, skip: Bool[Tensor, " m"], factor: Tensor
    ) -> None:
        tensor, (mean, square) = self._tensors[place], self._moments[place]
        rates, decays = self._rates[self._block_of[place]].unbind()
        if usable(tensor) and tensor.dtype == torch.float32:
            from protopinv.kernels.adam import adam_update

            adam_update(
                tensor,
                gradient,
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
    ones are learned as fast as common ones.
    """

    def __init__(self, blocks: Sequence[Block], peak: Knob) -> None:
        super().__init__(blocks, peak)
        self._momenta = [
            None if self._suits_adam(tensor) else torch.zeros_like(tensor)
            for tensor in self.tensors
        ]
        self._rates = self._rates_of_blocks()

    @torch.no_grad()
    def step(self, gradients: Gradients, skip: Bool[Tensor, " m"] | None) -> None:
        """One update; none of the members to skip."""
        super().step(gradients, skip)
        given = zip(self.tensors, self._rates, gradients, self._momenta, strict=True)
        for tensor, (decay, peak), gradient, momentum in given:
            if gradient is None or momentum is None:
                continue
            rate = peak * self._factor
            new = gradient + MOMENTUM * momentum
            direction = orthogonal(gradient + MOMENTUM * new)
            size = UPDATE_SIZE * max(tensor.shape[1:]) ** 0.5 * rate
            moved = tensor * (1 - rate * decay) - size * direction
            for old, value in ((momentum, new), (tensor, moved)):
                taken = value if skip is None else torch.where(skip[:, None, None], old, value)
                old.copy_(taken)

    def restart(self, member: int, peak: float) -> None:
        """Forget all momenta of a member, and go on with another peak rate."""
        super().restart(member, peak)
        for momentum in self._momenta:
            if momentum is not None:
                momentum[member] = 0
        self._rates = self._rates_of_blocks()

    def dump(self) -> dict[str, Any]:
        """Momenta too."""
        momenta = [momentum for momentum in self._momenta if momentum is not None]
        return {**super().dump(), "momenta": momenta}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same optimizer."""
        super().restore(state)
        put_back([momentum for momentum in self._momenta if momentum is not None], state["momenta"])
        self._rates = self._rates_of_blocks()

    def _rates_of_blocks(self) -> list[tuple[Tensor, Tensor]]:
        """For every tensor the decay and the peak rate of its block, one a member."""
        found = []
        for block in self.blocks:
            settings = self._settings(block)
            for tensor in block.tensors:
                decay, ratio, peak = (
                    tensor.new_tensor(numbers)[:, None, None]
                    for numbers in (settings.decays, settings.ratios, self.peak)
                )
                found.append((decay, peak * ratio))
        return found

    def _suits_adam(self, tensor: Tensor) -> bool:
        return tensor.ndim != 3


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
