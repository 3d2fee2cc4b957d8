"""Where rows come from: bundled and public image sets, CSV and Parquet tables."""

from protopinv.data.sources import NAMED, Dataset, load_data, open_table

__all__ = ["NAMED", "Dataset", "load_data", "open_table"]
