"""The bound of a table through latent inputs: beside dense matrices, quadrature, differences and principal components."""

import jax
import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal

import structgp as sg
from structgp.kernels.induced import Induced
from structgp.linalg.features.cells import JITTER, TableCells
from structgp.linalg.neighbours import diffusion
from structgp.linalg.principal import principal
from structgp.models.latent.fit import along, fit_latents
from structgp.models.latent.model import (
    LatentGaussians,
    LatentModel,
    LatentPoints,
    value_and_gradient,
)
from structgp.parameters.tree import free_vector, with_free
from structgp.structure.base import No
from structgp.structure.expectations import expected

RNG = np.random.default_rng(0)
N, D, Q, M = 14, 4, 2, 6
Z, U = RNG.standard_normal((N, Q)), RNG.standard_normal((M, Q))
Y = RNG.standard_normal((N, D))
HOLES = np.where(RNG.uniform(size=(N, D)) < 0.25, np.nan, Y)
KERNEL = sg.SquaredExponential([1.1, 0.8], 1.7)


def points(noise=0.3, **more):
    return LatentModel(Induced(KERNEL, U), LatentPoints(Z), noise, **more)


def gaussians(variance=0.2):
    return LatentModel(Induced(KERNEL, U), LatentGaussians(Z, variance * np.ones((N, Q))), 0.3)


def look(model, table):
    """The bound and its gradient, by the program that learning runs."""
    with jax.enable_x64(True):
        value, gradient = value_and_gradient(free_vector(model), model, TableCells.of_table(table))
        return float(value), np.asarray(gradient)


def of(X, W, lengthscale=(1.1, 0.8), variance=1.7):
    return variance * np.exp(-0.5 * (((X[:, None] - W[None]) / lengthscale) ** 2).sum(-1))


@pytest.mark.parametrize(("table", "noise"), [(Y, 0.3), (HOLES, 0.3), (HOLES, np.array([0.1, 0.2, 0.3, 0.4]))])
def test_the_bound_is_titsias_bound_of_each_column(table, noise):
    K = of(U, U) + JITTER * 1.7 * np.eye(M)
    Q_ff = of(Z, U) @ np.linalg.solve(K, of(U, Z))
    total = -0.5 * np.sum(Z**2) - 0.5 * Z.size * np.log(2 * np.pi)
    for column, s in zip(table.T, np.broadcast_to(noise, D), strict=True):
        seen = np.isfinite(column)
        C = Q_ff[np.ix_(seen, seen)] + s * np.eye(seen.sum())
        total += multivariate_normal(np.zeros(seen.sum()), C).logpdf(column[seen])
        total -= 0.5 * np.sum(1.7 - np.diagonal(Q_ff)[seen]) / s
    np.testing.assert_allclose(look(points(noise), table)[0], total, rtol=1e-10)


@pytest.mark.parametrize("make", [points, gaussians])
def test_gradients_are_finite_differences(make):
    model = make()
    theta, gradient = free_vector(model), look(make(), HOLES)[1]
    with jax.enable_x64(True):
        cells = TableCells.of_table(HOLES)
        step = 1e-6
        for i in RNG.permutation(len(theta))[:12].tolist() + list(range(M * Q, M * Q + 3)):
            ends = [float(value_and_gradient(theta + s * step * np.eye(len(theta))[i], model, cells)[0]) for s in (1, -1)]
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(gradient[i], rel=2e-6, abs=2e-6)


def test_gaussians_without_spread_are_points():
    small, S = 1e-11, Z.size
    narrow, _ = look(gaussians(small), HOLES)
    loss = 0.5 * np.sum(Z**2) + 0.5 * S * (small - np.log(small) - 1)
    wide, _ = look(points(), HOLES)
    prior = -0.5 * np.sum(Z**2) - 0.5 * S * np.log(2 * np.pi)
    np.testing.assert_allclose(narrow + loss, wide - prior, rtol=1e-8)


def test_expectations_are_averages_over_draws():
    S = RNG.uniform(0.05, 0.6, (3, Q))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, Q)
    w = np.outer(weights, weights).ravel() / (2 * np.pi)
    each = np.array([of(z + np.sqrt(s) * grid, U) for z, s in zip(Z[:3], S, strict=True)])  # (3, G, M)
    p = RNG.uniform(size=(3, 2))
    with jax.enable_x64(True):
        found = jax.jit(expected)(KERNEL, Z[:3], S, U, p)
    np.testing.assert_allclose(found.K.T, np.einsum("g,ngm->nm", w, each), rtol=1e-9)
    np.testing.assert_allclose(found.KK, np.einsum("np,g,ngm,ngk->pmk", p, w, each, each), rtol=1e-9)
    assert isinstance(expected(sg.Matern32(), Z, Z**2, U, p), No)


def test_a_path_is_the_density_of_a_process_along_time():
    t = np.sort(RNG.uniform(0, 5, N))[::-1]
    path = along(sg.Matern32(0.7), t, N)
    d = np.sqrt(3) * np.abs(t[:, None] - t) / 0.7
    K = (1 + d) * np.exp(-d) + 1e-3 * np.eye(N)
    wanted = sum(multivariate_normal(np.zeros(N), K).logpdf(z) for z in Z.T)
    with jax.enable_x64(True):
        np.testing.assert_allclose(float(jax.jit(lambda path, z: path.log_prob(z))(path, Z)), wanted, rtol=1e-8)
    model = points(path=path)
    theta = free_vector(model)
    _, gradient = look(model, Y)
    with jax.enable_x64(True):
        cells, e = TableCells.of_table(Y), np.eye(len(theta))[-5]  # one of the latent inputs
        at = lambda s: float(value_and_gradient(theta + s * 1e-6 * e, model, cells)[0])
        assert (at(1) - at(-1)) / 2e-6 == pytest.approx(gradient[-5], rel=1e-5)


def test_linear_functions_are_principal_components():
    W = RNG.standard_normal((2, 6)) * [[2.0], [1.0]]
    table = RNG.standard_normal((40, 2)) @ W + 0.1 * RNG.standard_normal((40, 6))
    table -= table.mean(axis=0)
    found = fit_latents(
        table,
        2,
        kernel=sg.Linear([1.0, 1.0], center=sg.fixed([0.0, 0.0])),
        inducing=2,
        start="pca",
        scale="all",
        max_evaluations=400,
    )
    left = np.linalg.svd(table, full_matrices=False)[0][:, :2]
    assert subspace_angles(found.latent, left).max() < 1e-3


def test_principal_components_have_the_closed_form():
    table = RNG.standard_normal((50, 2)) @ RNG.standard_normal((2, 5)) + 0.3 * RNG.standard_normal((50, 5))
    found = principal(table, 2, 2000)
    values, vectors = np.linalg.eigh(np.cov(table.T, bias=True))
    assert found.noise == pytest.approx(values[:3].mean(), rel=0.02)
    assert subspace_angles(found.weights, vectors[:, -2:]).max() < 0.02
    holes = np.where(RNG.uniform(size=table.shape) < 0.2, np.nan, table)
    gone = np.isnan(holes)
    error = np.sqrt(np.mean((principal(holes, 2).filled - table)[gone] ** 2))
    assert error < 0.6 * np.sqrt(np.mean((np.nanmean(holes, axis=0) - table)[gone] ** 2))


def test_a_diffusion_map_unrolls_a_curve(monkeypatch):
    t = np.sort(RNG.uniform(0, 9, 120))
    roll = np.column_stack([t * np.cos(t), t * np.sin(t), 0.1 * RNG.standard_normal(120)])
    whole = diffusion.diffusion_map(roll, 2)
    assert abs(np.corrcoef(np.argsort(np.argsort(whole[:, 0])), np.arange(120))[0, 1]) > 0.99
    monkeypatch.setattr(diffusion, "DENSE", 10)
    near = diffusion.diffusion_map(roll, 2)
    assert abs(np.corrcoef(near[:, 0], whole[:, 0])[0, 1]) > 0.99


def test_the_model_at_theta_is_the_one_that_was_evaluated():
    model = points(np.array([0.1, 0.2, 0.3, 0.4]))
    theta = free_vector(model) + 0.1
    with jax.enable_x64(True):
        moved = with_free(model, theta)
        assert float(value_and_gradient(theta, model, TableCells.of_table(Y))[0]) == pytest.approx(
            float(value_and_gradient(free_vector(moved), moved, TableCells.of_table(Y))[0]), rel=1e-12
        )
