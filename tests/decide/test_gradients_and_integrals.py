"""Gradients and integrals of a process, against its joint distribution; and of functions, from a few evaluations."""

import jax
import numpy as np
import pytest

import structgp as sg
from structgp.decide import surrogate
from structgp.structure.integrals import Box, NormalMeasure, integrals

RNG = np.random.default_rng(0)
X1, X2 = np.sort(RNG.uniform(-2, 2, 12)), RNG.uniform(-1, 1, (14, 2))
Y1, Y2 = np.sin(2 * X1) + 0.5, np.sin(2 * X2[:, 0]) * X2[:, 1]

KERNELS = {
    "smooth": (sg.SquaredExponential(0.6, 1.3), 1),
    "smooth-2": (sg.SquaredExponential([0.6, 1.5], 1.3), 2),
    "rough": (sg.Matern12(0.7, 1.2), 1),
    "matern": (sg.Matern52(0.7, 1.2), 1),
    "smoother": (sg.Matern72(0.4, 0.9), 1),
    "product": (sg.ProductMatern([0.7, 1.4], 1.2, nu=1.5), 2),
    "ricker": (sg.Ricker([0.7, 1.4], 1.2), 2),
    "sum": (2.0 * sg.Matern32(0.5) + sg.Constant(0.3), 1),
    "by columns": (sg.Matern32(0.5).on(0) * sg.SquaredExponential(0.8).on(1), 2),
    "one column": (sg.Matern32(0.5).on(1), 2),
    "no rule": (sg.RationalQuadratic(0.8, 1.2), 1),
}


def nodes(box, panels=60, count=6):
    """Places and weights of many small panels, so that kinks do little harm."""
    places, weights = np.polynomial.legendre.leggauss(count)
    axes = []
    for low, high in box:
        edges = np.linspace(low, high, panels + 1)
        half = 0.5 * np.diff(edges)[:, None]
        axes.append(((edges[:-1, None] + half * (places + 1)).ravel(), (half * weights).ravel()))
    X = np.stack([part.ravel() for part in np.meshgrid(*[a for a, _ in axes], indexing="ij")], axis=1)
    return X, np.prod(np.stack([part.ravel() for part in np.meshgrid(*[w for _, w in axes], indexing="ij")]), axis=0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", KERNELS)
def test_integrals_of_kernels(name):
    kernel, D = KERNELS[name]
    box = np.array([[-0.8, 1.7], [0.1, 0.9]])[:D]
    X = (X1[:5, None], X2[:5])[D - 1]
    Z, w = nodes(box, 60 if D == 1 else 12, 6 if D == 1 else 4)
    k = jax.jit(lambda A, B: jax.vmap(lambda a: jax.vmap(lambda b: kernel.between(a, b))(B))(A))
    z, V = jax.jit(lambda X, box: integrals(kernel, X, Box(box)))(X, box)
    rough = name == "rough"
    np.testing.assert_allclose(z, k(X, Z) @ w, rtol=1e-4 if rough else 1e-5)
    np.testing.assert_allclose(V, w @ np.asarray(k(Z, Z)) @ w, rtol=1e-3 if rough else 1e-4)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["smooth-2", "rough", "smoother", "ricker", "by columns", "one column"])
def test_integrals_under_a_normal_distribution(name):
    kernel, D = KERNELS[name]
    mean, sd = np.array([0.3, -0.1])[:D], np.array([0.8, 0.2])[:D]
    X = (X1[:5, None], X2[:5])[D - 1]
    Z, w = nodes(np.stack([mean - 6 * sd, mean + 6 * sd], axis=1), 60 if D == 1 else 10, 6)
    w = w * np.prod(np.exp(-0.5 * ((Z - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi)), axis=1)
    k = jax.jit(lambda A, B: jax.vmap(lambda a: jax.vmap(lambda b: kernel.between(a, b))(B))(A))
    z, V = jax.jit(lambda X, measure: integrals(kernel, X, measure))(X, NormalMeasure(mean, sd))
    rough = name in ("rough", "by columns", "one column")
    np.testing.assert_allclose(z, k(X, Z) @ w, rtol=1e-3 if rough else 1e-5)
    np.testing.assert_allclose(V, w @ np.asarray(k(Z, Z)) @ w, rtol=2e-3 if rough else 1e-4)


@pytest.mark.parametrize(
    ("gp", "structure"),
    [
        pytest.param(sg.GP(sg.Matern52(0.7, 1.2), sg.Gaussian(0.05)), "markov", marks=pytest.mark.full),
        (sg.GP(sg.Matern32(0.7, 1.2), sg.Gaussian(0.05), mean=sg.polynomial(1)), "dense"),
        (sg.GP(sg.Matern32(0.7, 1.2), sg.Gaussian(0.05), mean=sg.ConstantMean(0.4)), "markov"),
    ],
)
def test_the_integral_of_a_process_is_that_of_its_joint_distribution(gp, structure):
    fitted = gp.condition(X1, Y1, structure=structure)
    Z, w = nodes([(-1.5, 2.5)], 30, 4)
    joint = gp.condition(X1, Y1, structure="dense").predict(Z[:, 0], covariance=True)
    mean, variance = fitted.integral((-1.5, 2.5))
    assert mean == pytest.approx(w @ joint.mean, rel=1e-6)
    assert variance == pytest.approx(w @ joint.covariance @ w, rel=1e-4)
    several = gp.condition(X1, np.stack([Y1, -Y1], axis=1), structure=structure).integral((-1.5, 2.5))
    assert several.mean.shape == several.variance.shape == (2,)
    assert several.mean[0] == pytest.approx(mean)


@pytest.mark.averaged
def test_mixtures_answer_too():
    fitted = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).fit(X1, Y1, parameters=sg.Averaging(members=2))
    parts = [member.integral((0, 1)) for member in fitted.members]
    assert fitted.integral((0, 1)).mean == pytest.approx(np.mean([part.mean for part in parts]))
    found = fitted.gradient_posterior(0.3)
    slopes = fitted.derivative([0.3])
    assert found.mean == pytest.approx(slopes.mean)
    assert found.covariance[0] == pytest.approx(slopes.variance)


def test_messages():
    fitted = sg.GP(sg.Matern12(), sg.Gaussian(0.1)).condition(X2, Y2)
    with pytest.raises(ValueError, match=r"the box of an integral is 2 pairs \(low, high\), one for each column, got \(0, 1\)"):
        fitted.integral((0, 1))
    with pytest.raises(ValueError, match=r"f has no gradient here, because Matern12.* has no derivative"):
        fitted.gradient_posterior([0.0, 0.0])
    approximate = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).condition(X2, Y2, approximate=sg.Inducing(4))
    with pytest.raises(ValueError, match="integrals need an exact engine"):
        approximate.integral([(0, 1), (0, 1)])
    with pytest.raises(ValueError, match=r"one Normal\(mean, sd\) for each of 2 columns"):
        fitted.integral([sg.Normal(0, 1), (0, 1)])
    with pytest.raises(ValueError, match="prior must be one of"):
        sg.integrate(np.sin, (0, 1), prior="flat")
    with pytest.raises(ValueError, match="the function gave nan at"):
        sg.integrate(lambda x: np.nan, (0, 1))
    with pytest.raises(ValueError, match="needs a finite place and a positive reach"):
        sg.estimate_gradient(np.sum, [0.0], reach=0.0)


@pytest.mark.parametrize(
    ("gp", "options"),
    [
        (sg.GP(sg.SquaredExponential([0.7, 0.9], 1.2), sg.Gaussian(0.05), mean=sg.polynomial(1)), {}),
        pytest.param(
            sg.GP(sg.Matern52([0.7, 0.9], 1.2), sg.Gaussian(0.05)), {"approximate": sg.Inducing(6)}, marks=pytest.mark.full
        ),
        (sg.GP(sg.Linear([0.7, 1.2]) + sg.Constant(0.5), sg.Gaussian(0.05)), {}),
    ],
    ids=["dense", "inducing", "features"],
)
def test_the_gradient_of_a_process_is_that_of_its_joint_distribution(gp, options):
    fitted = gp.condition(X2, Y2, **options)
    x, step = np.array([0.2, -0.3]), 1e-3
    found = fitted.gradient_posterior(x)
    np.testing.assert_allclose(found.mean, fitted.gradient(x[None])[0], rtol=1e-8)
    around = np.concatenate([x + step * np.eye(2), x - step * np.eye(2)])
    differences = np.concatenate([np.eye(2), -np.eye(2)]).T / (2 * step)
    joint = fitted.predict(around, covariance=True)
    np.testing.assert_allclose(found.mean, differences @ joint.mean, rtol=1e-4)
    np.testing.assert_allclose(found.covariance, differences @ joint.covariance @ differences.T, rtol=2e-3, atol=2e-5)


def test_a_function_is_integrated():
    f = lambda x: abs(x - 0.3) + 0.3 * np.cos(4 * x)
    truth = (2.8**2 + 2.2**2) / 2 + 0.15 * np.sin(10.0)
    found = sg.integrate(f, (-2.5, 2.5), 9)
    assert abs(found.mean - truth) < 2.5 * found.sd
    assert found.sd < 0.3
    assert str(found).endswith("(9 evaluations)")
    assert found.places.shape == (9, 1)
    assert np.all(np.abs(found.places) <= 2.5)
    again = sg.integrate(f, (-2.5, 2.5), 9)
    assert again.mean == found.mean
    under = sg.integrate(lambda x: np.abs(x - 0.3), sg.Normal(0.3, 0.5), 9)
    assert abs(under.mean - 0.5 * np.sqrt(2 / np.pi)) < 2.5 * under.sd < 0.1
    even = sg.integrate(f, (-2.5, 2.5), 9, active=False)
    assert np.diff(even.places[:, 0]) == pytest.approx(5 / 9)


def test_many_evaluations_are_all_looked_at_where_some_are_learned_from(monkeypatch):
    monkeypatch.setattr(surrogate, "LEARNED", 20)
    noise = iter(0.1 * np.random.default_rng(0).standard_normal(140))
    found = sg.integrate(lambda x: np.cos(4 * x) + next(noise), (-1, 1), 70, active=False, noise=0.01)
    assert 0.5 < found.sd / (0.2 / np.sqrt(70)) < 1.2  # of the 20 rows alone it would be 1.9
    assert abs(found.mean - np.sin(4) / 2) < 3 * found.sd
    slope = sg.estimate_gradient(lambda x: x[0] + next(noise), [0.0], 70, active=False, noise=0.01)
    assert abs(slope.mean[0] - 1) < 3 * slope.sd[0] < 0.4
    asked = []
    for estimate in (lambda: sg.integrate(asked.append, (0, 1), 3000), lambda: sg.estimate_gradient(asked.append, [0.0], 3000)):
        with pytest.raises(ValueError, match="evaluations must be at most 2048, got 3000: of a process that is fitted to more"):
            estimate()
    assert not asked


@pytest.mark.full
def test_more_evaluations_than_the_largest_history():
    assert sg.integrate(lambda x: x * x, (0, 1), 520, active=False).mean == pytest.approx(1 / 3, abs=1e-4)
    slope = sg.estimate_gradient(lambda x: 3 * x[0], [0.0], 514, active=False, noise=0.0)
    assert slope.mean == pytest.approx([3.0], abs=1e-3)


@pytest.mark.full
def test_a_gradient_is_estimated():
    f = lambda x: np.sin(2 * x[0]) + x[1] ** 2
    found = sg.estimate_gradient(f, [0.2, 0.4], 12, noise=0.0)
    truth = np.array([2 * np.cos(0.4), 0.8])
    np.testing.assert_allclose(found.mean, truth, atol=0.05)
    assert np.all(np.abs(found.mean - truth) < 4 * found.sd)
    assert np.all(np.abs(found.places - [0.2, 0.4]) <= 0.5)
    assert np.all(np.linalg.eigvalsh(found.covariance) > 0)


@pytest.mark.full
def test_gradients_from_noisy_values_are_as_sure_as_they_may_be():
    """Bumps and waves in three dimensions: with beliefs that suit optimisation, errors are twice as large as claimed."""
    squares = []
    for seed in (100, 102, 104):
        for wavy in (False, True):
            rng = np.random.default_rng(seed)
            if wavy:
                a, b = rng.uniform(1, 5, 3), rng.uniform(0, 6, 3)
                f, slope = lambda x, a=a, b=b: np.sum(np.sin(a * x + b)), a * np.cos(a * 0.55 + b)
            else:
                scales, c = np.linspace(0.3, 1, 3), 0.55 - rng.uniform(0.15, 0.35, 3)
                f = lambda x, c=c, scales=scales: np.exp(-0.5 * np.sum(((x - c) / scales) ** 2))
                slope = -f(np.full(3, 0.55)) * (0.55 - c) / scales**2
            sd = 0.1 * np.std([f(u) for u in rng.uniform(size=(200, 3))])
            noisy = lambda x, f=f, sd=sd, rng=rng: f(x) + sd * rng.standard_normal()
            found = sg.estimate_gradient(noisy, np.full(3, 0.55), 13, seed=seed)
            squares.append(np.mean(((found.mean - slope) / found.sd) ** 2))
    assert 0.1 < np.mean(squares) < 2.0
