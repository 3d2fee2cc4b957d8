"""Members of a population, which differ in seeds, are trained as each would be alone."""

import time

import numpy as np
import pytest
import torch

from benchmarks.population import run_to_end
from protopinv.bank import Bank
from protopinv.errors import TrainingError
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport, History, Observer
from protopinv.train.prepare import first_banks
from protopinv.train.resolve import DataShape, resolved
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep

SEEDS = (3, 11, 5)
CLASSES = Classes(np.arange(3))
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def rows_of(n: int = 50, *, weighted: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
    weight = torch.rand(3, n, generator=generator, dtype=torch.float64)
    weight[1, ::4] = 0
    return Rows(X, y, weight / weight.mean(1, keepdim=True) if weighted else None)


def config_of(**options: object) -> TrainConfig:
    chosen = {"n_prototypes": 9, "hidden_sizes": 7, "max_epochs": 8, "dtype": "float64"}
    chosen |= {"warmup_epochs": 2, "early_stopping": False, "learn_scale": False, **options}
    return resolved(TrainConfig(**chosen), DataShape(50, 4, 3))


def step_of(bank: Bank, config: TrainConfig, objective: Objective = CLASSES) -> BankStep:
    generator = torch.Generator().manual_seed(1)
    return BankStep(bank.snapshot(), config, objective, generator=generator, chunk=20)


def trained(
    bank: Bank,
    config: TrainConfig,
    rows: Rows,
    objective: Objective = CLASSES,
    observer: Observer | None = None,
) -> tuple[Bank, tuple[History, ...]]:
    step = step_of(bank, config, objective)
    return step.state, run_to_end(step, rows, clock=time.perf_counter, observer=observer)


def assert_each_is_as_if_alone(
    config: TrainConfig, rows: Rows, objective: Objective = CLASSES
) -> None:
    bank = first_banks(rows, objective, config, SEEDS)
    together, histories = trained(bank, config, rows, objective)
    assert len(histories) == 3
    for member in range(3):
        own = None if rows.weight is None else rows.weight[member : member + 1]
        mine = Rows(rows.X, rows.y, own)
        start = first_banks(mine, objective, config, [SEEDS[member]])
        torch.testing.assert_close(start.inputs[0], bank.inputs[member], **CLOSE)
        alone, (history,) = trained(start, config, mine, objective)
        for one, other in zip(alone.trained, together.trained, strict=True):
            torch.testing.assert_close(other[member], one[0], **CLOSE)
        for name in ("loss", "lr", "ridge"):
            np.testing.assert_allclose(
                getattr(histories[member], name), getattr(history, name), rtol=1e-10
            )


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("hidden_sizes", [7, (7, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_seeds_and_rows_of_their_own(optimizer, batch_size, hidden_sizes, weighted) -> None:
    config = config_of(optimizer=optimizer, batch_size=batch_size, hidden_sizes=hidden_sizes)
    assert_each_is_as_if_alone(config, rows_of(weighted=weighted))


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
    assert_each_is_as_if_alone(config_of(**options), rows_of(weighted=False))


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
    config = config_of(label_smoothing=0.1, input_noise=0.2, **options)
    assert_each_is_as_if_alone(config, Rows(rows.X, Y, rows.weight), given)


@pytest.mark.parametrize("poison", ["inputs", "hidden", "outputs", "size"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_step_that_fails_is_skipped_for_its_member_alone(poison: str, optimizer: str) -> None:
    """Bit for bit: the others, and what the one had learned before.

    Where Adam has taken all at once it goes on one by one, which rounds the last digit otherwise.
    """
    exactly = dict.fromkeys(("rtol", "atol"), 1e-12 if optimizer == "adam" else 0)
    config = config_of(optimizer=optimizer)
    rows = rows_of()
    bank = first_banks(rows, CLASSES, config, SEEDS)
    steps = [step_of(bank, config) for _ in range(2)]
    for turn in range(6):
        broken, plain = steps
        if turn == 3:
            part = {"inputs": 0, "hidden": 1, "outputs": 2, "size": 0}[poison]
            broken.trained[part][1, 0, 0] = 1e300 if poison == "size" else torch.nan
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
    """The data pass fails, so that the solves of the others stay as they are.

    Adam goes on with one member at a time, which rounds the last digit otherwise.
    """
    config, rows = config_of(max_epochs=20), rows_of()
    bank = first_banks(rows, CLASSES, config, SEEDS)

    def poison(report: EpochReport) -> None:
        if report.epoch == 9:
            report.state.outputs[1, 0, 0] = torch.nan

    broken, histories = trained(bank, config, rows, observer=poison)
    plain, others = trained(bank, config, rows)
    assert [history.skipped_steps for history in histories] == [0, 1, 0]
    assert [history.rate_cuts for history in histories] == [0, 1, 0]
    assert histories[1].lr[-1] == pytest.approx(0.3 * others[1].lr[-1])
    assert "back to the best bank 1 with lr" in histories[1].events[0]
    for member in (0, 2):
        assert histories[member].loss == pytest.approx(others[member].loss, rel=1e-12)
        for mine, theirs in zip(broken.trained, plain.trained, strict=True):
            torch.testing.assert_close(mine[member], theirs[member], rtol=1e-11, atol=1e-11)
    assert all(tensor.isfinite().all() for tensor in broken.trained)
    assert histories[1].loss[-1] < histories[1].loss[0]


def test_a_solve_that_fails_makes_all_solve_more_carefully_and_nothing_else() -> None:
    config, rows = config_of(max_epochs=20), rows_of()
    bank = first_banks(rows, CLASSES, config, SEEDS)

    def poison(report: EpochReport) -> None:
        if report.epoch == 9:
            report.state.inputs[1, 0, 0] = torch.nan

    broken, histories = trained(bank, config, rows, observer=poison)
    plain, _ = trained(bank, config, rows)
    assert [history.skipped_steps for history in histories] == [0, 2, 0]
    assert histories[0].events[0].endswith("went on with SVD in float64")
    for member in (0, 2):
        for mine, theirs in zip(broken.trained, plain.trained, strict=True):
            torch.testing.assert_close(mine[member], theirs[member], rtol=1e-8, atol=1e-8)


def test_a_member_that_never_takes_a_step_is_given_up_and_the_others_go_on() -> None:
    config, rows = config_of(), rows_of()
    bank = first_banks(rows, CLASSES, config, SEEDS)
    bank.outputs[1] = torch.nan
    broken, histories = trained(bank, config, rows)
    assert [history.skipped_steps for history in histories] == [0, 8, 0]
    assert "gave up member 1" in histories[0].events[0]
    assert histories[0].n_epochs == 8
    assert all(tensor[[0, 2]].isfinite().all() for tensor in broken.trained)
    bank.outputs[:] = torch.nan
    with pytest.raises(TrainingError, match="must stay finite"):
        trained(bank, config, rows)
