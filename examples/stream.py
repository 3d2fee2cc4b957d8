"""Rows larger than memory: a folder of files that is read a piece at a time."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protopinv import ProtoPINVClassifier, open_rows

random = np.random.default_rng(0)
folder = Path("measurements")
folder.mkdir(exist_ok=True)


def write(path: Path, rows: int) -> None:
    """A Parquet file in row groups of a few thousand rows, each of which is read whole."""
    X = random.standard_normal((rows, 6)).astype(np.float32)
    columns = {f"x{i}": X[:, i] for i in range(6)}
    columns["kind"] = np.where(X[:, 0] * X[:, 1] + X[:, 2] > 0, "up", "down")
    pq.write_table(pa.table(columns), path, row_group_size=2_000)


for number in range(4):
    write(folder / f"part-{number}.parquet", 5_000)
write(Path("other.parquet"), 2_000)

# At most so many bytes of rows are kept in memory; half a gigabyte unless you say otherwise.
rows = open_rows(folder, target="kind", memory=200_000)
print(f"{rows.n_rows:,} rows in {len(rows.blocks)} blocks, in memory: {rows.fits_in_memory()}")

# The same call after a kill goes on where it was.
model = ProtoPINVClassifier(effort="quick", max_epochs=8, random_state=0)
model.fit(rows, checkpoint="run.checkpoint", checkpoint_every="30s", resume=True)

other = pq.read_table("other.parquet").to_pandas()
score = model.score(other.drop(columns="kind"), other["kind"])
print(f"accuracy on other rows {score:.3f}")
assert score > 0.9
