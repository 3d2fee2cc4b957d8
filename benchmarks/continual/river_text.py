"""The record of river's streams as tables: who follows them, and how a decay is chosen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.continual.decays import Tracks, best, chosen_always, chosen_first
from benchmarks.continual.drift import DECAYS
from benchmarks.continual.streams import PEERS
from protopinv.bench.markdown import markdown
from protopinv.bench.scores import over_seeds, percent

Record = Mapping[str, Any]
WHO = {
    "never": "the first batch alone",
    **{name: f"`{name.replace(' ', '=')}`" for name in DECAYS if name != "never"},
    "decay 1": "`decay` of everything",
    "tree": "Hoeffding adaptive tree",
    "forest": "adaptive random forest",
    "linear": "linear model, scaled",
}
# Ours that learn, which one can choose among.
LEARNING = [name for name, decay in DECAYS.items() if decay is not None]


def river_tables(record: Record) -> list[str]:
    """Both."""
    return [*river_table(record), "", *decays_table(record)]


def kinds_of(record: Record) -> list[str]:
    """The streams."""
    return list(dict.fromkeys(key.split("/")[0] for key in record["cells"]))


def is_error(record: Record, kind: str) -> bool:
    """Whether a stream is scored by errors of numbers, of which fewer are better."""
    return "error" in record["cells"][f"{kind}/never/0"]


def of_seeds(record: Record, kind: str, name: str) -> list[Mapping[str, Any]]:
    """The cells of one who follows a stream."""
    return [record["cells"][f"{kind}/{name}/{seed}"] for seed in range(record["plan"]["seeds"])]


def scores_of(record: Record, kind: str, name: str, score: str | None = None) -> list[float]:
    """What a cell is scored by, or another of its scores, for every seed."""
    key = score or ("error" if is_error(record, kind) else "accuracy")
    return [cell[key] for cell in of_seeds(record, kind, name)]


def ahead_of(record: Record, kind: str, score: str | None = None) -> list[str]:
    """Decays whose mean score is worse than that of river's forest."""
    sign = -1 if is_error(record, kind) else 1
    forest = sign * np.mean(scores_of(record, kind, "forest", score))
    return [n for n in LEARNING if sign * np.mean(scores_of(record, kind, n)) < forest]


def river_table(record: Record) -> list[str]:
    """Scores over whole streams; those of river's learners also row by row."""

    def row(name: str, score: str | None = None) -> list[str]:
        kinds = kinds_of(record)
        return [_told(record, kind, scores_of(record, kind, name, score)) for kind in kinds]

    rows = [[WHO[name], *row(name)] for name in (*DECAYS, *PEERS)]
    rows += [[f"{WHO[name]}, row by row", *row(name, "row by row")] for name in PEERS]
    return markdown(_header(record), rows)


def decays_table(record: Record) -> list[str]:
    """What comes after the first third of a stream, by how the decay was chosen."""
    rules: dict[str, Callable[[Tracks, int, bool], float]] = {
        "`decay=0`": lambda tracks, n, _: float(np.mean(tracks["decay 0"][n:])),
        "the best of the first third": lambda tracks, n, low: chosen_first(tracks, n, lower=low),
        "the best of the last five batches": lambda tracks, n, low: chosen_always(
            tracks, n, lower=low
        ),
        "the best of what came, in hindsight": lambda tracks, n, low: float(
            np.mean(tracks[best(tracks, n, len(tracks["decay 0"]), lower=low)][n:])
        ),
    }
    rows = []
    for title, rule in rules.items():
        told = []
        for kind in kinds_of(record):
            low, tracks = is_error(record, kind), tracks_of(record, kind)
            values = [rule(each, len(each["decay 0"]) // 3, low) for each in tracks]
            told.append(_told(record, kind, values))
        rows.append([title, *told])
    return markdown(_header(record), rows)


def tracks_of(record: Record, kind: str) -> list[Tracks]:
    """For every seed the scores of every decay, batch by batch."""
    by_name = {name: of_seeds(record, kind, name) for name in LEARNING}
    seeds = range(record["plan"]["seeds"])
    return [{name: found[seed]["after"] for name, found in by_name.items()} for seed in seeds]


def _header(record: Record) -> list[str]:
    return ["", *(f"{k} (error)" if is_error(record, k) else k for k in kinds_of(record))]


def _told(record: Record, kind: str, values: Sequence[float]) -> str:
    """Percent; an error has the unit of its target."""
    return str(over_seeds(values) if is_error(record, kind) else percent(values))
