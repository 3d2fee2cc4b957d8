"""Table 1 and the tables of the ablations, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.ablations import runs_of, searched_runs
from benchmarks.paper.sweeps import SWEEPS
from benchmarks.paper.table1 import TableRow, table_rows
from protopinv.bench.markdown import markdown
from protopinv.bench.scores import Score, percent

NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion"}


def paper_table(*records: Mapping[str, Any]) -> list[str]:
    """Table 1 from one or more records; each says where it was measured."""
    datasets = list(dict.fromkeys(name for r in records for name in r["plan"]["datasets"]))
    header = ["method", "trained", "shipped", "fit", "on", *(f"{NAMES[d]} %" for d in datasets)]
    rows = [_table_row(row, record, datasets) for record in records for row in table_rows(record)]
    return markdown(header, rows)


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
