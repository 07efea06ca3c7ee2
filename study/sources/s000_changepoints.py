"""Saatçi, chapter 3: processes that start afresh."""

import time

import numpy as np
from benchmarks.problems.changepoints import Series, ahead, grid_of, on_a_grid, stationary

from study.baselines import cpu_seconds, problem_results, slope, value
from study.registry import Case, Found, How, above, below, between, experiment, less, smaller

SYSTEM = "change points"
HAZARD = 0.01


def drawn(T: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A series of segments, each a draw of a process with parameters of its own (§3.6.2), and where segments begin."""
    import structgp as sg

    rng, y, begins = np.random.default_rng(seed), np.empty(0), [0]
    while len(y) < T:
        length = int(rng.geometric(HAZARD))
        scale, spread, noise = np.exp([rng.normal(0, 2), rng.normal(0, 2**0.5), rng.normal(-3, 1)])
        t = np.sort(rng.uniform(size=length))
        f = sg.GP(sg.Matern32(scale, spread**2)).sample(t, seed=int(rng.integers(2**31)))[0]
        y = np.concatenate([y, f + noise * rng.standard_normal(length)])
        begins.append(len(y))
    return y[:T], np.array([b for b in begins if 0 < b < T])


def standard(y: np.ndarray, train: int) -> Series:
    return Series((y - y.mean()) / y.std(), train, 1e-6)


def near_to(marks: np.ndarray, found: np.ndarray, within: int) -> float:
    """The part of the marks that have something found so near."""
    return float(np.mean([np.abs(found - mark).min(initial=10**9) <= within for mark in marks]))


@experiment(
    "000.figure-3.1",
    "Independent values whose level and spread change every ten steps",
    "§3.2",
    system=SYSTEM,
    baseline="as many points chosen by the largest steps of the series",
    note="Drawn anew: normal-gamma segments, hazard 0.1, 20 series of 100 points; the 9 most accumulated alerts.",
    cases=Case((above("changes with an alert within two points", "follows the regimes"),), minutes=0.2, repeats=20),
    mean=True,
)
def figure_3_1(case: str, seed: int) -> dict[str, Found]:
    import structgp as sg

    rng, marks = np.random.default_rng(seed), np.arange(10, 100, 10)
    precision = rng.gamma(10.0, 1.0, 10)
    level = rng.standard_normal(10) / np.sqrt(0.01 * precision)
    y = np.repeat(level, 10) + rng.standard_normal(100) / np.sqrt(np.repeat(precision, 10))
    found = sg.ChangePoints(sg.NormalSegment(0.0, 0.01, 10.0, 1.0), 0.1).condition(y)
    steps = np.argsort(-np.abs(np.diff(y)))[:9] + 1
    return {
        "changes with an alert within two points": Found(
            near_to(marks, found.top_alerts(9, apart=3), 2), near_to(marks, steps, 2)
        )
    }


@experiment(
    "000.figure-3.2",
    "Time against the length of a series",
    "§3.6.2",
    system=SYSTEM,
    baseline="one dense process predicted online in the source: slope 2.4",
    note=(
        "Grid 15 × 15, 50 hypotheses, Matérn-3/2 segments; CPU seconds of one pass, compiled, series of 1,000 to 20,000 points."
    ),
    cases=Case((less("log–log slope, grid", 1.2), smaller("seconds for 20,000 points")), minutes=2),
)
def figure_3_2(case: str, how: How) -> dict[str, Found]:
    sizes, seconds = (1000, 5000, 20_000), []
    for T in sizes:
        run = on_a_grid(standard(drawn(T, how.first)[0], T // 5))
        seconds.append(cpu_seconds(run.call))
    return {"log–log slope, grid": Found(slope(sizes, seconds)), "seconds for 20,000 points": Found(seconds[-1])}


@experiment(
    "000.figure-3.3",
    "Run lengths of a series of 500 points beside the true changes",
    "§3.6.2",
    system=SYSTEM,
    baseline="as many points chosen by the largest steps of the series",
    note="Ten series drawn anew; as many alerts as there are changes; uneven gaps in time are taken as even.",
    cases=Case((above("changes with an alert within ten points", "follows the changes"),), minutes=0.5, repeats=10),
)
def figure_3_3(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    ours, others = [], []
    lengths, noises = np.exp(np.linspace(0, 6, 7)), np.exp(np.linspace(-4, 2, 7))
    for seed in how.numbers:
        y, marks = drawn(500, seed)
        if not len(marks):
            continue
        data = standard(y, 100)
        found = grid_of(sg.Matern32(), "lengthscale", lengths, noises, HAZARD, data).condition(data.y)
        ours.append(near_to(marks, found.top_alerts(len(marks), apart=10), 10))
        others.append(near_to(marks, np.argsort(-np.abs(np.diff(y)))[: len(marks)] + 1, 10))
    return {"changes with an alert within ten points": Found(float(np.mean(ours)), float(np.mean(others)))}


def alerts_of(name: str, column: str, train: int, k: int, wide: bool) -> np.ndarray:
    """The k points with the most accumulated probability of a change, by the grid of the source, or a wide one."""
    from benchmarks.problems.changepoints import series

    import structgp as sg

    data = series(name, column, train, 1.0)(10**6)
    lengths, noises = np.exp(np.linspace(0, 10, 15)), np.exp(np.linspace(-5, 0, 15))
    if wide:
        lengths, noises = np.exp(np.linspace(0, 6, 7)), np.exp(np.linspace(-4, 2, 7))
    model = grid_of(sg.Matern32(), "lengthscale", lengths, noises, 0.05 if wide else HAZARD, data)
    return model.condition(data.y).top_alerts(k, apart=10)


@experiment(
    "000.figure-3.4",
    "Alerts for the low water of the Nile, and the nilometer of 715",
    "§3.6.3",
    system=SYSTEM,
    note="The grid and hazard of the source; alerts at least ten years from each other.",
    cases=Case((between("years from 715 to the nearest of ten alerts", "very close to 715", 0, 10),), minutes=0.2),
)
def figure_3_4(case: str, how: How) -> dict[str, Found]:
    years = 622 + alerts_of("nile_622_1284", "min_level", 200, 10, False)
    return {"years from 715 to the nearest of ten alerts": Found(float(np.abs(years - 715).min()))}


@experiment(
    "000.figure-3.5",
    "Alerts for a dancing bee beside the labels of an expert",
    "§3.6.3",
    system=SYSTEM,
    baseline="as many points chosen by the largest turns",
    note="Grid 7 × 7 that reaches to more noise than signal, hazard 0.05; alerts at least ten frames from each other.",
    cases=Case((above("labels with one of 20 alerts within ten frames", "match reasonably"),), minutes=0.2),
)
def figure_3_5(case: str, how: How) -> dict[str, Found]:
    from benchmarks.data import load

    columns = load("bee_waggle_seq1").columns
    marks = np.flatnonzero(columns["changepoint"] > 0)
    turns = np.argsort(-np.abs(columns["angle_diff"]))[:20]
    ours = near_to(marks, alerts_of("bee_waggle_seq1", "angle_diff", 250, 20, True), 10)
    return {"labels with one of 20 alerts within ten frames": Found(ours, near_to(marks, turns, 10))}


REAL = {"nile": 663, "bee": 1057, "whistler": 13880}
TABLE = {  # MNLP and MSE of NSGP-grid, and by how much its MSE is below that of a stationary process
    "synthetic": (-1.415, 0.708, 0.708 / 0.930),
    "nile": (1.185, 0.743, 0.743 / 0.873),
    "bee": (1.231, 0.698, 0.698 / 0.786),
    "whistler": (-1.985, 0.618, 0.618 / 0.776),
}
SECONDS = {"synthetic": 311, "nile": 268, "bee": 838, "whistler": 6243}
ANOTHER_SERIES = (
    "the series as stored, or how it is prepared, is another: one process for all of it has an error of 1.14 (bee) and 0.82 "
    "(whistler) where the source's has 0.79 and 0.78"
)
UNITS = "the source does not say its units: with mean 0 and variance 1 its own stationary process has another error as well"


def _quantities(name: str) -> tuple:
    if name == "synthetic":
        why = "a series drawn anew by the printed recipe, whose draws differ much in how hard they are"
        return _with(name, why, why)
    floor = "zeros have any density; ours has a floor of the records' own step under the noise" if name == "whistler" else UNITS
    return _with(name, floor, ANOTHER_SERIES)


def _with(name: str, of_log_p: str, of_ratio: str) -> tuple:
    log_p, error, ratio = TABLE[name]
    return (
        less("MNLP", log_p, "NSGP-grid", why=of_log_p),
        less("MSE", error, "NSGP-grid", why=UNITS),
        less("MSE / stationary", ratio, "NSGP-grid", why=of_ratio),
        below("MNLP of the better grid", "changes pay"),
        less("seconds", SECONDS[name], "NSGP-grid"),
    )


@experiment(
    "000.table-3.1",
    "One step ahead with and without changes",
    "§3.6.3",
    system=SYSTEM,
    baseline="one process for the whole series, learned from its beginning (column MNLP, MSE)",
    note=(
        "Every series has mean 0 and variance 1. `python -m benchmarks changepoints-nile changepoints-bee "
        "changepoints-whistler`."
    ),
    cases={name: Case(_quantities(name), minutes={"whistler": 1.5}.get(name, 0.4)) for name in TABLE},
)
def table_3_1(case: str, how: How) -> dict[str, Found]:
    began = time.process_time()
    if case == "synthetic":
        data = standard(drawn(1000, how.first)[0], 200)
        grid = dict(on_a_grid(data).call())
        spent = time.process_time() - began
        one = dict(stationary(data).call())
        wide = dict(ahead(_wide(data), data))
    else:
        name, size = f"changepoints-{case}", REAL[case]
        grid = problem_results(name, size, ["grid"])["grid"]
        spent = time.process_time() - began
        others = problem_results(name, size, ["stationary", "wide grid"])
        one, wide = others["stationary"], others["wide grid"]
    found = {"grid": grid}
    return {
        "MNLP": Found(value(found, "grid", "MNLP"), one["MNLP"]),
        "MSE": Found(grid["MSE"], one["MSE"]),
        "MSE / stationary": Found(grid["MSE"] / one["MSE"], 1.0),
        "MNLP of the better grid": Found(min(grid["MNLP"], wide["MNLP"]), one["MNLP"]),
        "seconds": Found(spent),
    }


def _wide(data: Series):
    import structgp as sg

    lengths, noises = np.exp(np.linspace(0, 6, 7)), np.exp(np.linspace(-4, 2, 7))
    return grid_of(sg.Matern32(), "lengthscale", lengths, noises, HAZARD, data)
