"""Questions about new places: means, variances, draws and slopes of f there, in pieces that fit into memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import where
from .._types import Seed, double_precision, generator, how_many, whole
from ..engines import memory
from ..engines.grids import GridConditional
from ..engines.kalman import KalmanConditional
from ..inputs.layouts import Grid, as_inputs, clocks_of, grid_of
from ..inputs.outputs import Outputs
from ..kernels.outputs import outputs_of
from ..linalg.dense.cholesky import lapack_threads
from ..posterior import Moments, Prediction, name_to_number
from ..structure.derivatives import smoothness
from . import moments
from .conditioning import Posterior
from .given import Given
from .integral import integral

FEW_CELLS = 200  # of a grid up to which they are predicted one by one
MANY_ROWS = 2000  # of a table from which on it is worth a look whether they are a grid
CHUNK_BYTES = 64e6  # size of the cross-covariance that prediction holds at a time
ON_DEVICE = 16  # times that on an accelerator, which waits between pieces
CACHE_BYTES = 2e6  # the same on a CPU, where pieces that fit into its cache take half the time
FEWEST = 512  # rows for which a large factor is worth reading


class GradientBelief(NamedTuple):
    """The posterior of a gradient: its mean and its covariance, the same for all targets."""

    mean: np.ndarray
    covariance: np.ndarray


class AtPlaces(Given):
    """What a `Fitted` says of new places."""

    @double_precision
    def predict(
        self, X: Any, covariance: bool | str = False, part: int | None = None, extra: Any = None, output: Any = None
    ) -> Prediction:
        """The belief about f at new places: mean and variance, and the joint covariance if asked for.

        Of several outputs, places without the column of their number have all of them, (M, P), or the one that `output` names,
        which may have fewer columns than others; ``covariance="outputs"`` adds their covariance at each place, (M, P, P).

        `extra` is what the likelihood wants to know of new observations: the exposure of counts, the trials of a binomial.

        `part` asks for one term of a kernel that is a sum, by its place in the sum, without the mean of the process. However
        many places there are, memory stays bounded unless the covariance is asked for.
        """
        wide = self._places_of_outputs(X, fewer=output is not None)
        if wide is not None:
            return self._of_outputs(wide, covariance, part, extra, output)
        if output is not None or covariance == "outputs":
            raise ValueError(
                "output= and covariance='outputs' are for models of several outputs, asked at places without the column of "
                f"their number: X has {as_inputs(X, clocks=clocks_of(self.inputs)).dimension} columns"
            )
        Xs = self._new_points(X)
        part = self._which_part(part)
        if covariance and self._latents:
            raise ValueError(
                f"a prediction of {self.likelihood.latents} latents has their covariance at each place, not that among places: "
                "leave out covariance=True, or ask fitted.posterior.joint"
            )
        if covariance:
            self._check_memory(
                self.conditional.joint_size(len(Xs)), "the joint covariance", len(Xs), "leave out covariance=True"
            )
            mean, joint = (np.asarray(found) for found in _joint(self.posterior, Xs, part))
            variance = self._spread(np.maximum(np.diagonal(joint), 0.0))
            return Prediction(self._shaped(mean), variance, self.likelihood, joint, self._extra(extra, Xs))
        grid = self._as_grid(X) if part is None else None
        if grid is None:
            self.plan.announce("prediction", len(Xs))
            self.plan.predicts(len(Xs))
        with lapack_threads(self.plan.rows):
            if grid is not None:
                mean, variance = (np.asarray(part) for part in _marginals(self.posterior, grid))
            else:
                mean, variance = self._in_chunks(functools.partial(_marginals, part=part), Xs, part)
        return self._told(X, mean, variance, self._extra(extra, Xs))

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False, extra: Any = None) -> np.ndarray:
        """n joint draws of f at new places, (n, M) or (n, M, T); with `observed` of new observations, noise included.

        Draws of several latents are (n, M, C).
        """
        n = whole(n, "n", 1)
        rng = generator(seed)
        wide = self._places_of_outputs(X)
        if wide is not None:
            draws = self.sample(wide.reshape(-1, wide.shape[-1]), n, rng, observed, extra)
            return draws.reshape(n, *wide.shape[:2])
        Xs, T = self._new_points(X), self._targets
        if not len(Xs):
            return np.zeros((n, 0, *self._latents) if self._single else (n, 0, T))
        key = jax.random.key(int(rng.integers(2**62)))
        grid = self._as_grid(X)
        places = Xs if grid is None else grid
        self._check_draws(len(Xs), n, None if grid is None else 4 * n * T * (len(Xs) + len(self.inputs)))
        with lapack_threads(self.plan.rows):
            draws = np.asarray(_draws(self.posterior, key, places, n))
        f = self._over(X, draws[..., 0], axis=1) if self._single else draws
        return self.likelihood.sample(rng, f, self._extra(extra, Xs)) if observed else f

    @double_precision
    def gradient(self, X: Any) -> np.ndarray:
        """The gradient of the posterior mean in the inputs at new places, (M, D) or (M, D, T), or (M, D, C) for C latents."""
        Xs = self._new_points(X)
        slopes = np.asarray(_gradient(self.posterior, Xs))
        slopes = slopes[..., 0, :] if self._single else slopes
        return np.swapaxes(slopes, 1, slopes.ndim - 1)

    @double_precision
    def derivative(self, X: Any, order: int = 1, *, dim: int | None = None, part: int | None = None) -> Moments:
        """The belief about the derivative of f, `order` times along the column `dim`, at new places.

        `part` asks for one term of a kernel that is a sum, without the mean of the process. At the step of a sharp change point
        it is the derivative from the right.
        """
        if self._latents:
            raise ValueError(f"derivatives are of one latent function, and {type(self.likelihood).__name__} sees several")
        Xs, part = self._new_points(X), self._which_part(part)
        dim = self._which_column(dim)
        order = whole(order, "order", 1)  # predict gives f itself
        kernel = getattr(self.conditional, "kernel", self.kernel)  # what stands for the kernel may have fewer derivatives
        kernel = kernel if part is None else kernel.terms[part]
        count, term = smoothness(kernel)
        if order > count:
            known = "no derivative" if count == 0 else how_many(count, "derivative")
            more = "ask for another part, or choose a smoother kernel" if kernel is not term else "choose a smoother kernel"
            raise ValueError(f"f has no derivative of order {order}, because {term!r} has {known}: {more}")
        options: dict[str, Any] = {"order": int(order), "dim": dim, "part": part}
        with lapack_threads(len(self.inputs)):
            mean, variance = self._in_chunks(functools.partial(moments.derivative, **options), Xs)
        return Moments(self._shaped(mean), self._spread(variance))

    @double_precision
    def gradient_posterior(self, x: Any) -> GradientBelief:
        """The belief about the gradient of f at one place: its mean (D,), or (D, T), and its covariance (D, D)."""
        place = self._one_place(x)
        count, term = smoothness(getattr(self.conditional, "kernel", self.kernel))
        if self._latents or count < 1:
            what = "of several latents" if self._latents else f"because {term!r} has no derivative: choose a smoother kernel"
            raise ValueError(f"f has no gradient here, {what}")
        with lapack_threads(len(self.inputs)):
            mean, covariance = (np.asarray(part) for part in moments.gradient(self.posterior, place))
        return GradientBelief(self._shaped(mean), covariance)

    @double_precision
    def integral(self, box: Any) -> Moments:
        """The belief about ∫f over a box, a pair of ends or one for each column: mean and variance, for T targets (T,) each.

        With a `Normal` for each column in place of the pairs it is that about E f(x).
        """
        mean, variance = integral(self.gp, self.inputs, self.data, self.plan, self.inference, box)
        return Moments(mean[0], np.asarray(variance)) if self._single else Moments(mean, np.full(len(mean), variance))

    def _one_place(self, x: Any) -> np.ndarray:
        place = np.asarray(x, dtype=float)
        return self._new_points(place.reshape(1, -1))[0]

    def _which_part(self, part: int | None) -> int | None:
        if part is None:
            return None
        terms = getattr(self.kernel, "terms", ())
        if not isinstance(part, (int, np.integer)) or not -len(terms) <= part < len(terms):
            has = f"has {len(terms)} terms, counted from 0" if terms else "is not a sum"
            raise ValueError(f"part={part!r} cannot be predicted: the kernel {self.kernel!r} {has}")
        return part % len(terms)

    def _as_grid(self, X: Any) -> Grid | None:
        """X as a grid, where looking at it as a whole is better than place by place."""
        if not isinstance(self.conditional, GridConditional):
            return None
        if isinstance(X, Grid):
            return X if len(X) > FEW_CELLS else None
        rows = self._new_points(X)
        return grid_of(rows) if len(rows) > MANY_ROWS else None

    def _over(self, X: Any, values: np.ndarray, axis: int = 0) -> np.ndarray:
        """Values at the places X, as an array over them when y came as an array over a grid and X is a whole one."""
        whole = self.data.gridded and isinstance(X, Grid) and X.cells is None
        return values.reshape(*values.shape[:axis], *X.shape, *values.shape[axis + 1 :]) if whole else values

    def _told(self, X: Any, mean: np.ndarray, variance: np.ndarray, extra: Any) -> Prediction:
        """The belief about f at the places X, in the caller's shapes."""
        mean, variance = (self._over(X, values) for values in (self._shaped(mean), self._spread(variance)))
        return self._prediction(mean, variance, extra)

    def _check_memory(self, numbers: int, what: str, places: int, otherwise: str) -> None:
        memory.check(
            8.0 * numbers * self._targets, f"{what} at {places} places", f"ask for fewer places at a time, or {otherwise}"
        )

    def _check_draws(self, places: int, n: int, held: int | None = None) -> None:
        held = self.conditional.draw_size(places, n * self._targets) if held is None else held
        self._check_memory(held, f"drawing {n} times", places, "draw on a Grid where the kernel factors, or along a line")

    def _in_chunks(
        self, function: Any, Xs: np.ndarray, part: int | None = None, together: Posterior | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run over the rows in pieces of a few sizes, so that nothing grows with their number and little is compiled.

        `together` are posteriors along a first axis, whose answers have a second axis for them.
        """
        conditional = self.conditional.for_places(Xs, part)
        posterior = dataclasses.replace(self.posterior, conditional=conditional) if together is None else together
        some = () if together is None else (len(together.log_evidence),)
        size = rows_at_a_time(conditional.row_size)
        means, spreads = [np.zeros((0, *some, *self._latents, self._targets))], [np.zeros((0, *some, *2 * self._latents))]
        for at in range(0, len(Xs), size):
            piece = Xs[at : at + size]
            padded = min(size, max(16, 2 ** int(np.ceil(np.log2(len(piece))))))
            filled = np.concatenate([piece, np.repeat(piece[:1], padded - len(piece), axis=0)])
            mean, variance = function(posterior, filled)
            means.append(np.asarray(mean)[: len(piece)])
            spreads.append(np.asarray(variance)[: len(piece)])
        return np.concatenate(means), np.concatenate(spreads)

    def _which_column(self, dim: int | None) -> int:
        D = self.inputs.dimension
        if dim is None and D > 1:
            raise ValueError(f"the inputs have {D} columns: say along which one the derivative is, as in dim=0")
        if dim is not None and (not isinstance(dim, (int, np.integer)) or not 0 <= dim < D):
            raise ValueError(f"dim must be one of the {D} columns of the inputs, counted from 0, got {dim!r}")
        return dim or 0

    def _places_of_outputs(self, X: Any, fewer: bool = False) -> np.ndarray | None:
        """New places for each output, (M, P, D), where X lacks the column of its number, or has still `fewer`; else None."""
        if isinstance(X, (Outputs, Mapping)):
            raise TypeError("X holds outputs by name: ask for one of them at a time, as in predict(x, output='a')")
        known, D = outputs_of(self.kernel), self.inputs.dimension
        if known is None or known.count < 2 or known.among(D) != D - 1:
            return None
        counted = clocks_of(self.inputs)[:-1]
        new = as_inputs(X, allow_empty=True, clocks=counted if any(counted) else ())
        if new.dimension != D - 1 and not (fewer and new.dimension < D - 1):
            return None
        points = np.pad(np.asarray(new.points), [(0, 0), (0, D - 1 - new.dimension)])
        places = np.repeat(points[:, None], known.count, axis=1)
        numbers = np.broadcast_to(np.arange(known.count)[:, None], (*places.shape[:2], 1))
        return np.concatenate([places, numbers], axis=2)

    def _of_outputs(self, wide: np.ndarray, covariance: Any, part: int | None, extra: Any, output: Any) -> Prediction:
        """The belief about all outputs at each place, or about one of them."""
        M, P, D = wide.shape
        names = self.data.outputs or tuple(map(str, range(P)))
        if output is not None:
            return self.predict(wide[:, name_to_number(names, output)], covariance, part, extra)
        if covariance not in (False, "outputs"):
            raise ValueError(
                "the covariance of all outputs at all places is that of rows (place, output): pass these, or 'outputs'"
            )
        flat = self.predict(wide.reshape(-1, D), part=part, extra=extra)
        told = np.reshape(flat.extra, (M, P)) if np.ndim(flat.extra) else flat.extra
        joint = self._among_outputs(wide) if covariance == "outputs" else None
        mean, variance = (values.reshape(M, P) for values in (flat.mean, flat.variance))
        return Prediction(mean, variance, self.likelihood, joint, told, names)

    def _among_outputs(self, wide: np.ndarray) -> np.ndarray:
        """The covariance of all outputs at each place, (M, P, P)."""
        size = 64
        pieces = [np.zeros((0, wide.shape[1], wide.shape[1]))]
        for at in range(0, len(wide), size):
            piece = wide[at : at + size]
            filled = np.concatenate([piece, np.repeat(piece[:1], size - len(piece), axis=0)])
            pieces.append(np.asarray(_outputs_together(self.posterior, filled))[: len(piece)])
        return np.concatenate(pieces)


def rows_at_a_time(numbers: int) -> int:
    """How many places are looked at together, each of which takes so many numbers: a power of two."""
    on_host = where.backend() == "cpu"
    rows = (1 if on_host else ON_DEVICE) * CHUNK_BYTES / (8 * max(numbers, 1))
    if on_host:
        rows = min(rows, max(CACHE_BYTES / (8 * max(numbers, 1)), FEWEST))
    return int(2 ** np.clip(np.floor(np.log2(rows)), 4, 14))


@jax.jit
def _outputs_together(posterior: Posterior, wide: Any) -> Any:
    conditional = posterior.conditional
    free = posterior.weights.factor.shape[0]
    if isinstance(conditional, KalmanConditional) and not free:
        found = conditional.among_outputs(wide[:, 0], wide.shape[1])
        if found is not None:
            return found[1]
    return jax.lax.map(lambda places: posterior.joint(places)[1], wide)


_marginals = jax.jit(Posterior.marginals, static_argnames="part")
_joint = jax.jit(Posterior.joint, static_argnames="part")
_gradient = jax.jit(Posterior.gradient)
_draws = jax.jit(Posterior.draw, static_argnames="n")
