"""Each claim of the paper's ablations, held against the records.

A difference counts as seen when it exceeds two standard errors of the difference of two means, with
the typical deviation between seeds over all settings.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from benchmarks.paper.evidence import Ablations, allocation_alignment
from benchmarks.paper.sweeps import DECAYS, decay_label
from protopinv.bench.record import Cell

Judgement = Literal["confirmed", "different", "wrong"]
ByDataset = Mapping[str, Ablations]

MODEST = 1.0  # points; what "modestly" may mean at most
SUFFICES = 0.2  # points left to gain that we call enough
CLAIMED_RIDGE_GAIN = (0.2, 0.3)  # points
EARLY = ("10", "25")
COSINE = "cosine, warm-up 20"


@dataclass(frozen=True)
class Verdict:
    """A sentence, what we say to it, and the numbers."""

    where: str
    claim: str
    judgement: Judgement
    evidence: str


def verdicts(ablations: ByDataset) -> list[Verdict]:
    """Every claim of the two sections, in the paper's order."""
    return judge_all(CLAIMS, ablations)


def judge_all(claims: Sequence["Claim"], ablations: ByDataset) -> list[Verdict]:
    """A verdict for each claim; a second one on the same evidence points to the first."""
    found: list[Verdict] = []
    first: dict[Callable[[ByDataset], Judged], str] = {}
    for where, claim, judge in claims:
        judgement, text = judge(ablations)
        text = f"as for *{first[judge]}*" if judge in first else text
        first.setdefault(judge, claim)
        found.append(Verdict(where, claim, judgement, text))
    return found


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
        return "different", f"not seen: {text}"
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
    low, high = CLAIMED_RIDGE_GAIN
    if gain + fashion.margin < low:
        return "wrong", text
    agrees = gain > fashion.margin and low - fashion.margin <= gain <= high + fashion.margin
    return ("confirmed" if agrees else "different"), text


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
    """When each passes the best of the constant rate, less the margin that noise accounts for."""
    texts, ratios = [], []
    for data in ablations.values():
        label = best_constant(data)
        runs = data.runs("schedule")
        best = statistics.mean(cell["best_held_out"] for cell in runs[label])
        target = best - data.margin / 100
        cosine, constant = (
            statistics.mean(_reaches(cell, target) for cell in runs[name])
            for name in (COSINE, label)
        )
        ratios.append(cosine / constant)
        ends = [f"{data.mean('schedule', name):.2f}" for name in (COSINE, label)]
        texts.append(
            f"{data.dataset}: {100 * target:.2f} % is passed after {cosine:.0f} epochs by cosine "
            f"and after {constant:.0f} by the best constant rate ({ratios[-1]:.2f} of the time); "
            f"at the end {' against '.join(ends)}"
        )
    return _by_ratio(ratios), "; ".join(texts)


def _by_ratio(ratios: list[float]) -> Judgement:
    if all(0.35 <= ratio <= 0.65 for ratio in ratios):
        return "confirmed"
    return "different" if all(ratio < 1 for ratio in ratios) else "wrong"


def _reaches(cell: Cell, target: float) -> int:
    """The first epoch with at least this accuracy; one more than there are if none has it."""
    curve: list[float] = cell["every_epoch"]
    found = (epoch for epoch, score in enumerate(curve, 1) if score >= target)
    return next(found, len(curve) + 1)


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
    return all_or_some([seen for hurts, _ in found for seen in hurts]), text


def _dropout_hurts_fashion(ablations: ByDataset) -> Judged:
    hurts, text = _dropout_final(ablations, "fashion-mnist", ("0.1", "0.2"))
    return all_or_some(hurts), text


def all_or_some(seen: list[bool]) -> Judgement:
    """Seen everywhere, somewhere or nowhere."""
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
    text = "the recipe was tuned with separate decays; " + "; ".join(texts)
    return ("confirmed" if all(better) else "different"), text


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
        counts, mass = (allocation_alignment(data, part) for part in ("end", "mass"))
        aligned.append(moved > 0 and counts.rank > 0 and counts.p_value < 0.05)
        texts.append(
            f"{data.dataset}: {moved:.0f} of {sum(runs[0]['start'])} prototypes change class; rank "
            f"correlation with ambiguity over classes, means over seeds: counts {counts.rank:+.2f} "
            f"(p = {counts.p_value:.2f}), squared outputs {mass.rank:+.2f}"
        )
    return ("confirmed" if all(aligned) else "different"), "; ".join(texts)


def _score_after(epoch: str, cell: Cell) -> float:
    return float(cell["curve"][epoch])


def _balanced_start(ablations: ByDataset) -> Judged:
    texts, faster = [], []
    for data in ablations.values():
        parts = []
        for epoch in EARLY:
            scores = data.scores("outputs", partial(_score_after, epoch))
            gain = scores["balanced"].mean - scores["normal"].mean
            faster.append(gain > data.margin)
            parts.append(f"{gain:+.2f} after {epoch}")
        final = data.mean("outputs", "balanced") - data.mean("outputs", "normal")
        texts.append(f"{data.dataset}: {', '.join(parts)}, {final:+.2f} at the end")
    text = "points against random outputs, by epoch; " + "; ".join(texts)
    return all_or_some(faster), text


PRACTICAL = "Ablations and practical findings"
EXTENDED = "Extended ablations"
Claim = tuple[str, str, Callable[[ByDataset], Judged]]

CLAIMS: tuple[Claim, ...] = (
    (PRACTICAL, "150 prototypes suffice for MNIST", _enough_for_mnist),
    (PRACTICAL, "Fashion benefits modestly from more prototypes", _fashion_wants_more),
    (PRACTICAL, "Accuracy improves up to h ≈ 768, then saturates", _width_saturates),
    (PRACTICAL, "Learning λ₂ improves Fashion by 0.2 to 0.3 points", _learned_last_ridge),
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
)
