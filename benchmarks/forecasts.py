"""Forecasts of series as the command line makes them, with nothing said: how often do 95 % intervals hold what came?

    python -m benchmarks forecast-study --jobs 16                       # nine kinds, seven series each, and the real ones
    python -m benchmarks forecast-study --kinds walk short --series 3   # some of them
    python -m benchmarks forecast-study --ways auto best                # without statsmodels and Prophet
    python -m benchmarks forecast-study --first 100 --kinds season      # others of the kind

Every series is cut: `structgp fit --time t` sees what comes before, and what comes after is scored. For each kind: the part of
the later values inside 95 % intervals, and the mean log probability of one of them, averaged over parameters ("auto") and with
the best ones, beside exponential smoothing and structural models of statsmodels (the lower AIC of several each), and Prophet,
where they are installed. Peers know the period of a season; structgp has to find it. Their densities are normal, also those of
counts.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import load
from benchmarks.registry import Unavailable

WAYS = ("auto", "best", "ets", "ucm", "prophet")
ROWS, AHEAD, SHORT = 120, 12, 24
BUDGET = 600.0  # seconds for one fit, so that no candidate is left out on a busy machine
LOWEST, COVERED = 0.90, (0.93, 0.97)  # of a kind, and of the mean over kinds


class Series(NamedTuple):
    """What was seen, and what came after it."""

    t: np.ndarray
    y: np.ndarray
    later_t: np.ndarray
    later_y: np.ndarray
    period: int = 0  # of a season that peers are told of


class Score(NamedTuple):
    """How one forecast did."""

    covered: float
    log_prob: float
    seconds: float
    note: str = ""


def cut(y: np.ndarray, rows: int, period: int = 0, kept: np.ndarray | None = None) -> Series:
    """The first rows of a series, some of which may be missing, and the rest."""
    t = np.arange(float(len(y)))
    seen = t < rows if kept is None else (t < rows) & kept
    return Series(t[seen], y[seen], t[rows:], y[rows:], period)


def trend(rng: np.random.Generator) -> Series:
    x = np.arange(ROWS + AHEAD) / ROWS
    course = rng.normal(0, 5) * x + rng.choice([0.0, 4.0]) * x**2 + rng.normal(0, 1) * np.sin(rng.uniform(2, 6) * x)
    return cut(20 + course + rng.choice([0.2, 0.6]) * rng.standard_normal(len(x)), ROWS)


def season(rng: np.random.Generator) -> Series:
    t = np.arange(ROWS + AHEAD)
    wave = sum(rng.normal(0, 1 / k) * np.sin(2 * np.pi * k * t / 12 + rng.uniform(0, 6)) for k in (1, 2, 3))
    level = np.cumsum(rng.choice([0.0, 0.05]) * rng.standard_normal(len(t)))
    return cut(10 + 0.02 * rng.normal() * t + 2 * wave + level + 0.5 * rng.standard_normal(len(t)), ROWS, 12)


def walk(rng: np.random.Generator) -> Series:
    steps = rng.standard_normal(ROWS + AHEAD) + rng.choice([0.0, 0.1])
    return cut(50 + np.cumsum(steps) + rng.choice([0.0, 0.5]) * rng.standard_normal(ROWS + AHEAD), ROWS)


def shifts(rng: np.random.Generator) -> Series:
    t = np.arange(ROWS + AHEAD)
    times = rng.integers(5, ROWS + AHEAD - 5, rng.integers(2, 5))
    level = sum(rng.normal(0, 3) * (t >= at) for at in times)
    return cut(10 + level + 0.7 * rng.standard_normal(len(t)), ROWS)


def tails(rng: np.random.Generator) -> Series:
    t = np.arange(ROWS + AHEAD)
    course = 2 * np.sin(2 * np.pi * t / rng.uniform(60, 200) + rng.uniform(0, 6))
    return cut(course + 0.5 * rng.standard_t(2.5, len(t)), ROWS)


def multiplicative(rng: np.random.Generator) -> Series:
    t = np.arange(ROWS + AHEAD)
    level = 20 * np.exp(rng.normal(0.6, 0.5) * t / ROWS + 0.3 * np.sin(2 * np.pi * t / rng.uniform(50, 150)))
    return cut(level * np.exp(rng.choice([0.1, 0.2]) * rng.standard_normal(len(t))), ROWS)


def short(rng: np.random.Generator) -> Series:
    t = np.arange(SHORT + 6)
    course = rng.choice([0.0, 0.2]) * t + np.cumsum(rng.choice([0.0, 0.6]) * rng.standard_normal(len(t)))
    return cut(5 + course + 0.5 * rng.standard_normal(len(t)), SHORT)


def gaps(rng: np.random.Generator) -> Series:
    t = np.arange(ROWS + AHEAD)
    noise, level = rng.standard_normal((2, len(t)))
    for i in range(1, len(t)):
        level[i] += 0.9 * level[i - 1]
    kept = rng.uniform(size=len(t)) > 0.3
    hole = rng.integers(20, 80)
    kept[hole : hole + 15] = False
    wave = rng.choice([0.0, 3.0]) * np.sin(2 * np.pi * t / 12)
    return cut(level + wave + 0.5 * noise, ROWS, 12 if np.ptp(wave) else 0, kept)


def counts(rng: np.random.Generator) -> Series:
    t = np.arange(ROWS + AHEAD)
    wave = rng.choice([0.0, 0.5]) * np.sin(2 * np.pi * t / 12)
    mean = np.exp(rng.uniform(0.5, 3) + rng.normal(0, 0.5) * t / ROWS + wave)
    mean *= rng.gamma(1 / 0.15, 0.15, len(t)) if rng.uniform() < 0.5 else 1.0
    return cut(rng.poisson(mean).astype(float), ROWS, 12 if np.ptp(wave) else 0)


KINDS: dict[str, Callable[[np.random.Generator], Series]] = {
    "trend": trend,
    "season": season,
    "walk": walk,
    "shifts": shifts,
    "tails": tails,
    "multiplicative": multiplicative,
    "short": short,
    "gaps": gaps,
    "counts": counts,
}
REAL = ("co2", "nile", "sunspots", "coal", "snowfall", "well-log", "portfolios")


def real(name: str, number: int) -> Series:
    """A stretch of a real series that ends at the number-th of several times, spread over it."""
    column = lambda table: np.asarray(list(load(table).columns.values())[-1], dtype=float)
    period = 0
    if name == "co2":
        y, period = np.asarray(load("mauna_loa_co2", "monthly_1958_2004").columns["co2_ppm"], dtype=float), 12
    elif name == "coal":
        years = np.floor(np.asarray(load("coal_disasters").columns["date"], dtype=float))
        y = np.array([float(np.sum(years == year)) for year in range(int(years.min()), int(years.max()) + 1)])
    elif name == "snowfall":  # months
        table = load("whistler_snowfall").columns
        months = (table["year"] * 12 + table["month"]).astype(int)
        y, period = np.array([np.nansum(table["snowfall_cm"][months == month]) for month in np.unique(months)]), 12
    elif name == "portfolios":  # the logarithm of what a portfolio is worth
        y = np.cumsum(np.log1p(np.asarray(load("portfolios30_daily").columns["Food"], dtype=float) / 100))
    else:
        y = column({"nile": "nile_622_1284", "sunspots": "sunspots_monthly", "well-log": "well_log"}[name])
    y = y[~np.isnan(y)]
    rows = min(ROWS, len(y) - 2 * AHEAD)
    ends = np.linspace(rows, len(y) - AHEAD, 7).astype(int)
    end = ends[(3 * number + 6) % 7]
    return cut(y[end - rows : end + AHEAD], rows, period)


def made(kind: str, number: int) -> Series:
    """The number-th series of a kind."""
    if kind in REAL:
        return real(kind, number)
    return KINDS[kind](np.random.default_rng([sorted(KINDS).index(kind), number]))


def by_structgp(series: Series, parameters: str) -> tuple[Any, str]:
    """What `structgp fit` says of the later values."""
    import polars as pl

    from structgp.tables.automatic import fit_table

    model = fit_table(pl.DataFrame({"t": series.t, "y": series.y}), "y", time_column="t", budget=BUDGET, parameters=parameters)
    chosen = next(trial.name for trial in model.trials if trial.chosen)
    return model.fitted.predict(series.later_t[:, None]), chosen


def by_ets(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of the exponential smoothing with the lowest AIC among those with additive errors."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    y, ahead = regular(series), len(series.later_t)
    y = np.interp(np.arange(len(y)), np.flatnonzero(~np.isnan(y)), y[~np.isnan(y)])  # it takes no gaps
    found = []
    for trend_, damped in ((None, False), ("add", False), ("add", True)):
        for wave in {None, "add" if series.period else None}:
            options = {"trend": trend_, "damped_trend": damped, "seasonal": wave}
            found.append(ETSModel(y, **options, seasonal_periods=series.period or None).fit(disp=False))
    best = min(found, key=lambda fit: fit.aic)
    simulated = best.simulate(ahead, anchor="end", repetitions=2000, rng=np.random.default_rng(0))
    return np.asarray(simulated).mean(axis=1), np.asarray(simulated).std(axis=1)


def by_ucm(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of the structural model with the lowest AIC."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    y = regular(series)
    found = []
    for level in ("llevel", "lltrend", "rwdrift", "rwalk"):
        found.append(UnobservedComponents(y, level, seasonal=series.period or None).fit(disp=False, maxiter=200))
    forecast = min(found, key=lambda fit: fit.aic).get_forecast(len(series.later_t))
    return np.asarray(forecast.predicted_mean), np.asarray(forecast.se_mean)


def by_prophet(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd as Prophet draws them, for daily values; a season of 12 days where there is one."""
    import pandas as pd
    from prophet import Prophet

    day = lambda t: pd.Timestamp("2000-01-01") + pd.to_timedelta(t, unit="D")
    model = Prophet(yearly_seasonality=False, weekly_seasonality=False, daily_seasonality=False)
    if series.period:
        model.add_seasonality("season", period=series.period, fourier_order=3)
    model.fit(pd.DataFrame({"ds": day(series.t), "y": series.y}))
    draws = model.predictive_samples(pd.DataFrame({"ds": day(series.later_t)}))["yhat"]
    return draws.mean(axis=1), draws.std(axis=1)


def regular(series: Series) -> np.ndarray:
    """The values at all steps, NaN in gaps."""
    y = np.full(int(series.t[-1]) + 1, np.nan)
    y[series.t.astype(int)] = series.y
    return y


PEERS = {"ets": by_ets, "ucm": by_ucm, "prophet": by_prophet}


def scored(kind: str, number: int, way: str) -> Score:
    """One forecast of one series."""
    began = time.process_time()
    series = made(kind, number)
    later = series.later_y
    if way in PEERS:
        mean, sd = PEERS[way](series)
        z = (later - mean) / sd
        covered, logs, note = np.abs(z) <= 1.959964, -0.5 * (z * z + np.log(2 * np.pi)) - np.log(sd), ""
    else:
        found, note = by_structgp(series, way)
        low, high = found.interval()
        covered, logs = (low <= later) & (later <= high), found.log_prob(later)
    return Score(float(np.mean(covered)), float(np.mean(logs)), time.process_time() - began, note)


def attempt(task: tuple[str, int, Sequence[str]]) -> tuple[str, int, dict[str, Score | str]]:
    """All ways for one series; what cannot be had says why."""
    kind, number, ways = task
    found: dict[str, Score | str] = {}
    for way in ways:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[way] = scored(kind, number, way)
            except ImportError as met:
                found[way] = f"not installed: {met.name}"
            except Unavailable as met:
                found[way] = str(met)
            except Exception:
                found[way] = traceback.format_exc().splitlines()[-1]
    return kind, number, found


def begin(cache: str) -> None:
    """A worker: one thread, and programs that the others have compiled."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def table(found: list[tuple[str, int, dict[str, Score | str]]], ways: Sequence[str]) -> str:
    """A line for each kind, the means, and which bars are missed."""
    kinds = list(dict.fromkeys(kind for kind, _, _ in found))
    lines = [f"{'kind':<15} {'series':>6}  " + "  ".join(f"{way + ' 95 %':>12} {'log prob':>9}" for way in ways)]
    missed, means = [], {way: [] for way in ways}
    for kind in kinds:
        rows = [one for name, _, one in found if name == kind]
        cells = []
        for way in ways:
            good = [row[way] for row in rows if isinstance(row[way], Score)]
            mean = np.mean([[one.covered, one.log_prob] for one in good], axis=0) if good else np.full(2, np.nan)
            cells.append(f"{mean[0]:>12.3f} {mean[1]:>9.3f}")
            means[way].append(mean)
        lines.append(f"{kind:<15} {len(rows):>6}  " + "  ".join(cells))
    overall = {}
    for way, rows in means.items():
        known = [row for row in rows if np.isfinite(row).all()]
        overall[way] = np.mean(known, axis=0) if known else np.full(2, np.nan)
    lines.append(f"{'mean':<15} {len(found):>6}  " + "  ".join(f"{v[0]:>12.3f} {v[1]:>9.3f}" for v in overall.values()))
    if "auto" in ways:
        if not COVERED[0] <= overall["auto"][0] <= COVERED[1]:
            missed.append(f"mean coverage {overall['auto'][0]:.3f} is not within {COVERED}")
        missed += [f"{kind}: coverage {m[0]:.3f}" for kind, m in zip(kinds, means["auto"], strict=True) if m[0] < LOWEST]
    if "auto" in ways and "best" in ways:
        missed += [f"{kind}: log prob {beside} beside best" for kind in kinds if (beside := _beside_best(found, kind))]
    return "\n".join([*lines, "", *(missed or ["all bars are kept"])])


def _beside_best(found: list[tuple[str, int, dict[str, Score | str]]], kind: str) -> str:
    """By how much an average is less probable than the best parameters, series by series, and the standard error of that."""
    rows = [(one["auto"], one["best"]) for name, _, one in found if name == kind]
    more = np.array(
        [auto.log_prob - best.log_prob for auto, best in rows if isinstance(auto, Score) and isinstance(best, Score)]
    )
    if not len(more) or more.mean() >= 0:
        return ""
    return f"{more.mean():+.4f}" + (f" ± {more.std(ddof=1) / np.sqrt(len(more)):.4f}" if len(more) > 1 else "")


def main(words: Sequence[str]) -> int:
    """Run the study."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks forecast-study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, *REAL], choices=[*KINDS, *REAL], metavar="KIND")
    parser.add_argument("--series", type=int, default=7, metavar="N", help="of each kind")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first series of each kind")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every score")
    chosen = parser.parse_args(words)
    numbers = range(chosen.first, chosen.first + chosen.series)
    tasks = [(kind, number, tuple(chosen.ways)) for number in numbers for kind in chosen.kinds]
    found = []
    with tempfile.TemporaryDirectory() as cache:
        context = multiprocessing.get_context("spawn")
        with context.Pool(chosen.jobs, begin, (cache,)) as pool:
            for kind, number, scores in pool.imap_unordered(attempt, tasks):
                found.append((kind, number, scores))
                said = (
                    f"{way} {one.covered:.2f} {one.log_prob:.3f}" + (f" ({one.note}, {one.seconds:.0f} s)" if one.note else "")
                    if isinstance(one, Score)
                    else f"{way}: {one}"
                    for way, one in scores.items()
                )
                print(f"{kind} {number}: {'; '.join(said)}", flush=True)
    print()
    print(table(sorted(found, key=lambda one: (chosen.kinds.index(one[0]), one[1])), chosen.ways))
    if chosen.json:
        plain = [
            {"kind": kind, "number": number}
            | {way: one._asdict() if isinstance(one, Score) else one for way, one in row.items()}
            for kind, number, row in found
        ]
        chosen.json.write_text(json.dumps(plain, indent=1))
    return 0
