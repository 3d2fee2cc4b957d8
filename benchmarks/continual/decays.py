"""Ways to choose a decay, from the scores of several that followed a stream side by side."""

from collections.abc import Mapping, Sequence

import numpy as np

# Batches whose scores say which decay is the best at the moment.
RECENT = 5

# The score of every batch, by decay.
Tracks = Mapping[str, Sequence[float]]


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
