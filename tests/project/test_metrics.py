import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from structgp import metrics

finite = st.floats(-50, 50)
positive = st.floats(1e-3, 1e3)
RNG = np.random.default_rng(0)
Y, MEAN, VARIANCE = RNG.normal(size=40), RNG.normal(size=40), RNG.gamma(2.0, size=40)


def gaussian_crps_by_quadrature(y, mean, variance):
    """∫ (F(t) − 1[y ≤ t])² dt, split at y where the integrand jumps."""
    F = stats.norm(mean, math.sqrt(variance)).cdf
    below = integrate.quad(lambda t: F(t) ** 2, y - 30, y, limit=200)[0]
    above = integrate.quad(lambda t: (1 - F(t)) ** 2, y, y + 30, limit=200)[0]
    return below + above


class TestRegression:
    def test_rmse_is_the_length_of_the_residual(self):
        assert metrics.rmse(Y, MEAN) == pytest.approx(np.linalg.norm(Y - MEAN) / math.sqrt(len(Y)))

    def test_nmse_of_the_training_mean_is_one(self):
        y_train = RNG.normal(size=7)
        assert metrics.nmse(Y, np.full_like(Y, y_train.mean()), y_train) == pytest.approx(1)
        assert metrics.nmse(Y, Y, y_train) == 0

    @given(scale=positive, shift=finite)
    def test_nmse_does_not_depend_on_units(self, scale, shift):
        assert metrics.nmse(scale * Y + shift, scale * MEAN + shift, scale * Y[:9] + shift) == pytest.approx(
            metrics.nmse(Y, MEAN, Y[:9]), rel=1e-6
        )

    def test_mnlp_is_the_mean_of_scipys_log_density(self):
        assert metrics.mnlp(Y, MEAN, VARIANCE) == pytest.approx(-np.mean(stats.norm(MEAN, np.sqrt(VARIANCE)).logpdf(Y)))

    @given(scale=positive)
    def test_mnlp_shifts_by_the_logarithm_of_the_unit(self, scale):
        assert metrics.mnlp(scale * Y, scale * MEAN, scale**2 * VARIANCE) == pytest.approx(
            metrics.mnlp(Y, MEAN, VARIANCE) + math.log(scale), rel=1e-9, abs=1e-9
        )

    @pytest.mark.parametrize(
        ("y", "mean", "variance"), [(0.3, -0.2, 1.0), (2.5, 0.0, 0.25), (-4.0, 1.0, 2.0), (0.0, 0.0, 1e-2)]
    )
    def test_crps_equals_its_integral(self, y, mean, variance):
        assert metrics.crps([y], [mean], [variance]) == pytest.approx(gaussian_crps_by_quadrature(y, mean, variance), abs=1e-7)

    @given(y=finite, mean=finite)
    def test_crps_of_a_sure_prediction_is_the_absolute_error(self, y, mean):
        assert metrics.crps([y], [mean], [1e-16]) == pytest.approx(abs(y - mean), abs=1e-7)

    @given(shift=st.floats(-3, 3), scale=st.floats(0.2, 5))
    def test_the_true_gaussian_has_the_smallest_expected_crps(self, shift, scale):
        y = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
        ones = np.ones_like(y)
        assert metrics.crps(y, shift * ones, scale**2 * ones) >= metrics.crps(y, 0 * ones, ones) - 1e-4

    def test_pit_is_the_distribution_function_with_its_tails(self):
        assert np.allclose(metrics.pit(Y, MEAN, VARIANCE), stats.norm(MEAN, np.sqrt(VARIANCE)).cdf(Y), rtol=1e-12)
        assert metrics.pit([-30.0], [0.0], [1.0])[0] == pytest.approx(stats.norm.cdf(-30.0), rel=1e-10)

    def test_pit_and_coverage_tell_the_same_story(self):
        half = 1.2 * np.sqrt(VARIANCE)
        u = metrics.pit(Y, MEAN, VARIANCE)
        inside = (u >= stats.norm.cdf(-1.2)) & (u <= stats.norm.cdf(1.2))
        assert metrics.coverage(Y, MEAN - half, MEAN + half) == np.mean(inside)

    def test_coverage_counts_the_ends_and_takes_one_sided_intervals(self):
        assert metrics.coverage([1.0, 2.0], [1.0, 0.0], [5.0, 2.0]) == 1
        assert metrics.coverage([1.0, 2.0], [-np.inf, -np.inf], [1.5, np.inf]) == 1


class TestClassification:
    def test_error_rate_takes_any_labels(self):
        assert metrics.error_rate([1, 0, 1, 1], [1, 1, 1, 0]) == 0.5
        assert metrics.error_rate(np.array(["a", "b"], dtype=object), ["a", "b"]) == 0

    @given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=20), st.data())
    def test_two_classes_are_the_multi_class_case(self, p, data):
        y = data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(p), max_size=len(p)))
        p = np.array(p)
        expected = -np.mean(np.where(np.array(y) == 1, np.log(p), np.log1p(-p)))
        assert metrics.mnll(y, p) == pytest.approx(expected)
        assert metrics.mnll(y, np.column_stack([1 - p, p])) == pytest.approx(expected)

    def test_an_even_guess_scores_log_c(self):
        assert metrics.mnll([0, 3, 1], np.full((3, 4), 0.25)) == pytest.approx(math.log(4))

    def test_labels_name_the_columns(self):
        p = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]
        assert metrics.mnll(["x", "z"], p, labels=["x", "y", "z"]) == pytest.approx(-(math.log(0.7) + math.log(0.8)) / 2)
        assert metrics.mnll([-1, 1], [0.1, 0.8], labels=[-1, 1]) == pytest.approx(-(math.log(0.9) + math.log(0.8)) / 2)

    def test_probability_zero_is_not_clipped(self):
        assert metrics.mnll([1, 0], [0.0, 0.5]) == math.inf
        assert metrics.mnll([0, 1], [0.0, 1.0]) == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: metrics.rmse([1.0, 2.0], [1.0]), r"lengths differ \(y 2, mean 1\): pass one prediction for each datum"),
            (lambda: metrics.rmse([[1.0]], [1.0]), r"y has shape \(1, 1\), needed is \(N,\).*ravel"),
            (lambda: metrics.rmse([], []), "y is empty: a score needs at least one datum"),
            (lambda: metrics.rmse(["a"], [1.0]), "y is not numeric: .*error_rate or mnll"),
            (lambda: metrics.rmse(np.ma.array([1.0, 2.0], mask=[0, 1]), [1.0, 2.0]), r"y has NaN or inf in 1 row \(1\)"),
            (lambda: metrics.error_rate(np.ma.array(["a", "b"], mask=[0, 1]), ["a", "b"]), r"y has NaN in 1 row \(1\)"),
            (lambda: metrics.mnll([0, 1], np.ma.array([0.5, 0.5], mask=[0, 1])), r"probability is NaN .* in 1 row \(1\)"),
            (lambda: metrics.nmse([1.0], [np.nan], [0.0]), r"mean has NaN or inf in 1 row \(0\): drop these rows"),
            (lambda: metrics.nmse([1.0], [1.0], []), "y_train is empty"),
            (lambda: metrics.nmse([1.0], [0.0], [1.0, 1.0]), r"every y equals the mean of y_train \(1\).*use rmse"),
            (
                lambda: metrics.mnlp([0.0, 0.0], [0.0, 0.0], [1.0, -0.5]),
                r"not positive in 1 row \(1\) \(smallest -0.5\).*noise included",
            ),
            (lambda: metrics.crps([0.0], [0.0], [0.0]), r"variance is not positive in 1 row \(0\)"),
            (lambda: metrics.pit([0.0], [0.0], [np.inf]), r"variance has NaN or inf in 1 row"),
            (
                lambda: metrics.pit(np.full(7, np.nan), np.zeros(7), np.ones(7)),
                r"y has NaN or inf in 7 rows \(0, 1, 2, 3, 4, …\)",
            ),
            (lambda: metrics.coverage([0.0], [1.0], [-1.0]), r"lower exceeds upper in 1 row \(0\): pass the smaller quantile"),
            (lambda: metrics.coverage([0.0], [np.nan], [1.0]), r"lower has NaN in 1 row"),
            (lambda: metrics.coverage([0.0], [0.0, 1.0], [1.0, 2.0]), r"lengths differ \(y 1, lower 2, upper 2\)"),
            (lambda: metrics.error_rate([1, 2], [1]), r"lengths differ \(y 2, predicted 1\)"),
            (lambda: metrics.error_rate([1.0, np.nan], [1.0, 1.0]), r"y has NaN in 1 row \(1\)"),
            (lambda: metrics.mnll([0, 1], [0.5, 1.5]), r"outside \[0, 1\] in 1 row \(1\): pass probabilities"),
            (lambda: metrics.mnll([0, 1], [0.5, np.nan]), r"probability is NaN or outside"),
            (lambda: metrics.mnll([], []), "y is empty"),
            (lambda: metrics.mnll([0, 1], [[0.5], [0.5]]), r"probability has shape \(2, 1\).*ravel"),
            (lambda: metrics.mnll([0, 1], [[0.5, 0.1], [0.5, 0.5]]), r"does not sum to 1 in 1 row \(0\): normalise each row"),
            (
                lambda: metrics.mnll([-1, 1], [0.5, 0.5]),
                r"not among \[0, 1\] \(met -1 in 1 row \(0\)\): recode y as 0 … 1, or pass labels=",
            ),
            (lambda: metrics.mnll(["a", "b"], [0.5, 0.5]), r"not among \[0, 1\] \(met a, b in 2 rows"),
            (lambda: metrics.mnll([0, 1], [0.5, 0.5], labels=[0, 1, 2]), r"labels has shape \(3,\), needed are 2 names"),
        ],
    )
    def test_a_refusal_names_the_remedy(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("metrics", sys.argv[1])
spec.loader.exec_module(importlib.util.module_from_spec(spec))
assert "numpy" in sys.modules and not {"jax", "scipy", "structgp"} & set(sys.modules)
"""


def test_the_module_itself_needs_only_numpy():
    subprocess.run([sys.executable, "-c", ALONE, metrics.__file__], check=True)
