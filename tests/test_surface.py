"""What the package shows to the outside."""

import subprocess
import sys
from importlib.metadata import version

import pytest
import torch

import protopinv


def test_every_public_name_can_be_had_and_nothing_else() -> None:
    for name in protopinv.__all__:
        assert getattr(protopinv, name) is not None
    assert set(dir(protopinv)) == set(protopinv.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = protopinv.nothing


def test_the_version_is_that_of_the_installed_package() -> None:
    assert version("protopinv") == protopinv.__version__


def loaded_by(statement: str) -> set[str]:
    listing = (
        f"{statement}\nimport sys; print(*(name for name, module in sys.modules.items() if module))"
    )
    run = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in run.stdout.split()}


@pytest.mark.parametrize("statement", ["import protopinv", "import protopinv.cli.app"])
def test_starting_up_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement).isdisjoint({"torch", "sklearn", "numpy", "polars"})


def test_training_needs_no_optional_package() -> None:
    blocked = "import sys; sys.modules.update(polars=None, pandas=None, matplotlib=None)"
    loaded_by(
        f"{blocked}; import protopinv; "
        "small = protopinv.ProtoPINVClassifier(n_prototypes=4, hidden_sizes=2, max_epochs=1); "
        "small.fit([[0.], [1.]], [0, 1])"
    )


def test_shapes_in_signatures_are_checked_in_tests() -> None:
    from jaxtyping import TypeCheckError

    from protopinv.network import with_bias

    with pytest.raises(TypeCheckError):
        with_bias(torch.ones(3))


def test_what_is_optional_is_imported_where_it_is_used() -> None:
    loaded = loaded_by("import protopinv.callbacks, protopinv.report")
    assert loaded.isdisjoint({"tensorboard", "mlflow", "matplotlib"})
