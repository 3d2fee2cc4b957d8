"""The paper's claims about why it works, held against the ablation records."""

import statistics

from benchmarks.paper.evidence import gap_correlation
from benchmarks.paper.verdicts import ByDataset, Claim, Judged, Verdict, all_or_some, judge_all
from protopinv.bench.record import Cell

STRONG = 0.5  # a rank correlation that predicts something


def theory_verdicts(ablations: ByDataset) -> list[Verdict]:
    """Hidden activations, conditioning, depth."""
    return judge_all(CLAIMS, ablations)


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
    texts, pooled, alone = [], [], []
    for data in ablations.values():
        kappa, norm, margin = (
            gap_correlation(data, measure, "error_gap")
            for measure in ("kappa", "spectral_norm", "inverse_margin")
        )
        within = gap_correlation(data, "kappa", "error_gap", sweep="condition")
        pooled.append(kappa > STRONG)
        alone.append(within > STRONG)
        texts.append(
            f"{data.dataset}: κ {kappa:+.2f}, spectral norms {norm:+.2f}, 1 / margin {margin:+.2f}"
            f"; κ where only the penalty on conditioning changes {within:+.2f}"
        )
    text = "rank correlation with the gap in error over all runs; " + "; ".join(texts)
    return ("confirmed" if all(pooled) else "different" if any(alone) else "wrong"), text


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
    return all_or_some(better), "; ".join(texts)


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


CLAIMS: tuple[Claim, ...] = (
    ("Introduction", "Optimising hidden activations improves expressive power", _hidden_matters),
    ("Proposition 1", "The gap grows with κ of the prototype inputs", _kappa_predicts),
    ("Proposition 1", "Training for a lower κ tightens the gap", _conditioning_pays),
    ("Limitations", "Errors may accumulate in deep analytic stacks", _depth_accumulates),
)
