"""Rational models of a response: a few poles, read from its Hankel matrix and refined by what they make of the input."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..linalg import fir


class Poles(NamedTuple):
    """A rational model read from the response: poles and zeros of z, numerator and denominator, and how well it does."""

    poles: np.ndarray
    numerator: np.ndarray
    denominator: np.ndarray
    residual: float  # standard deviation
    bic: float

    @property
    def order(self) -> int:
        """The number of poles."""
        return len(self.poles)


def filtered(weights: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The output of a response, with nothing before the first input."""
    from scipy.signal import fftconvolve

    return sum(fftconvolve(u[:, k], weights[k])[: len(u)] for k in range(u.shape[1]))


def output_error(weights: np.ndarray, inputs: np.ndarray, output: np.ndarray, order: int) -> Poles:
    """A rational model of this order: poles from the response, refined so that its simulated output is closest to the data.

    The weights (k, n) are the responses to all inputs (N, k), which may begin earlier than the output. The model is that of the
    first.
    """
    from scipy.optimize import least_squares
    from scipy.signal import lfilter

    u, past = inputs[:, 0], len(inputs) - len(output)
    others = filtered(weights[1:], inputs[:, 1:])[past:] if inputs.shape[1] > 1 else 0.0
    target, seen = output - others, np.isfinite(output)
    poles = stable(fir.hankel_poles(weights[0], order))
    order = len(poles)

    def regressors(a: np.ndarray) -> np.ndarray:
        x = lfilter([1.0], np.concatenate([[1.0], a]), u)
        columns = [np.concatenate([np.zeros(k), x[: len(x) - k]]) for k in range(order + 1)]
        return np.stack(columns, axis=1)[past:][seen]

    def solved(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = regressors(a)
        b = np.linalg.lstsq(X, target[seen], rcond=None)[0]
        return b, target[seen] - X @ b

    def missed(a: np.ndarray) -> np.ndarray:
        a = np.poly(stable(np.roots(np.concatenate([[1.0], a])))).real[1:]
        return np.clip(np.nan_to_num(solved(a)[1], nan=1e6), -1e6, 1e6)

    a = np.atleast_1d(np.poly(poles)).real[1:]
    if order:
        refined = least_squares(missed, a, max_nfev=12).x
        refined = np.poly(stable(np.roots(np.concatenate([[1.0], refined])))).real[1:]
        a = refined if np.sum(missed(refined) ** 2) < np.sum(missed(a) ** 2) else a
    b, e = solved(a)
    N, rss = len(e), max(float(e @ e), 1e-300)
    bic = N * np.log(rss / N) + (2 * order + 2) * np.log(N)
    return Poles(
        np.sort_complex(np.roots(np.concatenate([[1.0], a]))), b, np.concatenate([[1.0], a]), float(np.sqrt(rss / N)), bic
    )


def stable(poles: np.ndarray) -> np.ndarray:
    """Poles brought inside the unit circle."""
    size = np.abs(poles)
    poles = np.where(size > 1, 1 / np.conj(np.where(size > 0, poles, 1.0)), poles)
    return np.where(np.abs(poles) > 0.999, 0.999 * poles / np.maximum(np.abs(poles), 1e-300), poles)
