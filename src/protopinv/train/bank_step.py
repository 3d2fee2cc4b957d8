"""The step that trains banks: their weights are solved anew every time."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture
from protopinv.objective import Objective
from protopinv.train.bank_pass import BankPass, Designs
from protopinv.train.config import TrainConfig
from protopinv.train.optimizer import Block
from protopinv.train.population import as_knob, check_members, knob
from protopinv.train.ranks import ALONE, Ranks
from protopinv.train.step import Step


def architecture_of(config: TrainConfig) -> Architecture:
    """The part of the configuration that a bank needs to become weights."""
    return Architecture(config.activation, config.temperature, config.normalize_inputs)


class BankStep(Step[BankPass]):
    """Bank pass, data pass, bank backward, update, of all members of a population at once."""

    state: Bank

    def __init__(
        self,
        bank: Bank,
        configs: Sequence[TrainConfig],
        objective: Objective,
        *,
        generator: Generator,
        row_generator: Generator | None = None,
        ranks: Ranks = ALONE,
        chunk: int | None = None,
        n_frozen: int = 0,
    ) -> None:
        check_members(configs)
        self._n_frozen = n_frozen
        self.advice = "Scale the features (scaling='feature'), lower lr, or raise ridge."
        self._architecture = architecture_of(configs[0])
        self._designs = Designs()
        # ridges that are not learned need no derivative, and are recorded as they are
        self._learned = bool(bank.learnable_ridge.any())
        self._ridge = None if self._learned else bank.ridge
        device = bank.inputs.device
        ratios = [
            as_knob(each, device) for each in zip(*(c.lr_ratios for c in configs), strict=True)
        ]
        decays = [knob(configs, f"{part}_decay", device) for part in ("input", "hidden", "output")]
        blocks = [
            Block([bank.inputs], decays[0], ratios[0]),
            Block(bank.hidden, decays[1], ratios[1]),
            Block([bank.outputs], decays[2], ratios[2]),
            Block([bank.raw_ridge]),
        ]
        if bank.scale is not None:
            blocks.append(Block([bank.scale], ratio=knob(configs, "scale_lr_ratio", device)))
        width = bank.inputs.shape[-1]
        super().__init__(
            bank,
            blocks,
            configs,
            objective,
            width=width,
            generator=generator,
            row_generator=row_generator,
            ranks=ranks,
            chunk=chunk,
        )

    def weights(self, *, training: bool) -> BankPass:
        """Solved from the banks, with dropout on their hidden targets while training."""
        kept = self._dropout() if training and self.config.hidden_dropout > 0 else ()
        bank = self.state if training else self.state.with_trained(self.kept)
        ridge = bank.ridge if self._ridge is None else self._ridge
        return BankPass(
            bank, self._architecture, self.manner, self._designs, ridge=ridge, kept=kept
        )

    def pullback(
        self, solved: BankPass, gradients: list[Tensor]
    ) -> tuple[list[Tensor | None], tuple[Float[Tensor, " m"], Float[Tensor, "m layers"]] | None]:
        """Through the solves, with condition_penalty times the spread of every system added."""
        found, penalty = solved.pullback(
            gradients,
            with_ridge=self._learned,
            condition_penalty=self.config.condition_penalty,
        )
        # the last two are the ridge and, where it is learned, the scale
        for gradient in found[: 2 + len(self.state.hidden)] if self._n_frozen else ():
            if gradient is not None:
                gradient[:, : self._n_frozen] = 0
        return found, None if penalty is None else (penalty.value, penalty.error)

    def numbers(self) -> Mapping[str, Tensor]:
        """The ridge of every layer."""
        return {"ridge": self.state.ridge if self._ridge is None else self._ridge}

    def _dropout(self) -> list[Float[Tensor, "p _"]]:
        """Factors of the hidden targets, zero for those left out, the same for all members."""
        rate = self.config.hidden_dropout
        return [
            (torch.rand(H.shape[1:], generator=self.generator, device=H.device) >= rate).to(H.dtype)
            / (1 - rate)
            for H in self.state.hidden
        ]
