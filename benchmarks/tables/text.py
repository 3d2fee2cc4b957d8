"""The contest on public tables, as text."""

from collections.abc import Mapping
from typing import Any

from benchmarks.tables.contest import REFERENCE, accuracies_of, standings
from protopinv.bench.markdown import markdown


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
