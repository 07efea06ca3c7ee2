"""Healthy modern baselines, and the few measures that experiments share."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from benchmarks.data import Part
from benchmarks.registry import Unavailable, load_problems

from study.registry import Found

LOG_2PI = float(np.log(2 * np.pi))


def rmse(mean: Any, truth: Any) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(mean) - np.asarray(truth)) ** 2)))


def nmse(mean: Any, part: Part) -> float:
    """Squared error over that of the mean of the training targets."""
    return float(np.sum((part.y_test - mean) ** 2) / np.sum((part.y_test - part.y_train.mean()) ** 2))


def mnlp(mean: Any, sd: Any, y: Any) -> float:
    """Mean negative log density of normal predictions."""
    return float(np.mean(0.5 * ((y - mean) / sd) ** 2 + np.log(sd) + 0.5 * LOG_2PI))


def of_labels(probability: Any, y: Any) -> tuple[float, float]:
    """Error rate and mean negative log probability of labels that are 0 and 1."""
    p, seen = np.clip(probability, 1e-12, 1 - 1e-12), np.asarray(y) > 0.5
    return float(np.mean((p > 0.5) != seen)), float(-np.mean(np.log(np.where(seen, p, 1 - p))))


def inside(mean: Any, sd: Any, truth: Any, width: float = 1.959964) -> float:
    """How much of the truth lies within so many standard deviations."""
    return float(np.mean(np.abs(np.asarray(mean) - truth) <= width * np.asarray(sd)))


def cpu_seconds(call: Callable[[], Any], calls: int = 1) -> float:
    """Of a call, the least of several; the first is made beforehand, so that nothing is compiled."""
    call()
    return min(_once(call) for _ in range(calls))


def _once(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Of log time against log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)[0])


def mean_of(values: Sequence[float], beside: Sequence[float] | str | None = None) -> Found:
    """Means over repeats, and the standard error of ours."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    other = beside if isinstance(beside, str) or beside is None else float(np.mean(beside))
    return Found(float(np.mean(values)), other, error)


def problem_results(name: str, size: int, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A problem of `python -m benchmarks` in this process: what each method finds at a size, a reason where it cannot."""
    problem = load_problems()[name]
    data, found = problem.make(size), {}
    for method in methods:
        try:
            found[method] = dict(problem.methods[method].start(data).call())
        except (Unavailable, ImportError) as reason:
            found[method] = {"reason": str(reason)}
    return found


def value(results: dict[str, dict[str, Any]], method: str, name: str) -> float | str:
    """A number of a method, or why there is none."""
    return results[method].get(name, results[method].get("reason", "none"))


def boosting(part: Part, seed: int = 0) -> np.ndarray:
    """Means of gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=seed).fit(part.X_train, part.y_train).predict(part.X_test)


def boosted_labels(part: Part, seed: int = 0) -> np.ndarray:
    """Probabilities of gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed).fit(part.X_train, part.y_train).predict_proba(part.X_test)[:, 1]


def support_vectors(part: Part, seed: int = 0) -> np.ndarray:
    """Probabilities of a support vector machine whose width and cost are found by five-fold cross-validation."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    grid = {"svc__C": [0.5, 2.0, 8.0, 32.0], "svc__gamma": np.array([0.1, 0.3, 1.0, 3.0]) / part.X_train.shape[1]}
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=folds).fit(part.X_train, part.y_train)
    best = CalibratedClassifierCV(search.best_estimator_, cv=folds).fit(part.X_train, part.y_train)
    return best.predict_proba(part.X_test)[:, 1]


def gaussian_process(kernel: Any, x: Any, y: Any, seed: int = 0, restarts: int = 2) -> Any:
    """scikit-learn's process, its parameters at the highest evidence."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    X = np.asarray(x, dtype=float)
    X = X[:, None] if X.ndim == 1 else X
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=restarts, random_state=seed, normalize_y=False)
    return model.fit(X, y)
