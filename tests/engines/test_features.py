"""Few functions with independent weights: sums over rows that add, and answers that are those of the whole matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import structgp as sg
import zoo
from structgp.engines.additive_splines import SplineMap
from structgp.engines.woodbury import Woodbury, sums_of
from structgp.inputs.layouts import as_inputs
from structgp.learn.evidence import evidence_objective
from structgp.linalg.features import splines
from structgp.linalg.features.totals import ROWS, in_blocks, totals
from structgp.models.pursuit.sine_model import SineModel
from structgp.parameters.tree import free_vector
from structgp.sites import Sites
from structgp.structure.additive import lines_of
from structgp.structure.features import Features, FewFunctions, Level, Stacked, features_of

RNG = np.random.default_rng(5)
KERNEL = (
    sg.Constant(1.3)
    + sg.Linear([0.7, 1.2], [0.3, -0.2])
    + 0.5 * sg.Polynomial(0.4, 0.7, degree=2).on(1)
    + sg.Project(sg.Linear(0.4), sg.orthonormalise([1.0, 2.0]))
)
X, XS, Y = zoo.X[2], zoo.XS[2], zoo.Y[2]


def covariance(kernel, X, Z):
    return np.asarray(jax.jit(sg.covariance)(kernel, X, Z))


def splined():
    """Lines and a constant on spline features, which leave something out."""
    kernel = sg.Matern52(0.7, 1.2).on(0) + sg.Matern52(1.5, 0.6).on(1)
    lines = lines_of(kernel, jnp.asarray(X))
    basis = splines.build(jnp.sort(lines.t, axis=0), 8, 3)
    return kernel, lines, Stacked((SplineMap.on(basis, lines), Level(jnp.asarray(0.5))))


def test_the_functions_of_a_kernel_make_its_covariance():
    with jax.enable_x64(True):
        psi = jax.jit(lambda kernel, X: features_of(kernel, X)(X))(KERNEL, X)
        np.testing.assert_allclose(psi.T @ psi, covariance(KERNEL, X, X), rtol=1e-12, atol=1e-13)


@pytest.mark.full
def test_what_splines_leave_out_is_what_is_missing_of_the_variance():
    with jax.enable_x64(True):
        kernel, _, made = splined()
        found = covariance(FewFunctions(made), X, X)
        whole = covariance(kernel, X, X) + 0.25
        np.testing.assert_allclose(np.diagonal(found), np.diagonal(whole), rtol=1e-10)
        np.testing.assert_allclose(found, whole, atol=2e-2)  # with eight intervals


def test_sums_over_rows_are_made_in_blocks_and_add():
    N = 2 * ROWS + 77
    rows, w, T = RNG.uniform(-2, 2, (N, 2)), RNG.uniform(0, 2, N) * (RNG.random(N) > 0.1), RNG.standard_normal((N, 3))
    with jax.enable_x64(True):
        made = jax.jit(features_of)(KERNEL, rows)
        of = lambda part: jax.jit(totals)(made, in_blocks(jnp.asarray(rows[part])), w[part], w[part, None] * T[part], T[part])
        whole, added = of(slice(None)), of(slice(0, 1500)) + of(slice(1500, None))
        Phi = np.asarray(jax.jit(lambda made, rows: made(rows))(made, jnp.asarray(rows)))
    seen = w[w > 0]
    expected = ((Phi * w) @ Phi.T, (Phi * w) @ T, (T.T * w) @ T, np.log(seen).sum(), w.sum(), len(seen))
    for one, other, plain in zip(jax.tree.leaves(whole), jax.tree.leaves(added), expected, strict=True):
        np.testing.assert_allclose(one, plain, rtol=1e-11, atol=1e-10)
        np.testing.assert_allclose(other, plain, rtol=1e-11, atol=1e-10)


def test_sums_over_blocks_know_their_derivatives():
    """In the features, in the rows, in weights and shifts: with more than one block, against the whole matrix at once."""
    N = ROWS + 30
    rows, w, h = (jnp.asarray(RNG.uniform(0.1, 1.0, shape)) for shape in ((N, 2), (N,), (N, 2)))
    with jax.enable_x64(True):
        rows, w, h = (jnp.asarray(np.asarray(part, dtype=float)) for part in (rows, w, h))
        model = SineModel([[1.0, 0.5]], [0.8], [0.5], 0.3, 0.1, sines=3)
        made = model.features(rows)
        probe = jnp.asarray(RNG.standard_normal((made.size, made.size + 2)))

        def blocks(made, rows, w, h):
            sums = totals(made, in_blocks(rows), w, h, h)
            return jnp.sum(probe * jnp.concatenate([sums.gram, sums.cross], axis=1))

        def at_once(made, rows, w, h):
            Phi = made(rows)
            gram = (Phi * w) @ Phi.T
            return jnp.sum(probe * jnp.concatenate([0.5 * (gram + gram.T), Phi @ h], axis=1))

        found, expected = (jax.jit(jax.grad(f, argnums=(0, 1, 2, 3)))(made, rows, w, h) for f in (blocks, at_once))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_features_that_leave_something_out_agree_with_their_own_matrix():
    """Natural sites: means, variances, determinant and form from K with the rest on its diagonal, as far as the bound goes."""
    w, h = RNG.uniform(0.2, 2.0, zoo.N), RNG.standard_normal((zoo.N, 1))
    with jax.enable_x64(True):
        _, lines, made = splined()
        form = Features(made, lines.t)
        sites = Sites(jnp.asarray(w), jnp.asarray(h), natural=True)
        look = jax.jit(lambda made, t: (made.whiten(made(t)), made.rest(made(t))))
        psi, rest = (np.asarray(part) for part in look(made, lines.t))
        A = np.eye(len(psi)) + (psi * w) @ psi.T
        for ready in (form, form.computed(False)):
            found = jax.jit(Woodbury().marginals)(ready, sites)
            np.testing.assert_allclose(found.mean, psi.T @ np.linalg.solve(A, psi @ h), rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(found.variance, np.sum(psi * np.linalg.solve(A, psi), axis=0) + rest, rtol=1e-9)
            np.testing.assert_allclose(found.log_det, np.linalg.slogdet(A)[1] + w @ rest, rtol=1e-9)
        # the variance is −2 times the slope of the log normaliser in w, less the squared mean: what inference stands on
        normaliser = lambda w: _log_normaliser(form, Sites(w, jnp.asarray(h), natural=True))
        slope = jax.jit(jax.grad(normaliser))(jnp.asarray(w))
        np.testing.assert_allclose(-2 * slope - found.mean[:, 0] ** 2, found.variance, rtol=1e-8)
        value, gram = jax.jit(Woodbury().log_det_and_gram)(form, sites)
        np.testing.assert_allclose([value, gram[0, 0]], [found.log_det, found.gram[0, 0]], rtol=1e-10)
        assert jax.eval_shape(sums_of, form, sites).gram.shape == (made.size, made.size)


def _log_normaliser(form, sites):
    log_det, gram = Woodbury().log_det_and_gram(form, sites)
    return 0.5 * (gram[0, 0] - log_det)


@pytest.mark.parametrize(("name", "method"), zoo.mostly_full([("probit", "ep"), ("StudentT", "laplace")], ("probit", "ep")))
def test_sites_are_those_of_the_whole_matrix(name, method):
    """Also where precisions are negative."""
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    y = (Y > 0).astype(float) if name == "probit" else Y + np.where(np.arange(zoo.N) % 7 == 3, 3.0, 0.0)
    gp = sg.GP(KERNEL, likelihood)
    few, dense = (gp.condition(X, y, inference=method, structure=name) for name in ("features", "dense"))
    assert few.inference.converged
    assert few.log_evidence == pytest.approx(dense.log_evidence, rel=1e-7)
    np.testing.assert_allclose(few.predict(XS).mean, dense.predict(XS).mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(few.predict(XS).variance, dense.predict(XS).variance, rtol=1e-6)


def test_everything_that_is_asked_of_a_posterior():
    gp = sg.GP(KERNEL, sg.Gaussian(0.1))
    few, dense = (gp.condition(X, Y, structure=name) for name in ("features", "dense"))
    for part in range(4):
        p, q = few.predict(XS, part=part), dense.predict(XS, part=part)
        np.testing.assert_allclose(p.mean, q.mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(p.variance, q.variance, rtol=1e-8, atol=1e-10)
    for moments in ("mean", "variance"):
        one, other = (getattr(fitted.leave_one_out(), moments) for fitted in (few, dense))
        np.testing.assert_allclose(one, other, rtol=1e-8)
        one, other = (getattr(fitted.derivative(XS, order=2, dim=1), moments) for fitted in (few, dense))
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_the_plan_takes_it_where_it_is_cheapest_and_says_why_not():
    rows = RNG.standard_normal((500, 3))
    assert sg.GP(sg.Constant() + sg.Linear()).plan(rows).engine.name == "Woodbury"
    reasons = {
        "Matern52 is not a sum of a few functions with independent weights": sg.Linear() + sg.Matern52(),
        "a polynomial of degree 9 in 12 columns has 293930 monomials, and 3000 are the most": sg.Polynomial(degree=9),
    }
    for reason, kernel in reasons.items():
        with pytest.raises(ValueError, match=f"structure='features' cannot be had: {reason}"):
            sg.GP(kernel).plan(RNG.standard_normal((20, 12)), structure="features")


@pytest.mark.full
def test_learning_is_that_of_the_whole_matrix():
    gp = sg.GP(sg.Constant(2.0) + sg.Polynomial(0.3, 0.5), sg.Gaussian(0.1))
    inputs = as_inputs(X)
    with jax.enable_x64(True):
        data = gp.condition(X, Y).data
        few, dense = (evidence_objective(gp, inputs, data, gp.plan(X, structure=name).engine) for name in ("features", "dense"))
        theta = free_vector(gp)
        np.testing.assert_allclose(few(theta)[0], dense(theta)[0], rtol=1e-10)
        np.testing.assert_allclose(few(theta)[1], reference.slope(lambda t: dense(t)[0], theta), rtol=1e-5, atol=1e-6)
