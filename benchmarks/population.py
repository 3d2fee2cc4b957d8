"""Banks that are trained in one batch with settings of their own, and a training to its end.

Members of a population share rows, batches and noise. In the library all have one configuration;
those of a study may differ in their starts, and in rates and decays.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Generator, Tensor

from protopinv.bank import Bank, population
from protopinv.errors import ConfigError
from protopinv.objective import Objective
from protopinv.train.config import TrainConfig
from protopinv.train.history import History, Observer
from protopinv.train.loop import Run
from protopinv.train.optimizer import OPTIMIZERS, Gradients, Optimizer
from protopinv.train.prepare import first_banks
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.state import EpochChoice
from protopinv.train.step import BankStep, TrainingStep

# Hyperparameters that members may differ in: none of them changes the shape of the work.
STARTS = ("ridge", "learn_ridge", "hidden_scale", "input_init", "output_init")
DECAYS = ("input_decay", "hidden_decay", "output_decay")
OWN = (*STARTS, "lr", "lr_ratios", *DECAYS)
# Settings under which the optimizer leaves all rates and decays to the members.
NEUTRAL: dict[str, Any] = {"lr_ratios": (1.0, 1.0, 1.0), **dict.fromkeys(DECAYS, 0.0)}


def check_members(configs: Sequence[TrainConfig]) -> None:
    """Raise ConfigError unless the members agree in all that shapes the work."""
    for name in [item.name for item in fields(TrainConfig) if item.name not in OWN]:
        values = {repr(getattr(config, name)) for config in configs}
        if len(values) > 1:
            raise ConfigError(
                f"Members of a population must agree in {name}. They have "
                f"{', '.join(sorted(values))}. Train them apart, or let them differ only in "
                f"{', '.join(OWN)}."
            )


def member_banks(
    rows: Rows, objective: Objective, configs: Sequence[TrainConfig], seeds: Sequence[int]
) -> Bank:
    """A population of first banks, each from its own configuration and seed."""
    banks = []
    for number, (config, seed) in enumerate(zip(configs, seeds, strict=True)):
        weight = rows.weight
        if weight is not None and len(weight) > 1:
            weight = weight[number : number + 1]
        own_rows = replace(rows, weight=weight)
        banks.append(first_banks(own_rows, objective, config, [seed]).member(0))
    return population(banks)


class PopulationStep(BankStep):
    """The step of banks that may differ in ``OWN``."""

    def __init__(
        self,
        bank: Bank,
        configs: Sequence[TrainConfig],
        objective: Objective,
        *,
        generator: Generator,
        chunk: int | None = None,
    ) -> None:
        check_members(configs)
        differ = any(len({getattr(config, name) for config in configs}) > 1 for name in NEUTRAL)
        shared = replace(configs[0], **NEUTRAL) if differ else configs[0]
        super().__init__(bank, shared, objective, generator=generator, chunk=chunk)
        if differ:
            own = OWN_OPTIMIZERS[shared.optimizer](self.optimizer.groups, shared.lr)
            own.set_members(configs, len(bank.hidden))
            self.optimizer = own
        rates = [config.lr for config in configs]
        if len(set(rates)) > 1:
            for member, rate in enumerate(rates):
                self.optimizer.restart(member, rate)


class OwnSettings(Optimizer):
    """An optimizer of which every member has its own ratios and decays of each group.

    An update is in proportion to its rate, so that of a member is its ratio times that of all. The
    decay is decoupled from it.
    """

    def set_members(self, configs: Sequence[TrainConfig], n_hidden: int) -> None:
        """Take the ratios and decays of the members; ridges and scales have none."""
        rest = len(self.tensors) - n_hidden - 2
        self._own = []
        for config in configs:
            inputs, hidden, outputs = config.lr_ratios
            ratios = [inputs, *[hidden] * n_hidden, outputs, *[1.0] * rest]
            decays = [config.input_decay, *[config.hidden_decay] * n_hidden, config.output_decay]
            self._own.append((ratios, [*decays, *[0.0] * rest]))
        self._place()

    def _place(self) -> None:
        """For every tensor the ratio of each member, and its decay times its peak rate."""
        self._settings_of = []
        for number, tensor in enumerate(self.tensors):
            shape = (-1, *[1] * (tensor.ndim - 1))
            ratio = tensor.new_tensor([ratios[number] for ratios, _ in self._own])
            decay = tensor.new_tensor([decays[number] for _, decays in self._own])
            decay = decay * ratio * tensor.new_tensor(self.peak)
            self._settings_of.append((ratio.view(shape), decay.view(shape)))

    @torch.no_grad()
    def step(self, gradients: Gradients, skip: Bool[Tensor, " m"] | None) -> None:
        """One update; none of the members to skip."""
        before = [tensor.clone() for tensor in self.tensors]
        super().step(gradients, skip)
        parts = zip(self.tensors, before, self._settings_of, gradients, strict=True)
        for tensor, old, (ratio, decay), gradient in parts:
            if gradient is None:
                continue
            new = old * (1 - decay * self._factor) + ratio * (tensor - old)
            if skip is not None:
                new = torch.where(skip.view(ratio.shape), old, new)
            tensor.copy_(new)

    def restart(self, member: int, peak: float) -> None:
        """Forget all momenta of a member, and go on with another peak rate."""
        super().restart(member, peak)
        self._place()


# Such an optimizer of every kind.
OWN_OPTIMIZERS: dict[str, Any] = {
    name: type(f"Own{kind.__name__}", (OwnSettings, kind), {}) for name, kind in OPTIMIZERS.items()
}


def run_to_end(
    step: TrainingStep,
    rows: AnyRows,
    *,
    clock: Callable[[], float],
    validation: AnyRows | None = None,
    choice: EpochChoice | None = None,
    observer: Observer | None = None,
) -> tuple[History, ...]:
    """Train ``step.state`` in place, and return a history for each member."""
    started = clock()
    run = Run(step, rows, validation=validation, choice=choice)
    run.advance(observer=observer)
    return run.finish(seconds=lambda: clock() - started)
