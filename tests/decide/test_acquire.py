"""What a measurement is worth: logarithms that are right far out, and averages over members before them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from structgp.decide import acquire
from structgp.decide.acquire import Belief, Outcome, View
from structgp.linalg.normal import log_mean_excess

pytestmark = pytest.mark.usefixtures("x64")

# u, log(φ + uΦ) and Φ/(φ + uΦ), by mpmath with 60 digits
REFERENCE = [
    (-1e8, -5000000000000037.76, 100000000.00000002),
    (-12345.678, -76207902.4009031955, 12345.6781620000101),
    (-300, -45012.3265368145542, 300.006666444461727),
    (-40, -808.29856835661996, 40.0499066576485182),
    (-20, -206.917838509425098, 20.0992628111012818),
    (-12.5, -84.1141828406854409, 12.6570575658280937),
    (-9, -45.8489412926690333, 9.21462761292689789),
    (-5.7, -20.7288474229139886, 6.02390066018962418),
    (-3, -7.86968605960302852, 3.53233751762516052),
    (-1.001, -2.48702565795538942, 1.90499327273421309),
    (-0.66, -1.87855969702556033, 1.66629702161291877),
    (-1e-3, -0.920192132769726437, 1.25388502236480593),
    (0, -0.918938533204672742, 1.25331413731550025),
    (0.3, -0.567817153677936884, 1.0902499611311893),
    (0.9, 0.000431044173782032756, 0.815588244313663773),
    (2.5, 0.917092065592164517, 0.397197718383738449),
    (8, 2.07944154167983594, 0.124999999999999921),
    (40, 3.6888794541139363, 0.025),
    (1e4, 9.21034037197618274, 0.0001),
]


def test_log_improvement_is_right_everywhere():
    u, value, slope = np.array(REFERENCE).T
    found, grad = jax.jit(jax.vmap(jax.value_and_grad(log_mean_excess)))(u)
    np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(grad, slope, rtol=1e-12)
    along = np.asarray(jax.jit(log_mean_excess)(np.concatenate([-np.logspace(8, -3, 400), np.logspace(-3, 4, 200)])))
    assert np.all(np.diff(along) > 0)


class Plane(eqx.Module):
    """A member whose mean and variance are simple functions of x."""

    slope: Any
    width: Any

    def marginals(self, X):
        return (X @ self.slope)[:, None], jnp.exp(self.width * X[:, 0])


MEMBERS = Plane(np.array([[1.0, 0.5], [-0.7, 2.0], [0.1, 0.1]]), np.array([0.3, -1.0, 0.5]))
WEIGHTS = np.array([0.5, 0.3, 0.2])
BEST = np.array([0.1, -0.3, 0.4])
X = np.random.default_rng(0).uniform(-1, 1, (5, 2))
BELIEF = Belief(MEMBERS, np.log(WEIGHTS), BEST, np.ones(3))


def view(outcomes=(), good=True):
    return View((BELIEF,), outcomes, (), np.asarray(good), np.asarray(1.5))


def moments():
    mean, sd = acquire.moments(BELIEF, X)
    return np.asarray(mean), np.asarray(sd)


def test_rules_are_averages_over_members():
    from scipy.stats import norm

    mean, sd = moments()
    u = (BEST[:, None] - mean) / sd
    improvement = WEIGHTS @ (sd * (norm.pdf(u) + u * norm.cdf(u)))
    np.testing.assert_allclose(acquire.values(view(), X, "ei"), np.log(improvement), rtol=1e-10)
    np.testing.assert_allclose(acquire.values(view(), X, "pi"), np.log(WEIGHTS @ norm.cdf(u)), rtol=1e-10)
    np.testing.assert_allclose(acquire.values(view(), X, "ucb"), WEIGHTS @ (1.5 * sd - mean), rtol=1e-10)


@pytest.mark.parametrize(("low", "high"), [(-np.inf, 0.4), (0.2, np.inf), (-0.5, 0.9)])
def test_limits_multiply_by_their_probability(low, high):
    from scipy.stats import norm

    mean, sd = moments()
    inside = WEIGHTS @ (norm.cdf((high - mean) / sd) - norm.cdf((low - mean) / sd))
    outcome = (Outcome(BELIEF, np.asarray(low), np.asarray(high)),)
    np.testing.assert_allclose(acquire.log_feasible(view(outcome), X), np.log(inside), rtol=1e-9)
    np.testing.assert_allclose(
        acquire.values(view(outcome), X, "ei"), acquire.values(view(), X, "ei") + np.log(inside), rtol=1e-9
    )
    np.testing.assert_allclose(acquire.values(view(outcome, good=False), X, "ei"), np.log(inside), rtol=1e-9)
    bounded = np.asarray(acquire.values(view(outcome), X, "ucb"))
    assert np.all(bounded < np.asarray(acquire.values(view(), X, "ucb")))
    assert np.all(np.isfinite(acquire.values_and_slopes(view(outcome), X, "ei")[1]))


def test_limits_that_cannot_be_met_leave_a_slope():
    far = (Outcome(BELIEF, np.asarray(-np.inf), np.asarray(-60.0)),)
    slope = np.asarray(acquire.values_and_slopes(view(far), X, "ei")[1])
    assert np.all(np.isfinite(slope))
    assert np.all(np.abs(slope).max(axis=1) > 0.1)
