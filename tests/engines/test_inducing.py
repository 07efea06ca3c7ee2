"""Inducing inputs: the laws of every method, any observations against the whole matrix, and what cannot be had."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
from structgp.engines.inducing import METHODS, InducingEngine
from structgp.engines.pitc import grouped
from structgp.inference.base import TOLERANCE
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.kernels.algebra import Kernel
from structgp.learn.evidence import GaussianEvidence
from structgp.learn.sites import SiteEvidence
from structgp.parameters.tree import free_vector
from structgp.process.conditioning import rule_for
from zoo import mostly_full

N = 48
RNG = np.random.default_rng(7)
X = RNG.uniform(-2, 2, (N, 2))
F = np.sin(2 * X[:, 0]) * X[:, 1]
Y = F + 0.1 * RNG.normal(size=N)
Z = X[::6] + 0.05
NEW = RNG.uniform(-2, 2, (5, 2))
INNER = sg.SquaredExponential([1.0, 1.4], 1.3)
NOISE = sg.Gaussian(0.05)


class Fitc(Kernel):
    """The covariance that FITC stands for, entry by entry."""

    induced: sg.Induced

    def between(self, x, z):
        kernel, inputs = self.induced.kernel, jnp.asarray(self.induced.inputs)
        among = sg.covariance(kernel, inputs, inputs) + 1e-12 * kernel.variance * jnp.eye(len(inputs))
        left, right = (sg.covariance(kernel, inputs, point[None])[:, 0] for point in (x, z))
        Q = left @ jnp.linalg.solve(among, right)
        return Q + jnp.all(x == z) * (kernel.between(x, z) - Q)


def given(method="auto", inputs=Z, y=Y, likelihood=NOISE, kernel=INNER, **options):
    return sg.GP(kernel, likelihood).condition(X, y, approximate=sg.Inducing(inputs, method), **options)


def exactly(y=Y, likelihood=NOISE, kernel=INNER, **options):
    return sg.GP(kernel, likelihood).condition(X, y, structure="dense", **options)


@pytest.mark.parametrize("method", mostly_full(METHODS, "fitc", "vfe"))
def test_inputs_at_all_rows_are_exact(method):
    ours, theirs = given(method, X), exactly()
    assert np.isclose(ours.log_evidence, theirs.log_evidence, atol=1e-8)
    assert np.allclose(ours.predict(NEW).mean, theirs.predict(NEW).mean, atol=1e-7)
    if method != "sor":
        assert np.allclose(ours.predict(NEW).variance, theirs.predict(NEW).variance, atol=1e-8)
    assert np.allclose(ours.leave_one_out().mean, theirs.leave_one_out().mean, atol=1e-7)
    assert np.allclose(ours.evidence_bounds, theirs.log_evidence, atol=1e-6)


def test_the_evidence_lies_between_its_bounds_and_rises_with_more_inputs():
    exact, before = exactly().log_evidence, -np.inf
    for count in (4, 10, 25):
        fitted = given("vfe", X[:count])
        lower, upper = fitted.evidence_bounds
        assert np.isclose(fitted.log_evidence, lower)
        assert before < lower < exact < upper
        assert f"log evidence between {lower:.6g} and {upper:.6g}" in str(fitted.plan.chosen)
        before = lower


def test_fitc_is_the_process_with_its_covariance():
    ours, theirs = given("fitc"), exactly(kernel=Fitc(sg.Induced(INNER, Z)))
    assert np.isclose(ours.log_evidence, theirs.log_evidence, rtol=1e-9)
    assert np.allclose(ours.leave_one_out().variance, theirs.leave_one_out().variance, rtol=1e-7)
    one, other = ours.predict(NEW, covariance=True), theirs.predict(NEW)
    assert np.allclose(one.mean, other.mean, atol=1e-7)
    assert np.allclose(one.variance, other.variance, atol=1e-7)
    assert np.allclose(np.diagonal(one.covariance), ours.predict(NEW).variance, atol=1e-10)


OBSERVATIONS = {
    "Bernoulli": (sg.Bernoulli(), (Y > 0) * 1.0),
    "Poisson": (sg.Poisson(), np.floor(np.exp(F))),
    "StudentT": (sg.StudentT(df=4.0, scale=0.2), Y),
    "Ordinal": (sg.Ordinal([-0.5, 0.5]), np.digitize(Y, [-0.5, 0.5]) * 1.0),
    "Categorical": (sg.Categorical(3), np.digitize(Y, [-0.5, 0.5]) * 1.0),
}
RULES = ("ep", "laplace", "variational")
PAIRS = [(name, rule) for name, (one, _) in OBSERVATIONS.items() for rule in RULES if rule in one.inferences]


@pytest.mark.parametrize(("name", "inference"), mostly_full(PAIRS, ("Bernoulli", "ep"), ("StudentT", "laplace")))
def test_other_observations_by_fitc_are_those_of_its_covariance(name, inference):
    likelihood, y = OBSERVATIONS[name]
    options = {"y": y, "likelihood": likelihood, "inference": inference}
    ours, theirs = given("fitc", **options), exactly(kernel=Fitc(sg.Induced(INNER, Z)), **options)
    assert ours.inference.converged
    assert np.isclose(ours.log_evidence, theirs.log_evidence, rtol=0, atol=2e-8)
    assert np.allclose(ours.predict(NEW).mean, theirs.predict(NEW).mean, rtol=0, atol=1e-7)
    assert np.allclose(ours.leave_one_out().mean, theirs.leave_one_out().mean, rtol=0, atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize("name", ["Bernoulli", "Poisson"])
def test_the_variational_bound_is_lower_still(name):
    likelihood, y = OBSERVATIONS[name]
    options = {"y": y, "likelihood": likelihood, "inference": "variational"}
    few, more, exact = given(inputs=X[:8], **options), given(inputs=X[:24], **options), exactly(**options)
    assert few.plan.engine.method == "vfe"
    assert few.log_evidence < more.log_evidence < exact.log_evidence


@pytest.mark.parametrize(
    ("name", "inference", "method"),
    mostly_full([("Bernoulli", "ep", "fitc"), ("Poisson", "variational", "vfe")], ("Poisson", "variational", "vfe")),
)
def test_gradients_of_sites_are_those_of_differences(x64, monkeypatch, name, inference, method):
    """At sites that were found to the end, as the differences are."""
    monkeypatch.setattr("structgp.learn.sites.LEARNING", TOLERANCE)
    likelihood, y = OBSERVATIONS[name]
    gp = sg.GP(sg.Induced(INNER, Z[:3]), likelihood)
    inputs = as_inputs(X)
    data = read_observations(likelihood, y, None, "error", inputs, None, None)
    evidence = SiteEvidence(gp, inputs, data, InducingEngine(method), rule_for(gp, inference, data))
    theta, step = free_vector(gp), 1e-2
    gradient = np.asarray(evidence(theta)[1])
    for entry in (0, 2, 4, len(theta) - 1):
        shift = step * np.eye(len(theta))[entry]
        at = {k: float(evidence.sites(theta + k * shift).log_evidence) for k in (-2, -1, 1, 2)}
        difference = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * step)
        assert np.isclose(gradient[entry], difference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", mostly_full([method for method in METHODS if method != "pitc"], "fitc", "power"))
def test_blas_and_autodiff_agree(x64, method):
    gp = sg.GP(sg.Induced(INNER, Z), NOISE, mean=sg.ConstantMean(0.2))
    inputs = as_inputs(X)
    data = read_observations(NOISE, Y, None, "error", inputs, None, None)
    evidence = GaussianEvidence(gp, inputs, data, InducingEngine(method))
    theta = free_vector(gp)
    ours, theirs = evidence(theta), jax.device_get(evidence._by_autodiff(theta))
    assert np.isclose(ours[0], theirs[0], rtol=1e-10)
    assert np.allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-7)


def test_gradients_keep_their_digits_where_noise_is_low(x64):
    gp = sg.GP(sg.Induced(sg.SquaredExponential(1.0), X[:30]), sg.Gaussian(1e-5))
    inputs = as_inputs(X)
    data = read_observations(gp.likelihood, F, None, "error", inputs, None, None)
    evidence = GaussianEvidence(gp, inputs, data, InducingEngine("vfe"))
    ours, theirs = evidence(free_vector(gp)), jax.device_get(evidence._by_autodiff(free_vector(gp)))
    assert np.isclose(ours[0], theirs[0], rtol=1e-8)
    assert np.allclose(ours[1], theirs[1], atol=1e-5 * np.abs(theirs[1]).max())


def test_pitc_is_the_process_with_whole_blocks(x64):
    fitted = given("pitc")
    found = np.asarray(jax.jit(grouped, static_argnums=2)(fitted.conditional.X, fitted.conditional.sites, len(Z)).rows)
    groups = [group[group < N] for group in found]  # what fills up the rows comes after them
    among, cross = (
        np.asarray(jax.jit(sg.covariance)(INNER, jnp.asarray(left), jnp.asarray(right))) for left, right in ((Z, Z), (Z, X))
    )
    Q = cross.T @ np.linalg.solve(among + 1e-12 * 1.3 * np.eye(len(Z)), cross)
    K, C = np.asarray(jax.jit(sg.covariance)(INNER, jnp.asarray(X), jnp.asarray(X))), Q + 0.05 * np.eye(N)
    for group in groups:
        C[np.ix_(group, group)] += (K - Q)[np.ix_(group, group)]
    log_det, inverse = np.linalg.slogdet(C)[1], np.linalg.inv(C)
    assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(N))
    assert max(map(len, groups)) == len(Z)
    assert np.isclose(fitted.log_evidence, -0.5 * (log_det + Y @ inverse @ Y + N * np.log(2 * np.pi)), rtol=1e-9)
    assert np.allclose(fitted.leave_one_out().variance, 1 / np.diagonal(inverse), rtol=1e-6)
    assert np.allclose(fitted.leave_one_out().mean, Y - inverse @ Y / np.diagonal(inverse), atol=1e-7)


CLASSES = (np.digitize(F, [-0.4, 0.4])).astype(float)
KERNELS = sg.Independent(INNER, sg.Matern52([1.0, 1.0]), sg.SquaredExponential(0.8))
SEVERAL = {"shared": INNER, "apart": KERNELS}


def of_classes(kernel, mean=(0.3, -0.2, 0.1)):
    return sg.GP(kernel, sg.Categorical(3), sg.ConstantMean(list(mean)))


@pytest.mark.parametrize("prior", mostly_full(SEVERAL, "apart"))
def test_several_classes_by_fitc_are_those_of_its_covariance(prior):
    own = getattr(SEVERAL[prior], "kernels", None)
    dense = Fitc(sg.Induced(INNER, Z)) if own is None else sg.Independent(*(Fitc(sg.Induced(one, Z)) for one in own))
    ours = of_classes(SEVERAL[prior]).condition(X, CLASSES, approximate=sg.Inducing(Z))
    theirs = of_classes(dense).condition(X, CLASSES, structure="dense")
    assert ours.inference.converged
    assert np.isclose(ours.log_evidence, theirs.log_evidence, rtol=1e-8)
    one, other = ours.predict(NEW), theirs.predict(NEW)
    assert np.allclose(one.mean, other.mean, atol=1e-6)
    assert np.allclose(one.covariance, other.covariance, atol=1e-6)
    assert np.allclose(ours.leave_one_out().mean, theirs.leave_one_out().mean, atol=1e-5)
    assert "8 inducing inputs, fitc; covariance error" in str(ours.plan)
    draws = ours.sample(NEW, 3000, seed=1)
    assert np.allclose(np.cov(draws[:, 0].T), one.covariance[0], atol=0.15)


@pytest.mark.full
@pytest.mark.parametrize("method", ["vfe", "fitc"])
def test_gradients_of_several_classes_are_those_of_differences(x64, method):
    gp = of_classes(sg.Induced(INNER, Z[:3]))
    inputs = as_inputs(X)
    data = read_observations(gp.likelihood, CLASSES, None, "error", inputs, None, None)
    engine = sg.Inducing(Z[:3], method).engine(gp, "laplace")
    evidence = SiteEvidence(gp, inputs, data, engine, rule_for(gp, None, data))
    theta, step = free_vector(gp), 1e-4
    gradient = np.asarray(evidence(theta)[1])
    for entry in (0, 2, 4, len(theta) - 1):
        shift = step * np.eye(len(theta))[entry]
        above, below = (float(evidence.sites(theta + sign * shift).log_evidence) for sign in (1, -1))
        assert np.isclose(gradient[entry], (above - below) / (2 * step), rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_several_classes_with_inputs_at_all_rows_are_exact_and_are_learned(tmp_path):
    ours, theirs = (of_classes(INNER).condition(X, CLASSES, **how) for how in ({"approximate": sg.Inducing(X)}, {}))
    assert np.isclose(ours.log_evidence, theirs.log_evidence, atol=1e-7)
    assert np.allclose(ours.predict(NEW).mean, theirs.predict(NEW).mean, atol=1e-6)
    model = sg.GPClassifier(structure="inducing:8", multi_class="softmax", max_evaluations=6).fit(X, CLASSES)
    assert model.score(X, CLASSES) > 0.7
    model.fitted_.save(tmp_path / "model")
    assert np.allclose(sg.load(tmp_path / "model").predict(NEW).mean, model.fitted_.predict(NEW).mean)


def test_basis_functions_and_several_targets_go_through():
    both = np.stack([Y, 2 * Y + X[:, 0]], axis=1)
    gp = sg.GP(INNER, NOISE, mean=sg.polynomial(1))
    ours, theirs = gp.condition(X, both, approximate=sg.Inducing(X)), gp.condition(X, both, structure="dense")
    assert np.isclose(ours.log_evidence, theirs.log_evidence, atol=1e-7)
    assert np.allclose(ours.predict(NEW).mean, theirs.predict(NEW).mean, atol=1e-6)


def test_parts_and_derivatives_of_a_sum():
    kernel = INNER + sg.Linear(0.3)
    ours, theirs = given(inputs=X, kernel=kernel), exactly(kernel=kernel)
    for part in (0, 1):
        assert np.allclose(ours.predict(NEW, part=part).mean, theirs.predict(NEW, part=part).mean, atol=1e-6)
        assert np.allclose(ours.predict(NEW, part=part).variance, theirs.predict(NEW, part=part).variance, atol=1e-6)
    one, other = (fitted.derivative(NEW, dim=1) for fitted in (ours, theirs))
    assert np.allclose(one.mean, other.mean, atol=1e-6)
    assert np.allclose(one.variance, other.variance, atol=1e-6)


def test_inside_a_view_the_inputs_are_places_of_what_it_shows():
    kernel = sg.Project(sg.SquaredExponential(0.8), [0.6, 0.8])
    fitted = sg.GP(kernel, NOISE).condition(X, Y, approximate=sg.Inducing(12))
    assert fitted.kernel.kernel.inputs.shape == (12, 1)
    assert np.isclose(fitted.log_evidence, exactly(kernel=kernel).log_evidence, atol=0.1)
    on = sg.GP(sg.Matern52().on(1), NOISE).condition(X, Y, approximate=sg.Inducing(20))
    assert on.kernel.kernel.inputs.shape == (20, 1)


@pytest.mark.full
def test_results_are_kept_updated_and_drawn_from(tmp_path):
    fitted = given()
    fitted.save(tmp_path / "model")
    again = sg.load(tmp_path / "model")
    assert np.array_equal(again.predict(NEW).mean, fitted.predict(NEW).mean)
    assert again.evidence_bounds == fitted.evidence_bounds
    assert again.plan.engine == fitted.plan.engine
    half = sg.GP(INNER, NOISE).condition(X[:20], Y[:20], approximate=sg.Inducing(Z)).update(X[20:], Y[20:])
    assert np.isclose(half.log_evidence, fitted.log_evidence, atol=1e-9)
    draws = fitted.sample(NEW, 4000, seed=0)
    expected = fitted.predict(NEW, covariance=True)
    assert np.allclose(draws.mean(axis=0), expected.mean, atol=0.05)
    assert np.allclose(np.cov(draws.T), expected.covariance, atol=0.05)
    assert "8 inducing inputs, power 0.5; covariance error" in fitted.summary()


@pytest.mark.parametrize("place", mostly_full(["k-means", "conditional-variance", "random", "ivm"], "conditional-variance"))
def test_inputs_are_put_among_the_rows(place):
    fitted = sg.GP(INNER, NOISE).condition(X, Y, approximate=sg.Inducing(20, place=place))
    inputs = fitted.kernel.inputs
    assert inputs.shape == (20, 2)
    assert len(np.unique(inputs, axis=0)) == 20
    assert (np.abs(inputs) <= 2).all()


@pytest.mark.full
def test_rows_that_tell_most_lie_where_labels_change():
    x = np.linspace(-3, 3, 121)[:, None]
    gp = sg.GP(sg.SquaredExponential(0.7, 9.0), sg.Bernoulli())
    fitted = gp.condition(x, (x[:, 0] > 0.4) * 1.0, approximate=sg.Inducing(25, place="ivm"))
    assert np.min(np.abs(fitted.kernel.inputs - 0.4)) < 0.1
    numbers = sg.GP(sg.SquaredExponential(0.7), NOISE).condition(x, np.sin(x[:, 0]), approximate=sg.Inducing(2, place="ivm"))
    first, second = numbers.kernel.inputs[:, 0]
    assert abs(first - second) > 2.0  # where the variance is largest, far from what is known


def test_constant_and_repeated_rows_are_no_obstacle():
    flat = np.column_stack([np.repeat(np.arange(8.0), 6), np.full(N, 3.0)])
    fitted = sg.GP(sg.Matern32([1.0, 1.0]), NOISE).condition(flat, Y, approximate=sg.Inducing(20))
    assert fitted.kernel.inputs.shape == (8, 2)
    exact = sg.GP(sg.Matern32([1.0, 1.0]), NOISE).condition(flat, Y, structure="dense")
    assert np.isclose(fitted.log_evidence, exact.log_evidence, atol=1e-6)
    assert "column 1 of X, counted from 0, is constant: nothing can be learned there" in str(fitted.plan)
    assert "constant" not in str(given().plan)


def test_as_many_inputs_as_rows_are_exact_and_say_so():
    fitted = sg.GP(INNER, NOISE).condition(X, Y, approximate=sg.Inducing(N))
    assert fitted.plan.engine.name == "Cholesky"
    assert f"{N} inducing inputs are no fewer than {N} rows, so nothing is approximated" in str(fitted.plan)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sg.Inducing(0), "the number of inducing inputs must be a whole number, 1 or more, got 0"),
        (lambda: sg.GP(INNER).fit(X, Y, approximate="inducing:0"), "must be a whole number, 1 or more, got 0"),
        (lambda: sg.GPRegressor(structure="inducing:0").fit(X, Y), "must be a whole number, 1 or more, got 0"),
        (lambda: sg.Inducing(2.5), "must be a whole number, 1 or more, got 2.5"),
        (lambda: sg.GP(INNER).plan(X, approximate="inducing:-1"), "must be a whole number, 1 or more, got -1"),
        (lambda: sg.Inducing([[0.0, 1.0], [np.nan, 1.0]]), "row 1 of the inducing inputs is not finite"),
        (lambda: sg.Inducing(np.zeros(3)), r"inputs must be a number, or an array \(M, D\) of numbers"),
        (lambda: sg.Inducing([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]]), "row 0 of the inducing inputs comes again in a later one"),
        (lambda: sg.Inducing(9, "best"), r"method must be one of \['auto', 'power', .*\], got 'best'"),
        (lambda: sg.Inducing(9, place="corners"), r"place must be one of \['k-means', .*\], got 'corners'"),
        (lambda: sg.Inducing(9, power=0.0), "power must be above 0 and at most 1, got 0.0"),
        (lambda: sg.Inducing(9, learn="yes"), "learn must be True, False or None"),
        (lambda: given(inputs=[[0.0], [1.0]]), "the inducing inputs have 1 column, but the kernel sees 2"),
        (lambda: given(structure="dense"), "structure='dense' is exact, so nothing is approximate there"),
        (lambda: given(structure="neighbours"), "structure='neighbours' is another approximation: leave out one of the two"),
        (
            lambda: given("vfe", y=(Y > 0) * 1.0, likelihood=sg.Bernoulli(), inference="ep"),
            "'ep' does not settle on method='vfe'",
        ),
        (lambda: given("power", y=(Y > 0) * 1.0, likelihood=sg.Bernoulli()), "method='power' is for Gaussian observations"),
        (
            lambda: given("vfe", y=np.arange(N) % 3, likelihood=sg.Categorical(3), inference="ep"),
            "'ep' does not settle on method='vfe'",
        ),
        (
            lambda: given("pitc", y=np.arange(N) % 3, likelihood=sg.Categorical(3)),
            "method='pitc' is for Gaussian observations: use 'fitc'",
        ),
        (lambda: sg.GP(INNER).condition(X, Y, approximate="inducing:few"), "approximate must be one of"),
        (lambda: sg.Induced(INNER, np.zeros(3)), r"inducing inputs are rows like those of X, \(M, D\), got .* \(3,\)"),
        (lambda: sg.GP(sg.Induced(INNER, [[0.0]])).condition(X, Y), "the inducing inputs have 1 column but the inputs have 2"),
    ],
)
def test_what_cannot_be_had_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()
