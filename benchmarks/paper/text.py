"""Table 1 and the tables of the ablations, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.evidence import Ablations
from benchmarks.paper.names import NAMES
from benchmarks.paper.sweeps import SWEEPS
from benchmarks.paper.table1 import TableRow, table_rows
from protopinv.bench.markdown import markdown
from protopinv.bench.scores import Score


def paper_table(*records: Mapping[str, Any]) -> list[str]:
    """Table 1 from one or more records; each says where it was measured."""
    datasets = list(dict.fromkeys(name for r in records for name in r["plan"]["datasets"]))
    header = ["method", "trained", "shipped", "fit", "on", *(f"{NAMES[d]} %" for d in datasets)]
    rows = [_table_row(row, record, datasets) for record in records for row in table_rows(record)]
    return markdown(header, rows)


def sweep_tables(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table for every sweep: accuracy of each setting, and how it differs from the first."""
    every = [Ablations(record) for record in records]
    lines: list[str] = []
    for name in records[0]["plan"]["sweeps"]:
        header = [SWEEPS[name].title]
        for data in every:
            header += [f"{NAMES[data.dataset]} %", "against the first"]
        lines += [*markdown(header, _sweep_rows(every, name)), ""]
    return lines


def _sweep_rows(every: Sequence[Ablations], sweep: str) -> list[list[str]]:
    first, *_ = every[0].labels(sweep)
    rows = []
    for label in every[0].labels(sweep):
        row = [label]
        for data in every:
            row.append(str(data.score(sweep, label)))
            found = data.difference(sweep, label, first)
            row.append("" if label == first else found.brief)
        rows.append(row)
    return rows


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
