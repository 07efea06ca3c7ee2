"""Learning where rows lie: the start decides.

From the diffusion map with noise of half the variance the map unfolds before it becomes fine; from principal components, or
with little noise at first, it stays folded. One lengthscale for all coordinates: with one for each, points leave some of them.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist

from ..._types import double_precision, generator, whole
from ...engines.plan import plan
from ...inputs.layouts import as_inputs
from ...kernels.algebra import Kernel
from ...kernels.induced import Induced
from ...kernels.stationary import SquaredExponential
from ...learn.account import Learning
from ...learn.climb import climb
from ...learn.clock import Deadline
from ...learn.objective import Objective
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads
from ...linalg.features.cells import TableCells
from ...linalg.features.placing import centres
from ...linalg.neighbours.diffusion import diffusion_map
from ...linalg.principal import principal
from ...parameters.tree import as_numpy, free_vector
from ...process.gp import GP
from ...structure.base import No
from ...structure.dense import covariance
from ...structure.expectations import expected
from .fitted import FittedMap, relevance_of
from .model import BackConstraints, LatentEvidence, LatentGaussians, LatentModel, LatentPath, LatentPoints, Latents, known_by
from .units import ColumnUnits, checked

STARTS = ("diffusion", "pca")
INDUCING, INDUCING_GAUSSIANS = 200, 50  # inducing inputs where nothing is said; over Gaussians their pairs cost
NOISE = 0.5  # of the variance, at the start
SURE = 0.1  # variance of what is believed of a latent input, at the start
FILLING = 10  # components that fill missing cells for the start
FOLLOWED = 1e-3  # variance, of one, that latent inputs may be off their path
CENTRES = 300  # of the functions that back-constraints are made of
IRRELEVANT = 0.02  # relevance, of the largest, below which a coordinate is left out
MOST = 10  # coordinates that are tried where their number is chosen
PRUNED = 100  # evaluations after some were left out


@double_precision
def fit_latents(
    Y: Float[np.ndarray, "N C"],
    dimensions: int | str = 2,
    *,
    kernel: Kernel | None = None,
    inducing: int | None = None,
    start: Any = "diffusion",
    believed: bool | None = None,
    back: Kernel | bool = False,
    dynamics: Kernel | None = None,
    times: Any = None,
    scale: str = "columns",
    noise: str = "shared",
    seed: Any = 0,
    max_evaluations: int = 600,
    seconds: float | None = None,
    progress: bool | None = None,
) -> FittedMap:
    """Latent inputs of the rows of a table, where NaN are cells that were not seen, and the functions from them to the columns.

    `dimensions` is their number, or "auto" to let relevance choose it. `believed` says whether what is known of each place is a
    Gaussian; with "auto" it is.
    """
    Y = np.asarray(Y, dtype=float)
    checked(Y)
    if isinstance(dimensions, str) and dimensions != "auto":
        raise ValueError(f"dimensions must be a whole number or 'auto', got {dimensions!r}")
    auto = isinstance(dimensions, str)
    asked = 1 if auto else whole(dimensions, "dimensions", 1)
    if len(Y) < asked + 2:
        said = "n_samples = 1" if len(Y) == 1 else f"{len(Y)} rows"
        raise ValueError(f"X has {said}: {asked} coordinates need {asked + 2} rows or more")
    believed = auto if believed is None else believed
    units = ColumnUnits.of(Y, scale)
    y = units.to(Y)
    Q = min(MOST, y.shape[1], len(y) - 2) if auto else asked
    _check(Y, Q, believed, auto, back, dynamics, times)
    if noise not in ("shared", "columns"):
        raise ValueError(f"noise must be 'shared' or 'columns', got {noise!r}")
    began, deadline = time.perf_counter(), Deadline.after(seconds)
    full = principal(y, min(FILLING, y.shape[1], len(y) - 1)).filled if np.isnan(y).any() else y
    Z = _start(full, Q, "pca" if auto and isinstance(start, str) else start)
    count = (INDUCING_GAUSSIANS if believed else INDUCING) if inducing is None else whole(inducing, "inducing", 1)
    inputs = centres(Z, Z, min(count, len(Z)), generator(seed))
    lengthscale = np.ones(Q) if believed and kernel is None else 1.0
    chosen = SquaredExponential(lengthscale, 1.0) if kernel is None else kernel
    level = np.full(y.shape[1], NOISE) if noise == "columns" else NOISE
    path = None if dynamics is None else along(dynamics, times, len(y))
    model = LatentModel(Induced(chosen, inputs), _latents(Z, full, believed, back), level, path)
    cells = TableCells.of_table(y)
    options: dict[str, Any] = {"began": began, "deadline": deadline, "progress": progress, "seed": seed}
    model, learning = _climbed(model, cells, whole(max_evaluations, "max_evaluations", 1), **options)
    if auto:
        kept = np.flatnonzero(relevance_of(model) > IRRELEVANT)
        model, learning = _climbed(_with(model, kept[np.argsort(-relevance_of(model)[kept])]), cells, PRUNED, **options)
    name = start if isinstance(start, str) else "array"
    return FittedMap(model, cells, as_numpy(known_by(model, cells)), units, learning, "pca" if auto else name)


def _check(Y: np.ndarray, Q: int, believed: bool, auto: bool, back: Any, dynamics: Any, times: Any) -> None:
    C = Y.shape[1]
    if Q > C:
        raise ValueError(f"dimensions={Q}, but X has n_features = {C} columns: ask for at most {C}")
    if (dynamics is None) != (times is None):
        raise ValueError("dynamics along time need both: a kernel as dynamics=, and the times of the rows as times=")
    if believed and (dynamics is not None or back is not False):
        what = "dynamics" if dynamics is not None else "back-constraints"
        raise ValueError(f"{what} take latent inputs that are points: leave out believed=True and dimensions='auto'")


def _start(Y: np.ndarray, Q: int, start: Any) -> np.ndarray:
    """Where learning starts: the name of a map, or an array (N, Q)."""
    if isinstance(start, str):
        if start not in STARTS:
            raise ValueError(f"start must be one of {list(STARTS)} or an array of latent inputs, got {start!r}")
        if start == "diffusion":
            return diffusion_map(Y, Q)
        Z = principal(Y, Q).z
        return np.pad(Z, [(0, 0), (0, Q - Z.shape[1])])
    Z = np.asarray(start, dtype=float)
    if Z.shape != (len(Y), Q) or not np.isfinite(Z).all():
        raise ValueError(f"start must be finite numbers of shape {(len(Y), Q)}, one row for each of X, got shape {Z.shape}")
    return Z


def _latents(Z: np.ndarray, Y: np.ndarray, believed: bool, back: Any) -> Latents:
    if back is not False:
        return _back(Z, Y, back)
    return LatentGaussians(Z, np.full(Z.shape, SURE)) if believed else LatentPoints(Z)


def _back(Z: np.ndarray, Y: np.ndarray, back: Any) -> BackConstraints:
    """Functions of the rows near the start; where no kernel is given, with a lengthscale like the distances between rows."""
    some = Y[np.linspace(0, len(Y) - 1, min(len(Y), 1000)).astype(int)]
    kernel = SquaredExponential(0.5 * float(np.median(pdist(some)))) if back is True else back
    if not isinstance(kernel, Kernel):
        raise ValueError(f"back_constraints must be True, False or a kernel on the columns of X, got {back!r}")
    middle = centres(Y, Y, min(CENTRES, len(Y)), np.random.default_rng(0))
    whole_basis = np.asarray(covariance(kernel, Y, middle))
    w = np.linalg.lstsq(
        whole_basis.T @ whole_basis + 1e-3 * len(Y) / len(middle) * np.eye(len(middle)), whole_basis.T @ Z, rcond=None
    )[0]
    return BackConstraints(kernel.freeze(), Y, middle, w)


def along(dynamics: Any, times: Any, count: int) -> LatentPath:
    """The prior along time, by the engine that suits its kernel; its size is that of the latent inputs, and not learned."""
    if not isinstance(dynamics, Kernel):
        raise ValueError(f"dynamics must be a kernel of time, got {dynamics!r}")
    inputs = as_inputs(times, "times", clocks=())
    if len(inputs) != count or inputs.dimension != 1:
        raise ValueError(f"times must be one number for each of the {count} rows of X, got {len(inputs)}")
    sizes = [path for path in dynamics.parameters() if path.split(".")[-1] in ("variance", "scale")]
    kernel = dynamics.freeze(*sizes) if sizes else dynamics
    gp = GP(kernel, Gaussian(FOLLOWED))
    engine = plan(gp, inputs).chosen.engine.tuned(gp, inputs)
    return LatentPath(kernel, inputs, engine, FOLLOWED)


def _climbed(
    model: LatentModel, cells: TableCells, most: int, *, began: float, deadline: Deadline, progress: bool | None, seed: Any
) -> tuple[LatentModel, Learning]:
    reason = _refused(model)
    if reason is not None:
        raise ValueError(str(reason))
    objective, count = Objective(model, LatentEvidence(model, cells)), int(np.sum(cells.counts))
    options: dict[str, Any] = {"restarts": 0, "seed": seed, "max_evaluations": most, "progress": progress}
    with lapack_threads(len(model.kernel.inputs)):  # the matrices are as small as the inducing inputs are few
        learned, learning = climb(model, objective, [free_vector(model)], count, began, deadline=deadline, **options)
    return as_numpy(learned), learning


def _refused(model: LatentModel) -> No | None:
    """Why the kernel cannot be used over believed places, by shapes alone."""
    latents: Any = model.latents
    if latents.spread() is None:
        return None
    found: list[Any] = []
    weights: Any = np.ones((len(latents.z), 1))
    look = lambda kernel: found.append(expected(kernel.kernel, latents.z, latents.variance, kernel.inputs, weights))
    jax.eval_shape(look, model.kernel)
    return found[0] if isinstance(found[0], No) else None


def _with(model: LatentModel, kept: np.ndarray) -> LatentModel:
    """The model with some of its coordinates alone, in this order."""
    latents: Any = model.latents
    kernel: Any = model.kernel.kernel
    short = kernel.replace(lengthscale=np.asarray(kernel.lengthscale)[kept]) if np.ndim(kernel.lengthscale) else kernel
    inputs = np.asarray(model.kernel.inputs)[:, kept]
    return model.replace(kernel=Induced(short, inputs), latents=LatentGaussians(latents.z[:, kept], latents.variance[:, kept]))
