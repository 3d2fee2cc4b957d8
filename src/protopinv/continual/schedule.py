"""How long and how fast an update trains: less than a fit of as many rows, and more gently."""

import math
from dataclasses import replace

from protopinv.continual.rehearsal import Call
from protopinv.memory import Memory
from protopinv.train.config import TrainConfig

# With a new class, or rows unlike all others: shares of the epochs and of the rate of a fit of as
# many rows.
EPOCHS, RATE = 0.4, 0.3
# With rows like those before: passes over them by the share of all rows so far that came after the
# fit, and the least of them; the rate by that share and the share of those that are new, and the
# most it can be.
PASSES, LEAST_PASSES, FRESH_RATE, MOST_RATE = 8, 2, 3.0, 1.0
# Few rows are learned in so many batches, of so many rows at least: a step of all of them at once
# would be one of too few.
LEAST_BATCHES, LEAST_BATCH = 8, 256


def scheduled(config: TrainConfig, call: Call, n_rows: int, *, batch_is_free: bool) -> TrainConfig:
    """For so many rows, new and drawn, from what a fit of as many new ones would have."""
    rate, epochs = RATE, EPOCHS * config.max_epochs
    if not call.grows:
        gently, passes = gentle(call.state.memory, float(call.new.weight.sum()))
        rate = max(RATE * call.share, gently)
        epochs = (1 - call.share) * min(passes, config.max_epochs) + call.share * epochs
    if batch_is_free:
        small = max(LEAST_BATCH, math.ceil(n_rows / LEAST_BATCHES))
        config = replace(config, batch_size=min(small, config.batch_size or small))
    n_epochs = math.ceil(round(epochs, 6))  # sums of weights are off by their rounding
    return replace(
        config,
        max_epochs=n_epochs,
        warmup_epochs=min(config.warmup_epochs, n_epochs // 4),
        lr=rate * config.lr,
    )


def gentle(memory: Memory, mass: float) -> tuple[float, float]:
    """The share of the rate of a fit, and the passes, for rows like those before of this mass.

    A network that was fitted is as good as its rows allow, and a large step would only shake it.
    One that has learned from small calls is behind a fit of all their rows, and has to catch up.
    """
    total = mass + float(memory.parts.mass.sum())
    fresh = (total - memory.fitted) / total
    rate = min(MOST_RATE, FRESH_RATE * fresh * mass / total)
    return rate, max(LEAST_PASSES, PASSES * fresh)
