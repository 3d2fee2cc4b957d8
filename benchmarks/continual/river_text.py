"""The record of river's streams as tables: the scores of learners, and ways to choose a decay."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.continual.drift import DECAYS, PEERS
from benchmarks.record import Content
from benchmarks.text import markdown, over_seeds, percent

# The score of every batch, by decay.
Tracks = Mapping[str, Sequence[float]]
# Batches whose scores say which decay is the best at the moment.
RECENT = 5
WHO = {
    "never": "the first batch alone",
    **{name: f"`{name.replace(' ', '=')}`" for name in DECAYS if name != "never"},
    "decay 1": "`decay` of everything",
    "tree": "Hoeffding adaptive tree",
    "forest": "adaptive random forest",
    "linear": "linear model, scaled",
}
# Ours that learn all batches; a decay is chosen among these.
LEARNING = [name for name, decay in DECAYS.items() if decay is not None]


def river_tables(record: Content) -> list[str]:
    """The scores of all learners, and those of ways to choose a decay."""
    return [*river_table(record), "", *decays_table(record)]


def kinds_of(record: Content) -> list[str]:
    """The streams."""
    return list(dict.fromkeys(key.split("/")[0] for key in record["cells"]))


def is_error(record: Content, kind: str) -> bool:
    """Whether a stream is scored by errors of numbers, of which fewer are better."""
    return "error" in record["cells"][f"{kind}/never/0"]


def of_seeds(record: Content, kind: str, name: str) -> list[Mapping[str, Any]]:
    """The cells of one learner on a stream, by seed."""
    return [record["cells"][f"{kind}/{name}/{seed}"] for seed in range(record["plan"]["seeds"])]


def scores_of(record: Content, kind: str, name: str, score: str | None = None) -> list[float]:
    """The main score of a cell, or another of its scores, for every seed."""
    key = score or ("error" if is_error(record, kind) else "accuracy")
    return [cell[key] for cell in of_seeds(record, kind, name)]


def ahead_of(record: Content, kind: str, score: str | None = None) -> list[str]:
    """Decays whose mean score is worse than that of river's forest."""
    sign = -1 if is_error(record, kind) else 1
    forest = sign * np.mean(scores_of(record, kind, "forest", score))
    return [n for n in LEARNING if sign * np.mean(scores_of(record, kind, n)) < forest]


def river_table(record: Content) -> list[str]:
    """Scores over whole streams; those of river's learners also row by row."""

    def row(name: str, score: str | None = None) -> list[str]:
        kinds = kinds_of(record)
        return [_score(record, kind, scores_of(record, kind, name, score)) for kind in kinds]

    rows = [[WHO[name], *row(name)] for name in (*DECAYS, *PEERS)]
    rows += [[f"{WHO[name]}, row by row", *row(name, "row by row")] for name in PEERS]
    return markdown(_header(record), rows)


def decays_table(record: Content) -> list[str]:
    """The score after the first third of a stream, by how the decay was chosen."""
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
        row = [title]
        for kind in kinds_of(record):
            low, tracks = is_error(record, kind), tracks_of(record, kind)
            values = [rule(each, len(each["decay 0"]) // 3, low) for each in tracks]
            row.append(_score(record, kind, values))
        rows.append(row)
    return markdown(_header(record), rows)


def tracks_of(record: Content, kind: str) -> list[Tracks]:
    """For every seed the scores of every decay, batch by batch."""
    by_name = {name: of_seeds(record, kind, name) for name in LEARNING}
    seeds = range(record["plan"]["seeds"])
    return [{name: cells[seed]["after"] for name, cells in by_name.items()} for seed in seeds]


def best(tracks: Tracks, start: int, stop: int, *, lower: bool) -> str:
    """The decay whose scores in these batches have the best mean; of equals the first."""
    means = {name: float(np.mean(scores[start:stop])) for name, scores in tracks.items()}
    return (min if lower else max)(means, key=lambda name: means[name])


def chosen_first(tracks: Tracks, n_first: int, *, lower: bool) -> float:
    """The mean after ``n_first`` batches of the decay that was the best in these."""
    return float(np.mean(tracks[best(tracks, 0, n_first, lower=lower)][n_first:]))


def chosen_always(tracks: Tracks, n_first: int, *, lower: bool) -> float:
    """The same mean if every batch is predicted by what was the best in the last few."""
    n = len(next(iter(tracks.values())))
    return float(
        np.mean(
            [tracks[best(tracks, max(0, t - RECENT), t, lower=lower)][t] for t in range(n_first, n)]
        )
    )


def _header(record: Content) -> list[str]:
    return ["", *(f"{k} (error)" if is_error(record, k) else k for k in kinds_of(record))]


def _score(record: Content, kind: str, values: Sequence[float]) -> str:
    """Percent; an error has the unit of its target."""
    return str(over_seeds(values) if is_error(record, kind) else percent(values))
