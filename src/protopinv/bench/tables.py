"""Tables as text that reads well in a terminal and in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from protopinv.bench.ablations import runs_of, searched_runs
from protopinv.bench.accuracy import meetings
from protopinv.bench.contest import REFERENCE, accuracies_of, standings
from protopinv.bench.markdown import markdown
from protopinv.bench.paper import TableRow, table_rows
from protopinv.bench.scores import Score, percent
from protopinv.bench.sweeps import SWEEPS

NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion"}


def paper_table(*records: Mapping[str, Any]) -> list[str]:
    """Table 1 from one or more records; each says where it was measured."""
    datasets = list(dict.fromkeys(name for r in records for name in r["plan"]["datasets"]))
    header = ["method", "trained", "shipped", "fit", "on", *(f"{NAMES[d]} %" for d in datasets)]
    rows = [_table_row(row, record, datasets) for record in records for row in table_rows(record)]
    return markdown(header, rows)


def accuracy_table(*records: Mapping[str, Any]) -> list[str]:
    """A line a row and data set: ours, the MLP, and the difference."""
    header = ["row", "data", "protopinv %", "MLP %", "ahead by", "drawn", "drawn, MLP"]
    return markdown(
        header,
        [
            [
                m.row.title,
                NAMES[m.dataset],
                str(m.ours),
                str(m.mlp),
                f"{m.ahead:+.2f}",
                f"{m.ours_drawn:.2f}",
                f"{m.mlp_drawn:.2f}",
            ]
            for m in meetings(*records)
        ],
    )


def sweep_tables(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table for every sweep: held-out accuracy of each setting, a column a data set."""
    datasets = [record["plan"]["dataset"] for record in records]
    lines: list[str] = []
    for name in (name for name in records[0]["plan"]["sweeps"] if name in SWEEPS):
        found = [runs_of(record, name) for record in records]
        rows = [
            [label, *(str(percent([cell["held_out"] for cell in runs[label]])) for runs in found)]
            for label in found[0]
        ]
        header = [SWEEPS[name].title, *(f"{NAMES[dataset]} %" for dataset in datasets)]
        lines += [*markdown(header, rows), ""]
    if not all(any(key.startswith("searched/") for key in record["cells"]) for record in records):
        return lines
    searched = [searched_runs(record) for record in records]
    rows = [
        [
            "all trained" if part == "nothing" else f"{part} fixed",
            *(str(percent([cell["held_out"] for cell in runs[part]])) for runs in searched),
        ]
        for part in searched[0]
    ]
    header = ["What is trained, each searched", *(f"{NAMES[dataset]} %" for dataset in datasets)]
    return [*lines, *markdown(header, rows)]


def contest_tables(record: Mapping[str, Any]) -> list[str]:
    """Who stands where, then every table with its gap to LightGBM."""
    return [*standings_table(record), "", *each_table(record)]


def standings_table(
    record: Mapping[str, Any], kind: str = "accuracies", *, timed: bool = True
) -> list[str]:
    """Mean rank, mean score, who wins against whom, and how long a fit takes."""
    rows = [
        [
            standing.name,
            f"{standing.mean_rank:.2f}",
            f"{100 * standing.mean_accuracy:.2f}",
            f"{standing.wins} / {standing.level} / {standing.losses}",
            *([f"{standing.seconds:.2f} s"] if timed else []),
        ]
        for standing in standings(record, kind=kind)
    ]
    header = ["", "mean rank", "mean %", f"wins / level / losses to {REFERENCE}"]
    return markdown([*header, *(["mean fit"] if timed else [])], rows)


def each_table(record: Mapping[str, Any]) -> list[str]:
    """Every table with its gap to LightGBM."""
    names = record["plan"]["contestants"]
    rows = []
    for table, scores in accuracies_of(record).items():
        shape = record["cells"][f"{table}/{names[0]}"]
        size = f"{shape['rows']:,} x {shape['features']}, {shape['classes']}"
        cells = [f"{100 * scores[name]:.2f}" if name in scores else "" for name in names]
        both = {"protopinv", "lightgbm"} <= set(scores)
        gap = f"{100 * (scores['protopinv'] - scores['lightgbm']):+.2f}" if both else ""
        rows.append([table, size, *cells, gap])
    return markdown(["table", "rows x features, classes", *names, "to LightGBM"], rows)


def _table_row(row: TableRow, record: Mapping[str, Any], datasets: Sequence[str]) -> list[str]:
    quick, method = record["plan"]["quick"], row.method
    changed = ", ".join(f"{name}={value}" for name, value in method.quick.items())
    title = f"{method.title} [quick: {changed}]" if quick and changed else method.title
    said = {} if quick else method.paper
    return [
        title,
        f"{row.trained:,}",
        f"{row.shipped:,}",
        f"{row.seconds:.2f} s",
        record["environment"]["device"],
        *(_score(row.scores.get(dataset), said.get(dataset)) for dataset in datasets),
    ]


def _score(score: Score | None, said: float | None) -> str:
    if score is None:
        return ""
    return f"{score} (n = {score.n})" + (f"; paper {said}" if said is not None else "")
