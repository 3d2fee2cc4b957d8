"""What the ablation records have to say to each claim about a setting."""

import math
import statistics
from collections.abc import Callable
from functools import partial

from benchmarks.paper import deciding
from benchmarks.paper.comparison import Difference, Named, paired
from benchmarks.paper.evidence import (
    Ablations,
    allocation_alignment,
    allocation_of,
    gap_correlation,
    held_out,
)
from benchmarks.paper.findings import Find, Finding, Sources, settled
from benchmarks.paper.sweeps import DEPTHS, OFF_BY_TEN, depth_label
from benchmarks.record import Cell
from benchmarks.tasks import NAMES

COSINE, CONSTANT = "cosine, warm-up 20", "constant, best of four rates"
EARLY = ("10", "25")
SLACK = 0.001  # accuracy below the best of a run that counts as reaching it


def each(sources: Sources, compare: Callable[[Ablations], Named]) -> dict[str, Difference]:
    """The comparisons of every data set, by its name."""
    return {
        f"{NAMES[dataset]}{': ' if name else ''}{name}": difference
        for dataset, data in sources.ablations.items()
        for name, difference in compare(data).items()
    }


def settings(decide: deciding.Decide, sweep: str, *pairs: tuple[str, str], note: str = "") -> Find:
    """Settings of a sweep against others, on both data sets."""

    def find(sources: Sources) -> Finding:
        return Finding(decide, each(sources, partial(_pairs, sweep, pairs)), note)

    return find


def _pairs(sweep: str, pairs: tuple[tuple[str, str], ...], data: Ablations) -> Named:
    return {f"{one} against {other}": data.difference(sweep, one, other) for one, other in pairs}


def _on(sources: Sources, dataset: str) -> Ablations:
    return sources.ablations[dataset]


def more_prototypes_on_mnist(sources: Sources) -> Finding:
    """150 against more."""
    data = _on(sources, "mnist")
    pairs = (("300", "150"), ("600", "150"))
    return Finding(deciding.no_gain, _pairs("prototypes", pairs, data), _listed(data, "prototypes"))


def more_prototypes_on_fashion(sources: Sources) -> Finding:
    """The same on Fashion."""
    data = _on(sources, "fashion-mnist")
    pairs = (("300", "150"), ("600", "150"))
    compared = _pairs("prototypes", pairs, data)
    return Finding(deciding.modest_gain, compared, _listed(data, "prototypes"))


def _listed(data: Ablations, sweep: str) -> str:
    scores = ", ".join(f"{label}: {data.score(sweep, label)}" for label in data.labels(sweep))
    return f"{NAMES[data.dataset]} %: {scores}"


def width(sources: Sources) -> Finding:
    """The step up to 768, and the one beyond."""
    compared = each(
        sources,
        lambda data: {
            "512 to 768": data.difference("width", "768", "512"),
            "beyond, 768 to 1024": data.difference("width", "1024", "768"),
        },
    )
    note = "; ".join(_listed(data, "width") for data in sources.ablations.values())
    return Finding(deciding.saturates, compared, note)


def learned_last_ridge(sources: Sources) -> Finding:
    """On Fashion, as the claim says."""
    fashion, mnist = (_on(sources, name) for name in ("fashion-mnist", "mnist"))
    compared = {"Fashion": fashion.difference("ridge", "last learned", "both fixed")}
    other = mnist.difference("ridge", "last learned", "both fixed")
    return Finding(deciding.gain_between(0.2, 0.3), compared, f"MNIST, not claimed: {other}")


def first_ridge(sources: Sources) -> Finding:
    """Learned against fixed: accuracy, and what else may show that it is less stable."""
    compared = each(
        sources,
        lambda data: {"": data.difference("ridge", "first learned", "both fixed")},
    )
    return Finding(deciding.often_less, compared, "; ".join(map(_ridge_note, _all(sources))))


def _all(sources: Sources) -> list[Ablations]:
    return list(sources.ablations.values())


def _ridge_note(data: Ablations) -> str:
    fixed, learned = (data.score("ridge", label) for label in ("both fixed", "first learned"))
    skipped = sum(cell["skipped_steps"] for cell in data.runs("ridge", "first learned"))
    return f"{NAMES[data.dataset]} %: fixed {fixed}, learned {learned}, {skipped} steps skipped"


def time_to_best(sources: Sources) -> Finding:
    """Epochs until the best that the constant rate ever has is reached, pair by pair."""
    compared = each(sources, lambda data: {"": _time_to_best(data)})
    ends = [
        f"{NAMES[data.dataset]} at the end {data.difference('schedule', COSINE, CONSTANT)} points"
        for data in _all(sources)
    ]
    return Finding(deciding.times(0.5), compared, "; ".join(ends))


def _time_to_best(data: Ablations) -> Difference:
    cosine, constant = (data.runs("schedule", label) for label in (COSINE, CONSTANT))
    epochs: list[list[float]] = [[], []]
    for ours, theirs in zip(cosine, constant, strict=True):
        target = max(theirs["every_epoch"]) - SLACK
        for reached, cell in zip(epochs, (ours, theirs), strict=True):
            reached.append(math.log2(_reached(cell, target)))
    return paired(*epochs, overlap=data.overlap, unit="times")


def _reached(cell: Cell, target: float) -> int:
    """The first epoch with at least this accuracy; one more than there are if none has it."""
    curve: list[float] = cell["every_epoch"]
    epochs = (epoch for epoch, score in enumerate(curve, 1) if score >= target)
    return next(epochs, len(curve) + 1)


def dropout_smooths(sources: Sources) -> Finding:
    """The roughness of the held-out loss over the first epochs, small rates against none."""

    def compare(data: Ablations) -> Named:
        return {
            rate: data.difference("dropout", rate, "0.0", _log_roughness, "times")
            for rate in ("0.01", "0.05")
        }

    note = "mean absolute second difference of the held-out loss over 50 epochs"
    return Finding(deciding.may_be_less, each(sources, compare), note)


def _log_roughness(cell: Cell) -> float:
    return math.log2(max(cell["early_roughness"], 1e-12))


def dropout_hurts(sources: Sources) -> Finding:
    """Every rate against none."""
    return Finding(deciding.often_less, each(sources, lambda data: data.against_first("dropout")))


def dropout_hurts_fashion(sources: Sources) -> Finding:
    """Rates from 0.1 on."""
    data = _on(sources, "fashion-mnist")
    pairs = (("0.1", "0.0"), ("0.2", "0.0"))
    return Finding(deciding.less, _pairs("dropout", pairs, data))


def allocation(sources: Sources) -> Finding:
    """Prototypes of a class at the end against its ambiguity, over the ten classes."""
    compared = each(sources, lambda data: {"": allocation_alignment(data, "end")})
    notes = []
    for data in _all(sources):
        runs = allocation_of(data)
        moved = statistics.mean(run["moved"] for run in runs)
        mass = allocation_alignment(data, "mass")
        notes.append(
            f"{NAMES[data.dataset]}: {moved:.0f} of {sum(runs[0]['start'])} prototypes change "
            f"class; squared outputs {mass.mean:+.2f}"
        )
    return Finding(deciding.predicts, compared, "; ".join(notes))


def balanced_start(sources: Sources) -> Finding:
    """Accuracy after a few epochs, balanced against random outputs."""

    def compare(data: Ablations) -> Named:
        return {
            f"after {epoch} epochs": data.difference(
                "outputs", "balanced", "normal", partial(_after, epoch)
            )
            for epoch in EARLY
        }

    ends = [
        f"{NAMES[data.dataset]} at the end {data.difference('outputs', 'balanced', 'normal')}"
        for data in _all(sources)
    ]
    return Finding(deciding.more, each(sources, compare), "; ".join(ends))


def _after(epoch: str, cell: Cell) -> float:
    return 100 * float(cell["curve"][epoch])


def kappa_predicts(sources: Sources) -> Finding:
    """Rank correlation of kappa with the gap over settings, one run each."""
    compared = each(sources, lambda data: {"κ": gap_correlation(data, "kappa", "error_gap")})
    notes = []
    for data in _all(sources):
        norms, train = (
            gap_correlation(data, name, "error_gap").mean
            for name in ("spectral_norm", "training_error")
        )
        notes.append(
            f"{NAMES[data.dataset]}: spectral norms {norms:+.2f}, error on training rows "
            f"{train:+.2f}"
        )
    return Finding(deciding.predicts, compared, "; ".join(notes))


def conditioning_pays(sources: Sources) -> Finding:
    """The gap with the strongest penalty on conditioning against none."""
    compared = each(sources, lambda data: {"gap": data.difference("condition", "1.0", "0.0", _gap)})
    notes = []
    for data in _all(sources):
        kappa = [
            statistics.mean(cell["generalisation"]["kappa"] for cell in data.runs("condition", c))
            for c in ("0.0", "1.0")
        ]
        accuracy = data.difference("condition", "1.0", "0.0")
        notes.append(
            f"{NAMES[data.dataset]}: κ from {kappa[0]:.3g} to {kappa[1]:.3g}, accuracy {accuracy}"
        )
    return Finding(deciding.less, compared, "; ".join(notes))


def _gap(cell: Cell) -> float:
    return 100 * float(cell["generalisation"]["error_gap"])


def depth(sources: Sources) -> Finding:
    """The deepest stacks against one layer, and how far prototypes miss their targets in them."""
    first = depth_label(DEPTHS[0])
    deep = [depth_label(layers) for layers in DEPTHS if layers > 3]

    def compare(data: Ablations) -> Named:
        return _pairs("depth", tuple((label, first) for label in deep), data)

    notes = []
    for data in _all(sources):
        misses = [cell["misses"] for cell in data.runs("depth", deep[-1])]
        own, gathered = (
            statistics.mean(miss[name][-1] for miss in misses) for name in ("own", "all")
        )
        notes.append(
            f"{NAMES[data.dataset]}: in the last hidden layer of {deep[-1]} prototypes miss their "
            f"targets by {own:.2f} of their size, by {gathered:.2f} with what gathers before it"
        )
    # "potential" is said of some: one stack in which it shows is enough
    return Finding(deciding.may_lose, each(sources, compare), "; ".join(notes))


def few_prototypes(sources: Sources) -> Finding:
    """What a ridge that is off by ten costs at most, with few prototypes and with 150."""

    def compare(data: Ablations) -> Named:
        return {
            f"{p} prototypes against 150": paired(
                _spread(data, p), _spread(data, "150"), overlap=data.overlap
            )
            for p in ("10", "25")
        }

    note = "points lost by the worse of a tenth and ten times the ridge"
    return Finding(deciding.more, each(sources, compare), note)


def _spread(data: Ablations, p: str) -> list[float]:
    runs = [data.runs("few", f"{p}, ridge x {factor:g}") for factor in OFF_BY_TEN]
    return [held_out(cells[0]) - min(map(held_out, cells[1:])) for cells in zip(*runs, strict=True)]


def steps_skipped(sources: Sources) -> Finding:
    """How often the guard had something to do, in all runs of the ablations."""
    every = [data.trouble for data in _all(sources)]
    runs, skipped, cuts = (sum(counts) for counts in zip(*every, strict=True))
    judgement: deciding.Judgement = "confirmed" if skipped else "different"
    note = f"in {runs:,} runs {skipped} steps had to be skipped and {cuts} rates cut"
    return settled(judgement, note)
