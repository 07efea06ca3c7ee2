"""Large grids with holes: learning, the mean in all cells, its bands, and what they cover.

A draw of a product of Matérn-5/2 kernels on a cube, seen with noise of variance 0.01, of which a quarter is missing: cells at
random, or a land mask, smooth and the same along the third axis. 5,000 cells more are hidden, to see whether bands cover them.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, problem

NOISE = 0.01
LENGTHSCALES = (0.3, 0.2, 0.4)
MISSING = 0.25
HIDDEN = 5000
TIGHT = 1e-12  # of the means that others are compared with


class Cube(NamedTuple):
    """One axis of three, values in all cells with NaN where nothing was seen, and cells that were hidden with their values."""

    axis: np.ndarray
    y: np.ndarray
    hidden: np.ndarray
    values: np.ndarray


def draw(roots: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """White noise times a Kronecker product."""
    x = rng.standard_normal([len(root) for root in roots])
    for d, root in enumerate(roots):
        x = np.moveaxis(np.tensordot(root, x, (1, d)), 0, d)
    return x


def root_of(K: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def matern52(axis: np.ndarray, lengthscale: float) -> np.ndarray:
    r = np.sqrt(5) * np.abs(axis[:, None] - axis) / lengthscale
    return (1 + r + r**2 / 3) * np.exp(-r)


def at_random(axis: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(size=(len(axis),) * 3) < MISSING


def land(axis: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    smooth = root_of(np.exp(-0.5 * ((axis[:, None] - axis) / 0.15) ** 2))
    height = draw([smooth, smooth], rng)
    return np.broadcast_to((height < np.quantile(height, MISSING))[..., None], (len(axis),) * 3)


def cube(missing: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Callable[[int], Cube]:
    """A maker of cubes of N cells."""

    def make(N: int) -> Cube:
        rng = np.random.default_rng(5)
        axis = np.linspace(0.0, 1.0, round(N ** (1 / 3)))
        y = draw([root_of(matern52(axis, lengthscale)) for lengthscale in LENGTHSCALES], rng)
        y += np.sqrt(NOISE) * rng.standard_normal(y.shape)
        y = np.ravel(np.where(missing(axis, rng), np.nan, y))
        hidden = rng.choice(np.flatnonzero(~np.isnan(y)), min(HIDDEN, y.size // 10), replace=False)
        values = y[hidden]
        y[hidden] = np.nan
        return Cube(axis, y, hidden, values)

    return make


def as_it_is(data: Cube, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    return {name: dict(result) for name, result in results.items()}


def learned(data: Cube) -> Run:
    """Three lengthscales, variance and noise from a start some way off, then bands in all cells."""
    import structgp as sg

    grid = sg.Grid(data.axis, data.axis, data.axis)
    gp = sg.GP(sg.ProductMatern([0.12, 0.12, 0.12], variance=0.5, nu=2.5), sg.Gaussian(0.1))

    def call() -> Result:
        fitted = gp.fit(grid, data.y, missing="infer")
        began = time.perf_counter()
        p = fitted.predict(grid)
        seconds = time.perf_counter() - began
        low, high = p.interval(0.95)
        inside = (low[data.hidden] < data.values) & (data.values < high[data.hidden])
        return {
            "n": int(np.sum(~np.isnan(data.y))),
            "evaluations": fitted.learning.evaluations,
            "learning s": fitted.learning.seconds,
            "log evidence": fitted.log_evidence,
            "its error": fitted.evidence_error,
            "lengthscales": " ".join(f"{value:.3f}" for value in np.ravel(fitted.kernel.lengthscale)),
            "variance": float(fitted.kernel.variance),
            "noise": float(fitted.likelihood.noise),
            "all cells s": seconds,
            "their error": float(getattr(fitted.conditional, "variance_error", 0.0)),
            "covered": float(np.mean(inside)),
        }

    return Run(call)


def conditioned(data: Cube) -> Run:
    """The mean in all cells, as the engine finds it with the parameters that the data were drawn with, and its steps."""
    import jax

    import structgp as sg
    from structgp.engines.grid_holes import FINAL, LEARNING
    from structgp.linalg.grids import two_levels, whitened
    from structgp.structure.kronecker import kronecker

    grid = sg.Grid(data.axis, data.axis, data.axis)
    form = kronecker(sg.ProductMatern(LENGTHSCALES, nu=2.5), grid)
    seen = ~np.isnan(data.y)

    def mean(w, h, effort):
        system = whitened.build(form.matrices(), w, effort)
        found = two_levels.means(system, h[None], effort)
        return found.mean[0], found.steps[0]

    means = jax.jit(mean, static_argnums=2)
    w = (seen / NOISE).reshape(grid.shape)
    h = np.where(seen, data.y / NOISE, 0.0).reshape(grid.shape)
    effort = LEARNING._replace(**FINAL)

    def call() -> Result:
        with jax.enable_x64(True):
            found, steps = jax.block_until_ready(means(w, h, effort))
        return {"steps": int(steps), "mean": np.asarray(found)}

    with jax.enable_x64(True):
        best = np.asarray(means(w, h, effort._replace(tolerance=TIGHT))[0])

    def scored() -> Result:
        result = call()
        error = np.max(np.abs(result["mean"] - best)) / np.max(np.abs(best))
        return {"steps": result["steps"], "mean is right to": float(error)}

    return Run(scored)


def declare(name: str, about: str, missing: Callable) -> None:
    """Learning and conditioning for one kind of holes."""
    fields = {"make": cube(missing), "sizes": (40**3, 81**3), "quick": (8**3,), "score": as_it_is, "repeat": 1, "calls": 1}
    to_learn = problem(name=f"grid-learn-{name}", about=f"cube, {about}: learning, then bands in all cells", **fields)
    to_learn.method("structgp")(learned)
    to_know = problem(name=f"grid-mean-{name}", about=f"cube, {about}: the mean in all cells, and its steps", **fields)
    to_know.method("structgp")(conditioned)


declare("holes", "a quarter of the cells missing at random", at_random)
declare("land", "a quarter of the cells under a smooth land mask", land)
