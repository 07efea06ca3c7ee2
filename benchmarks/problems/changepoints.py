"""Change points: speed of a stream, one-step-ahead predictions of three classic series, and the well log beside ruptures.

Predictions follow Saatçi (2011, §3.6.3): each point after the training part is predicted from all before it, and the squared
error of the mean and the negative log density are averaged. The thesis does not say in which units; here every series is
brought to mean 0 and variance 1 over its whole length. `MSE / stationary` does not depend on units (thesis: Nile 0.85, bee
0.89, Whistler 0.80).

The well log has no known truth. F1 is that of the Turing Change Point Dataset (van den Burg and Williams 2020) with the labels
of its five annotators: precision against all their marks, recall averaged over them, each within ±10 points, the first point
counted as a hit.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.data import load
from benchmarks.registry import Result, Run, problem

# Marks of the annotators on every sixth point: annotations.json of github.com/alan-turing-institute/TCPD.
MARKS = (
    (179, 255, 281, 311, 343, 402, 413, 422, 432, 462, 464),
    (179, 255, 281, 312, 343, 402, 412, 422, 432),
    (179, 255, 282, 312, 343, 402, 413, 422, 432),
    (177, 467),
    (4, 179, 255, 281, 311, 344, 402, 412, 422, 432, 462, 464, 521, 526, 620, 643, 661),
)
EVERY, MARGIN = 6, 10


# a stream


def levels(N: int) -> np.ndarray:
    """Levels that hold for 200 points, and noise."""
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(0, 3, -(-N // 200)), 200)[:N] + rng.normal(size=N)


STREAM = problem(
    name="changepoints-stream",
    about="a stream of N points, Matérn-3/2 segments, 100 hypotheses, blocks of 4096, float64",
    make=levels,
    sizes=(10**5, 10**6),
    quick=(2000,),
    score=lambda y, results: {name: dict(result) for name, result in results.items()},
    repeat=1,
    calls=2,
)


@STREAM.method("structgp")
def structgp_stream(y: np.ndarray) -> Run:
    import structgp as sg

    model = sg.ChangePoints(sg.GP(sg.Matern32(5.0, 5.0), sg.Gaussian(1.0)), 0.01, hypotheses=100)

    def call() -> Result:
        began, stream = time.perf_counter(), model.stream()
        for at in range(0, len(y), 4096):
            stream = stream.update(y[at : at + 4096])
        return {"points a second": len(y) / (time.perf_counter() - began), "evidence": stream.log_evidence}

    return Run(call)


# one step ahead


class Series(NamedTuple):
    """A series of mean 0 and variance 1, how many points are for training, and the step of its records in the same units."""

    y: np.ndarray
    train: int
    resolution: float


def series(name: str, column: str, train: int, resolution: float) -> Callable[[int], Series]:
    """A maker of the beginning of a stored series."""

    def make(N: int) -> Series:
        raw = load(name).columns[column]
        scale = raw.std()
        return Series(((raw - raw.mean()) / scale)[:N], min(train, N // 2), resolution / scale)

    return make


def ahead(model, data: Series) -> Result:
    """How well a model predicts each point after the training part."""
    found, test = model.condition(data.y), slice(data.train, None)
    squared = float(np.mean((found.mean[test] - data.y[test]) ** 2))
    return {"MSE": squared, "MNLP": float(-found.log_density[test].mean()), "changes": len(found.most_probable)}


def beside_stationary(data: Series, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    base = results.get("stationary", {}).get("MSE", float("nan"))
    return {name: {**result, "MSE / stationary": result["MSE"] / base} for name, result in results.items()}


def stationary(data: Series) -> Run:
    """One process for the whole series, its parameters learned from the training part."""
    import structgp as sg

    def call() -> Result:
        gp = sg.GP(sg.Matern32(5.0), sg.Gaussian(0.5)).fit(np.arange(data.train), data.y[: data.train]).gp
        return ahead(sg.ChangePoints(gp, lambda run: 0.0 * run, hypotheses=2), data)

    return Run(call)


def grid_of(kernel, lengthscale: str, lengths: np.ndarray, noises: np.ndarray, hazard: float, data: Series):
    """Segments whose lengthscale and noise lie on a grid, and whose scale is integrated out; no sharper than the records."""
    import structgp as sg

    one = sg.MarkovSegment(sg.GP(kernel, sg.Gaussian(0.1)), sg.UnknownScale(1.0, 1.0), floor=data.resolution**2 / 12)
    segments = sg.AveragedSegment.over(one, {f"gp.kernel.{lengthscale}": lengths, "gp.likelihood.noise": noises})
    return sg.ChangePoints(segments, hazard, hypotheses=50)


def on_a_grid(data: Series) -> Run:
    """The grid of the thesis, 15 × 15, for Matérn-3/2 segments."""
    import structgp as sg

    lengths, noises = np.exp(np.linspace(0, 10, 15)), np.exp(np.linspace(-5, 0, 15))
    return Run(lambda: ahead(grid_of(sg.Matern32(), "lengthscale", lengths, noises, 0.01, data), data))


def on_a_wide_grid(data: Series) -> Run:
    """A smaller grid that reaches to more noise than signal, and shorter segments."""
    import structgp as sg

    lengths, noises = np.exp(np.linspace(0, 6, 7)), np.exp(np.linspace(-4, 2, 7))
    return Run(lambda: ahead(grid_of(sg.Matern32(), "lengthscale", lengths, noises, 0.05, data), data))


def alternating(data: Series) -> Run:
    """Segments in which neighbours alternate: what the training part of the bee's turns asks for."""
    import structgp as sg

    kernel = sg.Matern12(variance=1.0) * sg.Cosine(period=2.0, variance=1.0)
    lengths, noises = np.exp(np.linspace(-1, 2.5, 8)), np.exp(np.linspace(-5, 1, 8))
    return Run(lambda: ahead(grid_of(kernel, "factors[0].lengthscale", lengths, noises, 0.05, data), data))


ONE_STEP = {
    "nile": (series("nile_622_1284", "min_level", 200, 1.0), 663, "yearly low water, 622–1284"),
    "bee": (series("bee_waggle_seq1", "angle_diff", 250, 1e-6), 1057, "turns of a dancing bee"),
    "whistler": (series("whistler_snowfall", "snowfall_cm", 500, 0.1), 13880, "daily snowfall, three quarters of it zero"),
}
for key, (make, length, about) in ONE_STEP.items():
    made = problem(
        name=f"changepoints-{key}",
        about=f"{about}: one step ahead after the training part",
        make=make,
        sizes=(length,),
        quick=(300,),
        references=("stationary",),
        score=beside_stationary,
        repeat=1,
        calls=1,
    )
    made.method("stationary")(stationary)
    made.method("grid")(on_a_grid)
    made.method("wide grid")(on_a_wide_grid)
    if key == "bee":
        made.method("alternating")(alternating)


# the well log


def matched(marks: set[int], found: list[int]) -> int:
    """How many marks have a found point within the margin, each point used once."""
    left, hits = list(found), 0
    for mark in sorted(marks):
        near = [point for point in left if abs(point - mark) <= MARGIN]
        if near:
            left.remove(min(near, key=lambda point: abs(point - mark)))
            hits += 1
    return hits


def agreement(changes: np.ndarray) -> Result:
    """Precision, recall and F1 against the annotators."""
    found = sorted({0, *map(int, changes)})
    each = [{0, *(EVERY * mark for mark in marks)} for marks in MARKS]
    precision = matched(set().union(*each), found) / len(found)
    recall = float(np.mean([matched(marks, found) / len(marks) for marks in each]))
    return {
        "F1": 2 * precision * recall / (precision + recall),
        "precision": precision,
        "recall": recall,
        "changes": len(changes),
    }


def well_log(N: int) -> np.ndarray:
    y = load("well_log").columns["nmr"]
    return ((y - np.median(y)) / y.std())[:N]


WELL_LOG = problem(
    name="changepoints-well-log",
    about="well log: changes of the rock, with drifts and outliers, beside ruptures",
    make=well_log,
    sizes=(4050,),
    quick=(400,),
    score=lambda y, results: {name: dict(result) for name, result in results.items()},
    references=("structgp",),
    repeat=1,
    calls=1,
)


def typical_noise(y: np.ndarray) -> float:
    return float((1.4826 * np.median(np.abs(np.diff(y)))) ** 2 / 2)


def after_twenty(hazard: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda run: hazard * (run >= 20)


def drifting_levels(y: np.ndarray, hazards: tuple[float, ...]) -> Run:
    """Levels that drift, an unknown scale in each segment, no segment below 20 points: the hazard with the best F1."""
    import structgp as sg

    gp = sg.GP(sg.Constant(1.0) + sg.Matern12(30.0, 0.05), sg.Gaussian(typical_noise(y)))

    def call() -> Result:
        segments = sg.MarkovSegment(gp, sg.UnknownScale(5.0, 5.0))
        learned, _ = sg.ChangePoints(segments, 0.004, hypotheses=50).learn(y)
        models = [sg.ChangePoints(learned.segments, after_twenty(h), hypotheses=100) for h in hazards]
        return max((agreement(model.condition(y).most_probable) for model in models), key=lambda r: r["F1"])

    return Run(call)


WELL_LOG.method("structgp")(lambda y: drifting_levels(y, (0.001,)))
WELL_LOG.method("structgp, best hazard")(lambda y: drifting_levels(y, (1e-3, 1e-5, 1e-8, 1e-12, 1e-16)))


@WELL_LOG.method("structgp levels")
def plain_levels(y: np.ndarray) -> Run:
    """Independent values about a level, as Adams and MacKay (2007) have it."""
    import structgp as sg

    noise = typical_noise(y)
    model = sg.ChangePoints(sg.NormalSegment(0.0, noise / 2, 2.0, 2 * noise), 0.004, hypotheses=100)
    return Run(lambda: agreement(model.condition(y).most_probable))


@WELL_LOG.method("ruptures", requires=("ruptures",))
def pelt(y: np.ndarray) -> Run:
    """PELT with the RBF cost (in C), at the penalty with the best F1: what can be had at best when the marks are known."""
    import ruptures

    def call() -> Result:
        search = ruptures.KernelCPD(kernel="rbf", min_size=20).fit(y)
        return max((agreement(np.array(search.predict(pen=p)[:-1])) for p in (3, 10, 30, 100)), key=lambda r: r["F1"])

    return Run(call)
