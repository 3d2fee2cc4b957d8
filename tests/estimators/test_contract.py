"""scikit-learn's own checks, every one of them.

A quick fit goes through the same doors as others do, in a fifth of the time;
PROTOPINV_EFFORT=balanced has all checks on the defaults.
"""

import os
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor

# The numbers of scikit-learn 1.9; others mean that its list has changed.
EFFORT = os.environ.get("PROTOPINV_EFFORT", "quick")
CHECKS = {ProtoPINVClassifier: 68, ProtoPINVRegressor: 61}


@parametrize_with_checks([estimator(effort=EFFORT) for estimator in CHECKS])
def test_scikit_learn_check(estimator, check) -> None:
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


@pytest.mark.parametrize("kind", CHECKS)
def test_scikit_learn_yields_all_the_checks_it_should(
    kind: type, request: pytest.FixtureRequest
) -> None:
    ours = len(list(estimator_checks_generator(kind(effort=EFFORT), legacy=True)))
    collected = [
        item
        for item in request.session.items
        if item.path == request.node.path
        and getattr(item, "originalname", "") == "test_scikit_learn_check"
        and isinstance(item.callspec.params["estimator"], kind)
    ]
    assert ours == CHECKS[kind]
    assert len(collected) in (0, ours)  # none when this test is run by itself
