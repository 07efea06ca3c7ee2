"""What a user would call, at sizes where a wrong algorithm is a cliff: from data to predictions, timed as one call."""

from collections.abc import Mapping
from typing import NamedTuple

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


def off_truth(data: Series, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
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


def forecast(data: Series, structure: str, seconds: float | None = None) -> Run:
    import time

    import structgp as sg

    SE = sg.SquaredExponential
    kernel = sg.Periodic(period=1.0) * SE(20.0) + sg.Periodic(period=7.0) * SE(60.0) + SE(3.0)
    gp = sg.GP(kernel, likelihood=sg.Gaussian(noise=0.01))

    def call() -> Result:
        start = time.perf_counter()
        fitted = gp.fit(data.t, data.y, structure=structure, seconds=seconds)
        learned = time.perf_counter()
        mean = fitted.predict(data.later).mean
        return {
            "fit s": learned - start,
            "predict s": time.perf_counter() - learned,
            "evidence": fitted.log_evidence,
            "mean": mean.tolist(),
        }

    return Run(call)


@SERIES.method("structgp")
def by_transforms(data: Series) -> Run:
    return forecast(data, "auto")


@SERIES.method("structgp-dense")
def by_matrix(data: Series) -> Run:
    return forecast(data, "dense", seconds=120)
