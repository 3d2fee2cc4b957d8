"""A number with its recipe: where, with what and from which commit it was measured."""

import json
import os
import platform
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RECORDS = Path(__file__).parent / "records"


def environment(device: str) -> dict[str, Any]:
    """Device, threads, versions and commit."""
    return {
        "date": date.today().isoformat(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "commit": commit(),
    }


def device_name(device: str) -> str:
    """The name of the GPU, or of the processor with its cores."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return f"{' / '.join(sorted(names)) or platform.processor()}, {os.cpu_count()} cores"


def commit() -> str:
    """The commit measured, as given in PROTOPINV_COMMIT or asked of git."""
    given = os.environ.get("PROTOPINV_COMMIT")
    if given:
        return given
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--match=none"]
    return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()


def write(name: str, content: dict[str, Any], device: str, folder: Path | None) -> Path:
    """Put a dated record into the folder (default: benchmarks/records)."""
    environs = environment(device)
    path = (folder or RECORDS) / f"{environs['date']}-{name}.json"
    path.write_text(json.dumps({"name": name, **content, "environment": environs}, indent=2) + "\n")
    return path
