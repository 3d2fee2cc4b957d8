"""Each claim of the paper's ablations, held against the records.

A difference counts as seen when it exceeds two standard errors of the difference of two means, with
the typical deviation between seeds over all settings.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from protopinv.bench.evidence import (
    Ablations,
    allocation_correlation,
    gap_correlation,
)
from protopinv.bench.record import Cell
from protopinv.bench.sweeps import DECAYS, decay_label

Judgement = Literal["confirmed", "different", "wrong"]
ByDataset = Mapping[str, Ablations]

MODEST = 1.0  # points; what "modestly" may mean at most
SUFFICES = 0.2  # points left to gain that we call enough
STRONG = 0.5  # rank correlation that we call aligned
EARLY = ("10", "25")


@dataclass(frozen=True)
class Verdict:
    """A sentence, what we say to it, and the numbers."""

    where: str
    claim: str
    judgement: Judgement
    evidence: str


def verdicts(ablations: ByDataset) -> list[Verdict]:
    """Every claim, in the paper's order."""
    return [Verdict(where, claim, *judge(ablations)) for where, claim, judge in CLAIMS]


Judged = tuple[Judgement, str]


def _gain_from_more(data: Ablations) -> tuple[float, str]:
    """How much the best larger bank gains over 150 prototypes, and which one it is."""
    scores = data.scores("prototypes")
    larger = {label: score.mean for label, score in scores.items() if int(label) > 150}
    best = max(larger, key=lambda label: larger[label])
    return larger[best] - scores["150"].mean, best


def _enough_for_mnist(ablations: ByDataset) -> Judged:
    data = ablations["mnist"]
    gain, best = _gain_from_more(data)
    scores = data.scores("prototypes")
    text = (
        f"150: {scores['150']}; best of more ({best}): {scores[best]}, {gain:+.2f} points "
        f"(margin {data.margin:.2f}); 50: {scores['50']}"
    )
    return ("confirmed" if gain <= max(SUFFICES, data.margin) else "different"), text


def _fashion_wants_more(ablations: ByDataset) -> Judged:
    fashion, mnist = ablations["fashion-mnist"], ablations["mnist"]
    gain, best = _gain_from_more(fashion)
    other, _ = _gain_from_more(mnist)
    text = (
        f"{best} prototypes: {gain:+.2f} points on Fashion (margin {fashion.margin:.2f}), "
        f"{other:+.2f} on MNIST"
    )
    if gain <= fashion.margin:
        return "wrong", text
    return ("confirmed" if other < gain <= MODEST else "different"), text


def _width_saturates(ablations: ByDataset) -> Judged:
    texts, points = [], []
    for data in ablations.values():
        scores = data.scores("width")
        best = max(score.mean for score in scores.values())
        first = next(h for h, score in scores.items() if best - score.mean <= data.margin)
        points.append(int(first))
        listed = ", ".join(f"{h}: {score.mean:.2f}" for h, score in scores.items())
        texts.append(f"{data.dataset}: within the margin of the best from h = {first} ({listed})")
    return ("confirmed" if all(p == 768 for p in points) else "different"), "; ".join(texts)


def _learned_last_ridge(ablations: ByDataset) -> Judged:
    gains = {
        name: data.mean("ridge", "last learned") - data.mean("ridge", "both fixed")
        for name, data in ablations.items()
    }
    fashion = ablations["fashion-mnist"]
    gain = gains["fashion-mnist"]
    text = (
        f"{gain:+.2f} points on Fashion, {gains['mnist']:+.2f} on MNIST "
        f"(margin {fashion.margin:.2f})"
    )
    if gain <= fashion.margin:
        return "wrong", text
    return ("confirmed" if 0.2 - fashion.margin <= gain <= 0.3 + fashion.margin else "different"), (
        text
    )


def _first_ridge_fixed(ablations: ByDataset) -> Judged:
    texts, worse = [], []
    for data in ablations.values():
        scores = data.scores("ridge")
        fixed, learned = scores["both fixed"], scores["first learned"]
        skipped = sum(cell["skipped_steps"] for cell in data.runs("ridge")["first learned"])
        start = data.record["plan"]["recipe"]["ridge"][0]
        end = statistics.mean(c["ridge"][0] for c in data.runs("ridge")["first learned"])
        worse.append(fixed.mean - learned.mean > data.margin or skipped > 0)
        texts.append(
            f"{data.dataset}: fixed {fixed}, learned {learned}, {skipped} skipped steps, "
            f"λ₁ {start:g} → {end:.3g}"
        )
    return ("confirmed" if all(worse) else "different"), "; ".join(texts)


def best_constant(data: Ablations) -> str:
    """The constant schedule with the best held-out accuracy on the way."""
    scores = data.scores("schedule", lambda cell: float(cell["best_held_out"]))
    constant = {k: score.mean for k, score in scores.items() if k.startswith("constant")}
    return max(constant, key=lambda label: constant[label])


def _time_to_best(ablations: ByDataset) -> Judged:
    texts, ratios = [], []
    for data in ablations.values():
        label = best_constant(data)
        runs = data.runs("schedule")
        cosine, constant = runs["cosine, warm-up 20"], runs[label]
        target = statistics.mean(cell["best_held_out"] for cell in constant)
        to_best = statistics.mean(cell["best_epoch"] for cell in constant)
        own_best = statistics.mean(cell["best_epoch"] for cell in cosine)
        reached = [epoch for cell in cosine if (epoch := _reaches(cell, target)) is not None]
        missed = len(cosine) - len(reached)
        ratio = math.inf if missed else statistics.mean(reached) / to_best
        ratios.append(ratio)
        passes = (
            f"never in {missed} of {len(cosine)} runs"
            if missed
            else f"after {statistics.mean(reached):.0f} ({ratio:.2f} of it)"
        )
        texts.append(
            f"{data.dataset}: the best {label} peaks at {100 * target:.2f} % after {to_best:.0f} "
            f"epochs; cosine reaches that {passes}, and its own peak after {own_best:.0f}"
        )
    return _by_ratio(ratios), "; ".join(texts)


def _by_ratio(ratios: list[float]) -> Judgement:
    if all(0.35 <= ratio <= 0.65 for ratio in ratios):
        return "confirmed"
    return "different" if all(ratio < 0.9 for ratio in ratios) else "wrong"


def _reaches(cell: Cell, target: float) -> int | None:
    """The first epoch with at least this accuracy, if any has it."""
    curve: list[float] = cell["every_epoch"]
    return next((epoch for epoch, score in enumerate(curve, 1) if score >= target), None)


def _dropout_final(
    ablations: ByDataset, name: str, rates: tuple[str, ...]
) -> tuple[list[bool], str]:
    data = ablations[name]
    scores = data.scores("dropout")
    falls = {rate: scores[rate].mean - scores["0.0"].mean for rate in rates}
    listed = ", ".join(f"{rate}: {fall:+.2f}" for rate, fall in falls.items())
    return [fall < -data.margin for fall in falls.values()], (
        f"{name}, points against none: {listed} (margin {data.margin:.2f})"
    )


def _dropout_hurts(ablations: ByDataset) -> Judged:
    found = [_dropout_final(ablations, name, ("0.01", "0.05", "0.1", "0.2")) for name in ablations]
    text = "; ".join(text for _, text in found)
    return _all_or_some([seen for hurts, _ in found for seen in hurts]), text


def _dropout_hurts_fashion(ablations: ByDataset) -> Judged:
    hurts, text = _dropout_final(ablations, "fashion-mnist", ("0.1", "0.2"))
    return _all_or_some(hurts), text


def _all_or_some(seen: list[bool]) -> Judgement:
    return "confirmed" if all(seen) else "different" if any(seen) else "wrong"


def _dropout_smooths(ablations: ByDataset) -> Judged:
    texts, smoother = [], []
    for data in ablations.values():
        rough = {
            rate: statistics.mean(cell["early_roughness"] for cell in runs)
            for rate, runs in data.runs("dropout").items()
        }
        smoother.append(min(rough["0.01"], rough["0.05"]) < 0.9 * rough["0.0"])
        listed = ", ".join(f"{rate}: {rough[rate] / rough['0.0']:.2f}" for rate in rough)
        texts.append(f"{data.dataset}: {listed}")
    text = "roughness of the held-out loss over 50 epochs, none = 1; " + "; ".join(texts)
    return ("confirmed" if all(smoother) else "wrong"), text


def _separate_decays(ablations: ByDataset) -> Judged:
    texts, better = [], []
    for data in ablations.values():
        scores = data.scores("decay")
        joint = max((decay_label(d, d) for d in DECAYS), key=lambda label: scores[label].mean)
        best = max(scores, key=lambda label: scores[label].mean)
        gain = scores[best].mean - scores[joint].mean
        better.append(gain > data.margin)
        texts.append(
            f"{data.dataset}: best joint {scores[joint]} ({joint}), best of all {scores[best]} "
            f"({best}), {gain:+.2f} points (margin {data.margin:.2f})"
        )
    return ("confirmed" if all(better) else "different"), "; ".join(texts)


def _output_decay(ablations: ByDataset) -> Judged:
    texts, needed = [], []
    for data in ablations.values():
        scores = data.scores("output-decay")
        for temperature in ("0", "1"):
            none = scores[f"T {temperature}, decay 0"]
            some = {d: scores[f"T {temperature}, decay {d:g}"] for d in DECAYS if d > 0}
            best = max(some, key=lambda d: some[d].mean)
            gain = some[best].mean - none.mean
            needed.append(gain > data.margin)
            texts.append(f"{data.dataset}, T = {temperature}: best decay ({best:g}) {gain:+.2f}")
    text = "points against none; " + "; ".join(texts)
    return ("different" if any(needed) else "confirmed"), text


def _reallocates(ablations: ByDataset) -> Judged:
    texts, aligned = [], []
    for data in ablations.values():
        runs = [cell["allocation"] for cell in data.runs("parts")["all trained"]]
        moved = statistics.mean(run["moved"] for run in runs)
        total = sum(runs[0]["start"])
        ends = [f"{min(run['end'])} to {max(run['end'])}" for run in runs]
        counts = allocation_correlation(data, "end")
        mass = allocation_correlation(data, "mass")
        aligned.append(moved > 0 and counts > STRONG)
        texts.append(
            f"{data.dataset}: {moved:.0f} of {total} prototypes change class, {ends[0]} a class at "
            f"the end; rank correlation with ambiguity: counts {counts:+.2f}, squared outputs "
            f"{mass:+.2f}"
        )
    return _all_or_some(aligned), "; ".join(texts)


def _balanced_start(ablations: ByDataset) -> Judged:
    texts, faster = [], []
    for data in ablations.values():
        parts = []
        for epoch in EARLY:
            scores = data.scores("outputs", lambda cell, e=epoch: float(cell["curve"][e]))  # type: ignore[misc]
            gain = scores["balanced"].mean - scores["normal"].mean
            faster.append(gain > data.margin)
            parts.append(f"{gain:+.2f} after {epoch}")
        final = data.mean("outputs", "balanced") - data.mean("outputs", "normal")
        texts.append(f"{data.dataset}: {', '.join(parts)}, {final:+.2f} at the end")
    text = "points against random outputs, by epoch; " + "; ".join(texts)
    return _all_or_some(faster), text


def _hidden_matters(ablations: ByDataset) -> Judged:
    texts, better = [], []
    for data in ablations.values():
        scores = {
            part: statistics.mean(100 * cell["held_out"] for cell in runs)
            for part, runs in data.searched().items()
        }
        gain = scores["nothing"] - scores["hidden"]
        better.append(gain > data.margin)
        listed = ", ".join(
            f"{'all trained' if part == 'nothing' else part + ' fixed'} {score:.2f}"
            for part, score in scores.items()
        )
        texts.append(f"{data.dataset}: {listed}")
    text = "each variant with a search of its own; " + "; ".join(texts)
    return ("confirmed" if all(better) else "wrong"), text


def _kappa_predicts(ablations: ByDataset) -> Judged:
    texts, positive = [], []
    for data in ablations.values():
        kappa = gap_correlation(data, "kappa", "error_gap")
        norm = gap_correlation(data, "spectral_norm", "error_gap")
        margin = gap_correlation(data, "inverse_margin", "error_gap")
        positive.append(kappa > STRONG)
        texts.append(
            f"{data.dataset}: κ {kappa:+.2f}, spectral norms {norm:+.2f}, 1 / margin {margin:+.2f}"
        )
    text = "rank correlation with the gap in error over all runs; " + "; ".join(texts)
    return _all_or_some(positive), text


def _conditioning_pays(ablations: ByDataset) -> Judged:
    texts, better = [], []
    for data in ablations.values():
        runs = data.runs("condition")
        scores = data.scores("condition")
        best = max(scores, key=lambda label: scores[label].mean)
        kappa = {label: _mean_kappa(found) for label, found in runs.items()}
        gap = {
            label: 100 * statistics.mean(c["generalisation"]["error_gap"] for c in found)
            for label, found in runs.items()
        }
        better.append(gap["1.0"] < gap["0.0"] - data.margin)
        texts.append(
            f"{data.dataset}: penalty 1 takes κ from {kappa['0.0']:.3g} to {kappa['1.0']:.3g}, the "
            f"gap from {gap['0.0']:.2f} to {gap['1.0']:.2f} points and accuracy from "
            f"{scores['0.0'].mean:.2f} to {scores['1.0'].mean:.2f}; best penalty {best}: "
            f"{scores[best].mean:.2f}"
        )
    return _all_or_some(better), "; ".join(texts)


def _mean_kappa(runs: list[Cell]) -> float:
    return float(statistics.mean(cell["layers"][0]["condition"] for cell in runs))


def _depth_accumulates(ablations: ByDataset) -> Judged:
    texts, worse = [], []
    for data in ablations.values():
        scores = data.scores("depth")
        shapes: dict[str, float] = {}
        for label, score in scores.items():
            shape = label.partition(",")[0]
            shapes[shape] = max(score.mean, shapes.get(shape, 0.0))
        worse.append(shapes["512-512-512"] < shapes["512"] - data.margin)
        listed = ", ".join(f"{shape} {score:.2f}" for shape, score in shapes.items())
        texts.append(f"{data.dataset}: {listed}")
    text = "not seen up to three layers of the same width; " if not any(worse) else ""
    text += "best inner ridge of each shape; " + "; ".join(texts)
    return ("confirmed" if all(worse) else "different"), text


PRACTICAL = "Ablations and practical findings"
EXTENDED = "Extended ablations"
Claim = tuple[str, str, Callable[[ByDataset], Judged]]

CLAIMS: tuple[Claim, ...] = (
    (PRACTICAL, "150 prototypes suffice for MNIST", _enough_for_mnist),
    (PRACTICAL, "Fashion benefits modestly from more prototypes", _fashion_wants_more),
    (PRACTICAL, "Accuracy improves up to h ≈ 768, then saturates", _width_saturates),
    (PRACTICAL, "Learning λ₂ improves Fashion by 0.2–0.3 points", _learned_last_ridge),  # noqa: RUF001
    (PRACTICAL, "λ₁ is often more stable fixed", _first_ridge_fixed),
    (PRACTICAL, "Cosine with warm-up halves the time to best", _time_to_best),
    (PRACTICAL, "Small dropout on H may smooth early training", _dropout_smooths),
    (PRACTICAL, "Dropout on H often reduces final accuracy", _dropout_hurts),
    (PRACTICAL, "Separate decays for X and H are preferable", _separate_decays),
    (PRACTICAL, "Decay on Y is generally unnecessary with soft labels", _output_decay),
    (PRACTICAL, "Capacity moves to hard classes; counts align with ambiguity", _reallocates),
    (EXTENDED, "Balanced one-hot outputs accelerate early convergence", _balanced_start),
    (EXTENDED, "The model later reallocates prototypes to hard classes", _reallocates),
    (EXTENDED, "Dropout of 0.1 and more reduces final accuracy on Fashion", _dropout_hurts_fashion),
    (EXTENDED, "Dropout of 0.01 to 0.05 may smooth early steps", _dropout_smooths),
    (EXTENDED, "Decouple the decays of X and H", _separate_decays),
    (EXTENDED, "Decay on Y is usually unnecessary with soft labels", _output_decay),
    ("Introduction", "Optimising hidden activations improves expressive power", _hidden_matters),
    ("Proposition 1", "The gap grows with κ of the prototype inputs", _kappa_predicts),
    ("Proposition 1", "Training for a lower κ tightens the gap", _conditioning_pays),
    ("Limitations", "Errors may accumulate in deep analytic stacks", _depth_accumulates),
)
