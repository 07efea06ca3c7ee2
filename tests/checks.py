"""scikit-learn's checks of an estimator, as cases for `parametrize`."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

# The checks that stand in neither list fit nothing, or 20 rows of three columns, and share what is compiled for them.
WITH_THIRTY_ROWS = {
    "check_estimators_pickle",
    "check_fit_score_takes_y",
    "check_pipeline_consistency",
    "check_supervised_y_2d",
}
WITH_A_TABLE_OF_THEIR_OWN = {
    "check_class_weight_classifiers",
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_non_transformer_estimators_n_iter",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_regressor_data_not_an_array",
    "check_regressor_multioutput",
    "check_regressors_int",
    "check_regressors_no_decision_function",
    "check_regressors_train",
}


def checks_of(estimator, kept=(), rare=WITH_A_TABLE_OF_THEIR_OWN):
    """Every check; `make test` leaves out those that are rare (None: all of them), unless they are kept by name."""
    for of, check in estimator_checks_generator(estimator):
        name = check.func.__name__
        marks = pytest.mark.full if (rare is None or name in rare) and name not in kept else ()
        yield pytest.param(of, check, id=f"{type(estimator).__name__}-{name}", marks=marks)


def name_of(case):
    return case.values[1].func.__name__
