"""Several processes, started by torchrun, train the bank that one would."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist
from safetensors.numpy import load_file

from protopinv import load
from protopinv.rows import Block
from protopinv.train.machine import Ranks, _fresh

TORCHRUN = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"
# Ranks are forked from a process that has imported everything: a start of Python each takes longer.
# Those of the other tests are started by torchrun.
PROGRAM = """
import os, socket, sys, warnings
import numpy as np
import pyarrow.parquet
from safetensors.numpy import save_file
from protopinv import ProtoPINVClassifier, open_rows
from protopinv.train import data
warnings.simplefilter("ignore")
data.WINDOW_ROWS = 700
folder, out = sys.argv[1:3]


def ranks(size):
    with socket.create_server(("localhost", 0)) as free:
        port = str(free.getsockname()[1])
    for number in range(size):
        if os.fork() == 0:
            if size > 1:
                os.environ |= dict(RANK=str(number), WORLD_SIZE=str(size),
                                   MASTER_ADDR="localhost", MASTER_PORT=port)
            return True
    assert all(os.wait()[1] == 0 for _ in range(size))
    return False


for size in (1, 2, 4):
    if ranks(size):
        break
else:
    sys.exit()
small = dict(n_prototypes=20, hidden_sizes=16, ridge=2.0, activation="relu", max_epochs=5, lr=0.05,
             random_state=3, device="cpu")
found = {}
for name, options in {
    "full float32": dict(batch_size=None, early_stopping=False, dtype="float32"),
    "full float64": dict(batch_size=None, early_stopping=False, dtype="float64", projection="pca"),
    "batches float64": dict(batch_size=300, early_stopping=False, dtype="float64"),
    "hold-out float64": dict(batch_size=300, early_stopping=True, dtype="float64"),
    "folds float64": dict(batch_size=None, early_stopping="cross", n_members=5, dtype="float64"),
    "dropout float64": dict(batch_size=300, early_stopping=False, dtype="float64",
                            hidden_dropout=0.2),
}.items():
    for memory in (0, 2**29):
        if memory and ("folds" in name or "hold-out" in name):
            continue  # alone, small files are dealt into folds as arrays are
        model = ProtoPINVClassifier(**{**small, **options})
        model.fit(open_rows(folder, "y", weight="w", memory=memory))
        bank = model.bank_
        for place, part in enumerate([bank.inputs, *bank.hidden, bank.outputs]):
            found[f"{name}/{memory}/{place}"] = np.ascontiguousarray(part.numpy())
if os.environ.get("RANK", "0") == "0":
    save_file(found, out + "/" + str(size))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    X = random.standard_normal((4000, 5))
    X[:, 2] = np.exp(2 * X[:, 2])
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    made = tmp_path_factory.mktemp("rows")
    columns = {f"x{i}": X[:, i] for i in range(5)}
    table = pa.table({**columns, "y": y, "w": random.uniform(0.5, 2, 4000)})
    for number, (start, n) in enumerate([(0, 1700), (1700, 0), (1700, 100), (1800, 2200)]):
        part = table.slice(start, n)
        pq.write_table(part, made / f"part-{number}.parquet", row_group_size=350)
    return made


def run(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
        **options,
    )


def job(ranks: int, *arguments: str, **options) -> list[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), *flags, *arguments]


def test_two_and_four_ranks_train_the_bank_of_one(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run([sys.executable, str(program), str(folder), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    expected = load_file(tmp_path / "1")
    for ranks in (2, 4):
        found = load_file(tmp_path / str(ranks))
        for name, numbers in expected.items():
            tolerance = 1e-5 if "float32" in name else 1e-10
            np.testing.assert_allclose(found[name], numbers, rtol=0, atol=tolerance, err_msg=name)


# Three ranks in which one thing after another differs; all are refused alike, so the job goes on.
DIFFERING = """
import os, socket, sys, warnings
import numpy as np
import pyarrow.parquet
from protopinv import ArrayRows, ProtoPINVClassifier, open_rows
from protopinv.errors import RankError
warnings.simplefilter("ignore")
folder, other, out = sys.argv[1:4]
with socket.create_server(("localhost", 0)) as free:
    port = str(free.getsockname()[1])
for number in range(3):
    if os.fork() == 0:
        os.environ |= dict(RANK=str(number), WORLD_SIZE="3", MASTER_ADDR="localhost",
                           MASTER_PORT=port)
        break
else:
    assert all(os.wait()[1] == 0 for _ in range(3))
    sys.exit()
small = dict(n_prototypes=10, hidden_sizes=8, max_epochs=3, random_state=3, device="cpu",
             early_stopping=False)
X = np.random.default_rng(0).standard_normal((400, 3))
y = (X[:, 0] > 0).astype(int)
files = open_rows(folder, "y", memory=0)
last = number == 2


def fit(name, rows=files, saving={}, **changed):
    try:
        ProtoPINVClassifier(**{**small, **changed}).fit(rows, **saving)
        said = "trained"
    except RankError as error:
        said = str(error)
    with open(f"{out}/{name}-{number}", "w") as file:
        file.write(said)


fit("epochs", max_epochs=4 if last else 3)
fit("sizes", hidden_sizes=[9] if number else 8)
fit("resume", saving=dict(checkpoint=out + "/run", resume=number == 0))
fit("labels", open_rows(other if last else folder, "y", memory=0))
fit("arrays", ArrayRows(X, 1 - y if last else y, memory=0))
fit("none", verbose=int(last))
"""


def test_ranks_that_differ_in_rows_or_parameters_all_say_so_before_training(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    first = sorted(other.iterdir())[0]
    table = pq.read_table(first)
    flipped = table.set_column(
        table.column_names.index("y"), "y", pa.array(1 - table["y"].to_numpy())
    )
    pq.write_table(flipped, first, row_group_size=350)
    program = tmp_path / "program.py"
    program.write_text(DIFFERING)
    done = run([sys.executable, str(program), str(folder), str(other), str(tmp_path)])
    assert done.returncode == 0, done.stderr

    def said(name: str) -> str:
        texts = {(tmp_path / f"{name}-{number}").read_text() for number in range(3)}
        assert len(texts) == 1
        return texts.pop()

    assert "max_epochs is 3 on rank 0 and 4 on rank 2." in said("epochs")
    assert "hidden_sizes is 8 on rank 0 and [9] on rank 1, 2." in said("sizes")
    assert "resume is True on rank 0 and False on rank 1, 2." in said("resume")
    assert re.search(r"rows\..* is .* on rank 0 and .* on rank 2", said("labels"))
    assert re.search(r"rows\..* is .* on rank 0 and .* on rank 2", said("arrays"))
    assert said("none") == "trained"


def test_a_job_on_the_command_line_writes_one_model_and_every_rank_tells_how_far_it_is(
    folder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.safetensors"
    options = ["--target", "y", "--weight", "w", "-o", str(model), "--max-epochs", "4"]
    done = run(job(2, "-m", "protopinv", "train", str(folder), *options, "--verbose"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained numbers") == 1
    for rank in (0, 1):
        assert re.search(rf"rank {rank}: .*epoch 4/4 loss .* rows/s", done.stderr)
    table = pq.read_table(folder)
    X = np.column_stack([table[f"x{i}"] for i in range(5)])
    assert (load(model).predict(X) == table["y"].to_numpy()).mean() > 0.8


def test_more_ranks_than_blocks_leave_some_without_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 2))
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": (X[:, 0] > 0).astype(int)})
    pq.write_table(table, tmp_path / "t.parquet")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, numpy as np\n"
        "from protopinv import ProtoPINVClassifier, open_rows\n"
        "path, out = sys.argv[1:3]\n"
        "for batch in (None, 16):\n"
        "    model = ProtoPINVClassifier(max_epochs=30, batch_size=batch, random_state=0)\n"
        "    model.fit(open_rows(path, 'y'))\n"
        "    if os.environ['RANK'] == '0':\n"
        "        model.save(f'{out}/{batch}.safetensors')\n"
    )
    done = run(job(3, str(program), str(tmp_path / "t.parquet"), str(tmp_path)))
    assert done.returncode == 0, done.stderr
    for batch in ("None", "16"):
        assert (
            load(tmp_path / f"{batch}.safetensors").predict(X) == table["y"].to_numpy()
        ).mean() > 0.9


def test_a_killed_rank_ends_the_job_with_one_message_and_a_restart_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    model, path = tmp_path / "m.safetensors", tmp_path / "run.checkpoint"
    options = ["--target", "y", "-o", str(model), "--max-epochs", "600", "--batch-size", "none"]
    options += ["--n-prototypes", "20", "--hidden-sizes", "16", "--early-stopping", "false"]
    options += ["--checkpoint", str(path), "--checkpoint-every", "0.05s"]
    started = subprocess.Popen(
        job(2, "-m", "protopinv", "train", str(folder), *options),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for _ in range(6000):
        if path.exists() or started.poll() is not None:
            break
        time.sleep(0.01)
    assert path.exists()
    os.kill(_ranks_of(started.pid)[1], signal.SIGKILL)
    _, errors = started.communicate(timeout=60)
    assert started.returncode != 0
    said = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert "All ranks of a job must live until it is over. One was lost" in said[0]
    assert not model.exists()
    again = run(job(2, "-m", "protopinv", "train", str(folder), *options, "--resume"))
    assert again.returncode == 0, again.stderr
    assert model.exists()


def test_a_job_that_may_restart_goes_on_by_itself(folder: Path, tmp_path: Path) -> None:
    """The second rank dies once, when there is a checkpoint; torchrun starts both again."""
    program, path = tmp_path / "program.py", tmp_path / "run.checkpoint"
    program.write_text(
        "import os, sys, threading, time\n"
        "from pathlib import Path\n"
        "from protopinv import ProtoPINVClassifier, open_rows\n"
        "folder, path, out = sys.argv[1:4]\n"
        "def die():\n"
        "    while not Path(path).exists():\n"
        "        time.sleep(0.01)\n"
        "    os._exit(1)\n"
        "first = os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'\n"
        "if first and os.environ['RANK'] == '1':\n"
        "    threading.Thread(target=die, daemon=True).start()\n"
        "model = ProtoPINVClassifier(n_prototypes=20, hidden_sizes=16, max_epochs=400, lr=0.02,\n"
        "                            batch_size=None, early_stopping=False, random_state=0)\n"
        "rows = open_rows(folder, 'y', weight='w')\n"
        "model.fit(rows, checkpoint=path, checkpoint_every='0.2s', resume=True)\n"
        "if os.environ['RANK'] == '0':\n"
        "    Path(out).write_text(f'{first} {model.history_.n_epochs}')\n"
    )
    arguments = [str(program), str(folder), str(path), str(tmp_path / "out")]
    done = run(job(2, *arguments, max_restarts=1))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "False 400"


def _ranks_of(parent: int) -> list[int]:
    """Child processes, by number."""
    found = run(["ps", "--ppid", str(parent), "-o", "pid="])
    return sorted(map(int, found.stdout.split()))


def test_blocks_are_shared_evenly_by_rows() -> None:
    blocks = [Block("f", i, n) for i, n in enumerate([100, 50, 50, 10, 90, 100])]
    shares = [Ranks(number, 2).share(blocks) for number in (0, 1)]
    assert sorted(b.number for share in shares for b in share) == list(range(6))
    rows = [sum(block.n_rows for block in share) for share in shares]
    assert abs(rows[0] - rows[1]) <= 100
    assert [len(Ranks(number, 3).share(blocks[:1])) for number in range(3)] == [1, 0, 0]


def test_ranks_started_again_meet_apart_from_what_dead_ones_wrote() -> None:
    """An earlier attempt got this far and died: its rank 1 had asked, its rank 0 had answered."""
    store = dist.HashStore()
    store.set("protopinv/here/1", "dead")
    store.set("protopinv/name-for/dead", "stale")
    store.set("address", "of a process that is gone")
    with ThreadPoolExecutor(3) as pool:
        corners = list(pool.map(lambda rank: _fresh(store, rank, 3), range(3)))
    assert not corners[2].check(["address"])
    corners[0].set("address", "of a living one")
    assert {corner.get("address") for corner in corners} == {b"of a living one"}
