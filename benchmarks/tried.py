"""Ideas around the recipe, one at a time: what each does to the accuracy on held-out rows.

The library has the ideas that won. Those that lost are here only: other starts of the bank, other
optimisers, restarts. The seeds of an idea are trained as one population, which shares its noise and
the order of its batches; a method that must look for its own step length trains them apart.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from benchmarks.paper.comparison import paired
from benchmarks.population import run_to_end
from benchmarks.recipes import SHAPE, Parameters, recipe_config
from benchmarks.record import Content, Record, Records
from benchmarks.tasks import DATASETS, NAMES, load_task
from benchmarks.text import markdown, percent
from benchmarks.training import first_step, projected_rows
from protopinv.bank import Bank
from protopinv.train.data_pass import data_pass
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep

# The winners of the recorded search for the paper's table with input noise.
BASE: dict[str, Parameters] = {
    "mnist": {
        **SHAPE,
        "ridge": (25.0, 8.1),
        "learn_ridge": (False, True),
        "lr": 0.076,
        "lr_ratios": (1.8, 1.1, 0.88),
        "hidden_scale": 0.63,
        "activation": "gelu",
        "input_noise": 0.61,
    },
    "fashion-mnist": {
        **SHAPE,
        "ridge": (2.3, 1.9),
        "lr": 0.11,
        "lr_ratios": (1.3, 0.81, 2.2),
        "hidden_scale": 0.73,
        "input_noise": 0.38,
    },
}
KMEANS_ROUNDS = 10
LBFGS_HISTORY = 10


def _trained(step: BankStep, rows: Rows) -> None:
    run_to_end(step, rows, clock=time.perf_counter)


@dataclass(frozen=True)
class Idea:
    """What it changes: fields of the recipe, the first bank, or how banks are trained."""

    changes: Callable[[Parameters], Parameters] = lambda _: {}
    start: Callable[[Bank, Rows, Generator], Bank] = lambda bank, _, __: bank
    train: Callable[[BankStep, Rows], None] = _trained
    apart: bool = False


def batches(size: int, epochs: int, factor: float) -> Callable[[Parameters], Parameters]:
    """Mini-batches at ``factor`` times the rate."""
    return lambda base: {
        "batch_size": size,
        "max_epochs": epochs,
        "warmup_epochs": max(1, epochs // 12),
        "lr": base["lr"] * factor,
    }


def shape(p: int, d: int, *widths: int) -> Callable[[Parameters], Parameters]:
    """Another shape of about as many trained numbers; inner ridges are the first one."""
    return lambda base: {
        "n_prototypes": p,
        "n_components": d,
        "hidden_sizes": widths,
        "ridge": (*[base["ridge"][0]] * len(widths), base["ridge"][1]),
        "learn_ridge": False,
    }


def kmeans_inputs(bank: Bank, rows: Rows, _: Generator) -> Bank:
    """Every class's inputs moved to the centres of k-means over its rows."""
    inputs, outputs = bank.inputs.clone(), bank.outputs.argmax(1)
    for label in outputs.unique():
        mine, X = outputs == label, rows.X[rows.y == label]
        centres = inputs[mine]
        for _round in range(KMEANS_ROUNDS):
            nearest = torch.cdist(X, centres).argmin(1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, X)
            counts = torch.bincount(nearest, minlength=len(centres))[:, None]
            centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
        inputs[mine] = centres
    return replace(bank, inputs=inputs)


def linear_hidden(bank: Bank, _: Rows, generator: Generator) -> Bank:
    """Hidden targets that a random first layer would give, of the same size: solved exactly."""
    (H,) = bank.hidden
    W = torch.randn(bank.inputs.shape[1], H.shape[1], generator=generator).to(H)
    fitted = bank.inputs @ W
    return replace(bank, hidden=(fitted * (H.std() / fitted.std()),))


def with_muon(factor: float, size: int | None = None, epochs: int = 100) -> Idea:
    """The orthogonal update at ``factor`` times Adam's rate, on all rows or on batches."""

    def changes(base: Parameters) -> Parameters:
        pace = {"lr": base["lr"] * factor} if size is None else batches(size, epochs, factor)(base)
        return {"optimizer": "muon", **pace}

    return Idea(changes)


def with_lbfgs(step: BankStep, rows: Rows) -> None:
    """A quasi-Newton method on all rows, as many passes over them as Adam has; no noise."""
    optimizer = torch.optim.LBFGS(
        step.trained,
        max_iter=step.config.max_epochs,
        max_eval=step.config.max_epochs,
        history_size=LBFGS_HISTORY,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        solved = step.weights(training=True)
        passed = data_pass(
            rows, solved.weights, step.config.activation, step.objective, chunk=step.chunk
        )
        gradients, _ = step.pullback(solved, passed.gradients)
        for tensor, gradient in zip(step.trained, gradients, strict=True):
            tensor.grad = None if gradient is None else gradient.contiguous().clone()
        return passed.loss[0]

    optimizer.step(closure)


def with_restarts(step: BankStep, rows: Rows) -> None:
    """Two cosine cycles of half the length; the second begins with fresh momenta."""
    half = replace(step.config, max_epochs=step.config.max_epochs // 2)
    for _ in range(2):
        again = BankStep(step.state, half, step.objective, generator=step.generator)
        _trained(again, rows)


IDEAS: dict[str, Idea] = {
    "the recipe: full batch, input noise": Idea(),
    "no input noise": Idea(lambda _: {"input_noise": 0.0}),
    "mixup 0.2": Idea(lambda _: {"mixup": 0.2}),
    "label smoothing 0.1": Idea(lambda _: {"label_smoothing": 0.1}),
    "average of the bank, decay 0.98": Idea(lambda _: {"averaging": 0.98}),
    "dropout 0.05 on hidden targets": Idea(lambda _: {"hidden_dropout": 0.05}),
    "batches of 6,000, 100 epochs": Idea(batches(6_000, 100, 0.5)),
    "batches of 2,000, 100 epochs": Idea(batches(2_000, 100, 0.3)),
    "batches of 1,000, 60 epochs": Idea(batches(1_000, 60, 0.22)),
    "inputs start at k-means centres": Idea(start=kmeans_inputs),
    "hidden targets start linear in the inputs": Idea(start=linear_hidden),
    "two cycles with a restart": Idea(train=with_restarts),
    "Muon, rate x 0.3": with_muon(0.3),
    "Muon, rate x 1": with_muon(1.0),
    "Muon, rate x 3": with_muon(3.0),
    "Muon, batches of 2,000, rate x 0.3": with_muon(0.3, 2_000),
    "Muon, batches of 2,000, rate x 1": with_muon(1.0, 2_000),
    "L-BFGS, without noise": Idea(lambda _: {"input_noise": 0.0}, train=with_lbfgs, apart=True),
    "one layer, 97 x (400 + 1,024)": Idea(shape(97, 400, 1024)),
    "one layer, 191 x (200 + 512)": Idea(shape(191, 200, 512)),
    "two layers, 149 x (400 + 256 + 256)": Idea(shape(149, 400, 256, 256)),
    "two layers, 142 x (200 + 512 + 256)": Idea(shape(142, 200, 512, 256)),
    "three layers, 149 x (400 + 256 + 128 + 128)": Idea(shape(149, 400, 256, 128, 128)),
    "four layers, 149 x (400 + 4 x 128)": Idea(shape(149, 400, 128, 128, 128, 128)),
}


def measure_ideas(records: Records, *, device: str, seeds: int = 3, quick: bool = False) -> Record:
    """Every idea on every data set."""
    plan = {
        "task": "One idea at a time around the recipe with input noise; 6,000 held-out rows",
        "seeds": seeds,
        "base": BASE,
        "quick": quick,
    }
    record = records.open("tried", plan=plan, device=device)
    for label, idea in IDEAS.items():
        means = []
        for dataset in DATASETS:
            jobs = {f"{label}/{dataset}/seed{seed}": seed for seed in range(seeds)}
            cells = record.cells_of(jobs, partial(measure, idea, dataset, device, quick))
            means.append(100 * statistics.mean(cell["held_out"] for cell in cells))
        record.say(f"{label:44}" + "".join(f" {mean:6.2f}" for mean in means))
    record.finish()
    return record


def measure(
    idea: Idea, dataset: str, device: str, quick: bool, seeds: Sequence[int]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Train with every seed, and score the rows held out."""
    base = BASE[dataset]
    config = recipe_config({**base, **idea.changes(base)})
    if quick:
        config = replace(config, max_epochs=4, warmup_epochs=1)
    task = load_task(dataset, quick=quick)
    rows, validation = projected_rows(task, config, seed=seeds[0], device=device)
    done = 0
    for together in [[seed] for seed in seeds] if idea.apart else [seeds]:
        step = first_step(rows, config, seeds=together, start=idea.start)
        idea.train(step, rows)
        scores, losses = (numbers.tolist() for numbers in step.evaluate(validation))
        for member, (score, loss) in enumerate(zip(scores, losses, strict=True)):
            trained = step.state.member(member).n_trained
            yield done + member, {"held_out": score, "loss": loss, "trained": trained}
        done += len(together)


def ideas_table(record: Content) -> list[str]:
    """A line an idea: held-out accuracy on every data set, and the gain over the recipe."""
    recipe, *_ = IDEAS
    header = ["idea"]
    for dataset in DATASETS:
        header += [f"{NAMES[dataset]} %", "against the recipe"]
    rows = []
    for idea in dict.fromkeys(key.split("/")[0] for key in record["cells"]):
        row = [idea]
        for dataset in DATASETS:
            row.append(str(percent(_held_out(record, idea, dataset))))
            row.append("" if idea == recipe else gain(record, idea, recipe, dataset))
        rows.append(row)
    return markdown(header, rows)


def gain(record: Content, one: str, other: str, dataset: str) -> str:
    """The points by which one idea is ahead of another, seed by seed."""
    pairs = [[100 * v for v in _held_out(record, idea, dataset)] for idea in (one, other)]
    return paired(*pairs, overlap=0.0).brief


def _held_out(record: Content, idea: str, dataset: str) -> list[float]:
    prefix = f"{idea}/{dataset}/"
    return [c["held_out"] for key, c in record["cells"].items() if key.startswith(prefix)]
