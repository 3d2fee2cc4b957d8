"""A full-batch MNIST epoch against the paper's listing, and peak memory over the data, in one run.

    python benchmarks/epoch.py [--device cuda] [--repeats 9] [--record]

Times alternate between the two, so that both see the same machine; the figure is the ratio of
medians. Memory is measured in a fresh process (Linux): the highest resident size during ``fit``
less the size just before it, when the images and all packages are loaded.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from paper_listing import PaperListing

from protopinv import ProtoPINVClassifier
from protopinv.bench.methods import SHAPE as PAPER_SHAPE
from protopinv.bench.record import Record
from protopinv.data import load_data
from protopinv.train.bank_step import BankStep
from protopinv.train.capture import CapturedStep
from protopinv.train.config import TrainConfig
from protopinv.train.prepare import LabelledRows, first_bank, prepare
from protopinv.train.rows import Rows

ROWS = 54_000
RECORDS = Path(__file__).parent / "records"
SHAPE: dict[str, Any] = {**PAPER_SHAPE, "lr": 0.05}


def main() -> None:
    """Measure, print, and with --record keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--memory-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_only:
        print(peak_megabytes())
        return
    listing, ours = compare(torch.device(options.device), options.repeats)
    memory = None
    if options.device == "cpu":
        command = [sys.executable, __file__, "--memory-only"]
        memory = float(subprocess.run(command, capture_output=True, check=True).stdout)
    result = {
        "listing_seconds": listing,
        "our_seconds": ours,
        "speed_up": listing / ours,
        "peak_megabytes_over_data": memory,
    }
    for name, value in result.items():
        print(f"{name:26} {value if value is None else round(value, 4)}")
    if options.record:
        task = f"One full-batch epoch, MNIST, {ROWS} rows, p=150, h=512, PCA-400, float32"
        plan = {"task": task, "repeats": options.repeats}
        record = Record(RECORDS, f"epoch-{options.device}", plan, options.device, fresh=True)
        record.cell("epoch", lambda: result)
        record.finish()
        print("wrote", record.path)


def compare(device: torch.device, repeats: int) -> tuple[float, float]:
    """Median seconds of an epoch: the paper's listing, and ours."""
    rows, our_epoch = our_step(device)
    listing = PaperListing(rows.X, rows.y, p=150, h=512, k=10, lam=10.0)
    theirs, ours = [], []
    for _ in range(repeats + 1):
        theirs.append(seconds(listing.epoch))
        ours.append(seconds(our_epoch))
    return statistics.median(theirs[1:]), statistics.median(ours[1:])  # the first warms up


def our_step(device: torch.device) -> tuple[Rows, Callable[[], float]]:
    """Projected rows, and the step the estimators take over all of them."""
    config = TrainConfig(**SHAPE)
    data = load_data("mnist", split="train")
    rows = prepare(LabelledRows(data.X[:ROWS], data.y[:ROWS], 10), config, device, seed=0).rows
    bank = first_bank(rows, 10, config, torch.Generator().manual_seed(0))
    step = BankStep(bank.leaves(), config, generator=torch.Generator(device).manual_seed(0))
    taken = CapturedStep(step, rows) if rows.X.is_cuda else step
    return rows, lambda: float(taken(rows, 0.1).loss)


def seconds(work: Callable[[], float]) -> float:
    """Wall-clock time of one call; the calls read their loss, so the device has finished."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_megabytes() -> float:
    """Highest resident size during a short fit less the size before it."""
    data = load_data("mnist", split="train")
    ProtoPINVClassifier(4, hidden_sizes=4, max_epochs=1).fit(data.X[:100], data.y[:100])
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident("VmRSS")
    short = {**SHAPE, "max_epochs": 3, "warmup_epochs": 1, "validation_fraction": 0.1}
    ProtoPINVClassifier(**short).fit(data.X, data.y)
    return (resident("VmHWM") - before) / 1024


def resident(field: str) -> int:
    """A size in kilobytes from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


if __name__ == "__main__":
    main()
