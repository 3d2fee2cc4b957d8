"""docs/results.md and its figures, from dated records and nothing else."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import results_figures as figures
from results_summary import beyond_section, summary_section

from benchmarks.paper.evidence import MEASURES, Ablations, gap_correlation, sweep_tables
from benchmarks.paper.methods import CLOSED_FORM_SHARE, MEMBERS_SHARE
from benchmarks.paper.table1 import paper_table
from benchmarks.paper.verdicts import Verdict, n_comparisons, verdicts
from benchmarks.tasks import NAMES
from benchmarks.text import markdown

Record = Mapping[str, Any]
TABLE_PROSE = """\
Mean ± standard deviation over n seeds on the official test sets; *paper* is what its Table 1 says.
Models are trained on 54,000 rows. Every choice is made on 6,000 more, always the same; the test set
is scored once for each number. Seeds say how much training varies; that the test sets have 10,000
rows adds about 0.13 points of standard error on MNIST and 0.3 on Fashion, the same for all methods.

Hyperparameters won a random search: {budget} configurations for protopinv and for each MLP,
{closed} for the closed forms, which have two or three knobs, {members} for the mean of banks; the
best three were tried with two more seeds. Budgets are equal, foreknowledge is not: the ranges for
protopinv had been narrowed in earlier trials, those of the MLPs are common practice. scikit-learn's
rows are at their defaults.{searched}

*Trained* numbers are what a method learns, *shipped* ones what a device needs to predict from
pixels. *fit* is the median wall-clock time from arrays on the host to a model on the host,
projection and transfers included. ELM (extreme learning machine) and random features are one random
layer with a ridge regression behind it; an MLP is trained by back-propagation.

`make paper` makes the rows on the GPU, and
`python -m benchmarks paper --device cpu --methods scikit-mlp,logistic-regression` those on the CPU.

"""
VERDICT_PROSE = """\
Every sentence of the paper that claims something is listed in
[claims.toml](../benchmarks/paper/claims.toml), and has a row here. *Confirmed*: what is said was
seen, by as much as the row says. *Different*: seen in part, elsewhere, or by another amount.
*Wrong*: excluded, or the opposite was seen. *Inconclusive*: the margin leaves room for what is said
and for its opposite. *Not tested*: nothing here can tell.

Settings are compared by accuracy on held-out training rows, never on the test set. What a setting
leaves open (its rate and ridge, where another size or part wants others) is chosen on the 6,000
rows on which the recipe was chosen. It is judged on {splits} other splits, each of which holds out
6,000 rows that no choice has seen, with {seeds} seeds each. So n = {n}: pairs of runs with the same
split and seed. ± is half the 95 % interval of a paired t-test whose variance allows for training
rows that splits share (Nadeau and Bengio, 2003); tables of test scores are compared by Welch's test
over seeds. *p* is corrected by Holm's method for all {comparisons} comparisons of this table, and a
difference is seen when it is below 0.05. Differences are points of accuracy unless it says
otherwise; less than 0.2 of them is called no gain. The rules are code:
[deciding.py](../benchmarks/paper/deciding.py).

"""
GAP_PROSE = """\
Rank correlation (Spearman) between what the weights and prototypes of a network look like and its
gap, held-out minus training, over one run of each setting ({counts}). *κ* is the condition number,
the largest singular value over the smallest; a *margin* is by how much the right class leads; a
network with a margin of zero or less ranks last. ± is the wider side of the 95 % interval.

"""


def results_page(newest: Mapping[str, Record]) -> tuple[str, dict[str, bytes]]:
    """The page, and its figures by file name."""
    ablations = {
        dataset: Ablations(newest[name])
        for dataset in NAMES
        if (name := f"nested-{dataset}-cuda") in newest
    }
    told = verdicts(newest)
    lines = ["# Results", "", *summary_section(newest, told)]
    lines += table_section([newest[name] for name in ("paper-cuda", "paper-cpu") if name in newest])
    lines += beyond_section(newest)
    lines += verdict_section(newest, told)
    drawn: dict[str, bytes] = {}
    if len(ablations) == len(NAMES):
        lines += sweep_section(ablations)
        lines += gap_section(ablations)
        drawn = {
            "sweeps.svg": figures.sweep_figure(ablations),
            "schedules.svg": figures.schedule_figure(ablations),
            "conditioning.svg": figures.conditioning_figure(ablations),
            "gap.svg": figures.gap_figure(ablations),
            "allocation.svg": figures.allocation_figure(ablations),
        }
    return "\n".join(lines) + "\n", drawn


def table_section(records: Sequence[Record]) -> list[str]:
    """Table 1 and how its hyperparameters were chosen."""
    plan = records[0]["plan"]
    budget, source = plan["configurations"], plan.get("searched")
    prose = TABLE_PROSE.format(
        budget=budget,
        closed=round(budget * CLOSED_FORM_SHARE),
        members=round(budget * MEMBERS_SHARE),
        searched=f" Trials of earlier searches were taken from {source}." if source else "",
    )
    lines = ["", "## Table 1, measured again", "", *paper_table(*records), "", *prose.splitlines()]
    lines += [
        "<details><summary>The configurations that won</summary>",
        "",
        *_winners(records[0]),
        "",
        "</details>",
        "",
    ]
    return [*lines, *(f"<sub>{recipe(record)}</sub>  " for record in records)]


def _winners(record: Record) -> list[str]:
    rows = []
    for key, cell in record["cells"].items():
        if key.startswith("test/") and key.endswith("/seed0"):
            _, method, dataset, _ = key.split("/")
            rows.append([method, NAMES[dataset], f"`{cell['parameters']}`"])
    return markdown(["method", "data", "parameters"], rows, aligned=False)


def verdict_section(newest: Mapping[str, Record], told: Sequence[Verdict]) -> list[str]:
    """Every claim with its verdict."""
    plan = next((newest[n]["plan"] for d in NAMES if (n := f"nested-{d}-cuda") in newest), None)
    splits, seeds = (plan["splits"], plan["seeds"]) if plan else (3, 5)
    prose = VERDICT_PROSE.format(
        splits=splits, seeds=seeds, n=splits * seeds, comparisons=n_comparisons(newest)
    )
    rows = [[v.claim.place, v.claim.quote, f"**{v.judgement}**", v.evidence] for v in told]
    counts = Counter(verdict.judgement for verdict in told)
    total = ", ".join(f"{number} {judgement}" for judgement, number in counts.most_common())
    lines = ["", "## What the paper says, and what we find", "", *prose.splitlines()]
    lines += [f"{len(told)} claims: {total}.", ""]
    header = ["where", "the paper says", "verdict", "measured"]
    return [*lines, *markdown(header, rows, aligned=False)]


def sweep_section(ablations: Mapping[str, Ablations]) -> list[str]:
    """All settings of all sweeps."""
    records = [data.record for data in ablations.values()]
    return [
        "",
        "## All settings",
        "",
        "Accuracy on held-out rows, mean ± standard deviation over splits and seeds, and the",
        "paired difference from the first setting of each table with its 95 % margin, before any",
        "correction.",
        "",
        "![Held-out accuracy against the first setting](figures/sweeps.svg)",
        "",
        "![Accuracy by epoch for each schedule](figures/schedules.svg)",
        "",
        "![Prototypes a class against ambiguity](figures/allocation.svg)",
        "",
        *sweep_tables(records),
        "`make ablations` makes these tables.",
        "",
        *(f"<sub>{recipe(record)}</sub>  " for record in records),
    ]


def gap_section(ablations: Mapping[str, Ablations]) -> list[str]:
    """Does conditioning predict the gap?"""
    rows = []
    for measure, title in MEASURES.items():
        found = [
            gap_correlation(data, measure, gap)
            for data in ablations.values()
            for gap in ("error_gap", "loss_gap")
        ]
        rows.append([title, *(each.brief for each in found)])
    names = [NAMES[dataset] for dataset in ablations]
    header = ["measure", *(f"{name}, {gap}" for name in names for gap in ("error", "loss"))]
    counts = ", ".join(f"n = {len(data.measured)} on {NAMES[d]}" for d, data in ablations.items())
    return [
        "",
        "## Does conditioning predict the generalisation gap?",
        "",
        *GAP_PROSE.format(counts=counts).splitlines(),
        *markdown(header, rows),
        "",
        "The error on the training rows is there to compare with: a measure that does no better",
        "says how closely a network fits its rows, and little else. A negative sign is the",
        "opposite of what theory expects.",
        "",
        "![Gap against three measures](figures/gap.svg)",
        "",
        "Proposition 1 as a diagnostic, where only the penalty on conditioning changes (means over",
        "splits and seeds; the proposition's constant C is left open, so its first term stands",
        "without it):",
        "",
        *_proposition(ablations),
        "",
        "![Conditioning while training](figures/conditioning.svg)",
    ]


def _proposition(ablations: Mapping[str, Ablations]) -> list[str]:
    header = ["data", "penalty", "κ", "κ / √N", "√(log(1/δ) / 2N), δ = 0.05", "gap in error", "n"]
    rows = []
    for dataset, data in ablations.items():
        for penalty in data.labels("condition"):
            runs = data.runs("condition", penalty)
            means = {
                name: statistics.mean(cell["generalisation"][name] for cell in runs)
                for name in ("kappa", "kappa_term", "confidence_term", "error_gap")
            }
            numbers = [f"{means['kappa']:.2f}", f"{means['kappa_term']:.4f}"]
            numbers += [f"{means['confidence_term']:.4f}", f"{means['error_gap']:.4f}"]
            rows.append([NAMES[dataset], penalty, *numbers, str(len(runs))])
    return markdown(header, rows)


SHOWN_VERSIONS = ("torch", "numpy", "scikit-learn")


def recipe(record: Record) -> str:
    """Where a record comes from; the record itself names every package."""
    place = record["environment"]
    found = place["versions"]
    versions = ", ".join(f"{name} {found[name]}" for name in SHOWN_VERSIONS if name in found)
    driver = f", CUDA {place['cuda']}, driver {place['driver']}" if place.get("cuda") else ""
    return (
        f"{record['date']}, {place['device']}{driver}, {versions}, Python {place['python']}, "
        f"commit {place['commit']}, record {record['file']}"
    )
