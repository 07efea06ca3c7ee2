"""Neighbours: one evaluation of the evidence with its gradient, and a whole field with land in it.

The field is smooth at two scales (Matérn-3/2 of one distance, 0.9 and 0.1 of the variance) on 54 × 18 × 432 cells, seen with
noise of 1e-3 or 1e-4 of its variance. About a quarter is land, in blocks that are the same along the first axis, and 5 % of the
rest is hidden. On a part that a dense matrix can hold, variances are compared with exact ones at the learned values.
"""

import itertools
import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, Unavailable, problem

LENGTHSCALES = (5.0, 12.0, 15.0)  # in cells
NOISES = (1e-3, 1e-4)
LAND, HIDDEN = 0.26, 0.05
NEIGHBOURS = 20
PART = 20  # cells along the last axis of the part that a dense matrix holds


class Rows(NamedTuple):
    """Scattered places and what was seen there."""

    X: np.ndarray
    y: np.ndarray


def scattered(N: int) -> Rows:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, (N / 100) ** (1 / 3), (N, 3))
    return Rows(X, np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(N))


def as_it_is(data: object, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    return {name: dict(result) for name, result in results.items()}


EVIDENCE = problem(
    name="neighbours-evidence",
    about=f"log evidence and gradient given {NEIGHBOURS} neighbours, Matérn-3/2 with three lengthscales",
    make=scattered,
    sizes=(30_000, 290_000),
    quick=(3_000,),
    score=as_it_is,
    repeat=1,
    calls=3,
)


@EVIDENCE.method("structgp")
def ours(data: Rows) -> Run:
    import jax

    import structgp as sg
    from structgp.engines.neighbours import NeighbourEngine
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import read_observations
    from structgp.learn.evidence import GaussianEvidence
    from structgp.parameters.tree import free_vector

    gp = sg.GP(sg.Matern32([1.0, 1.0, 1.0]), sg.Gaussian(0.01))
    inputs, engine = as_inputs(data.X), NeighbourEngine(NEIGHBOURS)
    known = read_observations(gp.likelihood, data.y, None, "error", inputs, None, None)
    with jax.enable_x64(True):
        evidence = GaussianEvidence(gp, engine.prepared(gp, inputs, known), known, engine)

    def call() -> Result:
        began = time.process_time()
        with jax.enable_x64(True):
            value, _ = evidence(free_vector(gp))
        return {"log evidence": float(value), "CPU seconds": time.process_time() - began}

    return Run(call)


@EVIDENCE.method("GPBoost, whole fit", requires=("gpboost",))
def gpboost_fit(data: Rows) -> Run:
    return Run(lambda: {"log evidence": gpboost(data.X, data.y)[1]})


def gpboost(X: np.ndarray, y: np.ndarray):
    """A model by GPBoost with the same kernel and neighbours, and its log evidence."""
    import gpboost as gpb

    model = gpb.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        likelihood="gaussian",
        num_parallel_threads=2,
    )
    model.fit(y=y)
    return model, -float(model.get_current_neg_log_likelihood())


class Field(NamedTuple):
    """A field in all cells, which of them are seen and which hidden, and white noise to be added."""

    f: np.ndarray
    seen: np.ndarray
    hidden: np.ndarray
    white: np.ndarray

    def observed(self, noise: float) -> np.ndarray:
        """What is seen, NaN elsewhere."""
        return np.where(self.seen, self.f + np.sqrt(noise) * self.white, np.nan)


def matern_field(shape: tuple[int, ...], lengthscales: tuple[float, ...], rng: np.random.Generator) -> np.ndarray:
    """A draw of Matérn-3/2 of variance 1 by its spectrum, on twice the cells, so that the ends do not meet.

    Waves shorter than two cells are seen in the cells as longer ones, and are added to those, and what goes round the ring is
    not scaled away: else 95 % intervals of the very model that was drawn from hold 99.8 %.
    """
    sides, D = [2 * n for n in shape], len(shape)
    whole = 2**D * np.pi ** (D / 2) * math.gamma(1.5 + D / 2) / math.gamma(1.5) * 3**1.5 * math.prod(lengthscales)
    power = np.zeros(sides)
    for beyond in itertools.product((-1, 0, 1), repeat=D):
        waves = ((np.fft.fftfreq(n) + b) * ell for n, b, ell in zip(sides, beyond, lengthscales, strict=True))
        steps = np.meshgrid(*waves, indexing="ij", sparse=True)
        power += (3 + (2 * np.pi) ** 2 * sum(step**2 for step in steps)) ** -(1.5 + D / 2)
    f = np.fft.ifftn(np.fft.fftn(rng.standard_normal(sides)) * np.sqrt(whole * power)).real
    return f[tuple(slice(n) for n in shape)]


def field(N: int) -> Field:
    """A field of about N cells."""
    rng = np.random.default_rng(1)
    first, second = (54, 18) if N >= 54 * 18 * 40 else (10, 18)
    shape = (first, second, max(N // (first * second), PART))
    short = tuple(ell / 4 for ell in LENGTHSCALES)
    f = np.sqrt(0.9) * matern_field(shape, LENGTHSCALES, rng) + np.sqrt(0.1) * matern_field(shape, short, rng)
    land = np.zeros(shape[1:], bool)
    while land.mean() < LAND:
        a, b = (int(rng.integers(0, n)) for n in land.shape)
        land[a : a + 5, b : b + 8] = True
    seen = np.broadcast_to(~land, shape)
    hidden = seen & (rng.uniform(size=shape) < HIDDEN)
    return Field(f, seen & ~hidden, hidden, rng.standard_normal(shape))


FIELD = problem(
    name="neighbours-field",
    about=f"a field of two scales with land, {NEIGHBOURS} neighbours: learned, and hidden cells predicted",
    make=field,
    sizes=(54 * 18 * 432,),
    quick=(10 * 18 * 30,),
    references=(),
    score=as_it_is,
    repeat=1,
    calls=1,
)


def scores(data: Field, mean: np.ndarray, sd: np.ndarray | None = None) -> dict[str, float]:
    truth = data.f[data.hidden]
    found = {"RMSE": float(np.sqrt(np.mean((mean - truth) ** 2)))}
    if sd is not None:
        found["covered"] = float(np.mean(np.abs(mean - truth) < 1.96 * sd))
    return found


def whole(data: Field, noise: float) -> Run:
    """Learning and predicting the hidden cells; then variances on a part beside exact ones."""
    import structgp as sg

    axes = [np.arange(float(n)) for n in data.f.shape]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    gp = sg.GP(sg.Matern32([4.0, 4.0, 4.0]), sg.Gaussian(0.01), mean=sg.ConstantMean(0.0))

    def call() -> Result:
        clock, cpu = time.perf_counter(), time.process_time()
        y = data.observed(noise)
        fitted = gp.fit(X[data.seen], y[data.seen], approximate=sg.Neighbours(NEIGHBOURS))
        p = fitted.predict(X[data.hidden])
        spent = {"seconds": time.perf_counter() - clock, "CPU seconds": time.process_time() - cpu}
        part = (slice(10), slice(None), slice(PART))
        places, values, new = X[part][data.seen[part]], y[part][data.seen[part]], X[part][data.hidden[part]]
        ways = {"structure": "dense"}, {"approximate": sg.Neighbours(NEIGHBOURS)}
        exact, near = (fitted.gp.condition(places, values, **way).predict(new).variance for way in ways)
        return {
            **scores(data, p.mean, p.sd),
            "log evidence": fitted.log_evidence,
            "evaluations": float(fitted.learning.evaluations),
            "variances off by": float(np.max(np.abs(near / exact - 1))),
            **spent,
        }

    return Run(call)


def average(data: Field, noise: float, count: int = 8) -> Run:
    """The average of the nearest cells that were seen."""
    from scipy.spatial import cKDTree

    def call() -> Result:
        seen, hidden, y = np.argwhere(data.seen), np.argwhere(data.hidden), data.observed(noise)
        near = cKDTree(seen).query(hidden, count)[1]
        return scores(data, y[data.seen][near].mean(axis=1))

    return Run(call)


def by_gpboost(data: Field, noise: float) -> Run:
    if data.f.size > 54 * 18 * 432 // 10:
        raise Unavailable("more than ten minutes at this size")

    def call() -> Result:
        seen, hidden, y = np.argwhere(data.seen) * 1.0, np.argwhere(data.hidden) * 1.0, data.observed(noise)
        model, value = gpboost(seen, y[data.seen])
        p = model.predict(gp_coords_pred=hidden, predict_var=True, predict_response=False)
        return {**scores(data, p["mu"], np.sqrt(p["var"])), "log evidence": value}

    return Run(call)


for level in NOISES:
    FIELD.method(f"structgp, noise {level:g}")(lambda data, level=level: whole(data, level))
    FIELD.method(f"8 nearest, noise {level:g}", requires=("scipy",))(lambda data, level=level: average(data, level))
    FIELD.method(f"GPBoost, noise {level:g}", requires=("gpboost",))(lambda data, level=level: by_gpboost(data, level))
