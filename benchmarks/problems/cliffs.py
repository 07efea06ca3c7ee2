"""What a user would call, at sizes where a wrong algorithm is a cliff: from data to predictions, timed as one call."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, problem


class Series(NamedTuple):
    """Half-hours with a daily and a weekly period, and the fortnight that follows."""

    t: np.ndarray
    y: np.ndarray
    later: np.ndarray
    truth: np.ndarray


def half_hours(N: int) -> Series:
    """N half-hours of two periods and a slow wave, noise variance 0.0025, and 672 later ones."""
    t = np.arange(N + 672) / 48.0
    day = np.sin(2 * np.pi * t) + 0.5 * np.cos(4 * np.pi * t) * (1 + 0.3 * np.sin(t / 9))
    f = day + 0.7 * np.sin(2 * np.pi * t / 7) + 0.4 * np.sin(t / 5)
    return Series(t[:N], f[:N] + 0.05 * np.random.default_rng(0).normal(size=N), t[N:], f[N:])


def off_truth(data: Any, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    rmse = lambda result: float(np.sqrt(np.mean((np.array(result["mean"]) - data.truth) ** 2)))
    seconds = lambda result: {name: value for name, value in result.items() if name != "mean"}
    return {name: {**seconds(result), "rmse": rmse(result)} for name, result in results.items()}


SERIES = problem(
    name="series-forecast",
    about="regular half-hours, daily and weekly period, squared exponential: learning, and prediction of a fortnight",
    make=half_hours,
    sizes=(3360,),
    quick=(480,),
    score=off_truth,
    repeat=1,
    calls=1,
)


def ten_missing(N: int) -> Series:
    """The same half-hours, ten of them without a value."""
    data = half_hours(N)
    gone = np.random.default_rng(1).choice(N, 10, replace=False)
    return data._replace(y=np.where(np.isin(np.arange(N), gone), np.nan, data.y))


GAPS = problem(
    name="series-gaps",
    about="the same with ten values missing, which are to be inferred",
    make=ten_missing,
    sizes=(3360, 17_520),
    quick=(480,),
    score=off_truth,
    repeat=1,
    calls=1,
)


def forecast(data: Series, structure: str, seconds: float | None = None) -> Run:
    import time

    import structgp as sg

    SE = sg.SquaredExponential
    kernel = sg.Periodic(period=1.0) * SE(20.0) + sg.Periodic(period=7.0) * SE(60.0) + SE(3.0)
    gp = sg.GP(kernel, likelihood=sg.Gaussian(noise=0.01))

    def call() -> Result:
        start, begun = time.perf_counter(), time.process_time()
        fitted = gp.fit(data.t, data.y, missing="infer", structure=structure, seconds=seconds)
        learned, used = time.perf_counter(), time.process_time()
        mean = fitted.predict(data.later).mean
        return {
            "fit s": learned - start,
            "fit cpu s": used - begun,
            "evaluations": fitted.learning.evaluations,
            "predict s": time.perf_counter() - learned,
            "evidence": fitted.log_evidence,
            "mean": mean.tolist(),
        }

    return Run(call)


@GAPS.method("structgp")
@SERIES.method("structgp")
def by_transforms(data: Series) -> Run:
    return forecast(data, "auto")


@GAPS.method("structgp-dense")
@SERIES.method("structgp-dense")
def by_matrix(data: Series) -> Run:
    return forecast(data, "dense", seconds=120)


class Table(NamedTuple):
    """Rows that are the cells of a square grid, shuffled, and what was seen there."""

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray


def shuffled_grid(N: int) -> Table:
    """A wave on a square grid of N cells, noise variance 0.01."""
    side, rng = round(N**0.5), np.random.default_rng(0)
    a, b = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 2, side), indexing="ij")
    X = rng.permutation(np.stack([a.ravel(), b.ravel()], axis=1))
    f = np.sin(7 * X[:, 0]) * np.cos(4 * X[:, 1])
    return Table(X, f + 0.1 * rng.normal(size=len(X)), f)


TABLE = problem(
    name="grid-as-table",
    about="N rows that are a complete grid, as a plain array in any order: learning, and prediction of all of them",
    make=shuffled_grid,
    sizes=(90_000,),
    quick=(900,),
    score=off_truth,
    repeat=1,
    calls=1,
)


def some_missing(N: int) -> Table:
    """The same table without thirty of its rows."""
    data = shuffled_grid(N)
    return Table(data.X[:-30], data.y[:-30], data.truth[:-30])


SOME_ROWS = problem(
    name="grid-some-missing",
    about="the same without thirty of the rows",
    make=some_missing,
    sizes=(2500, 10_000, 90_000),
    quick=(900,),
    score=off_truth,
    repeat=1,
    calls=1,
)


@SOME_ROWS.method("structgp")
@TABLE.method("structgp")
def as_rows(data: Table) -> Run:
    return learned_there(data, data.X)


@TABLE.method("structgp-grid")
def as_grid(data: Table) -> Run:
    import structgp as sg

    return learned_there(data, sg.Grid.from_points(data.X))


def learned_there(data: Table, X: Any) -> Run:
    import time

    import structgp as sg

    gp = sg.GP(sg.SquaredExponential([0.3, 0.3]))

    def call() -> Result:
        start, begun = time.perf_counter(), time.process_time()
        fitted = gp.fit(X, data.y)
        learned, used = time.perf_counter(), time.process_time()
        mean = fitted.predict(X).mean
        return {
            "fit s": learned - start,
            "fit cpu s": used - begun,
            "predict s": time.perf_counter() - learned,
            "evidence": fitted.log_evidence,
            "mean": mean.tolist(),
        }

    return Run(call)


class Labels(NamedTuple):
    """Rows with labels of two kinds, and more of them to be told."""

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    told: np.ndarray


def five_columns(N: int) -> Labels:
    """Labels of a function of four of five columns, by a logistic."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + 2000, 5))
    f = 2 * np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
    y = (f + rng.logistic(size=len(X)) > 0).astype(int)
    return Labels(X[:N], y[:N], X[N:], y[N:])


LABELS = problem(
    name="labels-dense",
    about="N labels of five columns, GPClassifier(structure='dense'): EP, learning and all; 2,000 probabilities",
    make=five_columns,
    sizes=(1000, 2000, 4000),
    quick=(200,),
    score=lambda data, results: results,
    repeat=1,
    calls=1,
)


@LABELS.method("structgp")
def by_ep(data: Labels) -> Run:
    import structgp as sg

    def call() -> Result:
        model = sg.GPClassifier(structure="dense").fit(data.X, data.y)
        p = np.clip(model.predict_proba(data.new)[:, 1], 1e-12, 1 - 1e-12)
        loss = -np.mean(np.where(data.told == 1, np.log(p), np.log1p(-p)))
        learning = model.fitted_.learning
        return {"evaluations": learning.evaluations, "evidence": model.log_evidence_, "log loss": float(loss)}

    return Run(call)


def eight_columns(N: int) -> Table:
    """Four functions of projections of eight columns, noise variance 0.09."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(N, 8)), rng.normal(size=(4, 8))
    f = np.sum(np.sin(2 * X @ (W / np.linalg.norm(W, axis=1, keepdims=True)).T), axis=1) / 2
    return Table(X, f + 0.3 * rng.normal(size=N), f)


PURSUIT = problem(
    name="pursuit-in-time",
    about="projection pursuit of N rows and eight columns: how long a fit takes that was given 60 or 300 seconds",
    make=eight_columns,
    sizes=(224_000,),
    quick=(2000,),
    score=off_truth,
    repeat=1,
    calls=1,
)


@PURSUIT.method("structgp-60s")
def in_a_minute(data: Table) -> Run:
    return pursued(data, 60.0)


@PURSUIT.method("structgp-300s")
def in_five_minutes(data: Table) -> Run:
    return pursued(data, 300.0)


def pursued(data: Table, seconds: float) -> Run:
    import time

    import structgp as sg

    def call() -> Result:
        start = time.perf_counter()
        model = sg.ProjectionPursuitGPRegressor(seconds=seconds, random_state=0).fit(data.X, data.y)
        fitted = time.perf_counter() - start
        return {"fit s": fitted, "projections": model.n_projections_, "mean": model.predict(data.X).tolist()}

    return Run(call)
