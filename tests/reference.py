"""A Gaussian process written out in NumPy, without any of the library: slow, plain, by other formulas where there are some."""

import numpy as np


def log_normal(y, C):
    """log N(y; 0, C)."""
    L = np.linalg.cholesky(C)
    z = np.linalg.solve(L, y)
    return -0.5 * z @ z - np.log(np.diagonal(L)).sum() - 0.5 * len(y) * np.log(2 * np.pi)


def log_evidence(K, y, R, Phi=None):
    """log p(y) for y ~ N(0, K + R); with Φ, their weights integrated out under a flat prior (REML), by error contrasts.

    With the columns of Q an orthonormal basis of everything orthogonal to Φ, ∫ N(y; Φβ, C) dβ = N(Qᵀy; 0, QᵀCQ) / √|ΦᵀΦ|.
    """
    C = K + np.diag(np.broadcast_to(R, len(y)))
    if Phi is None or not Phi.shape[1]:
        return log_normal(y, C)
    U, s, _ = np.linalg.svd(Phi, full_matrices=True)
    Q = U[:, Phi.shape[1] :]
    return log_normal(Q.T @ y, Q.T @ C @ Q) - np.log(s).sum()


def predict(K, Ks, Kss, y, R, Phi=None, Phis=None):
    """Mean and covariance of f at new places; with Φ by universal kriging, one bordered system for all."""
    C = K + np.diag(np.broadcast_to(R, len(y)))
    if Phi is None or not Phi.shape[1]:
        weights = np.linalg.solve(C, Ks)
        return weights.T @ y, Kss - Ks.T @ weights
    p = Phi.shape[1]
    bordered = np.block([[C, Phi], [Phi.T, np.zeros((p, p))]])
    right = np.concatenate([Ks, Phis.T])
    solved = np.linalg.solve(bordered, right)
    return solved[: len(y)].T @ y, Kss - right.T @ solved


def slope(function, theta, step=2e-4):
    """The gradient of a function of a vector by central differences of fourth order: error step⁴, rounding ε/step."""
    rows = []
    for i in range(len(theta)):
        e = np.zeros(len(theta))
        e[i] = step
        rows.append(
            (8 * (function(theta + e) - function(theta - e)) - function(theta + 2 * e) + function(theta - 2 * e)) / (12 * step)
        )
    return np.array(rows)
