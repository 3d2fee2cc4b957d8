"""docs/scale.md, from dated records."""

from collections.abc import Mapping
from typing import Any

from results_page import recipe

from benchmarks.scale.gpu import fetching_table
from benchmarks.scale.kills import kills_table
from benchmarks.scale.model import LINK_BYTES, LINK_SECONDS, fitted_cpu, fitted_gpu, predictions
from benchmarks.scale.study import power_of_rows, scale_tables

Record = Mapping[str, Any]

START = """\
# More rows than memory

`open_rows` makes a source of rows from a Parquet, Arrow or CSV file, or from a folder of them. It
needs pyarrow: `pip install -c constraints.txt '.[table]'`. Files are
[read as anywhere else](tables.md#how-files-are-read). One pass over a CSV file finds where rows
begin and what all columns hold, another reads those whose decimals may have commas. In a folder, a
`.txt` file beside others is a note, and names that begin with a dot or an underscore are of tools.

```python
from protopinv import ProtoPINVClassifier, open_rows

rows = open_rows("big/", target="y")
model = ProtoPINVClassifier(random_state=0).fit(rows, checkpoint="run.checkpoint", resume=True)
```

The same on the command line, and below with two processes on one machine:

```sh
protopinv train big/ --target y -o model.safetensors --checkpoint run.checkpoint --resume
```

<!-- not run: tests/train/test_ranks.py runs torchrun -->
```sh
torchrun --nproc-per-node 2 -m protopinv train big/ --target y -o model.safetensors
```

`ArrayRows` does so for arrays and `np.memmap`, `BatchRows` for a function of yours that gives the
rows of batch i. Sparse matrices of scipy and large maps of files are taken by `fit` as they are.

## What happens

Rows that take at most `memory` bytes, half a gigabyte unless you say otherwise, are read once and
trained on as arrays are. For more, one pass over all of them finds the classes or the range of the
targets, mean and scatter of the features, and a sample of 20,000 rows, from which heavy tails are
recognised and the first prototypes are taken. After that every epoch reads the rows again, a piece
at a time, while the piece before is worked on.

A full-batch gradient is a sum over rows, so it does not matter where the pieces begin: streamed and
in memory, the bank is the same. Pieces are added up in float64, and cut at the same row numbers for
any number of processes. Mini-batches are drawn from a window of 131,072 rows, which come from
blocks in a random order; which rows make a batch does not depend on the number of processes either.

Which rows are held out, and which fold a row is in, follows from a hash of its place in its file.

Decoding Parquet takes longer than most small networks take to train on it. So the first pass writes
rows as plain numbers to a temporary file without a name, which vanishes with the process, where the
disk has twice the room for it. `cache=None` turns that off, `cache="/scratch"` chooses the disk.

Row groups of 10,000 to 100,000 rows are best: a row group is read whole, and it is what processes
share among each other when mini-batches are drawn.

## Several processes

Every process (*rank*) reads its own rows. In each step gradients and losses are added up over all
ranks, by gloo on CPUs and NCCL on GPUs; the solves and the update are the same on every rank, and
at the end it is checked that the banks are, bit for bit. Noise on rows is each rank's own.

On several machines, the same command on each of them:

<!-- not run: needs four machines -->
```sh
torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29400 \\
    --max-restarts 3 -m protopinv train /data/big --target y -o model.safetensors \\
    --checkpoint /data/run.checkpoint --checkpoint-every 10min --resume
```

All ranks read the same folder; rank 0 writes the checkpoint and the model. With Slurm:

<!-- not run: needs Slurm -->
```sh
#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8 --signal=TERM@120
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 --rdzv-backend c10d \\
    --rdzv-endpoint "$first:29400" -m protopinv train /data/big --target y \\
    -o model.safetensors --checkpoint run.checkpoint --resume
```

With Kubernetes, as a PyTorchJob of the Kubeflow training operator, which sets what torchrun needs:

```yaml
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: protopinv}
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: your/image
              command: [torchrun, -m, protopinv, train, /data/big, --target, y]
              args: [-o, /data/model.safetensors, --checkpoint, /data/run.checkpoint, --resume]
              resources: {limits: {nvidia.com/gpu: 8}}
```

## Checkpoints

`checkpoint=path` writes all that training needs to go on: banks, moments of the optimizer,
averages, the best state, what the guard has done, history, generators, the place in the epoch. It
is a safetensors file with JSON and a checksum in its header, written beside the old one, synced and
renamed; the one before is kept as `path.previous` and used, with a warning, where the last is
damaged. Nothing of a file is used before its checksum is right; checkpoints of versions that wrote
none are refused. One that cannot be written, as on a full disk, is a warning, and training goes on.
`checkpoint_every` takes a number of epochs or a time such as `"10min"`.

`resume=True` goes on from there, or begins if there is nothing, which is what a job that restarts
wants. On the same processor what comes out is bit for bit what an uninterrupted run gives. A
checkpoint of other rows or of another configuration is refused, and what differs is said. Another
number of ranks may go on; noise on rows is then drawn anew. Ctrl-C and SIGTERM write a checkpoint
after the step they came in; a full-batch step over very many rows may take longer than a scheduler
waits.

## Measured
"""

MODEL = """\
## What it costs, and past this machine

For N rows of d features, hidden layers h, k outputs and m members, an epoch takes

- 2 N m (2 d h₁ + 3 (h₁ h₂ + … + h k)) operations, shared by all ranks;
- 4 N d bytes read, shared by all ranks, beside the computing;
- 16 |W| bytes sent by each rank in every step, whatever N is, with |W| = m Σ (in + 1) · out.

Every rank makes all solves, which depend on the prototypes alone. Measured above are {cpu}
operations a second on two cores; on the H200 {gpu} a second for products, {bus} bytes a second from
the memory of its host, and {step} ms for a step, however few its rows. Links of {link} GB/s and
{latency} µs a message are assumed and not measured. For a network of 100 features, two layers of
128, two outputs and five members that makes:
"""

END = """\
Full batches hardly ever wait for messages, which are |W| numbers, a few megabytes at most, once an
epoch. Steps of 65,536 rows stop gaining from more GPUs soon: the solves and messages of a step take
the same time however many share its rows. Larger jobs want larger batches. The
prediction takes for granted that the storage brings each rank its rows as fast as the memory of the
host does; a slower storage is the limit then.
"""


def scale_page(newest: Mapping[str, Record]) -> str:
    """The page."""
    lines = START.splitlines()
    cpu, gpu = newest.get("scale-cpu"), newest.get("scale-cuda")
    if cpu is not None:
        tables = scale_tables(cpu)
        exponents = " and ".join(
            f"{power_of_rows(cpu, network):.3f}" for network in ("1 x 128", "2 x 128")
        )
        lines += ["", "100 features, all rows a step, two cores:", "", *tables["growth"], ""]
        lines += [f"Time grows with rows to the power of {exponents}.", ""]
        lines += ["Two processes against one, a thread each:", "", *tables["ranks"], ""]
        lines += [
            f"Against others on the same files, {cpu['plan']['rows_of_peers']:,} rows. Each was "
            f"given {cpu['plan']['longest']:.0f} seconds to come within half a point of ours. The "
            "classes follow from products of a few directions across all 100 features, which suits "
            "networks and not trees:",
            "",
            *tables["peers"],
            "",
            "`python -m benchmarks scale --rows FOLDER` makes it.",
            "",
            f"<sub>{recipe(cpu)}</sub>",
        ]
    killed = newest.get("kills-cpu")
    if killed is not None:
        lines += [
            "",
            "Training killed by SIGKILL at random moments and resumed each time, until it was "
            "through, against training left alone:",
            "",
            *kills_table(killed),
            "",
            "`python -m benchmarks kills` makes it.",
            "",
            f"<sub>{recipe(killed)}</sub>",
        ]
    if gpu is not None:
        lines += [
            "",
            f"On a GPU, {gpu['plan']['rows']:,} rows in the memory of the host, fetched for every "
            "epoch, against the same rows on the GPU:",
            "",
            *fetching_table(gpu),
            "",
            "A full batch of a network this small is done sooner than the bus can bring the rows: "
            "8 GB an epoch.",
            "",
            "`python -m benchmarks scale --device cuda` makes it.",
            "",
            f"<sub>{recipe(gpu)}</sub>",
        ]
    if cpu is not None and gpu is not None:
        two_cores, card = fitted_cpu(cpu), fitted_gpu(gpu)
        text = MODEL.format(
            cpu=f"{two_cores.operations:.2g}",
            gpu=f"{card.operations:.2g}",
            bus=f"{card.read:.2g}",
            step=f"{1e3 * card.step:.2g}",
            link=f"{LINK_BYTES / 1e9:.0f}",
            latency=f"{1e6 * LINK_SECONDS:.0f}",
        )
        lines += ["", *text.splitlines(), ""]
        lines += [*predictions(card, (1e9, 1e10, 1e11), (8, 64, 512)), "", *END.splitlines()]
    return "\n".join(lines) + "\n"
