"""The step that trains a bank: its weights are solved anew every time."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture, designs_of, solve_weights
from protopinv.solve import Solution, spread
from protopinv.train.config import TrainConfig
from protopinv.train.optimizer import Block
from protopinv.train.step import Step


def architecture_of(config: TrainConfig) -> Architecture:
    """The part of the configuration that a bank needs to become weights."""
    return Architecture(config.activation, config.temperature, config.normalize_inputs)


class BankStep(Step):
    """Bank pass, data pass, bank backward, update."""

    state: Bank

    def __init__(
        self, bank: Bank, config: TrainConfig, *, generator: Generator, chunk: int | None = None
    ) -> None:
        inputs, hidden, outputs = config.lr_ratios
        # ridges that are not learned need no derivative, and are recorded as they are
        learned = bool(bank.learnable_ridge.any())
        bank.raw_ridge.requires_grad_(learned)
        self._ridge = None if learned else bank.ridge.detach()
        self.advice = "Scale the features (scaling='feature'), lower lr, or raise ridge."
        blocks = (
            Block([bank.inputs], config.input_decay, inputs),
            Block(bank.hidden, config.hidden_decay, hidden),
            Block([bank.outputs], config.output_decay, outputs),
            Block([bank.raw_ridge]),
        )
        super().__init__(
            bank,
            blocks,
            config,
            width=bank.inputs.shape[1],
            n_classes=bank.outputs.shape[1],
            generator=generator,
            chunk=chunk,
        )

    def weights(self, *, training: bool) -> Solution:
        """Solved from the bank, with dropout on its hidden targets while training."""
        if training:
            bank = self._dropped_out() if self.config.hidden_dropout > 0 else self.state
        else:
            bank = self.state.with_trained(self.kept)
        architecture = architecture_of(self.config)
        return solve_weights(
            bank,
            architecture,
            ridges=self._ridge,
            form=self.form,
            precision=self.precision,
        )

    def penalty(self) -> tuple[Float[Tensor, ""], Float[Tensor, " layers"]] | None:
        """condition_penalty times the spread of every layer's system, summed, and their status."""
        strength = self.config.condition_penalty
        if strength == 0:
            return None
        designs = designs_of(self.state, architecture_of(self.config))
        found = [
            spread(A.to(self.precision), ridge.to(self.precision), form=self.form)
            for A, ridge in zip(designs, self.state.ridge, strict=True)
        ]
        values, errors = zip(*found, strict=True)
        return strength * torch.stack(values).sum(), torch.stack(errors)

    def numbers(self) -> Mapping[str, Tensor]:
        """The ridge of every layer."""
        return {"ridge": self.state.ridge if self._ridge is None else self._ridge}

    def _dropped_out(self) -> Bank:
        """The bank with dropout on its hidden targets."""
        rate = self.config.hidden_dropout
        kept = (
            torch.rand(H.shape, generator=self.generator, dtype=H.dtype, device=H.device) >= rate
            for H in self.state.hidden
        )
        hidden = tuple(
            H * keep / (1 - rate) for H, keep in zip(self.state.hidden, kept, strict=True)
        )
        return replace(self.state, hidden=hidden)
