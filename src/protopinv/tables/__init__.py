"""A frame as it is, with numbers, text, dates and gaps, to rows of numbers for a network.

It is understood once, with the model, and stored in the model's file; exports do the same.
"""

from protopinv.tables.category import Category
from protopinv.tables.columns import Date, Number
from protopinv.tables.table import Column, Table, arrays, described, restored, understood
from protopinv.tables.target_encoding import TargetEncoding
from protopinv.tables.text import Text

__all__ = [
    "Category",
    "Column",
    "Date",
    "Number",
    "Table",
    "TargetEncoding",
    "Text",
    "arrays",
    "described",
    "restored",
    "understood",
]
