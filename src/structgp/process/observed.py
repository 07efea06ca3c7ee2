"""Questions about the observations: what is believed at their places, and what each would have been without itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .._types import double_precision
from ..engines.base import noise_variance
from ..engines.kalman import KalmanConditional
from ..inference.base import Inferred
from ..inference.ep import cavity
from ..linalg.blocks import trace
from ..posterior import Moments, Prediction, gates_of
from . import moments
from .conditioning import Posterior
from .given import Given


class AtObservations(Given):
    """What a `Fitted` says of its observations."""

    @double_precision
    def filtered(self) -> Moments:
        """The belief about f at each observed place given the observations up to there: what was known at the time.

        As long as there are fewer observations than free weights of basis functions, the mean is NaN and the variance infinite.
        """
        self._needs_gaussian("what was known at the time")
        return self._in_callers_order(*moments.filtered(self._along_time()))

    @double_precision
    def smoothed(self) -> Moments:
        """The belief about f at each observed place given all observations."""
        if self._latents and self.inference is not None:
            return Moments(self.inference.mean, self.inference.variance)
        return self._in_callers_order(*moments.smoothed(self._along_time()))

    @double_precision
    def lag_one(self) -> np.ndarray:
        """The covariances of f at successive times, sorted, given all observations: (N − 1,)."""
        return np.asarray(moments.lag_one(self._along_time()))[: len(self.inputs) - 1]

    @double_precision
    def leave_one_out(self) -> Moments:
        """Mean and variance of each observation given all the others, without refitting: y − α/(C⁻¹)ᵢᵢ and 1/(C⁻¹)ᵢᵢ.

        Where observations are not Gaussian, what is known of f without the site of each is passed through the likelihood; the
        sites themselves have seen all observations. Of a wide table there is one for each value that was seen, row by row.
        """
        if self.inference is not None:
            return self._without_sites(self.inference)
        precision, alpha = self._precision_parts()
        y = self.data.y
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, variance = y - alpha / precision[:, None], 1 / precision
        unseen = ~np.asarray(self.data.seen)
        mean[unseen], variance[unseen] = np.nan, np.nan
        return Moments(self._shaped(mean), self._spread(variance))

    @property
    @double_precision
    def outlier_probability(self) -> np.ndarray:
        """The probability that each observation is an outlier, given all of them; NaN where nothing was seen."""
        if self.inference is None:
            raise NotImplementedError(f"{type(self.likelihood).__name__} knows of no outliers: use Twinned() or MixtureNoise()")
        found = self._without_own(self.inference).outlier_probability_of(np.asarray(self.data.y)[:, 0])
        return np.where(self.data.seen, found, np.nan)

    @property
    def gate(self) -> Moments:
        """The belief about what decides how each observation arises, at their places; of several gates in a last axis."""
        if self.inference is None:
            return gates_of(self.likelihood, Moments(np.zeros(0), np.zeros(0)))
        return gates_of(self.likelihood, Moments(self.inference.mean, self.inference.variance))

    @property
    @double_precision
    def degrees_of_freedom(self) -> float:
        """tr[K C⁻¹]: how many parameters the smoother uses, those of basis functions included."""
        if self.inference is not None:
            return float(np.sum(trace(self.inference.w, jnp.asarray(self.inference.spread))))
        precision, _ = self._precision_parts()
        seen = np.asarray(self.data.seen)
        noise = noise_variance(self.gp, self.inputs, self.data)
        return float(seen.sum() - np.sum((noise * precision)[seen]))

    def _without_own(self, inferred: Inferred) -> Prediction:
        """The belief about f at the place of each observation without it."""
        m, v, _ = cavity(1.0, inferred.w, inferred.h, inferred.mean, inferred.spread)
        return self._prediction(np.asarray(m), np.asarray(v), self._extra(self.data.extra, self.inputs.points))

    def _without_sites(self, inferred: Inferred) -> Moments:
        mean, variance = (np.array(part) for part in self._without_own(inferred).observed)
        unseen = ~np.asarray(self.data.seen)
        mean[unseen], variance[unseen] = np.nan, np.nan
        return Moments(mean, variance)

    def _precision_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The diagonal of C⁻¹ and C⁻¹y with the basis weights integrated out, in the caller's order."""
        parts = _inverse_parts(self.posterior)
        order = self._rank() if isinstance(self.conditional, KalmanConditional) else slice(len(self.inputs))
        return np.asarray(parts[0])[order], np.asarray(parts[1])[order]


_inverse_parts = jax.jit(Posterior.inverse_parts)
