"""Laws of sites with blocks: several latents given sites that keep them apart or couple them are one Gaussian vector."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

import structgp as sg
import zoo
from reference import slope
from structgp.engines.cholesky import SignedCholesky
from structgp.engines.independent import IndependentCholesky, IndependentKalman
from structgp.engines.kalman import Kalman
from structgp.inputs.layouts import as_inputs
from structgp.linalg.blocks import Contrasts, full, scalar_factors, times, trace
from structgp.parameters.tree import free_vector, with_free
from structgp.sites import Sites

N, C, K, M = 9, 3, 2, 5
RNG = np.random.default_rng(0)
INPUTS = as_inputs(RNG.uniform(-2.0, 2.0, N))
XS = np.linspace(-3.0, 3.0, M)[:, None]
KERNEL = sg.Independent(sg.Matern32(0.7, 1.8), sg.Matern52(1.3, 0.9), sg.Wiener(0.8, start=-4.0))
ENGINES = {"dense": IndependentCholesky((SignedCholesky(),) * C), "markov": IndependentKalman((Kalman(),) * C)}
ANY = RNG.standard_normal((N, C, C))
FORMS = {
    "apart": RNG.uniform(-0.1, 1.0, (N, C)),
    "full": 0.15 * (ANY + np.swapaxes(ANY, 1, 2)) + 0.5 * np.eye(C),
    "contrasts": Contrasts(np.where(np.arange(N)[:, None] == 2, 0.0, RNG.uniform(0.0, 1.0, (N, C)))),
}
SHIFT = RNG.standard_normal((N, C, K))
EACH = zoo.mostly_full(itertools.product(FORMS, ENGINES), ("apart", "markov"), ("full", "dense"), ("contrasts", "markov"))


def sites(form):
    return Sites(FORMS[form], SHIFT, natural=True, signed=form != "contrasts")


def whole(kernel, x, z):
    """The covariance of all latents, one after the other."""
    return block_diag(*(np.asarray(jax.jit(sg.covariance)(part, jnp.asarray(x), jnp.asarray(z))) for part in kernel.kernels))


def precision(form):
    """Π of all latents, one after the other."""
    P, at = np.zeros((C * N, C * N)), np.arange(N)
    for c, d in np.ndindex(C, C):
        P[c * N + at, d * N + at] = np.asarray(full(FORMS[form]))[:, c, d]
    return P


def by_one_matrix(form, kernel=KERNEL):
    """log|I + KΠ|, hᵀΣh, means and covariances at the places, means and joint covariance at new ones."""
    X, P, h = np.asarray(INPUTS.points), precision(form), np.moveaxis(SHIFT, 1, 0).reshape(C * N, K)
    prior, cross, new = whole(kernel, X, X), whole(kernel, X, XS), whole(kernel, XS, XS)
    A = np.linalg.inv(np.eye(C * N) + P @ prior)
    S = prior @ A
    means = lambda mean, rows: np.moveaxis(mean.reshape(C, rows, K), 0, 1)
    joint = (new - cross.T @ A @ P @ cross).reshape(C, M, C, M).transpose(1, 0, 3, 2)
    there = np.einsum("cndn->ncd", S.reshape(C, N, C, N))
    log_det = np.linalg.slogdet(np.eye(C * N) + prior @ P)[1]
    return log_det, h.T @ S @ h, means(S @ h, N), there, means(cross.T @ A @ h, M), joint


@functools.partial(jax.jit, static_argnames="engine")
def marginals(engine, kernel, inputs, given):
    return engine.marginals(engine.form(kernel, inputs), given)


@functools.partial(jax.jit, static_argnames="engine")
def by_engine(engine, inputs, given):
    form = engine.form(KERNEL, inputs)
    conditional = engine.condition(form, given)
    found = engine.marginals(form, given)
    return (
        found,
        engine.log_det_and_gram(form, given),
        conditional.log_det_and_gram(),
        conditional.at(XS),
        conditional.joint(XS),
    )


@pytest.mark.parametrize(("form", "structure"), EACH)
def test_engines_equal_one_matrix(form, structure, x64):
    log_det, gram, mean, covariance, new_mean, joint = by_one_matrix(form)
    found, *sums, at, among = by_engine(ENGINES[structure], INPUTS, sites(form))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-10)
    for pair in ((found.log_det, found.gram), *sums):
        close(pair[0], log_det)
        close(pair[1], gram)
    close(found.mean, mean)
    if form == "apart":
        assert found.variance.shape == (N, C)
    close(full(found.variance), covariance)
    close(at[0], new_mean)
    close(at[1], np.einsum("mcmd->mcd", joint))
    close(among[0], new_mean)
    close(among[1], joint)


@pytest.mark.parametrize(("form", "structure"), EACH)
def test_gradients_equal_one_matrix(form, structure, x64):
    engine, theta = ENGINES[structure], free_vector(KERNEL)

    def value(theta, inputs, given):
        log_det, gram = engine.log_det_and_gram(engine.form(with_free(KERNEL, theta), inputs), given)
        return log_det - gram[0, 1]

    def reference(theta):
        log_det, gram = by_one_matrix(form, with_free(KERNEL, theta))[:2]
        return log_det - gram[0, 1]

    np.testing.assert_allclose(jax.jit(jax.grad(value))(theta, INPUTS, sites(form)), slope(reference, theta), atol=1e-8)


@pytest.mark.parametrize("form", ["full", "contrasts"])
def test_gradients_in_the_sites(form, x64):
    engine = ENGINES["dense"]
    structure = engine.form(KERNEL, INPUTS)

    def value(precision, shift):
        log_det, gram = engine.log_det_and_gram(structure, Sites(precision, shift, natural=True, signed=True))
        return log_det - gram[0, 1]

    to_P, to_h = jax.jit(jax.grad(value, (0, 1)))(FORMS[form], SHIFT)
    way = jax.tree.map(lambda part: RNG.standard_normal(part.shape), (FORMS[form], SHIFT))
    way = (0.5 * (way[0] + np.swapaxes(way[0], 1, 2)) if form == "full" else way[0]), way[1]
    along = lambda s: value(*jax.tree.map(lambda part, step: part + s[0] * step * (part != 0), (FORMS[form], SHIFT), way))
    seen = jax.tree.map(lambda part, step: step * (part != 0), (FORMS[form], SHIFT), way)
    expected = sum(np.sum(a * b) for a, b in zip(jax.tree.leaves((to_P, to_h)), jax.tree.leaves(seen), strict=True))
    np.testing.assert_allclose(expected, slope(jax.jit(along), np.zeros(1), 1e-4)[0], rtol=1e-7)


DRAWN = [*itertools.product(["stationary"], FORMS, ENGINES), *itertools.product(["pinned"], FORMS, ["markov"])]


@pytest.mark.parametrize(
    ("kernel", "form", "structure"),
    zoo.mostly_full(
        DRAWN, ("stationary", "full", "dense"), ("stationary", "contrasts", "markov"), ("pinned", "full", "markov")
    ),
)
def test_draws_have_the_moments(kernel, form, structure, x64):
    n, engine = 20000, ENGINES[structure]
    prior = KERNEL if kernel == "pinned" else sg.Independent(*KERNEL.kernels[:2], sg.Matern12(0.8, 1.2))
    key, given = jax.random.key(1), sites(form)
    draw = jax.jit(lambda inputs, given: engine.condition(engine.form(prior, inputs), given).residuals(XS, key, n))
    draws, joint = np.asarray(draw(INPUTS, given)), by_one_matrix(form, prior)[-1]
    sd = np.sqrt(np.einsum("mcmc->mc", joint))
    off = np.einsum("mcn,ldn->mcld", draws, draws) / n - joint
    assert np.abs(off / (sd[:, :, None, None] * sd)).max() < 6 / np.sqrt(n)


@pytest.mark.parametrize("structure", ENGINES)
@pytest.mark.parametrize("shape", [(1,), (1, 1)], ids=["apart", "full"])
def test_one_latent_is_the_scalar_engine(shape, structure, x64):
    one = {"dense": SignedCholesky(), "markov": Kalman()}[structure]
    w, h = FORMS["apart"][:, 0], SHIFT[:, 0]
    kernel = KERNEL.kernels[0]
    alone = marginals(one, kernel, INPUTS, Sites(w, h, natural=True, signed=True))
    engine = type(ENGINES[structure])((one,))
    given = Sites(w.reshape(N, *shape), h[:, None], natural=True, signed=True)
    found = marginals(engine, kernel, INPUTS, given)
    np.testing.assert_allclose(found.mean[:, 0], alone.mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.ravel(found.variance), alone.variance, rtol=1e-9)
    np.testing.assert_allclose(found.log_det, alone.log_det, rtol=1e-9)
    np.testing.assert_allclose(found.gram, alone.gram, rtol=1e-9)


@pytest.mark.parametrize("structure", ENGINES)
@pytest.mark.parametrize("form", ["apart", "full"])
def test_sites_that_leave_no_density_give_nan(form, structure, x64):
    engine = ENGINES[structure]
    P = FORMS[form] - (3.0 if form == "apart" else 3.0 * np.eye(C))
    found = marginals(engine, KERNEL, INPUTS, Sites(P, SHIFT, natural=True, signed=True))
    assert not np.isfinite(found.log_det)


@pytest.mark.parametrize("latents", [2, 3])
def test_forms_are_the_matrices_they_stand_for(latents, x64):
    any_ = RNG.standard_normal((N, latents, latents))
    forms = [
        RNG.standard_normal((N, latents)),
        any_ + np.swapaxes(any_, 1, 2),
        Contrasts(jnp.asarray(FORMS["contrasts"].a[:, :latents])),
    ]
    f, S = RNG.standard_normal((N, latents)), any_ @ np.swapaxes(any_, 1, 2)
    for P in forms:
        whole = np.asarray(full(P))
        weights, rows = scalar_factors(P)
        np.testing.assert_allclose(np.einsum("nk,nkc,nkd->ncd", weights, rows, rows), whole, atol=1e-12)
        np.testing.assert_allclose(times(P, f), np.einsum("ncd,nd->nc", whole, f), atol=1e-12)
        np.testing.assert_allclose(times(P, any_), whole @ any_, atol=1e-12)
        np.testing.assert_allclose(trace(P, S), np.einsum("ncd,ndc->n", whole, S), atol=1e-12)
