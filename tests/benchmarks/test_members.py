"""Members with settings of their own are trained together as each would be alone."""

import time

import numpy as np
import pytest
import torch

from benchmarks.population import OWN, PopulationStep, check_members, member_banks, run_to_end
from protopinv.bank import Bank
from protopinv.errors import ConfigError
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.train.config import FIELDS, TrainConfig
from protopinv.train.history import EpochReport, History, Observer
from protopinv.train.prepare import first_banks
from protopinv.train.resolve import DataShape, resolved
from protopinv.train.rows import Rows

SEEDS = (3, 11, 5)
CLASSES = Classes(np.arange(3))
CLOSE = {"rtol": 1e-10, "atol": 1e-10}

# What members may have their own of, one value each.
APART: dict[str, tuple[object, object, object]] = {
    "ridge": (1.0, 5.0, 0.3),
    "learn_ridge": (False, True, False),
    "lr": (0.05, 0.01, 0.1),
    "lr_ratios": ((1.0, 1.0, 1.0), (0.5, 1.0, 2.0), (0.0, 1.0, 1.0)),
    "input_decay": (0.0, 0.1, 0.3),
    "hidden_decay": (0.2, 0.0, 0.1),
    "output_decay": (0.1, 0.3, 0.0),
    "hidden_scale": (1.0, 0.5, 2.0),
    "input_init": ("stratified", "normal", "stratified"),
    "output_init": ("balanced", "balanced", "normal"),
}


def rows_of(n: int = 50, *, weighted: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
    weight = torch.rand(3, n, generator=generator, dtype=torch.float64)
    weight[1, ::4] = 0
    return Rows(X, y, weight / weight.mean(1, keepdim=True) if weighted else None)


def configs_of(*names: str, **options: object) -> list[TrainConfig]:
    """Three members that differ in these fields."""
    chosen = {"n_prototypes": 9, "hidden_sizes": 7, "max_epochs": 8, "dtype": "float64"}
    chosen |= {"warmup_epochs": 2, "early_stopping": False, "learn_scale": False, **options}
    members = [{name: APART[name][member] for name in names} for member in range(3)]
    return [resolved(TrainConfig(**{**chosen, **own}), DataShape(50, 4, 3)) for own in members]


def step_of(
    bank: Bank, configs: list[TrainConfig], objective: Objective = CLASSES
) -> PopulationStep:
    generator = torch.Generator().manual_seed(1)
    return PopulationStep(bank.snapshot(), configs, objective, generator=generator, chunk=20)


def trained(
    bank: Bank,
    configs: list[TrainConfig],
    rows: Rows,
    objective: Objective = CLASSES,
    observer: Observer | None = None,
) -> tuple[Bank, tuple[History, ...]]:
    step = step_of(bank, configs, objective)
    return step.state, run_to_end(step, rows, clock=time.perf_counter, observer=observer)


def assert_each_is_as_if_alone(
    configs: list[TrainConfig], rows: Rows, objective: Objective = CLASSES
) -> None:
    bank = member_banks(rows, objective, configs, SEEDS)
    together, histories = trained(bank, configs, rows, objective)
    assert len(histories) == 3
    for member, config in enumerate(configs):
        own = None if rows.weight is None else rows.weight[member : member + 1]
        mine = Rows(rows.X, rows.y, own)
        start = first_banks(mine, objective, config, [SEEDS[member]])
        torch.testing.assert_close(start.inputs[0], bank.inputs[member], **CLOSE)
        alone, (history,) = trained(start, [config], mine, objective)
        for one, other in zip(alone.trained, together.trained, strict=True):
            torch.testing.assert_close(other[member], one[0], **CLOSE)
        for name in ("loss", "lr", "ridge"):
            np.testing.assert_allclose(
                getattr(histories[member], name), getattr(history, name), rtol=1e-10
            )


def test_every_field_that_members_may_differ_in_is_tried() -> None:
    assert set(APART) == set(OWN)


@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("name", APART)
def test_one_field_of_their_own(name: str, batch_size: int | None) -> None:
    configs = configs_of(name, batch_size=batch_size, learn_scale=True)
    assert_each_is_as_if_alone(configs, rows_of())


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("hidden_sizes", [7, (7, 5)])
def test_all_fields_of_their_own(optimizer: str, batch_size: int | None, hidden_sizes) -> None:
    options = {"optimizer": optimizer, "batch_size": batch_size, "hidden_sizes": hidden_sizes}
    configs = configs_of(*APART, learn_scale=True, **options)
    assert_each_is_as_if_alone(configs, rows_of(weighted=True))


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "gelu"},
        {"activation": "tanh", "temperature": 0.5, "normalize_inputs": True},
        {"weight_penalty": 1e-3, "condition_penalty": 1e-2, "learn_ridge": True},
        {"hidden_dropout": 0.2},
        {"mixup": 0.3},
        {"averaging": 0.8},
        {"solver": "primal"},
        {"solver": "svd"},
        {"n_prototypes": 30},
        {"early_stopping": False, "schedule": "constant"},
    ],
    ids=str,
)
def test_what_they_share(options: dict[str, object]) -> None:
    assert_each_is_as_if_alone(configs_of("lr", "ridge", **options), rows_of(weighted=False))


@pytest.mark.parametrize(
    "objective",
    [Labels(3), Numbers((0.0,) * 3, (1.0,) * 3, (1.0,) * 3, False), "huber"],
    ids=["labels", "squared", "huber"],
)
def test_every_objective(objective: Objective | str) -> None:
    numbers = Numbers((0.0,) * 3, (1.0,) * 3, (1.0,) * 3, False, "huber")
    rows = rows_of(weighted=True)
    Y = torch.nn.functional.one_hot(rows.y, 3).double()
    options = {"loss": "huber"} if objective == "huber" else {}
    given = numbers if isinstance(objective, str) else objective
    configs = configs_of("lr", "hidden_decay", "lr_ratios", **options)
    assert_each_is_as_if_alone(configs, Rows(rows.X, Y, rows.weight), given)


@pytest.mark.parametrize("poison", ["inputs", "hidden", "outputs", "lr"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("names", [("lr", "ridge"), ("lr", "lr_ratios", "hidden_decay")])
def test_a_step_that_fails_is_skipped_for_its_member_alone(
    poison: str, optimizer: str, names: tuple[str, ...]
) -> None:
    """Bit for bit: the others, and what the one had learned before."""
    exactly = {"rtol": 0, "atol": 0}
    configs = configs_of(*names, optimizer=optimizer)
    rows = rows_of()
    bank = member_banks(rows, CLASSES, configs, SEEDS)
    steps = [step_of(bank, configs) for _ in range(2)]
    for turn in range(6):
        broken, plain = steps
        if turn == 3:
            part = {"inputs": 0, "hidden": 1, "outputs": 2, "lr": 0}[poison]
            broken.trained[part][1, 0, 0] = 1e300 if poison == "lr" else torch.nan
        before = [tensor[1].clone() for tensor in broken.trained]
        reports = [step(rows, 1.0) for step in steps]
        failed = turn >= 3
        assert reports[0].loss.isnan().tolist() == [False, failed, False]
        assert broken.failures.sum(1).tolist() == [0, max(0, turn - 2), 0]
        for member in (0, 2):
            losses = [report.loss[member] for report in reports]
            torch.testing.assert_close(*losses, **exactly)
            for mine, theirs in zip(broken.trained, plain.trained, strict=True):
                torch.testing.assert_close(mine[member], theirs[member], **exactly)
        if failed:
            for now, then in zip(broken.trained, before, strict=True):
                assert torch.equal(now[1].nan_to_num(7.0), then.nan_to_num(7.0))


def test_a_member_that_fails_goes_back_alone_at_a_lower_rate() -> None:
    """The data pass fails, so that the solves of the others stay as they are: bit for bit."""
    configs, rows = configs_of("lr", max_epochs=20), rows_of()
    bank = member_banks(rows, CLASSES, configs, SEEDS)

    def poison(report: EpochReport) -> None:
        if report.epoch == 9:
            report.state.outputs[1, 0, 0] = torch.nan

    broken, histories = trained(bank, configs, rows, observer=poison)
    plain, others = trained(bank, configs, rows)
    assert [history.skipped_steps for history in histories] == [0, 1, 0]
    assert [history.rate_cuts for history in histories] == [0, 1, 0]
    assert histories[1].lr[-1] == pytest.approx(0.3 * others[1].lr[-1])
    assert "back to the best bank 1 with lr" in histories[1].events[0]
    for member in (0, 2):
        assert histories[member].loss == others[member].loss
        for mine, theirs in zip(broken.trained, plain.trained, strict=True):
            assert torch.equal(mine[member], theirs[member])
    assert all(tensor.isfinite().all() for tensor in broken.trained)
    assert histories[1].loss[-1] < histories[1].loss[0]


def test_an_absurd_rate_of_one_does_not_stop_the_others() -> None:
    configs, rows = configs_of(max_epochs=30), rows_of()
    configs[1] = TrainConfig(**{**vars(configs[1]), "lr": 1e30})
    bank = member_banks(rows, CLASSES, configs, SEEDS)
    state, histories = trained(bank, configs, rows)
    plain, _ = trained(bank, configs_of(max_epochs=30), rows)
    assert histories[1].rate_cuts > 0
    for member in (0, 2):
        assert histories[member].skipped_steps == 0
        for mine, theirs in zip(state.trained, plain.trained, strict=True):
            torch.testing.assert_close(mine[member], theirs[member], rtol=1e-8, atol=1e-8)


OTHERS = {
    "n_prototypes": 10,
    "hidden_sizes": (7, 5),
    "activation": "tanh",
    "weight_penalty": 0.1,
    "temperature": 0.5,
    "max_epochs": 9,
    "batch_size": 16,
    "optimizer": "muon",
    "mixup": 0.1,
    "hidden_dropout": 0.1,
    "averaging": 0.5,
    "loss": "huber",
    "dtype": "float32",
    "solver": "svd",
}


@pytest.mark.parametrize("name", OTHERS)
def test_members_that_differ_in_the_shape_of_the_work_are_refused(name: str) -> None:
    configs = configs_of()
    different = TrainConfig(**{**vars(configs[0]), name: OTHERS[name]})
    with pytest.raises(ConfigError, match=rf"must agree in {name}\. They have .*\. Train them ap"):
        check_members([*configs, different])
    bank = member_banks(rows_of(), CLASSES, configs, SEEDS)
    with pytest.raises(ConfigError, match=rf"must agree in {name}"):
        step_of(bank, [*configs[:2], different])


def test_what_members_may_differ_in_are_fields() -> None:
    assert set(OWN) < set(FIELDS)
    assert not set(OWN) & set(OTHERS)
