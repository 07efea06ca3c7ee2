"""What is believed after data were seen: `Conditional`, `Moments`, `Prediction`."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._types import double_precision
from .crew import is_lazy
from .inputs.reading import unmasked
from .inputs.rows import in_few_sizes
from .kernels.algebra import Kernel
from .likelihoods.base import Likelihood, compiled
from .linalg.crossing import between
from .means import Mean

TINY = 1e-12  # of the variance: covariances that rounding has made singular still have a factor


class Result:
    """What data led to: it can be kept in a file, and says in words what it is."""

    def summary(self) -> str:
        """What is known, in words."""
        return repr(self)

    def save(self, path: Any) -> None:
        """Write all of it to one file that `structgp.load` reads; nothing in the file can be executed."""
        from .files import save

        save(self, path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """What `save` of this class has written; `structgp.load` reads whatever a file holds."""
        from .files import load

        found = load(path)
        if not isinstance(found, cls):
            raise ValueError(
                f"{path} holds a {type(found).__name__}, not a {cls.__name__}: structgp.load reads it as what it is"
            )
        return found


class Scattered(Result):
    """What data in parts led to: the rows stay where they are read from, and a file holds where that is.

    `sources` are these places: Parquet files, or arrays, which are in the file themselves.
    """

    sources: Any

    def save(self, path: Any) -> None:
        """Write what was learned and where the rows are to one file; `structgp.load` reads them again when they are needed."""
        if any(map(is_lazy, jax.tree.leaves(self.sources, is_leaf=is_lazy))):
            raise ValueError(
                f"the rows of this {type(self).__name__} are Dask's, which {path} cannot say how to find again: fit from the "
                "paths of Parquet files, as in gp.fit('meter/*.parquet', 'kWh'), or keep the model with some rows of it, by "
                "fitted.gp.condition(some_X, some_y).save(path)"
            )
        super().save(path)


@runtime_checkable
class Model(Protocol):
    """A prior and a likelihood."""

    kernel: Kernel
    likelihood: Likelihood
    mean: Mean


class Conditional(eqx.Module):
    """A zero-mean process given sites: one mean for each column of targets, one variance for all.

    Of several latents means are (M, C, k) and variances the covariances (M, C, C) of the latents at each place.
    """

    @abc.abstractmethod
    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, " M *C k"], Float[Array, " M *C"]]:
        """Means and variance at new places, of one term of a sum if asked for."""

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        """Means and variance of a derivative along one coordinate at new places, of one term of a sum if asked for."""
        raise ValueError("derivatives are not to be had with this engine: condition with structure='dense' to have them")

    def gradient(self, x: Float[Array, " D"]) -> tuple[Float[Array, "D C"], Float[Array, "D D"]]:
        """Means and covariance of the gradient at one place; along a line it is the derivative."""
        if len(x) == 1:
            mean, variance = self.derivative(x[None], 1, 0)
            return mean, variance[:, None]
        raise ValueError("gradients are not to be had with this engine: condition with structure='dense' to have them")

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, " M *C n"]:
        """n joint draws at new places of what the sites leave open: zero mean, the conditional covariance."""
        return draw(self.joint(X)[1], key, n)

    @abc.abstractmethod
    def inverse_parts(self) -> tuple[Float[Array, " N *C"], Float[Array, " N *C k"]]:
        """The diagonal of C⁻¹ and C⁻¹T, zero where nothing was seen, in the order of the sites."""

    @property
    def log_det_error(self) -> Any:
        """The standard error of log|C|, 0 where it is exact."""
        return 0.0

    @property
    def accuracy(self) -> str | None:
        """How right it is, in words, where that is known only now; else the plan's word stands."""
        return None

    @property
    def bounds(self) -> Any:
        """log|C| and TᵀC⁻¹T of the lower and of the upper end of the log evidence, where it lies between two."""
        return None

    def for_places(self, X: np.ndarray, part: int | None = None) -> Conditional:
        """The same process, ready to be looked at in all these places, or one term of a sum of it."""
        return self

    @property
    @abc.abstractmethod
    def row_size(self) -> int:
        """How many numbers prediction holds for each new place."""

    def joint_size(self, places: int) -> int:
        """How many numbers `joint` holds for so many places."""
        return 4 * places**2 + 3 * places * self.row_size

    def draw_size(self, places: int, n: int) -> int:
        """How many numbers `residuals` holds: by default those of the joint covariance and of its eigenvectors."""
        return self.joint_size(places) + 2 * places**2 + 3 * n * places

    @abc.abstractmethod
    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
        """log|C| and TᵀC⁻¹T for the targets T that the sites stand for, from which the evidence follows."""

    @abc.abstractmethod
    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, " M *C k"], Float[Array, " M *more"]]:
        """Means and the whole covariance at new places."""

    def joint_of_part(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        """The same of one term of a sum, where it can be had."""
        raise ValueError("the covariance of a part is not available for this structure: leave out covariance=True, or the part")


def draw(covariance: Float[Array, " M *more"], key: Array, n: int) -> Float[Array, " M *C n"]:
    """n draws from N(0, covariance), which may be singular, and may be of several latents at each place, (M, C, M, C)."""
    shape = covariance.shape[: covariance.ndim // 2]
    matrix = covariance.reshape(math.prod(shape), -1)
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    draws = (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ jax.random.normal(key, (len(matrix), n))
    return draws.reshape(*shape, n)


class Moments(NamedTuple):
    """Mean and variance of a random quantity at each of M places."""

    mean: np.ndarray
    variance: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation."""
        return np.sqrt(self.variance)


class Foretold:
    """What is believed of f at some places, and of new observations there."""

    mean: Any
    variance: Any
    likelihood: Any

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of f."""
        return np.sqrt(self.variance)

    @property
    def gate(self) -> Moments:
        """The belief about what decides how an observation arises; of several gates in a last axis."""
        return gates_of(self.likelihood, Moments(self.mean, self.variance))

    @abc.abstractmethod
    def quantile(self, q: Any) -> np.ndarray:
        """The value that a new observation stays below with probability q: one row for each q, or one array for a number."""

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds a new observation with this probability: its lower and its upper end."""
        if _probabilities(level) is None or np.ndim(level):
            raise ValueError(f"interval needs a level between 0 and 1, got {level!r}")
        lower, upper = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return lower, upper

    def __len__(self) -> int:
        return len(self.mean)


@dataclasses.dataclass(frozen=True)
class Prediction(Foretold):
    """The belief about the latent f at M places; `observed` is the same for a new observation y there.

    With several targets every array has one more axis, of length T. With several latents `mean` and `variance` have a last axis
    for them, and `covariance` (…, C, C) is that of the latents at each place.
    """

    mean: np.ndarray
    variance: np.ndarray
    likelihood: Likelihood
    covariance: np.ndarray | None = None
    extra: Any = 1.0
    names: tuple[str, ...] | None = None  # of several outputs, for which mean and variance are (M, P)

    def __getitem__(self, output: Any) -> Prediction:
        """One of several outputs, by its name or its number."""
        number = name_to_number(self.names, output)
        extra = self.extra[:, number] if np.ndim(self.extra) else self.extra
        return Prediction(self.mean[:, number], self.variance[:, number], self.likelihood, None, extra)

    @property
    @double_precision
    def observed(self) -> Moments:
        """Mean and variance of a new observation, noise included."""
        return Moments(*self._told(self.likelihood.observed, self.mean, self._spread, self.extra))

    @double_precision
    def quantile(self, q: Any) -> np.ndarray:
        probability = _probabilities(q)
        if probability is None:
            raise ValueError(f"quantile needs probabilities between 0 and 1, got {q!r}")
        shaped = probability.reshape(probability.shape + (1,) * len(self._places))
        return np.asarray(self.likelihood.quantile(shaped, self.mean, self._spread, self.extra))

    @double_precision
    def cumulative(self, y: Any) -> np.ndarray:
        """The probability that a new observation is y at most; NaN where y is."""
        values = np.asarray(unmasked(y), dtype=float)
        known = np.where(np.isnan(values), 0.0, values)
        found = np.asarray(self.likelihood.predictive_cumulative(known, self.mean, self._spread, self.extra))
        return np.where(np.isnan(values), np.nan, found)

    @property
    def signal(self) -> Prediction:
        """The belief about the latent that observations are about, and about those of them with which nothing goes wrong."""
        latent, likelihood = self.likelihood.signal
        if self.likelihood.latents == 1:
            return dataclasses.replace(self, likelihood=likelihood)
        return Prediction(self.mean[..., latent], self.variance[..., latent], likelihood, extra=self.extra)

    @property
    @double_precision
    def outlier_probability(self) -> np.ndarray:
        """The probability that a new observation is an outlier."""
        return np.asarray(self._told(self.likelihood.new_outlier_probability, self.mean, self._spread))

    @double_precision
    def outlier_probability_of(self, y: Any) -> np.ndarray:
        """The probability that observations here, of which the belief does not know yet, are outliers."""
        values = np.asarray(unmasked(y), dtype=float)
        found = np.asarray(self._told(self.likelihood.outlier_probability, values, self.mean, self._spread, self.extra))
        return np.where(np.isnan(values), np.nan, found)

    @property
    @double_precision
    def probability(self) -> np.ndarray:
        """The probability of label 1, or of every class: averaged over what is believed of f."""
        if not hasattr(self.likelihood, "probability"):
            raise AttributeError(f"{type(self.likelihood).__name__} observations are not labels, so they have no probability")
        return self._told(self.likelihood.probability, self.mean, self._spread)

    @double_precision
    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y) of new observations, each by itself, through the likelihood; NaN where y was not seen."""
        observed = np.asarray(unmasked(y), dtype=float)
        if observed.shape != self._places:
            raise ValueError(
                f"log_prob needs one observation for each prediction: y has shape {observed.shape}, not {self._places}"
            )
        missing = np.isnan(observed)
        filled = observed if self.likelihood.latents == 1 else self.likelihood.check(np.where(missing, 0.0, observed))
        found = self._told(self.likelihood.log_predictive, filled, self.mean, self._spread, self.extra)
        return np.where(missing, np.nan, found)

    @property
    def _places(self) -> tuple[int, ...]:
        return self.mean.shape if self.likelihood.latents == 1 else self.mean.shape[:-1]

    @property
    def _spread(self) -> np.ndarray:
        """The variances, or the covariances of several latents: as little more than these as gives them Cholesky factors."""
        if self.likelihood.latents == 1:
            return self.variance
        size = np.sum(self.variance, axis=-1)[..., None, None]
        return np.asarray(self.covariance) + (TINY * size + 1e-300) * np.eye(self.likelihood.latents)

    def _told(self, method: Any, *rows: Any) -> Any:
        """What the likelihood makes of rows; of several latents in pieces, because averages over them are large."""
        program = functools.partial(compiled, method)
        if self.likelihood.latents == 1:
            return in_few_sizes(program, *rows)
        places = self._places
        flat = [np.reshape(part, (-1, *np.shape(part)[len(places) :])) if np.ndim(part) else part for part in rows]
        size = self.likelihood.places
        piece = lambda at: (part[at : at + size] if np.ndim(part) else part for part in flat)
        found = [in_few_sizes(program, *piece(at)) for at in range(0, max(len(flat[0]), 1), size)]
        return jax.tree.map(lambda *parts: np.concatenate(parts).reshape(*places, *parts[0].shape[1:]), *found)

    def __repr__(self) -> str:
        return f"Prediction({' × '.join(map(str, self.mean.shape))}, {type(self.likelihood).__name__})"


@dataclasses.dataclass(frozen=True)
class MixturePrediction(Foretold):
    """A weighted average of beliefs about f, each with a likelihood of its own: the same answers as a `Prediction` gives.

    `likelihood` is that of the most probable parameters.
    """

    members: tuple[Prediction, ...]
    weights: np.ndarray
    likelihood: Likelihood

    @functools.cached_property
    def _means(self) -> np.ndarray:
        return np.stack([one.mean for one in self.members])

    @functools.cached_property
    def mean(self) -> np.ndarray:
        """The mean of f."""
        return self._averaged(self._means)

    @functools.cached_property
    def variance(self) -> np.ndarray:
        """The variance of f: what the members leave open, and what they differ by."""
        within = self._averaged(np.stack([one.variance for one in self.members]))
        return within + self._averaged((self._means - self.mean) ** 2)

    @functools.cached_property
    def covariance(self) -> np.ndarray | None:
        """The covariance of f among places, where it was asked for (M, M), for several targets (M, M, T); or of latents."""
        if self.members[0].covariance is None:
            return None
        within = self._averaged(np.stack([np.asarray(one.covariance) for one in self.members]))
        apart = self._means - self.mean
        if self.likelihood.latents > 1 or self.names is not None:
            return within + np.einsum("k,k...c,k...d->...cd", self.weights, apart, apart)
        between = np.einsum("k,ki...,kj...->ij...", self.weights, apart, apart)
        return (within if between.ndim == 2 else within[:, :, None]) + between

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of several outputs, for which mean and variance are (M, P)."""
        return self.members[0].names

    def __getitem__(self, output: Any) -> MixturePrediction:
        """One of several outputs, by its name or its number."""
        return MixturePrediction(tuple(member[output] for member in self.members), self.weights, self.likelihood)

    @property
    def extra(self) -> Any:
        """What the likelihood was told of new observations."""
        return self.members[0].extra

    @functools.cached_property
    def observed(self) -> Moments:
        """Mean and variance of a new observation, noise included."""
        parts = [one.observed for one in self.members]
        means = np.stack([np.asarray(part.mean) for part in parts])
        return mixed_moments(means, np.stack([np.asarray(part.variance) for part in parts]), self.weights)

    @double_precision
    def quantile(self, q: Any) -> np.ndarray:
        own = np.stack([one.quantile(q) for one in self.members])
        probability = np.asarray(q, dtype=float)
        level = np.broadcast_to(
            probability.reshape(probability.shape + (1,) * (own.ndim - 1 - probability.ndim)), own.shape[1:]
        )
        low, high = own.min(axis=0), own.max(axis=0)  # what is sought lies between the quantiles of the members
        return between(self.cumulative, level, low, high, self.likelihood.whole_numbers)

    @property
    def probability(self) -> np.ndarray:
        """The probability of label 1, or of every class."""
        return self._averaged(np.stack([np.asarray(one.probability) for one in self.members]))

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y) of new observations, each by itself."""
        logs = np.stack([np.asarray(one.log_prob(y)) for one in self.members])
        top = logs.max(axis=0)
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(top), top, top + np.log(self._averaged(np.exp(logs - top))))

    def cumulative(self, y: Any) -> np.ndarray:
        """The probability that a new observation is y at most."""
        return self._averaged(np.stack([one.cumulative(y) for one in self.members]))

    @functools.cached_property
    def signal(self) -> MixturePrediction:
        """The belief about the latent that observations are about, and about those of them with which nothing goes wrong."""
        return MixturePrediction(tuple(one.signal for one in self.members), self.weights, self.likelihood.signal[1])

    @property
    def outlier_probability(self) -> np.ndarray:
        """The probability that a new observation is an outlier."""
        return self._averaged(np.stack([one.outlier_probability for one in self.members]))

    def outlier_probability_of(self, y: Any) -> np.ndarray:
        """The probability that observations here, of which the belief does not know yet, are outliers."""
        found = np.stack([one.outlier_probability_of(y) for one in self.members])
        logs = np.stack([np.asarray(one.log_prob(y)) for one in self.members])  # a member that expected y counts for more
        return mixed_moments(found, np.zeros_like(found), tilted(self.weights, logs)).mean

    def _averaged(self, values: np.ndarray) -> np.ndarray:
        return np.tensordot(self.weights, values, axes=1)

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.mean.shape))
        return f"MixturePrediction({shape}, {type(self.likelihood).__name__}, {len(self.members)} members)"


def name_to_number(names: tuple[str, ...] | None, output: Any) -> int:
    """The number of an output that is asked for by its name, or by its number."""
    if names is None:
        raise ValueError("this prediction is of one output: ask the model for places without the column of its number")
    if isinstance(output, str) and output in names:
        return names.index(output)
    if isinstance(output, (int, np.integer)) and not isinstance(output, bool) and 0 <= output < len(names):
        return int(output)
    raise ValueError(f"there is no output {output!r}: there are {', '.join(map(repr, names))}, or their numbers from 0")


def tilted(weights: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """The weights of members after each of them found something this probable, place by place."""
    with np.errstate(invalid="ignore"):
        after = np.reshape(weights, (-1,) + (1,) * (logs.ndim - 1)) * np.exp(logs - np.max(logs, axis=0))
        return after / after.sum(axis=0)


def mixed_moments(means: np.ndarray, variances: np.ndarray, weights: np.ndarray) -> Moments:
    """Mean and variance of a mixture whose members stand along the first axis; weights may differ from place to place."""
    w = np.reshape(weights, weights.shape + (1,) * (means.ndim - weights.ndim))
    mean = np.sum(w * means, axis=0)
    return Moments(mean, np.sum(w * (variances + (means - mean) ** 2), axis=0))


def gates_of(likelihood: Likelihood, latents: Moments) -> Moments:
    """The gates among latents, the only one without an axis for it."""
    count = likelihood.gates
    if not count:
        raise AttributeError(f"{type(likelihood).__name__} has no gate: use Twinned() or another Switch")
    return Moments(*(part[..., 0] if count == 1 else part[..., :count] for part in latents))


def _probabilities(values: Any) -> np.ndarray | None:
    """Numbers between 0 and 1, or None if these are not."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return None
    return array if ((array > 0) & (array < 1)).all() else None
