"""The estimator for counts and scikit-learn's checks: all that ask with whole numbers, and the others when y is rounded."""

from typing import Any

import numpy as np
import pytest

from checks import checks_of, name_of
from structgp import GPCountRegressor

# y of these checks are no counts, which GPCountRegressor refuses as it should
NOT_FOR_COUNTS = (
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_regressor_data_not_an_array",
    "check_regressors_no_decision_function",
    "check_regressors_train",
)


class RoundedCounts(GPCountRegressor):
    """For checks whose y are no counts."""

    def fit(self, X: Any, y: Any, exposure: Any = None) -> Any:
        return super().fit(X, np.round(np.abs(np.asarray(y, dtype=float))), exposure)


COUNTED = [case for case in checks_of(GPCountRegressor(learn=False)) if name_of(case) not in NOT_FOR_COUNTS]
ROUNDED = [case for case in checks_of(RoundedCounts(learn=False)) if name_of(case) in NOT_FOR_COUNTS]


@pytest.mark.parametrize(("estimator", "check"), COUNTED + ROUNDED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
