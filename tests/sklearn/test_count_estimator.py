"""The estimator for counts and scikit-learn's checks: all that ask with whole numbers, and the others when y is rounded."""

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from structgp import GPCountRegressor

FRACTIONS = "y of this check are no counts, which GPCountRegressor refuses as it should"
NOT_FOR_COUNTS = dict.fromkeys(
    [
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_n_features_in",
        "check_n_features_in_after_fitting",
        "check_regressor_data_not_an_array",
        "check_regressors_no_decision_function",
        "check_regressors_train",
    ],
    FRACTIONS,
)


class RoundedCounts(GPCountRegressor):
    """For checks whose y are no counts."""

    def fit(self, X: Any, y: Any, exposure: Any = None) -> Any:
        return super().fit(X, np.round(np.abs(np.asarray(y, dtype=float))), exposure)


@parametrize_with_checks([GPCountRegressor(learn=False)], expected_failed_checks=lambda _: NOT_FOR_COUNTS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


ROUNDED = [pair for pair in estimator_checks_generator(RoundedCounts(learn=False)) if pair[1].func.__name__ in NOT_FOR_COUNTS]


@pytest.mark.parametrize(("estimator", "check"), ROUNDED, ids=lambda part: getattr(getattr(part, "func", None), "__name__", ""))
def test_checks_that_come_with_fractions_pass_when_they_are_rounded(estimator, check):
    check(estimator)
