"""The study trains for long: as users have it, without checks of types."""

from collections.abc import Iterator

import pytest
from jaxtyping import config


@pytest.fixture(autouse=True, scope="module")
def _unchecked_types() -> Iterator[None]:
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
