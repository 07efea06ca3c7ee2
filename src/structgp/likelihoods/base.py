"""How one observation arises from the latent value seen there.

A likelihood of your own needs `log_prob(y, f)` and nothing else to be learned from; `moments(f)` and `cumulative(y, f)` add the
mean, the variance and the quantiles of new observations. Everything is element by element: y and f broadcast.

Where an observation sees several latents, f has a last axis for them, and so has the slope; W, minus the second derivatives,
is a matrix. Beliefs about f have variances (…, C) while the latents are kept apart, else covariances (…, C, C); of a belief
with variances `tilted_derivatives` gives the diagonal of the second derivatives.
"""

from __future__ import annotations

import abc
import functools
import inspect
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._types import Numbers
from ..linalg import quadrature
from ..parameters.tree import Parametrised

LEAST = 1e-8  # curvature of a stand-in where there is none
OUTSIDE = 20.0  # times the noise that the real side of a switch is believed to have, where learning starts


class Likelihood(Parametrised):
    """p(y | f), and what it makes of a Gaussian belief about f.

    `extra` is one number for each observation whose meaning `extra_name` states: exposure, number of trials, censored or not.
    """

    extra_name: ClassVar[str | None] = None
    whole_numbers: ClassVar[bool] = False  # whether observations are 0, 1, 2, …
    places: ClassVar[int] = 2**14  # at which averages over several latents are taken at a time

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("log_prob")
        if own is not None and "extra" not in inspect.signature(own).parameters:
            cls.log_prob = _without_extra(own)  # type: ignore[method-assign]

    @property
    def latents(self) -> int:
        """How many latent values one observation sees."""
        return 1

    @property
    def is_gaussian(self) -> bool:
        """Whether observations are Gaussian around f, so that they are their own sites; then `noise_at` says how wide."""
        return False

    def noise_at(self, X: Float[Any, "N D"]) -> Float[Any, " ..."]:
        """The variance of Gaussian noise at these places, one for all or one for each."""
        raise NotImplementedError(f"{type(self).__name__} is not Gaussian, so that it has no variance of the noise")

    def check_points(self, X: Float[Any, "N D"]) -> None:
        """Say what is wrong where observations at these places cannot be; most likelihoods take any."""
        return

    def told_by(self, X: Float[Any, "N D"], extra: Any) -> Any:
        """What this likelihood has to know of observations at these places, besides what it is told; 1 for nothing."""
        return 1.0 if extra is None else extra

    @property
    def signal(self) -> tuple[int, Likelihood]:
        """Which latent is what the observations are about, and how they arise from it where nothing goes wrong."""
        return 0, self

    @property
    def gates(self) -> int:
        """How many latents decide how an observation arises: the first ones."""
        return 0

    @property
    def latent_names(self) -> tuple[str, ...]:
        """What the latents are, in their order, where they are not alike: gates first, then signals."""
        gates, signals = self.gates, self.latents - self.gates
        numbered = lambda what, count: [what if count == 1 else f"{what} {number}" for number in range(1, count + 1)]
        return (*numbered("gate", gates), *numbered("signal", signals)) if gates else ()

    @property
    def coupled(self) -> bool:
        """Whether the sites of several latents are full matrices: else one number for each latent keeps them apart."""
        return False

    def joins(self, rows: int) -> bool:
        """The same for sites at so many places."""
        return self.coupled

    @property
    def log_concave(self) -> bool:
        """Whether log p(y | f) is concave in f for every y."""
        return self.is_gaussian

    @property
    def tells_size(self) -> bool:
        """Whether observations say how large f is; labels that can be told apart are as probable with any that is large."""
        return True

    @property
    def largest_precision(self) -> float:
        """What −∂² log p(y | f)/∂f² never passes; of a log-concave likelihood no site passes it either (Cramér–Rao)."""
        return np.inf

    @property
    def default_inference(self) -> str:
        """The method that is dependable for this likelihood."""
        return "ep" if self.log_concave else "variational"

    @property
    def inferences(self) -> tuple[str, ...]:
        """The methods that can be had."""
        return "ep", "power-ep", "variational", "laplace"

    @abc.abstractmethod
    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        """log p(y | f), element by element."""

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """The observations as `log_prob` wants them, or an error that says what is wrong; NaN is a missing one."""
        self.check_extra(extra, np.shape(y))
        return numeric(self, y)

    def check_extra(self, extra: Any, shape: tuple[int, ...]) -> None:
        """Refuse extra numbers that this likelihood does not take."""
        if extra is not None and self.extra_name is None:
            raise ValueError(f"{type(self).__name__} takes no extra numbers for its observations: leave them out")
        if extra is not None and np.shape(extra) not in ((), shape):
            raise ValueError(f"{self.extra_name} needs one number for each observation: shape {shape}, got {np.shape(extra)}")

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of y given f."""
        raise NotImplementedError(f"{type(self).__name__} does not say what y is on average: define moments(f, extra=1.0)")

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        """P(Y ≤ y | f), on the host."""
        raise NotImplementedError(f"{type(self).__name__} has no quantiles: define cumulative(y, f, extra=1.0), P(Y ≤ y | f)")

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        """Observations drawn at latent values f (on the host)."""
        raise NotImplementedError(f"{type(self).__name__} cannot be drawn from: define sample(rng, f, extra=1.0)")

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, Any, Any]:
        """Where learning may start when this part of the spread is noise: the likelihood, and the level and variance of f.

        Of several latents level and variance are one number for all, or one for each.
        """
        return self, 0.0, 0.6 + 4 * noisy

    def limits(self, y: np.ndarray, extra: np.ndarray | None) -> dict[str, tuple[float, float]]:
        """Between what learning from these observations stays: the "level" and the "variance" of f, parameters by their name.

        Observations that are all alike would otherwise take the one or the other to infinity.
        """
        return {}

    def softened(self, t: float) -> Likelihood:
        """The same with wider noise, the more the nearer t is to 0: where a search for sites may begin that failed at t = 1."""
        return self

    def told_apart(self, noise: float, outside: float, share: float) -> Likelihood | None:
        """Where learning may start when noise has this variance, but for a share of rows that miss by this mean square.

        None where there is no such difference.
        """
        return None

    def as_wide(self, noise: float) -> Likelihood | None:
        """One side of a switch that scatters around f with this variance, as the narrower of several kinds of noise.

        None where nothing is said of noise.
        """
        return self.told_apart(noise, OUTSIDE * noise, 0.5)

    def plainly(self, y: np.ndarray, extra: np.ndarray | None) -> np.ndarray:
        """Observations on the scale of f, as a process with Gaussian noise may see them."""
        return y

    def outlier_probability(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        """The probability that what was observed is an outlier, when without it f ~ N(mean, variance)."""
        raise NotImplementedError(f"{type(self).__name__} knows of no outliers: use Twinned() or MixtureNoise()")

    def new_outlier_probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The probability that a new observation will be one."""
        raise NotImplementedError(f"{type(self).__name__} knows of no outliers: use Twinned() or MixtureNoise()")

    # what inference asks

    def derivatives(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers, Numbers]:
        """log p(y | f), its slope in f, and W, minus its second derivative."""
        derivatives = quadrature.with_derivatives if self.latents == 1 else quadrature.with_matrices
        value, slope, second = derivatives(lambda f: self.log_prob(y, f, extra), f)
        return value, slope, -second

    def slope_and_curvature(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Any]:
        """The slope of log p(y | f), and W in the form in which sites keep it."""
        return self.derivatives(y, f, extra)[1:]

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Any:
        """A positive stand-in for W with which a Newton step still ascends."""
        W = self.derivatives(y, f, extra)[2]
        if self.latents == 1:
            return jnp.maximum(W, LEAST)
        values, vectors = jnp.linalg.eigh(W)
        return (vectors * jnp.maximum(values, LEAST)[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        """log ∫ N(f; mean, variance) p(y | f)^power df, by quadrature around the peak unless there is something better."""
        return quadrature.log_integral(*self._integral(y, mean, variance, power, extra))

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        """`log_tilted`, its slope in the mean, and minus its second derivative."""
        if type(self).log_tilted is Likelihood.log_tilted:
            value, slope, second = quadrature.log_integral_derivatives(*self._integral(y, mean, variance, power, extra))
        else:
            tilted = lambda mean: self.log_tilted(y, mean, variance, power, extra)
            derivatives = quadrature.with_derivatives if self.latents == 1 else quadrature.with_matrices
            value, slope, second = derivatives(tilted, mean)
        return value, slope, -second

    def _integral(self, y: Any, mean: Any, variance: Any, power: Any, extra: Any) -> tuple[Any, Any, Any, quadrature.Rule]:
        parts = self, y, power, extra
        rule = quadrature.around_peak(factor(*held(parts)), *held((mean, variance)))
        return factor(*parts), mean, variance, rule

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        """∫ N(f; mean, variance) log p(y | f) df."""
        parts = self, y, 1.0, extra
        rule = quadrature.around_mean(factor(*held(parts)), *held((mean, variance)))
        return quadrature.expectation(factor(*parts), mean, variance, rule)

    # what prediction asks

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of y when f ~ N(mean, variance)."""
        first = lambda f: self.moments(f, extra)[0]
        rule = quadrature.around_mean(first, mean, variance)
        average = quadrature.expectation(first, mean, variance, rule)

        def spread(f: Any) -> Any:
            expected, within = self.moments(f, extra)
            return within + (expected - average) ** 2

        return average, quadrature.expectation(spread, mean, variance, rule)

    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        """log ∫ p(y | f) N(f; mean, variance) df."""
        return self.log_tilted(y, mean, variance, 1.0, extra)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        """P(Y ≤ y) when f ~ N(mean, variance), on the host."""
        return quadrature.host_expectation(lambda f: self.cumulative(y, f, extra), mean, variance, self.landmarks(y, extra))

    def landmarks(self, y: Any, extra: Any = 1.0) -> list[Any]:
        """Latent values between which P(Y ≤ y | f), as a function of f, does not change its shape."""
        return []

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        """The value that y stays below with probability q, when f ~ N(mean, variance)."""
        return quadrature.bisect(lambda y: self.predictive_cumulative(y, mean, variance, extra), q, whole=self.whole_numbers)


@eqx.filter_jit
def compiled(method: Any, *rows: Any) -> Any:
    """What a method says of rows, as one program: every operation by itself would be one as well."""
    return method(*rows)


def held(parts: Any) -> Any:
    """The same values as constants for differentiation."""
    return jax.tree_util.tree_map(jax.lax.stop_gradient, parts)


def is_one(power: Any) -> bool:
    """Whether a power is the number 1, known before anything is compiled."""
    return isinstance(power, (int, float)) and power == 1


def numeric(likelihood: Likelihood, y: Any) -> np.ndarray:
    """Observations as float64; infinite ones are refused."""
    values = np.asarray(y, dtype=np.float64)
    wrong = np.isinf(values)
    if wrong.any():
        raise ValueError(f"{type(likelihood).__name__} needs finite observations, got {first_few(values, wrong)}: drop them")
    return values


def first_few(values: np.ndarray, wrong: np.ndarray) -> str:
    """The first of the values that are wrong, and where they stand."""
    places = np.flatnonzero(np.ravel(wrong))
    shown = ", ".join(f"{np.ravel(values)[i]:g} (row {i})" for i in places[:3])
    return shown + (f" and {len(places) - 3} more" if len(places) > 3 else "")


def factor(likelihood: Likelihood, y: Any, power: Any, extra: Any) -> quadrature.Function:
    """The logarithm of what a Gaussian belief about f is multiplied by."""
    return lambda f: power * likelihood.log_prob(y, f, extra)


def _without_extra(log_prob: Any) -> Any:
    """A `log_prob(y, f)` that may be called with extra numbers, which it does not need."""

    @functools.wraps(log_prob)
    def wrapped(self: Any, y: Any, f: Any, extra: Any = 1.0) -> Any:
        return log_prob(self, y, f)

    return wrapped
