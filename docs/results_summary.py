"""The first lines of docs/results.md, and what lies beyond the paper's own ingredients."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.images.accuracy import Meeting, corrected_meetings
from benchmarks.images.contenders import ROWS
from benchmarks.images.more import more_found, more_table
from benchmarks.paper.comparison import unpaired
from benchmarks.paper.table1 import TableRow, table_rows
from benchmarks.paper.table_findings import tests
from benchmarks.paper.verdicts import Verdict
from benchmarks.tasks import NAMES
from benchmarks.text import markdown

Record = Mapping[str, Any]
SHOWN = ("introduction-hidden", "limits-depth", "abstract-theory")

INTRODUCTION = """\
The method trains no weights. It trains a *bank* of prototypes: made-up inputs, the hidden values
they should have, and the outputs they should give. Every weight matrix is solved from the bank by
ridge regression, and gradients go through the solves. This page holds what
*Prototype Training with Dual Pseudo-Inverse and Optimized Hidden Activations* (M. Tucci) says of it
against measurements. In ten lines:

"""

BEYOND = """\
The paper's budget of trained numbers, with what it leaves out. *Input noise* is Gaussian noise on
projected rows while training; *a mean of banks* deals the same prototypes out to several networks
whose mean is predicted; *stems* are fixed convolutional filters before the network, *copies*
distorted training images; *Muon* is an optimiser that both sides may draw. Rows of Table 1 are
trained on 54,000 rows. The others have at most 138,500 trained numbers and 220
passes over the rows, and were trained on all 60,000 after both sides had searched equally long: the
page on [accuracy](accuracy.md) has their times and sizes. Behind the ± are 5 seeds; *ahead by* has
half the 95 % interval of Welch's test.

"""


def summary_section(newest: Mapping[str, Record], told: Sequence[Verdict]) -> list[str]:
    """Ten lines, each with its numbers."""
    rows = {row.method.key: row for row in table_rows(newest["paper-cuda"])}
    lines = [*_table_lines(newest["paper-cuda"], rows), _counts(told)]
    by_key = {verdict.claim.key: verdict for verdict in told}
    lines += [_shown(by_key[key]) for key in SHOWN]
    lines += _budget_lines(newest)
    lines += [
        "Every figure comes from a dated record in [benchmarks/records](../benchmarks/records); "
        "slips in formulas and listings have [a page of their own](errata.md)."
    ]
    return [*INTRODUCTION.splitlines(), *(f"- {line}" for line in lines)]


def _table_lines(record: Record, rows: Mapping[str, TableRow]) -> list[str]:
    ours, device = rows["protopinv"], record["environment"]["device"]
    scores = " and ".join(f"{ours.scores[d]} % on {name}" for d, name in NAMES.items())
    lines = [
        f"In the paper's shape (150 prototypes, 512 hidden units, PCA-400, 250 epochs, "
        f"{ours.trained:,} trained numbers) the method reaches {scores} (n = 5; the paper: 97.8 "
        f"and 89.3), in {ours.seconds:.2f} s on {device}."
    ]
    parts = [
        f"{_against(record, 'protopinv', row.method.key)} ({row.method.title}: "
        f"{row.seconds:.2f} s, {row.shipped:,} numbers shipped)"
        for row in (rows["mlp-165"], rows["mlp-336"])
    ]
    lines.append(
        f"Against MLPs that were searched equally long: {'; '.join(parts)}. Ours ships "
        f"{ours.shipped:,} numbers."
    )
    best = "protopinv-members" if "protopinv-members" in rows else "protopinv-noise"
    lines.append(
        f"{rows[best].method.title}, against the MLP with input noise: "
        f"{_against(record, best, 'mlp-336-noise')}."
    )
    return lines


def _against(record: Record, one: str, other: str) -> str:
    found = {
        name: unpaired(tests(record, one, dataset), tests(record, other, dataset))
        for dataset, name in NAMES.items()
    }
    return ", ".join(f"{value.brief} points on {name}" for name, value in found.items())


def _counts(told: Sequence[Verdict]) -> str:
    counts = Counter(verdict.judgement for verdict in told)
    listed = ", ".join(f"{number} {judgement}" for judgement, number in counts.most_common())
    return f"Of {len(told)} claims of the paper: {listed}."


def _shown(verdict: Verdict) -> str:
    return f"*{verdict.claim.quote}*: **{verdict.judgement}**. {_sentence(verdict.evidence)}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _meetings(newest: Mapping[str, Record]) -> list[Meeting]:
    found = [
        newest[name]
        for row in ROWS
        for dataset in NAMES
        if (name := f"accuracy-{row.key}-{dataset}-cuda") in newest
    ]
    return corrected_meetings(*found)


def _budget_lines(newest: Mapping[str, Record]) -> list[str]:
    """The best numbers of the budget, and who is ahead where."""
    meetings = _meetings(newest)
    lines = []
    for dataset, name in NAMES.items():
        here = [m for m in meetings if m.dataset == dataset]
        if not here:
            continue
        best = max(here, key=lambda m: m.ours.mean)
        lines.append(
            f"Best at that budget on {name}: {best.ours} % {best.row.title} (MLP {best.mlp}). "
            f"{standing(here)}"
        )
    return lines


def standing(meetings: Sequence[Meeting]) -> str:
    """In how many rows ours is ahead and behind by its mean, and where that is seen."""
    ahead = [m.row.title for m in meetings if m.ahead.is_more]
    behind = [m.row.title for m in meetings if m.ahead.is_less]
    by_mean = sum(m.ahead.mean < 0 for m in meetings)
    seen = [
        f"{word} is seen " + (f"in {len(names)} ({'; '.join(names)})" if names else "in none")
        for word, names in (("Ahead", ahead), ("behind", behind))
    ]
    return f"By its mean ours is behind in {by_mean} of {len(meetings)} rows. {', '.join(seen)}."


def beyond_section(newest: Mapping[str, Record]) -> list[str]:
    """The best honest numbers at the paper's budget, and when which side wins."""
    meetings = _meetings(newest)
    record = newest["paper-cuda"]
    if not meetings:
        return []
    rows = []
    keys = {row.method.key for row in table_rows(record)}
    for one, other, title in (
        ("protopinv", "mlp-165", "Table 1, the paper's ingredients; MLP on pixels"),
        ("protopinv", "mlp-336", "Table 1, the paper's ingredients; MLP on PCA-400"),
        ("protopinv-noise", "mlp-336-noise", "Table 1, input noise"),
        ("protopinv-members", "mlp-336-noise", "Table 1, input noise, a mean of banks"),
    ):
        if one in keys:
            rows += [_table_meeting(record, one, other, title, dataset) for dataset in NAMES]
    rows += [
        [m.row.title, NAMES[m.dataset], str(m.ours), str(m.mlp), m.ahead.brief] for m in meetings
    ]
    return [
        "",
        "## Beyond the paper: when prototypes beat back-propagation",
        "",
        *BEYOND.splitlines(),
        *markdown(["row", "data", "protopinv %", "MLP %", "ahead by"], rows),
        "",
        *_plainly(newest, meetings, {row.method.key: row for row in table_rows(record)}),
    ]


def _table_meeting(record: Record, one: str, other: str, title: str, dataset: str) -> list[str]:
    rows = {row.method.key: row for row in table_rows(record)}
    found = unpaired(tests(record, one, dataset), tests(record, other, dataset))
    scores = [str(rows[key].scores[dataset]) for key in (one, other)]
    return [title, NAMES[dataset], *scores, found.brief]


def _plainly(
    newest: Mapping[str, Record], meetings: Sequence[Meeting], table: Mapping[str, TableRow]
) -> list[str]:
    """When which side wins, said from the tables."""
    lines = []
    for dataset, name in NAMES.items():
        here = [m for m in meetings if m.dataset == dataset]
        lines += [f"**{name}.** {standing(here)}", *_same_on_held_out(here), ""]
    lines += [*_why(newest), ""]
    larger = [m.ours_shipped / m.mlp_shipped for m in meetings]
    longer = [m.ours_seconds / m.mlp_seconds for m in meetings]
    plain = {(m.row.key, m.dataset): m for m in meetings}
    ones = [
        f"{plain['one', dataset].ahead.brief} on {name}"
        for dataset, name in NAMES.items()
        if ("one", dataset) in plain
    ]
    smaller = sum(ratio < 1 for ratio in larger)
    quick = [f"{table[key].seconds:.2f}" for key in ("protopinv", "mlp-165", "mlp-336")]
    return [
        *lines,
        "*Seen* means a p-value below 0.05, corrected by Holm's method for all rows of both data",
        "sets.",
        "",
        f"In these rows ours ships {min(larger):.1f} to {max(larger):.1f} times the numbers of the "
        f"MLP and takes {min(longer):.1f} to {max(longer):.1f} times its fitting time.",
        "",
        "Said plainly: prototypes solved in closed form do best with one hidden layer on rows as "
        f"they are ({', '.join(ones)}), and where a fit must be quick (in the paper's shape "
        f"{quick[0]} s to the {quick[1]} and {quick[2]} s of the MLPs in Table 1). Where there is "
        "more to learn from, by distorted copies, a stem or a second layer, no lead is seen, and "
        f"on Fashion back-propagation is ahead in some rows. In {len(larger) - smaller} of "
        f"{len(larger)} rows ours ships more numbers than the MLP.",
    ]


def _why(newest: Mapping[str, Record]) -> list[str]:
    """Whether it is the number of prototypes that ours lacks on Fashion."""
    record = newest.get("more-fashion-mnist-cuda")
    if record is None:
        return [
            "Why it is behind on Fashion is open. `python -m benchmarks more` measures whether it",
            "is the number of prototypes.",
        ]
    found, factor = more_found(record, newest), record["plan"]["factor"]
    gains = [each.gain.is_more for each in found]
    told = (
        "so the budget's number of prototypes is what it lacks"
        if all(gains)
        else "so that is the reason in some rows only"
        if any(gains)
        else "so no gain is seen, and the reason is another"
    )
    return [
        f"Is it the number of prototypes? The winners with {factor} times as many, beyond the "
        f"budget, on the held-out rows: {told}.",
        "",
        *more_table(record, newest),
    ]


def _same_on_held_out(meetings: Sequence[Meeting]) -> list[str]:
    behind = [m for m in meetings if m.ahead.is_less]
    same = [m for m in behind if m.ahead_on_held_out < 0]
    if not behind:
        return []
    listed = ", ".join(f"{m.row.title} {m.ahead_on_held_out:+.2f}" for m in behind)
    return [
        f"Where it is behind, the winners of both searches differ on the held-out rows in the same "
        f"direction in {len(same)} of {len(behind)} rows ({listed}; points, three seeds), so it is "
        "not the luck of the choice."
    ]
