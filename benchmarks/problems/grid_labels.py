"""Labels on a grid: skin or not, from a colour, 245,057 labels in the cells of a three-dimensional grid, 80 % to learn from.

The labels of a cell are one binomial observation. Beside ours: the frequencies of the cells, logistic regression, and the
nearest neighbour. Scores are those of single held-out labels: the share of errors, and the mean negative log likelihood.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.data import load
from benchmarks.registry import Result, Run, problem

LEVELS = 256


class Labels(NamedTuple):
    """Colours as whole numbers, labels 0 or 1, of the part to learn from and of the rest; bins for each colour."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    bins: int


def make(N: int) -> Labels:
    """All labels; N is the number of cells of the grid."""
    table = load("skin_segmentation_counts").columns
    colours = np.column_stack([table[name] for name in ("B", "G", "R")])
    X = np.repeat(np.tile(colours, (2, 1)), np.concatenate([table["n_pos"], table["n_neg"]]).astype(int), axis=0)
    y = np.repeat([1.0, 0.0], [int(table["n_pos"].sum()), int(table["n_neg"].sum())])
    order = np.random.default_rng(0).permutation(len(y))
    learn, rest = np.split(order, [int(0.8 * len(y))])
    return Labels(X[learn], y[learn], X[rest], y[rest], round(N ** (1 / 3)))


def score(data: Labels, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    return {name: dict(result) for name, result in results.items()}


def scores(data: Labels, probability: np.ndarray) -> Result:
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    wrong = np.mean((p > 0.5) != (data.y_test > 0.5))
    return {"errors": float(wrong), "MNLL": float(-np.mean(np.log(np.where(data.y_test > 0.5, p, 1 - p))))}


SKIN = problem(
    name="grid-skin",
    about="245,057 labels on a three-dimensional grid of colours, 80/20: conditioned or fitted, and predicted",
    make=make,
    sizes=(32**3,),
    quick=(8**3,),
    score=score,
    repeat=1,
    calls=1,
    seconds=1.0,
)


@SKIN.method("structgp")
def ours(data: Labels) -> Run:
    import structgp as sg

    edges = [np.linspace(0.0, LEVELS, data.bins + 1)] * 3

    def call() -> Result:
        binned = sg.bin_to_grid(data.X, data.y, edges)
        kernel = sg.SquaredExponential([30.0, 30.0, 30.0], variance=40.0)  # in grey levels; a flat prior of the probability
        gp = sg.GP(kernel, sg.Binomial())
        fitted = gp.condition(binned.grid, np.round(binned.sum), extra=binned.count, inference="laplace", structure="kronecker")
        everywhere = fitted.predict(sg.Grid(*binned.grid.axes)).probability
        cell = np.minimum((data.X_test * data.bins / LEVELS).astype(int), data.bins - 1)
        return scores(data, everywhere[np.ravel_multi_index(cell.T, (data.bins,) * 3)])

    return Run(call)


@SKIN.method("histogram")
def histogram(data: Labels) -> Run:
    def call() -> Result:
        flat = lambda X: np.ravel_multi_index((X * data.bins / LEVELS).astype(int).T, (data.bins,) * 3)
        seen = np.bincount(flat(data.X), minlength=data.bins**3)
        skin = np.bincount(flat(data.X), data.y, minlength=data.bins**3)
        return scores(data, ((skin + 1) / (seen + 2))[flat(data.X_test)])

    return Run(call)


@SKIN.method("logistic regression", requires=("sklearn",))
def logistic(data: Labels) -> Run:
    from sklearn.linear_model import LogisticRegression

    def call() -> Result:
        model = LogisticRegression(max_iter=500).fit(data.X / LEVELS, data.y)
        return scores(data, model.predict_proba(data.X_test / LEVELS)[:, 1])

    return Run(call)


@SKIN.method("nearest neighbour", requires=("sklearn",))
def neighbour(data: Labels) -> Run:
    from sklearn.neighbors import KNeighborsClassifier

    def call() -> Result:
        model = KNeighborsClassifier(1, algorithm="kd_tree").fit(data.X, data.y)
        return scores(data, model.predict(data.X_test)) | {"MNLL": float("nan")}

    return Run(call)
