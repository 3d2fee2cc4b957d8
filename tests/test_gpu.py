"""What must hold on a GPU; everything here is skipped where there is none."""

import pickle
import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from configs import concrete, data_of_arrays

from benchmarks.baselines.mlp import MLPBaselineClassifier
from benchmarks.baselines.random_hidden import RandomHiddenClassifier
from benchmarks.population import run_to_end
from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.data import load_data
from protopinv.kernels import switched_off
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.solve import ridge_solve
from protopinv.solve.systems import invert
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport
from protopinv.train.prepare import first_banks, prepare
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep, CapturedStep

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU that torch can use"
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 16},
        {"input_noise": 0.1, "early_stopping": True},
        {"hidden_sizes": (12, 8), "hidden_dropout": 0.05, "learn_ridge": True},
        {"projection": "pls", "n_components": 3},
        {"solver": "svd"},
        {"dtype": "float64"},
        {"scaling": "squash"},
        {"scaling": "clip"},
        {"optimizer": "muon", "batch_size": 16},
        {"mixup": 0.1, "averaging": 0.9, "early_stopping": False},
        {"dtype": "float32"},
        {"dtype": "float32", "early_stopping": False, "n_members": 3, "label_smoothing": 0.05},
        {"early_stopping": "cross", "hidden_dropout": 0.05},
        {"early_stopping": "cross", "mixup": 0.1, "batch_size": 30},
        {"learn_scale": True, "normalize_inputs": True, "temperature": 0.5},
    ],
    ids=str,
)
def test_a_gpu_learns_and_the_host_predicts_the_same(blobs, options: dict[str, object]) -> None:
    X, y = blobs
    chosen = {"hidden_sizes": (12,), "max_epochs": 60, "random_state": 0, **options}
    on_gpu = ProtoPINVClassifier(n_prototypes=15, device="cuda", **chosen).fit(X, y)
    assert on_gpu.score(X, y) == 1
    on_host = pickle.loads(pickle.dumps(on_gpu)).set_params(device="cpu")
    np.testing.assert_allclose(on_host.predict_proba(X), on_gpu.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("form", ["dual", "primal", "svd"])
def test_a_solve_does_not_depend_on_the_precision_others_chose(form: str) -> None:
    random = torch.Generator("cuda").manual_seed(0)
    A, T = (torch.randn(150, n, generator=random, device="cuda") for n in (400, 512))
    ridge = torch.tensor(0.5, device="cuda")

    def solved(precision: torch.dtype | None = None) -> list[torch.Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in (A, T, ridge)]
        (W,) = ridge_solve(*leaves, form=form, precision=precision).weights
        return [W.detach(), *torch.autograd.grad((W**3).sum(), leaves)]

    exact, product = solved(torch.float64), A @ A.T
    matmul = torch.backends.cuda.matmul
    try:
        torch.set_float32_matmul_precision("high")
        assert not (A @ A.T).equal(product)  # the switch matters here
        assert all(mine.equal(theirs) for mine, theirs in zip(solved(), exact, strict=True))
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = "tf32"
        assert not (A @ A.T).equal(product)
        assert all(mine.equal(theirs) for mine, theirs in zip(solved(), exact, strict=True))
    finally:
        torch.set_float32_matmul_precision("highest")


def test_gpu_and_host_train_the_same_bank_within_rounding(blobs) -> None:
    X, y = blobs
    chosen = {"hidden_sizes": (12,), "max_epochs": 20, "random_state": 0, "dtype": "float64"}
    chosen["early_stopping"] = False  # folds may end an epoch apart
    on_gpu, on_host = (
        ProtoPINVClassifier(n_prototypes=15, device=device, **chosen).fit(X, y)
        for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(on_gpu.history_.loss, on_host.history_.loss, rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_numbers_and_labels_are_learned_on_a_gpu_and_the_host_predicts_the_same(
    blobs, loss: str
) -> None:
    X, y = blobs
    weight = np.random.RandomState(0).uniform(0.5, 2, len(y))
    chosen = {"n_prototypes": 15, "hidden_sizes": 12, "max_epochs": 80, "random_state": 0}
    Y = np.stack([y, -3 * y], axis=1)
    numbers = ProtoPINVRegressor(device="cuda", loss=loss, **chosen).fit(X, Y, weight)
    assert numbers.score(X, Y) > 0.9
    labels = ProtoPINVClassifier(device="cuda", **chosen).fit(X, np.eye(3, dtype=int)[y], weight)
    assert labels.score(X, np.eye(3, dtype=int)[y]) > 0.95
    for model in (numbers, labels):
        on_host = pickle.loads(pickle.dumps(model)).set_params(device="cpu")
        np.testing.assert_allclose(on_host._outputs(X), model._outputs(X), atol=1e-9)


CONFIGS = [
    {},
    {"input_noise": 0.3, "hidden_dropout": 0.1, "weight_penalty": 1e-5, "learn_ridge": True},
    {"condition_penalty": 0.01, "hidden_sizes": (40, 30)},
    {"n_prototypes": 400, "hidden_sizes": (20,)},  # primal solves
    {"optimizer": "muon", "hidden_decay": 0.1},
    {"row_dtype": "bfloat16", "label_smoothing": 0.1},
    {"row_dtype": "bfloat16", "activation": "gelu", "hidden_sizes": (40, 30), "mixup": 0.2},
]


def digits_step(
    options: dict[str, object], members: int = 1, objective: Objective | None = None
) -> tuple[BankStep, Rows]:
    """A step of as many members, each with a seed of its own."""
    objective = Classes(np.arange(10)) if objective is None else objective
    config = concrete(**{"scaling": "global", **options})
    data, device = load_data("digits", split="train"), torch.device("cuda")
    targets = {"accuracy": data.y, "R2": data.y[:, None] - 4.5}.get(
        objective.measure, np.eye(10, dtype=np.float32)[data.y]
    )
    rows = prepare(data_of_arrays(data.X, targets, objective), config, device, seed=0).rows
    bank = first_banks(rows, objective, config, range(members))
    generator = torch.Generator(device).manual_seed(0)
    return BankStep(bank, config, objective, generator=generator, chunk=500), rows


OBJECTIVES = [Classes(np.arange(10)), Labels(10), Numbers((4.5,), (3.0,), (1.0,))]


@pytest.mark.parametrize("options", CONFIGS, ids=str)
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.measure)
def test_a_step_never_makes_the_host_wait(
    options: dict[str, object], members: int, objective: Objective
) -> None:
    step, rows = digits_step(options, members, objective)
    step(rows, 0.1)
    step.evaluate(rows)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(rows, 0.1)
        step.evaluate(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("options", CONFIGS, ids=str)
@pytest.mark.parametrize("batch_size", [None, 300])
@pytest.mark.parametrize("members", [1, 3])
def test_a_captured_step_equals_an_eager_one(
    options: dict[str, object], batch_size: int | None, members: int
) -> None:
    losses, scores = [], []
    for captured in (False, True):
        step, rows = digits_step(options, members)
        taken = CapturedStep(step, rows) if captured else step
        reports = [
            taken(batch, 0.1)
            for _ in range(8)
            for batch in rows.batches(batch_size, step.generator)
        ]
        losses.append([report.loss.tolist() for report in reports])
        scores.append([taken.evaluate(rows)[1].tolist() for _ in range(6)])
        assert all(score == scores[-1][0] for score in scores[-1])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4)


def blobs_step(rows: Rows, config: TrainConfig, members: int = 1) -> BankStep:
    objective = Classes(np.arange(3))
    bank = first_banks(rows, objective, config, range(members))
    generator = torch.Generator("cuda").manual_seed(0)
    return BankStep(bank, config, objective, generator=generator)


def test_a_member_that_fails_on_a_gpu_is_skipped_alone(blobs) -> None:
    """The bank of one is poisoned on the way; the others take the steps they would have taken."""
    X, y = (torch.from_numpy(array).cuda() for array in blobs)
    rows = Rows(X.float(), y)
    config = concrete(n_prototypes=12, hidden_sizes=8, max_epochs=40)
    poisoned, plain = (blobs_step(rows, config, members=3) for _ in range(2))

    def poison(report: EpochReport) -> None:
        if report.epoch == 17:
            report.state.inputs[1, 0, 0] = torch.nan

    histories = run_to_end(poisoned, rows, clock=time.perf_counter, observer=poison)
    others = run_to_end(plain, rows, clock=time.perf_counter)
    assert histories[1].skipped_steps > 0
    for member in (0, 2):
        assert histories[member].skipped_steps == 0
        np.testing.assert_allclose(histories[member].loss, others[member].loss, rtol=1e-4)
        assert all(tensor[member].isfinite().all() for tensor in poisoned.trained)


def test_a_replay_that_fails_is_skipped_and_the_rate_is_cut(blobs) -> None:
    """One poisoned row: its mini-batch fails in every epoch, long after the step was captured."""
    X, y = (torch.from_numpy(array).cuda() for array in blobs)
    rows = Rows(X.float().clone(), y)
    config = concrete(n_prototypes=12, hidden_sizes=8, max_epochs=12, batch_size=18)
    step = blobs_step(rows, config)

    def poison(report: EpochReport) -> None:
        rows.X[7] = torch.inf if report.epoch in (7, 8) else 0.0

    (history,) = run_to_end(step, rows, clock=time.perf_counter, observer=poison)
    assert history.skipped_steps == 2
    assert 1 <= history.rate_cuts <= 2
    assert history.loss[-1] < history.loss[0]
    assert all(tensor.isfinite().all() for tensor in step.trained)


def test_a_captured_step_falls_back_when_its_solve_fails(blobs) -> None:
    X, y = (torch.from_numpy(array).cuda() for array in blobs)
    rows = Rows(X.float(), y)
    config = concrete(n_prototypes=12, hidden_sizes=40, max_epochs=60, ridge=1e-6)
    step = blobs_step(rows, config)

    def make_twins(report: EpochReport) -> None:
        if report.epoch == 20:
            step.state.hidden[0][:, 6:] = step.state.hidden[0][:, :6]

    (history,) = run_to_end(step, rows, clock=time.perf_counter, observer=make_twins)
    assert "Cholesky in float64" in history.events[0]
    assert step.solver.precision == torch.float64
    assert history.loss[-1] < history.loss[0]


def test_graphs_do_not_pile_up_in_memory(blobs) -> None:
    X, y = blobs

    def fit() -> int:
        ProtoPINVClassifier(
            n_prototypes=12,
            hidden_sizes=8,
            max_epochs=6,
            batch_size=18,
            device="cuda",
            early_stopping=True,
        ).fit(X, y)
        torch.cuda.synchronize()
        return torch.cuda.memory_reserved()

    fit()
    first = fit()
    assert max(fit() for _ in range(5)) <= 1.5 * first


@pytest.mark.parametrize("batch_size", [None, 16])
def test_the_baselines_learn_on_a_gpu(blobs, batch_size: int | None) -> None:
    X, y = blobs
    for model in (
        MLPBaselineClassifier(
            hidden_sizes=16, lr=0.03, max_epochs=60, batch_size=batch_size, device="cuda"
        ),
        MLPBaselineClassifier(
            hidden_sizes=16, lr=0.03, max_epochs=60, optimizer="muon", device="cuda"
        ),
        RandomHiddenClassifier(50, device="cuda"),
        RandomHiddenClassifier(50, activation="cos", device="cuda"),
    ):
        assert model.set_params(random_state=0).fit(X, y).score(X, y) == 1


# With seeds 0 and 5 a patch is as near to one centre as to another, and rounding decides.
SEED_WITHOUT_TIES = 1


@pytest.mark.parametrize("stem", ["none", "pca", "kmeans", "random"])
def test_stems_and_copies_are_those_of_the_host(stem: str) -> None:
    data = load_data("digits", split="train")
    source = data_of_arrays(data.X[:300], data.y[:300], Classes(np.arange(10)))
    config = concrete(
        stem=stem,
        stem_filters=8,
        stem_patch=3,
        stem_pool=2,
        image_shape=(8, 8),
        image_copies=2,
        scaling="global",
        projection="none",
    )
    on_gpu, on_host = (
        prepare(source, config, torch.device(device), seed=SEED_WITHOUT_TIES)
        for device in ("cuda", "cpu")
    )
    assert len(on_gpu.rows) == 900
    torch.testing.assert_close(on_gpu.rows.X.cpu(), on_host.rows.X, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_rows_arrive_alike_at_once_and_in_pieces(dtype: str, monkeypatch) -> None:
    data = load_data("digits", split="train")
    reversed_rows = data.X[::-1].astype(dtype)[::-1]
    reversed_rows.flags.writeable = False
    held_out = np.arange(5, 300, 7)
    source = data_of_arrays(reversed_rows, data.y, Classes(np.arange(10)), held_out=held_out)
    config, gpu = concrete(scaling="global", n_components=20), torch.device("cuda")
    at_once = prepare(source, config, gpu, seed=0)
    monkeypatch.setattr("protopinv.train.data.MOST_OF_FREE", 0.0)
    assert source.placed(gpu) is source
    in_pieces = prepare(source, config, gpu, seed=0)
    for one, other in ((at_once.rows, in_pieces.rows), (at_once.validation, in_pieces.validation)):
        assert torch.equal(one.X, other.X)
        assert torch.equal(one.y, other.y)


@pytest.mark.parametrize("options", CONFIGS, ids=str)
@pytest.mark.parametrize("members", [1, 3])
def test_kernels_and_plain_paths_take_the_same_steps(
    options: dict[str, object], members: int
) -> None:
    by_kernels, rows = digits_step(options, members)
    with switched_off():
        plain, _ = digits_step(options, members)
        expected = [plain(rows, 1.0).loss.tolist() for _ in range(5)]
    found = [by_kernels(rows, 1.0).loss.tolist() for _ in range(5)]
    rough = options.get("row_dtype") == "bfloat16"
    np.testing.assert_allclose(found, expected, rtol=2e-2 if rough else 2e-3)


@pytest.mark.parametrize("p", [5, 33, 150, 512])
def test_the_kernel_inverts_as_well_as_cholesky(p: int) -> None:
    A = torch.randn(2, p, 600, generator=torch.Generator().manual_seed(0)).cuda()
    K = A @ A.mT / 600 + 0.01 * torch.eye(p, device="cuda")
    exact = torch.linalg.inv(K.double())
    errors = []
    for path in (nullcontext(), switched_off()):
        with path:
            inverse, estimate = invert(K)
        errors.append(float((inverse - exact).norm() / exact.norm()))
        assert (estimate < 0.1).all()
    assert errors[0] < 3 * errors[1] + 1e-6
