"""Ideas that are no option of the library still run, every seed of them."""

import os

import pytest

from benchmarks.tried import IDEAS, measure

DATA = pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)


@DATA
@pytest.mark.parametrize(
    "label",
    [
        "the recipe: full batch, input noise",
        "inputs start at k-means centres",
        "hidden targets start linear in the inputs",
        "two cycles with a restart",
        "L-BFGS, without noise",
    ],
)
def test_an_idea_learns_with_every_seed(label: str) -> None:
    found = dict(measure(IDEAS[label], "mnist", "cpu", True, [0, 1]))
    assert set(found) == {0, 1}
    assert found[0]["loss"] != found[1]["loss"]
    for cell in found.values():
        assert cell["held_out"] > 0.5  # after four epochs
        assert cell["trained"] == 138_301
