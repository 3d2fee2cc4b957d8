"""Nothing of a damaged checkpoint is ever used."""

from pathlib import Path

import numpy as np

from benchmarks.fuzz import damaged_checkpoint, read_again, sound_checkpoint


def test_no_damaged_checkpoint_is_read(tmp_path: Path) -> None:
    """A short run; python -m benchmarks fuzz-checkpoints is the long one."""
    path = tmp_path / "run.checkpoint"
    sound, random = sound_checkpoint(path), np.random.default_rng(0)
    assert read_again(sound, path) == sound
    for _ in range(500):
        assert read_again(damaged_checkpoint(sound, random), path) is None
    assert {each.name for each in tmp_path.iterdir()} == {path.name}
