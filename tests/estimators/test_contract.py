"""scikit-learn's own checks, every one of them, on the defaults."""

from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from protopinv import ProtoPINVClassifier


@parametrize_with_checks([ProtoPINVClassifier()])
def test_scikit_learn_check(estimator, check) -> None:
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


def test_scikit_learn_yields_all_the_checks_it_should(request: pytest.FixtureRequest) -> None:
    """The number of scikit-learn 1.9; another number means that its list has changed."""
    ours = len(list(estimator_checks_generator(ProtoPINVClassifier(), legacy=True)))
    collected = [
        item
        for item in request.session.items
        if item.path == request.node.path
        and getattr(item, "originalname", "") == "test_scikit_learn_check"
    ]
    assert ours == 55
    assert len(collected) in (0, ours)  # none when this test is run by itself
