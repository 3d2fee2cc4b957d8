"""A frame as it is, with numbers, text, dates and gaps, to rows of numbers for a network.

It is understood once, with the model, and stored in the model's file; exports do the same.
"""

from protopinv.tables.columns import Category, Column, Date, Number
from protopinv.tables.growing import grown, with_averages
from protopinv.tables.statistics import FOLDS
from protopinv.tables.stored import arrays, described, restored
from protopinv.tables.table import Gathered, Table, checked_kinds, understood
from protopinv.tables.understand import KINDS, LeftOut
from protopinv.tables.values import array_columns, frame_columns, is_frame
from protopinv.words import hint

__all__ = [
    "FOLDS",
    "KINDS",
    "Category",
    "Column",
    "Date",
    "Gathered",
    "LeftOut",
    "Number",
    "Table",
    "array_columns",
    "arrays",
    "checked_kinds",
    "described",
    "frame_columns",
    "grown",
    "hint",
    "is_frame",
    "restored",
    "understood",
    "with_averages",
]
