"""Rows that nobody has seen, to check and calibrate a network with: no training row is needed."""

from dataclasses import replace

import numpy as np
import torch
from torch import Generator, Tensor

from protopinv.errors import ConfigError
from protopinv.features import Bent, Stem
from protopinv.model import Model
from protopinv.tables import Category, Column

MADE_UP = 32
# All that are stored take no more than this.
MOST_BYTES = 2**16
# Numbers of all rows at most, however many are asked for.
MOST_NUMBERS = 2**25
# Noise on replayed rows, in standard deviations: those of a class with one row are too like it.
NOISE = 0.1
# Share of gaps in a column that had some.
GAPS = 0.125


def shareable(model: Model, *, examples: bool = False) -> Model:
    """The model with rows that may leave the process: made-up ones, unless ``examples``."""
    if not examples:
        return replace(model, examples=made_up(model).numpy(), made_up=True)
    if not len(model.examples):
        raise ConfigError(
            "examples=True takes training rows along. This model has none: its file or pickle had "
            "none, or a class was forgotten. Leave it out, or fit again."
        )
    return model


def example_outputs(model: Model) -> Tensor:
    """Outputs for the examples in float64, which need not be finite."""
    rows = model.examples
    # a stem works in float32
    return model.raw_outputs(rows if isinstance(model.front, Stem) else rows.astype(np.float64))


def made_up(model: Model, n: int | None = None) -> Tensor:
    """Rows like the examples, drawn from what the model knows of its columns.

    There are fewer than ``n`` if they are very long. They are in float32, or in float64 where that
    cannot hold them.

    Every column of a frame is drawn by itself between its limits. Rows of numbers are drawn from
    the replay memory, or from mean and scale of every feature where there is none.
    """
    if n is None:
        n = max(1, min(MADE_UP, MOST_BYTES // (4 * model.n_features)))
    n = min(n, max(MADE_UP, MOST_NUMBERS // model.n_features))
    generator, front = Generator().manual_seed(0), model.front
    if model.table is not None and not model.table.is_plain:
        columns = [_codes(column, n, generator) for column in model.table.columns]
        return _narrowed(torch.stack(columns, 1))
    low, high = model.image_range or (0.0, 1.0)
    if isinstance(front, Stem):
        return low + (high - low) * torch.rand(n, model.n_inputs, generator=generator)
    features = model.features
    if model.memory is None:
        noise = torch.randn(n, len(features.mean), generator=generator)
        rows = replace(features, basis=None).unproject(noise)
    else:
        drawn, _ = model.memory.drawn(n, generator)
        noise = NOISE * torch.randn(drawn.shape, generator=generator)
        rows = features.unproject((drawn + noise).to(features.mean))
    if isinstance(front, Bent):
        rows = front.restored(rows)
    return _narrowed(rows if model.image_range is None else rows.clamp(low, high))


def _narrowed(rows: Tensor) -> Tensor:
    """In float32 where it holds them; numbers that are too large for any type are its largest."""
    most = torch.finfo(torch.float64).max
    rows = rows.clamp(-most, most)
    fits = bool((rows.nan_to_num(0).abs() <= torch.finfo(torch.float32).max).all())
    return rows.float() if fits else rows


def _codes(column: Column, n: int, generator: Generator) -> Tensor:
    share, absent = torch.rand(2, n, generator=generator, dtype=torch.float64)
    if isinstance(column, Category):
        codes, has_gaps = (share * len(column.values)).floor(), column.gaps
    else:
        codes, has_gaps = column.low + (column.high - column.low) * share, column.flag
        if getattr(column, "boolean", False):
            codes = share.round()
    return torch.where(absent < GAPS, torch.nan, codes) if has_gaps else codes
