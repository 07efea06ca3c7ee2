"""How good a model is on rows that it has not seen, beside plain baselines, with intervals that say how sure the scores are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import nbinom, norm, poisson

from ...models.additive.model import FittedAdditive
from ...models.judge import NEVER, class_probabilities, log_of_class
from ...process.fitted import Fitted
from ...process.mixture import FittedMixture
from ..model import LEVELS, Evaluation
from .problem import Problem, naive_forecast

KEPT = 1000  # rows of an evaluation that are remembered
DRAWS = 400  # of rows, for the intervals of scores
TENTHS = 10
FEW_HELD = 60  # rows held out, below which they say little about intervals


class Losses(NamedTuple):
    """What a method did on each row: its error (squared, or 1 for a wrong label), its log loss, whether its interval held."""

    error: np.ndarray
    log_loss: np.ndarray
    inside: np.ndarray | None = None

    def scores(self, rows: Any = slice(None)) -> dict[str, Any]:
        """The means over rows, or over several draws of rows."""
        mean = lambda values: np.mean(values[rows], axis=-1)
        if self.inside is None:
            return {"error rate": mean(self.error), "log loss": mean(self.log_loss)}
        return {
            "RMSE": np.sqrt(mean(self.error)),
            "log loss": mean(self.log_loss),
            "in 95 % interval": mean(self.inside),
        }


def evaluate(problem: Problem, fitted: Any, held: np.ndarray, kind: str) -> Evaluation:
    """Scores of the model and of plain baselines on the rows held out."""
    if not held.any():
        return Evaluation("")
    order = np.flatnonzero(held)
    if problem.X.shape[1] == 1:
        order = order[np.argsort(problem.X[order, 0], kind="stable")]
    X, y, X0, y0 = problem.X[order], problem.y[order], problem.X[~held], problem.y[~held]
    kept: Any = slice(None) if len(y) <= KEPT else np.linspace(0, len(y) - 1, KEPT).astype(int)
    remember = lambda values: tuple(values[kept].tolist())
    if problem.task == "classification":
        p = class_probabilities(fitted.predict(X))
        methods = {"this model": Losses((p.argmax(axis=1) != y).astype(float), -log_of_class(p, y))}
        methods["majority"] = _majority(y, y0, len(problem.classes))
        sure = p[:, -1] if len(problem.classes) == 2 else p.max(axis=1)
        said: dict[str, Any] = {"mean": remember(sure), "label": remember(p.argmax(axis=1))}
    else:
        prediction = fitted.predict(X)
        mean, sd = prediction.observed.mean, prediction.observed.sd
        methods = {"this model": Losses((y - mean) ** 2, -prediction.log_prob(y), _inside(prediction, y, 0.95))}
        methods |= _baselines(problem, X, y, X0, y0)
        some = prediction if len(y) <= KEPT else fitted.predict(X[kept])  # quantiles of many counts take long
        covered = tuple(float(np.mean(_inside(some, y[kept], level))) for level in LEVELS)
        pit = pit_histogram(some, y[kept], problem.task == "counts")
        said = {"mean": remember(mean), "sd": remember(sd), "covered": covered, "pit": tuple(pit.tolist())}
    if problem.X.shape[1] == 1:
        said |= {"at": remember(X[:, 0])}
    if problem.map is not None:
        said |= {"east": remember(X[:, problem.map[0]]), "north": remember(X[:, problem.map[1]])}
    draws = _draws(len(y), problem)
    scores = {name: {key: float(value) for key, value in one.scores().items()} for name, one in methods.items()}
    intervals = {name: _ends(one.scores(draws)) for name, one in methods.items()}
    return Evaluation(kind, remember(y), scores=scores, intervals=intervals, **said)


def left_out(problem: Problem, fitted: Any, held: np.ndarray) -> tuple[int, ...]:
    """How many rows lie in the 95 % intervals that all others give them, and how many do not, where few were held out.

    Parameters have seen these rows, if they were not averaged over, so that too few inside tell more than enough do.
    """
    plain = isinstance(fitted, (Fitted, FittedMixture)) and not isinstance(fitted, FittedAdditive)
    if problem.shape in ("series", "grid") or not plain or fitted.inference is not None or held.sum() >= FEW_HELD:
        return ()
    found, y = fitted.leave_one_out(), np.asarray(fitted.data.y)[:, 0]
    inside = int(np.sum(np.abs(y - found.mean) <= norm.ppf(0.975) * np.sqrt(found.variance)))
    return inside, len(y) - inside


def _inside(prediction: Any, y: np.ndarray, level: float) -> np.ndarray:
    lower, upper = prediction.interval(level)
    return ((lower <= y) & (y <= upper)).astype(float)


def pit_histogram(prediction: Any, y: np.ndarray, counts: bool) -> np.ndarray:
    """The part of the rows in each tenth of the probability integral transform, 0.1 each where predictions are calibrated.

    A count stands for all of P(Y < y) … P(Y ≤ y): its row is spread evenly over that (Czado, Gneiting and Held 2009).
    """
    most = np.clip(prediction.cumulative(y), 0.0, 1.0)
    least = np.where(y > 0, np.clip(prediction.cumulative(np.maximum(y - 1, 0)), 0.0, most), 0.0) if counts else most
    edges = np.linspace(0.0, 1.0, TENTHS + 1)[:, None]
    passed = np.where(edges >= most, 1.0, np.maximum(edges - least, 0.0) / np.maximum(most - least, NEVER))
    return np.diff(np.mean(passed, axis=1)[1:], prepend=0.0)


def _draws(count: int, problem: Problem) -> np.ndarray:
    """Rows drawn again and again; neighbours in time come in blocks, because their errors are alike."""
    rng = np.random.default_rng(problem.seed)
    block = int(np.ceil(np.sqrt(count))) if problem.shape == "series" else 1
    starts = rng.integers(0, count - block + 1, size=(DRAWS, -(-count // block)))
    return (starts[:, :, None] + np.arange(block)).reshape(DRAWS, -1)[:, :count]


def _ends(drawn: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    ends = {name: np.quantile(values, [0.05, 0.95]) for name, values in drawn.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def _majority(y: np.ndarray, y0: np.ndarray, classes: int) -> Losses:
    """The most frequent label for all rows, with the shares of the labels as probabilities."""
    share = np.bincount(y0.astype(int), minlength=classes) / len(y0)
    return Losses((y != np.argmax(share)).astype(float), -np.log(np.maximum(share[y.astype(int)], NEVER)))


def _baselines(problem: Problem, X: np.ndarray, y: np.ndarray, X0: np.ndarray, y0: np.ndarray) -> dict[str, Losses]:
    """The mean for all rows, a linear function of the inputs, and in a series the value of a season before."""
    naive = naive_forecast(X0[:, 0], y0, X[:, 0], problem.calendar) if problem.shape == "series" else None
    if problem.task == "counts":
        found = {"mean": _counts(y, poisson(max(float(y0.mean()), 1e-9)))}
        # of one count, and nothing known of the rate before it, follows what another of the same rate will be
        return found if naive is None else found | {naive.name: _counts(y, nbinom(np.maximum(naive.values, 0) + 0.5, 0.5))}
    design = lambda rows: np.column_stack([np.ones(len(rows)), rows])
    weights, *_ = np.linalg.lstsq(design(X0), y0, rcond=None)
    methods = {
        "mean": (np.full(len(y), y0.mean()), y0 - y0.mean()),
        "linear": (design(X) @ weights, y0 - design(X0) @ weights),
    }
    if naive is not None:
        methods[naive.name] = naive.values, naive.errors
    found = {}
    for name, (at, rest) in methods.items():
        sd = max(float(np.sqrt(np.mean(rest**2))), 1e-12)
        found[name] = Losses((y - at) ** 2, -norm.logpdf(y, at, sd), (np.abs(y - at) <= 1.96 * sd).astype(float))
    return found


def _counts(y: np.ndarray, said: Any) -> Losses:
    """What a distribution of SciPy did on counts."""
    low, high = said.interval(0.95)
    return Losses((y - said.mean()) ** 2, -said.logpmf(y), ((low <= y) & (y <= high)).astype(float))
