"""What must hold on a GPU; everything here is skipped where there is none."""

import pickle
import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from protopinv import ProtoPINVClassifier
from protopinv.baselines import (
    ELMClassifier,
    MLPBaselineClassifier,
    RandomFeatureRidgeClassifier,
)
from protopinv.data import load_data
from protopinv.kernels import switched_off
from protopinv.solve import ridge_solve
from protopinv.solve.cholesky import invert
from protopinv.train.bank_step import BankStep
from protopinv.train.capture import CapturedStep
from protopinv.train.config import TrainConfig
from protopinv.train.loop import EpochReport, train
from protopinv.train.prepare import LabelledRows, first_bank, moved_to, prepare
from protopinv.train.rows import Rows

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
        {"optimizer": "muon", "batch_size": 16},
        {"mixup": 0.1, "averaging": 0.9, "early_stopping": False},
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

    def solved() -> list[torch.Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in (A, T, ridge)]
        (W,) = ridge_solve(*leaves, form=form).weights
        return [W.detach(), *torch.autograd.grad((W**3).sum(), leaves)]

    exact, product = solved(), A @ A.T
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
        ProtoPINVClassifier(n_prototypes=15, device=device, **chosen).fit(X, y) for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(on_gpu.history_.loss, on_host.history_.loss, rtol=1e-6)


CONFIGS = [
    {},
    {"input_noise": 0.3, "hidden_dropout": 0.1, "weight_penalty": 1e-5, "learn_ridge": True},
    {"condition_penalty": 0.01, "hidden_sizes": (40, 30)},
    {"n_prototypes": 400, "hidden_sizes": (20,)},  # primal solves
    {"optimizer": "muon", "hidden_decay": 0.1},
    {"row_dtype": "bfloat16", "label_smoothing": 0.1},
    {"row_dtype": "bfloat16", "activation": "gelu", "hidden_sizes": (40, 30), "mixup": 0.2},
]


def digits_step(options: dict[str, object]) -> tuple[BankStep, Rows]:
    config = TrainConfig(scaling="global", **options)
    data, device = load_data("digits", split="train"), torch.device("cuda")
    rows = prepare(LabelledRows(data.X, data.y, 10), config, device, seed=0).rows
    bank = first_bank(rows, 10, config, torch.Generator().manual_seed(0))
    generator = torch.Generator(device).manual_seed(0)
    return BankStep(bank.leaves(), config, generator=generator, chunk=500), rows


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_a_step_never_makes_the_host_wait(options: dict[str, object]) -> None:
    step, rows = digits_step(options)
    step(rows, 0.1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(rows, 0.1)
        step.evaluate(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("options", CONFIGS, ids=str)
@pytest.mark.parametrize("batch_size", [None, 300])
def test_a_captured_step_equals_an_eager_one(
    options: dict[str, object], batch_size: int | None
) -> None:
    losses, scores = [], []
    for captured in (False, True):
        step, rows = digits_step(options)
        taken = CapturedStep(step, rows) if captured else step
        reports = [
            taken(batch, 0.1)
            for _ in range(8)
            for batch in rows.batches(batch_size, step.generator)
        ]
        losses.append([float(report.loss) for report in reports])
        scores.append([float(taken.evaluate(rows)[1]) for _ in range(6)])
        assert len({*scores[-1]}) == 1
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4)


def test_a_replay_that_fails_is_skipped_and_the_rate_is_cut(blobs) -> None:
    """One poisoned row: its mini-batch fails in every epoch, long after the step was captured."""
    X, y = (torch.from_numpy(array).cuda() for array in blobs)
    rows = Rows(X.float().clone(), y)
    config = TrainConfig(n_prototypes=12, hidden_sizes=8, max_epochs=12, batch_size=18)
    bank = first_bank(rows, 3, config, torch.Generator().manual_seed(0))
    step = BankStep(bank.leaves(), config, generator=torch.Generator("cuda").manual_seed(0))

    def poison(report: EpochReport) -> None:
        rows.X[7] = torch.inf if report.epoch in (7, 8) else 0.0

    history = train(step, rows, clock=time.perf_counter, observer=poison)
    assert history.skipped_steps == 2
    assert 1 <= history.rate_cuts <= 2
    assert history.loss[-1] < history.loss[0]
    assert all(tensor.isfinite().all() for tensor in step.trained)


def test_a_captured_step_falls_back_when_its_solve_fails(blobs) -> None:
    X, y = (torch.from_numpy(array).cuda() for array in blobs)
    rows = Rows(X.float(), y)
    config = TrainConfig(n_prototypes=12, hidden_sizes=40, max_epochs=60, ridge=1e-6)
    bank = first_bank(rows, 3, config, torch.Generator().manual_seed(0))
    step = BankStep(bank.leaves(), config, generator=torch.Generator("cuda").manual_seed(0))

    def make_twins(report: EpochReport) -> None:
        if report.epoch == 20:
            with torch.no_grad():
                step.state.hidden[0][6:] = step.state.hidden[0][:6]

    history = train(step, rows, clock=time.perf_counter, observer=make_twins)
    assert "Cholesky in float64" in history.events[0]
    assert step.precision == torch.float64
    assert history.loss[-1] < history.loss[0]


def test_graphs_do_not_pile_up_in_memory(blobs) -> None:
    X, y = blobs

    def fit() -> int:
        ProtoPINVClassifier(
            n_prototypes=12, hidden_sizes=8, max_epochs=6, batch_size=18, device="cuda", early_stopping=True
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
        MLPBaselineClassifier(hidden_sizes=16, lr=0.03, max_epochs=60, batch_size=batch_size, device="cuda"),
        MLPBaselineClassifier(hidden_sizes=16, lr=0.03, max_epochs=60, optimizer="muon", device="cuda"),
        ELMClassifier(50, device="cuda"),
        RandomFeatureRidgeClassifier(50, device="cuda"),
    ):
        assert model.set_params(random_state=0).fit(X, y).score(X, y) == 1


@pytest.mark.parametrize("stem", ["none", "pca", "kmeans", "random"])
def test_stems_and_copies_are_those_of_the_host(stem: str) -> None:
    data = load_data("digits", split="train")
    source = LabelledRows(data.X[:300], data.y[:300], 10)
    config = TrainConfig(
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
        prepare(source, config, torch.device(device), seed=0) for device in ("cuda", "cpu")
    )
    assert len(on_gpu.rows) == 900
    torch.testing.assert_close(on_gpu.rows.X.cpu(), on_host.rows.X, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_rows_arrive_alike_at_once_and_in_pieces(dtype: str, monkeypatch) -> None:
    data = load_data("digits", split="train")
    reversed_rows = data.X[::-1].astype(dtype)[::-1]
    reversed_rows.flags.writeable = False
    source = LabelledRows(reversed_rows, data.y, 10)
    config, gpu = TrainConfig(scaling="global", n_components=20), torch.device("cuda")
    held_out = np.arange(5, 300, 7)
    at_once = prepare(source, config, gpu, seed=0, held_out=held_out)
    monkeypatch.setattr("protopinv.train.prepare.MOST_OF_FREE", 0.0)
    assert moved_to(gpu, data.X) is None
    in_pieces = prepare(source, config, gpu, seed=0, held_out=held_out)
    for one, other in ((at_once.rows, in_pieces.rows), (at_once.validation, in_pieces.validation)):
        assert torch.equal(one.X, other.X)
        assert torch.equal(one.y, other.y)


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_kernels_and_plain_paths_take_the_same_steps(options: dict[str, object]) -> None:
    by_kernels, rows = digits_step(options)
    with switched_off():
        plain, _ = digits_step(options)
        expected = [float(plain(rows, 1.0).loss) for _ in range(5)]
    found = [float(by_kernels(rows, 1.0).loss) for _ in range(5)]
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
