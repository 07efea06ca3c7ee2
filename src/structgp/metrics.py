"""How good predictions are: errors of the mean, scores of the whole distribution, and its calibration.

Lower is better for every score here; `coverage` and `pit` describe calibration instead. Everything is plain NumPy, so the
predictions of any library can be scored. A predictive variance is that of the observed y, with the noise inside
(`p.observed.variance`), because what is scored is y and not the latent function.

    NMSE   Σ (y − μ)² / Σ (y − ȳ_train)²
    MNLP   ½ mean[ (y − μ)²/v + log v + log 2π ]
    CRPS   ∫ (F(t) − 1[y ≤ t])² dt, closed form for a Gaussian F      (Gneiting and Raftery 2007, JASA 102, eq. 21)
    PIT    F(y), uniform on [0, 1] when the predictions are calibrated  (Dawid 1984)
"""

import math

import numpy as np

__all__ = ["coverage", "crps", "error_rate", "mnll", "mnlp", "nmse", "pit", "rmse"]

_erfc = np.vectorize(math.erfc, otypes=[float])


def rmse(y, mean) -> float:
    """Root of the mean squared error, in the units of y.

    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    y, mean = _columns(y=y, mean=mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def nmse(y, mean, y_train) -> float:
    """Squared error relative to predicting the training mean everywhere: 0 is perfect, 1 is no better than that.

    >>> nmse([1.0, 3.0], [1.0, 2.0], y_train=[0.0, 2.0])
    0.25
    """
    y, mean = _columns(y=y, mean=mean)
    (y_train,) = _columns(y_train=y_train)
    spread = np.sum((y - np.mean(y_train)) ** 2)
    if spread == 0:
        raise ValueError(
            f"every y equals the mean of y_train ({np.mean(y_train):g}), so there is nothing to normalise by: use rmse."
        )
    return float(np.sum((y - mean) ** 2) / spread)


def mnlp(y, mean, variance) -> float:
    """Mean negative log probability of y under N(mean, variance), in nats per datum.

    The variance must include the noise: pass `p.observed.variance`, not the variance of the latent function.

    >>> mnlp([0.0], [0.0], [1.0])
    0.9189385332046727
    """
    z, v = _standardised(y, mean, variance)
    return float(0.5 * np.mean(z**2 + np.log(v) + math.log(2 * math.pi)))


def crps(y, mean, variance) -> float:
    """Mean continuous ranked probability score of N(mean, variance), in the units of y; the variance includes the noise.

    It falls back to the absolute error as the variance goes to 0, so it forgives an outlier where `mnlp` does not.

    >>> round(crps([0.0], [0.0], [1.0]), 6)
    0.233695
    """
    z, v = _standardised(y, mean, variance)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return float(np.mean(np.sqrt(v) * (z * (2 * _normal_cdf(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))))


def pit(y, mean, variance) -> np.ndarray:
    """Probability integral transform: for each datum the predicted probability of a value below it.

    The variance includes the noise. Calibrated predictions give uniform values; a heap in the middle means variances too large,
    heaps at 0 and 1 too small.

    >>> pit([0.0, 1.96], [0.0, 0.0], [1.0, 1.0]).round(3)
    array([0.5  , 0.975])
    """
    z, _ = _standardised(y, mean, variance)
    return _normal_cdf(z)


def coverage(y, lower, upper) -> float:
    """Fraction of the data inside their intervals, ends included; compare with the level asked for.

    >>> coverage([0.0, 3.0], lower=[-2.0, -2.0], upper=[2.0, 2.0])
    0.5
    """
    (y,) = _columns(y=y)
    lower, upper = _columns(lower=lower, upper=upper, infinite=True)
    _same_length(y=y, lower=lower, upper=upper)
    if np.any(bad := lower > upper):
        raise ValueError(f"lower exceeds upper in {_rows(bad)}: pass the smaller quantile as lower.")
    return float(np.mean((lower <= y) & (y <= upper)))


def error_rate(y, predicted) -> float:
    """Fraction of labels that were predicted wrongly; labels may be numbers or strings.

    >>> error_rate(["cat", "dog"], ["cat", "cat"])
    0.5
    """
    y, predicted = _labels("y", y), _labels("predicted", predicted)
    _same_length(y=y, predicted=predicted)
    return float(np.mean(y != predicted))


def mnll(y, probability, labels=None) -> float:
    """Mean negative log likelihood of the labels, natural logarithm; guessing evenly among C classes scores log C.

    Two classes: `probability` is (N,), that of label 1, and y holds 0 and 1. Several classes: `probability` is (N, C), and y
    holds the column numbers 0 … C−1. In both cases `labels` names the classes in that order when y holds something else.
    Nothing is clipped: a probability of exactly 0 for a label that occurred gives inf.

    >>> mnll([0, 1], [0.5, 0.5])
    0.6931471805599453
    >>> mnll(["b", "a"], [[0.2, 0.8], [1.0, 0.0]], labels=["a", "b"])
    0.11157177565710485
    """
    y, p = _labels("y", y), _probabilities(probability)
    _same_length(y=y, probability=p)
    column = _class_numbers(y, p.shape[1], labels)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(len(y)), column])))


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    """Φ(z) through erfc, which keeps its digits in the lower tail."""
    return 0.5 * _erfc(-z / math.sqrt(2))


def _standardised(y, mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """The residuals in standard deviations, and the variances."""
    y, mean, v = _columns(y=y, mean=mean, variance=variance)
    if np.any(bad := v <= 0):
        raise ValueError(
            f"variance is not positive in {_rows(bad)} (smallest {v.min():g}): pass the variance of the observed y, "
            "noise included (p.observed.variance)."
        )
    return (y - mean) / np.sqrt(v), v


def _columns(infinite: bool = False, **arrays) -> list[np.ndarray]:
    """The arguments as float64 columns of one common length, none empty, none with NaN."""
    checked = {name: _column(name, values, infinite) for name, values in arrays.items()}
    _same_length(**checked)
    return list(checked.values())


def _column(name: str, values, infinite: bool) -> np.ndarray:
    column = _numbers(name, values)
    _one_dimensional(name, column)
    bad = np.isnan(column) if infinite else ~np.isfinite(column)
    if np.any(bad):
        what = "NaN" if infinite else "NaN or inf"
        raise ValueError(f"{name} has {what} in {_rows(bad)}: drop these rows from every argument before scoring.")
    return column


def _labels(name: str, values) -> np.ndarray:
    """Class labels of any kind as a column without missing values."""
    labels = _seen(values)
    _one_dimensional(name, labels)
    if np.any(bad := labels != labels):  # NaN is the only value unequal to itself, also among objects
        raise ValueError(f"{name} has NaN in {_rows(bad)}: drop these rows from every argument before scoring.")
    return labels


def _numbers(name: str, values) -> np.ndarray:
    try:
        found = _seen(values)
        if found.dtype.kind in "biufOUS":
            return found.astype(float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} is not numeric: pass numbers; labels are scored by error_rate or mnll.")


def _seen(values) -> np.ndarray:
    """An array with NaN for what is under a mask: it is missing, whatever stands there."""
    if not np.ma.is_masked(values):
        return np.asarray(values)
    return values.astype(float if values.dtype.kind in "biuf" else object).filled(np.nan)


def _one_dimensional(name: str, array: np.ndarray) -> None:
    if array.ndim != 1:
        raise ValueError(
            f"{name} has shape {array.shape}, needed is (N,): score one column at a time, or flatten it with .ravel()."
        )
    if array.size == 0:
        raise ValueError(f"{name} is empty: a score needs at least one datum.")


def _same_length(**arrays: np.ndarray) -> None:
    if len({len(a) for a in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(a)}" for name, a in arrays.items())
        raise ValueError(f"lengths differ ({lengths}): pass one prediction for each datum, in the same order.")


def _probabilities(probability) -> np.ndarray:
    """Class probabilities as (N, C), with rows that sum to 1."""
    p = _numbers("probability", probability)
    if p.ndim not in (1, 2) or (p.ndim == 2 and p.shape[1] < 2):
        raise ValueError(
            f"probability has shape {p.shape}, needed is (N,) for two classes or (N, C) for C: use .ravel() on one column."
        )
    if p.size == 0:
        raise ValueError("probability is empty: a score needs at least one datum.")
    if np.any(bad := ~((p >= 0) & (p <= 1))):
        raise ValueError(
            f"probability is NaN or outside [0, 1] in {_rows(bad)}: pass probabilities, not scores or latent values."
        )
    if p.ndim == 1:
        return np.column_stack([1 - p, p])
    if np.any(bad := np.abs(p.sum(axis=1) - 1) > 1e-6):
        raise ValueError(f"probability does not sum to 1 in {_rows(bad)}: normalise each row over the classes.")
    return p


def _class_numbers(y: np.ndarray, classes: int, labels) -> np.ndarray:
    """The column of `probability` that belongs to each label."""
    names = np.arange(classes) if labels is None else np.asarray(labels)
    if names.shape != (classes,):
        raise ValueError(f"labels has shape {names.shape}, needed are {classes} names, one for each column of probability.")
    match = y[:, None] == names
    if np.any(bad := ~match.any(axis=1)):
        met = ", ".join(str(value) for value in np.unique(y[bad])[:5])
        raise ValueError(
            f"y has labels that are not among {names.tolist()} (met {met} in {_rows(bad)}): "
            f"recode y as 0 … {classes - 1}, or pass labels= in the order of the columns."
        )
    return match.argmax(axis=1)


def _rows(bad: np.ndarray) -> str:
    """How many rows are concerned, and the first few of them: '3 rows (4, 17, 90)'."""
    rows = np.unique(np.nonzero(bad)[0])
    shown = ", ".join(str(row) for row in rows[:5]) + (", …" if len(rows) > 5 else "")
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({shown})"
