"""What is true of every engine: it computes what plain NumPy computes from the covariance matrix."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator, make_smoothing_spline

import reference
import structgp as sg
import zoo
from structgp.engines.base import form_by_shape
from structgp.engines.kalman import Kalman
from structgp.engines.plan import ENGINES
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import _value_and_gradient, evidence_objective
from structgp.parameters.tree import free_vector, with_free
from structgp.structure.base import No
from structgp.structure.dense import covariance

NOISE = 0.15
KERNEL = sg.Matern52(0.8, 1.3)
kernel_for = lambda structure: zoo.SOME_KERNEL.get(structure, KERNEL)
GAPS = [3, 11, 12]  # rows that were not observed
SEEN = np.setdiff1d(np.arange(zoo.N), GAPS)
KNOWN_NOISE = np.linspace(0.0, 0.4, zoo.N)
TWO = np.stack([zoo.Y[1], np.cos(3 * zoo.X[1][:, 0])], axis=1)
engines = pytest.mark.parametrize("structure", zoo.ENGINES)


def means(*names, kept=("diffuse basis",)):
    """An engine sees no mean but its values and features, so that one with features stands for the others."""
    return pytest.mark.parametrize("name", zoo.mostly_full(names or zoo.MEANS, *kept))


@jax.jit
def _blocks(gp, X, Xs):
    both = jnp.concatenate([X, Xs])
    free = jax.vmap(gp.kernel.null_space)(both)
    return covariance(gp.kernel, both, both), jax.vmap(gp.mean)(both), jax.vmap(gp.mean.features)(both), free


class Plain:
    """A GP as matrices of NumPy: K, the known mean, and the basis functions whose weights are flat."""

    def __init__(self, gp, X, Xs):
        with jax.enable_x64(True):
            K, mean, features, free = map(np.asarray, _blocks(gp, np.asarray(X), np.asarray(Xs)))
        if not gp.mean.diffuse:
            B = np.asarray(gp.mean.covariance)
            K = K + features @ (B if B.ndim == 2 else B * np.eye(features.shape[1])) @ features.T
            features = features[:, :0]
        Phi = np.concatenate([features, free], axis=1)
        n = len(X)
        self.K, self.Ks, self.Kss = K[:n, :n], K[:n, n:], K[n:, n:]
        self.m, self.ms, self.Phi, self.Phis = mean[:n], mean[n:], Phi[:n], Phi[n:]
        self.noise = float(gp.likelihood.noise)

    def log_evidence(self, y, extra=0.0, seen=slice(None)):
        R = np.broadcast_to(self.noise + extra, len(y))
        return reference.log_evidence(self.K[seen][:, seen], (y - self.m)[seen], R[seen], self.Phi[seen])

    def predict(self, y, extra=0.0, seen=slice(None)):
        R = np.broadcast_to(self.noise + extra, len(y))
        mean, cov = reference.predict(
            self.K[seen][:, seen], self.Ks[seen], self.Kss, (y - self.m)[seen], R[seen], self.Phi[seen], self.Phis
        )
        return self.ms + mean, cov


def slope_of_evidence(gp, X, *arguments):
    """The gradient of the evidence in θ by differences of the plain one."""
    plain = lambda theta: Plain(_host(with_free(gp, theta)), X, X[:1]).log_evidence(*arguments)
    return reference.slope(plain, free_vector(gp))


def _host(tree):
    return jax.tree.map(np.asarray, tree)


@functools.cache
def conditioned(structure, mean=None):
    """The one example that most laws look at: gaps, known noise on top of the learned, and a basis if asked for."""
    y = zoo.Y[1].copy()
    y[GAPS] = np.nan
    gp = sg.GP(kernel_for(structure), sg.Gaussian(NOISE), zoo.MEANS[mean] if mean else None)
    return gp, y, gp.condition(zoo.X[1], y, noise=KNOWN_NOISE, missing="infer", structure=structure)


def refused(gp, X, structure):
    """Whether an engine does not apply; then it says why, in the plan and to whom asks for it."""
    offers = [offer for offer in gp.plan(X).offers if offer.engine.structure == structure]
    if any(offer.reason is None for offer in offers):
        return False
    assert all(len(offer.reason) > 10 for offer in offers)
    with pytest.raises(ValueError, match="cannot be had"):
        gp.plan(X, structure=structure)
    return True


def test_the_zoo_has_every_engine():
    everything = zoo.ENGINES | zoo.PARTICULAR
    assert {type(engine) for engine in (*everything.values(), *zoo.GENERAL)} == {type(engine) for engine in ENGINES}
    assert all(engine.structure == structure for structure, engine in everything.items())


def _runs_along_time(name):
    kernel, columns = zoo.KERNELS[name]
    return columns == 1 and not isinstance(form_by_shape(Kalman(4), kernel, as_inputs(zoo.X[1])), No)


ALONG_TIME = [name for name in zoo.KERNELS if _runs_along_time(name)]


@pytest.mark.parametrize("name", ALONG_TIME)
def test_states_have_the_covariance_of_their_kernel(name):
    """By the evidence, which sees every entry of the matrix."""
    gp = sg.GP(zoo.KERNELS[name][0], sg.Gaussian(NOISE))
    expected = Plain(gp, zoo.X[1], zoo.XS[1]).log_evidence(zoo.Y[1])
    np.testing.assert_allclose(gp.log_evidence(zoo.X[1], zoo.Y[1], structure="markov"), expected, rtol=1e-10)


# The dense engine sees a matrix, the Kalman filter a chain: of each the kinds that differ.
DENSE = ("Matern52", "Linear", "Sum", "Spline", "ThinPlate", "ChangePoint-smooth")
CHAINS = ("Matern32", "DampedOscillator", "Sum", "Spline", "ChangePoint")
KINDS = [*itertools.product(["dense"], DENSE), *itertools.product([Kalman.structure], CHAINS)]
KINDS += [(Kalman.structure, name) for name in zoo.KERNELS if name not in ALONG_TIME]  # refused, which costs nothing


@pytest.mark.parametrize(("structure", "name"), zoo.mostly_full(itertools.product(zoo.ENGINES, zoo.KERNELS), *KINDS))
def test_kernels(structure, name):
    """Evidence, its gradient, mean and variance for every kernel; an engine that does not apply says why."""
    kernel, D = zoo.KERNELS[name]
    gp, X, y = sg.GP(kernel, sg.Gaussian(NOISE)), zoo.X[D], zoo.Y[D]
    if refused(gp, X, structure):
        return
    fitted = gp.condition(X, y, structure=structure)
    assert isinstance(fitted.plan.engine, type(zoo.ENGINES[structure]))
    plain = Plain(gp, X, zoo.XS[D])
    np.testing.assert_allclose(fitted.log_evidence, plain.log_evidence(y), rtol=1e-10)
    mean, cov = plain.predict(y)
    p = fitted.predict(zoo.XS[D])
    np.testing.assert_allclose(p.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(p.variance, np.diagonal(cov), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(p.observed.variance, np.diagonal(cov) + NOISE, rtol=1e-9)
    objective = evidence_objective(gp, fitted.inputs, fitted.data, fitted.plan.engine)
    value, gradient = objective(free_vector(gp))
    np.testing.assert_allclose(value, fitted.log_evidence, rtol=1e-12)
    # The differences are good to about 1e-9 of the evidence.
    np.testing.assert_allclose(gradient, slope_of_evidence(gp, X, y), rtol=1e-7, atol=3e-8)


@pytest.mark.parametrize("structure", zoo.ENGINES | zoo.PARTICULAR)
@pytest.mark.parametrize("name", zoo.INPUTS)
def test_inputs(structure, name):
    """Answers come in the caller's order, whatever the layout."""
    inputs = sg.as_inputs(zoo.INPUTS[name])
    X, D = np.asarray(inputs.points), inputs.dimension
    y = np.sin(X.sum(axis=1)) + 0.01 * np.arange(zoo.N)
    gp = sg.GP(KERNEL, sg.Gaussian(NOISE))
    if refused(gp, inputs, structure):
        return
    fitted, plain = gp.condition(zoo.INPUTS[name], y, structure=structure), Plain(gp, X, zoo.XS[D])
    np.testing.assert_allclose(fitted.log_evidence, plain.log_evidence(y), rtol=1e-11)
    np.testing.assert_allclose(fitted.predict(zoo.XS[D]).mean, plain.predict(y)[0], rtol=1e-10, atol=1e-12)


@engines
@means()
def test_means(structure, name):
    """With gaps in y and known noise: evidence, gradient in all parameters, mean, variance and joint covariance."""
    gp, y, fitted = conditioned(structure, name)
    plain = Plain(gp, zoo.X[1], zoo.XS[1])
    np.testing.assert_allclose(fitted.log_evidence, plain.log_evidence(np.nan_to_num(y), KNOWN_NOISE, SEEN), rtol=1e-10)
    mean, cov = plain.predict(np.nan_to_num(y), KNOWN_NOISE, SEEN)
    p, joint = fitted.predict(zoo.XS[1]), fitted.predict(zoo.XS[1], covariance=True)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(p.variance, np.diagonal(cov), rtol=1e-9)
    np.testing.assert_allclose(joint.covariance, cov, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(joint.mean, p.mean, rtol=1e-12)
    objective = evidence_objective(gp, fitted.inputs, fitted.data, fitted.plan.engine)
    _, gradient = objective(free_vector(gp))
    expected = slope_of_evidence(gp, zoo.X[1], np.nan_to_num(y), KNOWN_NOISE, SEEN)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=3e-8)


@engines
def test_missing_values_are_as_if_never_asked_for(structure):
    gp, y, fitted = conditioned(structure)
    dropped = gp.condition(zoo.X[1][SEEN], y[SEEN], noise=KNOWN_NOISE[SEEN], structure=structure)
    np.testing.assert_allclose(fitted.log_evidence, dropped.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict(zoo.XS[1]).mean, dropped.predict(zoo.XS[1]).mean, rtol=1e-10)


@engines
def test_nothing_observed_is_the_prior(structure):
    gp = sg.GP(kernel_for(structure), sg.Gaussian(NOISE))
    fitted = gp.condition(zoo.X[1], np.full(zoo.N, np.nan), missing="infer", structure=structure)
    p = fitted.predict(zoo.XS[1])
    assert fitted.log_evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_array_equal(p.mean, np.zeros(zoo.M))
    np.testing.assert_allclose(p.variance, np.diagonal(Plain(gp, zoo.X[1], zoo.XS[1]).Kss), rtol=1e-12)


@engines
def test_several_targets_share_everything_but_their_values(structure):
    gp = sg.GP(kernel_for(structure), sg.Gaussian(NOISE), sg.polynomial(1))
    together = gp.condition(zoo.X[1], TWO, structure=structure)
    alone = [gp.condition(zoo.X[1], y, structure=structure) for y in TWO.T]
    np.testing.assert_allclose(together.log_evidence, sum(one.log_evidence for one in alone), rtol=1e-12)
    p = together.predict(zoo.XS[1])
    assert p.mean.shape == p.variance.shape == (zoo.M, 2)
    for t, one in enumerate(alone):
        np.testing.assert_allclose(p.mean[:, t], one.predict(zoo.XS[1]).mean, rtol=1e-10)
        np.testing.assert_allclose(p.variance[:, t], one.predict(zoo.XS[1]).variance, rtol=1e-10)
    assert together.gradient(zoo.XS[1]).shape == (zoo.M, 1, 2)
    assert together.sample(zoo.XS[1], n=3, seed=0).shape == (3, zoo.M, 2)


@engines
def test_host_and_autodiff_and_differences_agree(structure):
    """On the hardest case at once: basis, free kernel part, gaps, known noise, two targets and a prior."""
    kernel = (sg.Matern52(0.8, 1.3) + sg.Spline(0.4)).with_prior({"terms[0].lengthscale": sg.Gamma(3.0, 2.0)})
    basis = sg.Basis(lambda x: jnp.cos(x), 0.4, 0.6)
    gp = sg.GP(kernel, sg.Gaussian(NOISE), basis)
    Y = TWO.copy()
    Y[GAPS] = np.nan
    if refused(gp, zoo.X[1], structure):
        return
    fitted = gp.condition(zoo.X[1], Y, noise=KNOWN_NOISE, missing="infer", structure=structure)
    objective = evidence_objective(gp, fitted.inputs, fitted.data, fitted.plan.engine)
    theta = free_vector(gp)
    value, gradient = objective(theta)
    with jax.enable_x64(True):
        same_value, same_gradient = objective.evidence._by_autodiff(jnp.asarray(theta))
    terms = objective.terms(theta)
    np.testing.assert_allclose(terms.log_evidence, same_value, rtol=1e-12)
    np.testing.assert_allclose(terms.gradient, same_gradient, rtol=1e-9, atol=1e-10)

    def plainly(theta):
        at = _host(with_free(gp, theta))
        plain, length = Plain(at, zoo.X[1], zoo.XS[1]), float(at.kernel.terms[0].lengthscale)
        prior = 2 * np.log(length) - 2 * length + 3 * np.log(2) - np.log(2)  # Gamma(3, 2)
        return sum(plain.log_evidence(np.nan_to_num(y), KNOWN_NOISE, SEEN) for y in Y.T) + prior

    np.testing.assert_allclose(value, plainly(theta), rtol=1e-10)
    np.testing.assert_allclose(gradient, reference.slope(plainly, theta), rtol=1e-7, atol=3e-8)


@pytest.mark.parametrize("structure", zoo.mostly_full(zoo.ENGINES, "dense"))
def test_diffuse_weights_are_the_limit_of_proper_ones(structure):
    phi = lambda x: jnp.concatenate([jnp.ones(1), x])
    B = 1e8
    X, y = zoo.X[1], zoo.Y[1]
    kernel = kernel_for(structure)
    proper = sg.GP(kernel, sg.Gaussian(NOISE), sg.Basis(phi, covariance=B)).condition(X, y, structure=structure)
    diffuse = sg.GP(kernel, sg.Gaussian(NOISE), sg.Basis(phi)).condition(X, y, structure=structure)
    # The limit is approached as 1/B, and 1/B is where it stops.
    limit = proper.log_evidence + 0.5 * 2 * np.log(2 * np.pi * B)
    np.testing.assert_allclose(diffuse.log_evidence, limit, rtol=1e-6)
    np.testing.assert_allclose(diffuse.predict(zoo.XS[1]).mean, proper.predict(zoo.XS[1]).mean, rtol=1e-6)
    np.testing.assert_allclose(diffuse.predict(zoo.XS[1]).variance, proper.predict(zoo.XS[1]).variance, rtol=1e-6)


@engines
@pytest.mark.parametrize("name", ["diffuse basis", "proper basis"])
def test_posterior_of_the_basis_weights(structure, name):
    """β̄ = (ΦᵀC⁻¹Φ + B⁻¹)⁻¹(ΦᵀC⁻¹y + B⁻¹b): generalised least squares, shrunk to the prior."""
    _, y, fitted = conditioned(structure, name)
    x, y = zoo.X[1][SEEN, 0], y[SEEN]
    K = Plain(sg.GP(kernel_for(structure)), zoo.X[1], zoo.XS[1]).K
    C = K[SEEN][:, SEEN] + np.diag(NOISE + KNOWN_NOISE[SEEN])
    Phi = np.stack([np.ones_like(x), x], axis=1)
    B_inverse, b = np.zeros((2, 2)), np.zeros(2)
    if name == "proper basis":
        B_inverse, b = np.linalg.inv([[1.2, 0.3], [0.3, 0.7]]), np.array([0.5, -0.3])
    A = Phi.T @ np.linalg.solve(C, Phi) + B_inverse
    beta = np.linalg.solve(A, Phi.T @ np.linalg.solve(C, y) + B_inverse @ b)
    weights = fitted.basis_weights()
    np.testing.assert_allclose(weights.mean, beta, rtol=1e-9)
    np.testing.assert_allclose(getattr(weights, "covariance", weights.variance), np.linalg.inv(A), rtol=1e-9)


@engines
def test_smoothing_spline(structure):
    """The posterior mean of a Spline minimises Σ(f−y)² + λ∫f″², λ = noise/variance, and forgets where the process started."""
    order = np.argsort(zoo.X[1][:, 0])
    x, y, xs = zoo.X[1][order, 0], zoo.Y[1][order], np.linspace(-2.5, 2.5, zoo.M)
    expected = make_smoothing_spline(x, y, lam=0.15 / 0.8)
    for start in (0.0, -2.0):
        gp = sg.GP(sg.Spline(0.8, start=start), sg.Gaussian(0.15))
        if refused(gp, x, structure):
            return
        inside = np.clip(xs, x[0], x[-1])
        np.testing.assert_allclose(gp.condition(x, y, structure=structure).predict(inside).mean, expected(inside), rtol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_thin_plate_in_two_dimensions(scale):
    """SciPy's radial function r² log r is 8π times Green's function of the plate; the anchors do not matter."""
    X, y = zoo.X[2], zoo.Y[2]
    p = sg.GP(sg.ThinPlate(0.8, scale=scale), sg.Gaussian(0.15)).condition(X, y).predict(zoo.XS[2])
    expected = RBFInterpolator(X, y, kernel="thin_plate_spline", smoothing=8 * np.pi * 0.15 / 0.8, degree=1)
    np.testing.assert_allclose(p.mean, expected(zoo.XS[2]), rtol=1e-8)
    other = sg.GP(sg.ThinPlate(0.8, scale=2.0), sg.Gaussian(0.15)).condition(X, y).predict(zoo.XS[2])
    np.testing.assert_allclose(p.variance, other.variance, rtol=1e-8)


def test_thin_plate_in_one_and_three_dimensions():
    """On a line it is the cubic spline; in space its radial function is −r/8π."""
    line = [sg.GP(k, sg.Gaussian(0.15)).condition(zoo.X[1], zoo.Y[1]) for k in (sg.ThinPlate(0.8, scale=2.0), sg.Spline(0.8))]
    np.testing.assert_allclose(line[0].predict(zoo.XS[1]).mean, line[1].predict(zoo.XS[1]).mean, rtol=1e-8)
    np.testing.assert_allclose(line[0].predict(zoo.XS[1]).variance, line[1].predict(zoo.XS[1]).variance, rtol=1e-7)
    rng = np.random.default_rng(3)
    X, Xs = rng.uniform(-1, 1, (zoo.N, 3)), rng.uniform(-1, 1, (zoo.M, 3))
    y = np.sin(X.sum(axis=1))
    p = sg.GP(sg.ThinPlate(0.8, scale=2.0), sg.Gaussian(0.01)).condition(X, y).predict(Xs)
    expected = RBFInterpolator(X, y, kernel="linear", smoothing=8 * np.pi * 0.01 / 0.8, degree=1)(Xs)
    np.testing.assert_allclose(p.mean, expected, rtol=1e-8)


def within_standard_errors(draws, mean, cov, most=5.0):
    """Sample mean and covariance against the true ones, in standard errors; most = 5 fails by chance once in 10⁵ fits."""
    n = len(draws)
    error = np.sqrt(np.diagonal(cov) / n)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < most * error)
    centred = draws - mean
    spread = np.sqrt((np.outer(np.diagonal(cov), np.diagonal(cov)) + cov**2) / n)
    assert np.all(np.abs(centred.T @ centred / n - cov) < most * spread)


@engines
@means("zero", "diffuse basis")
def test_posterior_samples(structure, name):
    gp, y, fitted = conditioned(structure, name)
    mean, cov = Plain(gp, zoo.X[1], zoo.XS[1]).predict(np.nan_to_num(y), KNOWN_NOISE, SEEN)
    within_standard_errors(fitted.sample(zoo.XS[1], n=4000, seed=1), mean, cov)
    noisy = fitted.sample(zoo.XS[1], n=4000, seed=2, observed=True)
    within_standard_errors(noisy, mean, cov + NOISE * np.eye(zoo.M))
    again = lambda seed: fitted.sample(zoo.XS[1], n=4000, seed=seed)  # the number is part of the program
    np.testing.assert_array_equal(again(3), again(3))
    generator = np.random.default_rng(3)
    np.testing.assert_array_equal(again(3), again(generator))
    assert not np.array_equal(again(3), again(generator))


@means("zero", "linear", "proper basis", kept=("proper basis",))
def test_prior_samples(name):
    gp = sg.GP(KERNEL, sg.Gaussian(NOISE), zoo.MEANS[name])
    plain = Plain(gp, zoo.X[1], zoo.XS[1])
    within_standard_errors(gp.sample(zoo.XS[1], n=4000, seed=1), plain.ms, plain.Kss)
    within_standard_errors(gp.sample(zoo.XS[1], 4000, seed=2, observed=True), plain.ms, plain.Kss + NOISE * np.eye(zoo.M))


@engines
@means("zero", "diffuse basis", "proper basis")
def test_update_is_a_refit(structure, name):
    gp, y, whole = conditioned(structure, name)
    first, rest = slice(0, 17), slice(17, None)
    part = gp.condition(zoo.X[1][first], y[first], noise=KNOWN_NOISE[first], missing="infer", structure=structure)
    grown = part.update(zoo.X[1][rest], y[rest], noise=KNOWN_NOISE[rest], missing="infer")
    np.testing.assert_allclose(grown.log_evidence, whole.log_evidence, rtol=1e-12)
    a, b = grown.predict(zoo.XS[1]), whole.predict(zoo.XS[1])
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-10)
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-10)
    np.testing.assert_array_equal(grown.inputs.points, zoo.X[1])
    assert len(part.inputs) == 17  # the old one is as it was


@means("zero", "constant", "diffuse basis", "proper basis")
def test_leave_one_out_is_brute_force(name):
    gp, y, fitted = conditioned("dense", name)
    loo = fitted.leave_one_out()
    assert np.isnan(loo.mean[GAPS]).all()
    assert np.isnan(loo.variance[GAPS]).all()
    for i in SEEN[::4]:
        others = np.setdiff1d(SEEN, i)
        plain = Plain(gp, zoo.X[1], zoo.X[1][[i]])
        mean, cov = plain.predict(np.nan_to_num(y), KNOWN_NOISE, others)
        np.testing.assert_allclose(loo.mean[i], mean[0], rtol=1e-9)
        np.testing.assert_allclose(loo.variance[i], cov[0, 0] + NOISE + KNOWN_NOISE[i], rtol=1e-9)


def test_degrees_of_freedom():
    """tr K C⁻¹ = Σ λ/(λ + σ²); basis functions that are free count one each, as the smoother's trace says."""
    gp = sg.GP(KERNEL, sg.Gaussian(NOISE))
    eigenvalues = np.linalg.eigvalsh(Plain(gp, zoo.X[1], zoo.XS[1]).K)
    fitted = gp.condition(zoo.X[1], zoo.Y[1], structure="dense")
    np.testing.assert_allclose(fitted.degrees_of_freedom, np.sum(eigenvalues / (eigenvalues + NOISE)), rtol=1e-10)
    smooth = sg.GP(sg.SquaredExponential(50.0, 1e-6), sg.Gaussian(NOISE), sg.polynomial(1)).condition(zoo.X[1], zoo.Y[1])
    assert smooth.degrees_of_freedom == pytest.approx(2.0, abs=1e-3)


@means("zero", "diffuse basis")
def test_equivalent_kernel_makes_the_mean(name):
    _, y, fitted = conditioned("dense", name)
    weights = fitted.equivalent_kernel(zoo.XS[1])
    assert weights.shape == (zoo.M, zoo.N)
    np.testing.assert_array_equal(weights[:, GAPS], 0.0)
    np.testing.assert_allclose(weights @ np.nan_to_num(y), fitted.predict(zoo.XS[1]).mean, rtol=1e-10)
    smoother = fitted.equivalent_kernel(zoo.X[1])
    np.testing.assert_allclose(np.trace(smoother), fitted.degrees_of_freedom, rtol=1e-9)


@engines
@means("zero", "linear", "diffuse basis")
def test_gradient_of_the_mean(structure, name):
    _, _, fitted = conditioned(structure, name)
    step = 1e-3
    at = lambda shift: fitted.predict(zoo.XS[1] + shift * step).mean
    differences = (8 * (at(1) - at(-1)) - at(2) + at(-2)) / (12 * step)
    np.testing.assert_allclose(fitted.gradient(zoo.XS[1])[:, 0], differences, rtol=1e-7, atol=1e-9)


def test_gradient_in_two_dimensions_at_the_data():
    fitted = sg.GP(sg.Matern32([0.7, 1.6]), sg.Gaussian(NOISE)).condition(zoo.X[2], zoo.Y[2])
    slopes = fitted.gradient(zoo.X[2])
    assert slopes.shape == (zoo.N, 2)
    for d in range(2):
        step = 1e-4 * np.eye(2)[d]
        differences = (fitted.predict(zoo.X[2] + step).mean - fitted.predict(zoo.X[2] - step).mean) / 2e-4
        np.testing.assert_allclose(slopes[:, d], differences, atol=1e-3)  # Matern32 has a kink in its slope here


ROUGH_AND_SMOOTH = {"rough": sg.Matern12(0.8), "between": sg.Matern52(0.8), "smooth": sg.SquaredExponential(0.3)}


@engines
@pytest.mark.parametrize("name", zoo.mostly_full(ROUGH_AND_SMOOTH, "between"))
def test_no_noise_interpolates(structure, name):
    gp = sg.GP(ROUGH_AND_SMOOTH[name], sg.Gaussian(0.0))
    if refused(gp, zoo.X[1], structure):
        return
    fitted = gp.condition(zoo.X[1], zoo.Y[1], structure=structure)
    p = fitted.predict(zoo.X[1])
    np.testing.assert_allclose(p.mean, zoo.Y[1], atol=1e-5)  # a noise of 1e-15 times a condition number of up to 1e10
    assert p.variance.max() < 1e-6
    assert np.isfinite(fitted.predict(zoo.X[1], covariance=True).sd).all()


def test_jitter_is_there_only_when_needed():
    fine = sg.GP(sg.Matern12(0.8), sg.Gaussian(0.0)).condition(zoo.X[1], zoo.Y[1], structure="dense")
    assert float(fine.conditional.jitter) == 0.0
    assert "jitter" not in fine.summary()
    x = np.linspace(0.0, 1.0, 200)
    hard = sg.GP(sg.SquaredExponential(1.0), sg.Gaussian(0.0)).condition(x, np.cos(x))
    assert 0.0 < float(hard.conditional.jitter) <= 1e-12
    assert "jitter" in hard.summary()
    np.testing.assert_allclose(hard.predict(x).mean, np.cos(x), atol=1e-7)
    value, _ = evidence_objective(hard.gp, hard.inputs, hard.data, zoo.ENGINES["dense"])(free_vector(hard.gp))
    assert np.isfinite(value)
    assert value > -1e20


@engines
def test_conflicting_observations_of_one_place_are_shared_out(structure):
    """Duplicated rows without noise cannot both be right; with noise they are averaged by their precisions."""
    gp = sg.GP(sg.Constant() if structure == "features" else sg.Matern52(), sg.Gaussian(0.0))
    fitted = gp.condition([0.0, 0.0], [1.0, 3.0], noise=[0.1, 0.3], structure=structure)
    precision = 1 / np.array([0.1, 0.3])
    expected = (precision @ [1.0, 3.0]) / (precision.sum() + 1.0)
    np.testing.assert_allclose(fitted.predict([0.0]).mean, [expected], rtol=1e-12)


@pytest.mark.parametrize("name", zoo.mostly_full(ALONG_TIME, "Sum"))
def test_in_parallel_time_gives_what_it_gives_in_sequence(name):
    gp = sg.GP(zoo.KERNELS[name][0], sg.Gaussian(NOISE))
    with jax.enable_x64(True):
        inputs = as_inputs(zoo.X[1])
        data = read_observations(
            gp.likelihood, np.where(np.isin(np.arange(zoo.N), GAPS), np.nan, zoo.Y[1]), None, "infer", inputs
        )
        engine = Kalman().tuned(gp, inputs, data)
        both = [Kalman(engine.harmonics, engine.accurate, parallel=parallel) for parallel in (False, True)]
        (a, da), (b, db) = (_value_and_gradient(jnp.asarray(free_vector(gp)), gp, inputs, data, engine) for engine in both)
    assert b == pytest.approx(float(a), rel=1e-10)
    np.testing.assert_allclose(db, da, rtol=1e-7, atol=1e-8)
