"""scikit-learn's own checks, all but one.

All is at its default but the number of epochs: candidates are looked at, in a third of the time.
PROTOPINV_EPOCHS=auto has all checks on the defaults.
"""

import os
from typing import Any
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor

EPOCHS = os.environ.get("PROTOPINV_EPOCHS", "25")
GIVEN: dict[str, Any] = {} if EPOCHS == "auto" else {"max_epochs": int(EPOCHS)}
# Columns of frames are matched by name, in any order; scikit-learn wants an error.
REFUSED = {"check_dataframe_column_names_consistency": "columns are matched by name"}
# The numbers of scikit-learn 1.9; gaps are fine, so one of them is none of ours.
CHECKS = {ProtoPINVClassifier: 67, ProtoPINVRegressor: 60}


@parametrize_with_checks(
    [estimator(**GIVEN) for estimator in CHECKS], expected_failed_checks=lambda _: REFUSED
)
def test_scikit_learn_check(estimator, check) -> None:
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


@pytest.mark.parametrize("kind", CHECKS)
def test_scikit_learn_yields_all_the_checks_it_should(
    kind: type, request: pytest.FixtureRequest
) -> None:
    ours = len(list(estimator_checks_generator(kind(**GIVEN), legacy=True)))
    collected = [
        item
        for item in request.session.items
        if item.path == request.node.path
        and getattr(item, "originalname", "") == "test_scikit_learn_check"
        and isinstance(item.callspec.params["estimator"], kind)
    ]
    assert ours == CHECKS[kind]
    assert len(collected) in (0, ours)  # none when this test is run by itself
