"""Beliefs about f at the rows of Dask collections, which nothing has computed yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..crew import lazily, lazy_array, one_promise
from ..inputs.parts import partitions
from ..posterior import Moments


def lazily_predicted(fitted: Any, X: Any, targets: int, flat: bool) -> Moments:
    """What `fitted.predict` says of each partition by itself, as Dask's arrays; of several targets they share the variances."""
    parts = partitions(X)
    return lazy_moments(lazily(_moments, [one_promise(fitted)] * len(parts), parts), targets, flat)


def lazy_moments(promises: list[Any], targets: int, flat: bool) -> Moments:
    """Promises of means (N, T) and variances (N,) as Dask's arrays."""
    mean, variance = (lazily(of, promises) for of in (_only_mean if flat else _all_means, _variance))
    return Moments(lazy_array(mean, () if flat else (targets,)), lazy_array(variance))


def _moments(fitted: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    found = fitted.predict(X)
    mean, variance = np.asarray(found.mean), np.asarray(found.variance)
    return mean.reshape(len(mean), -1), variance.reshape(len(mean), -1)[:, 0]


def _only_mean(found: tuple[Any, Any]) -> Any:
    return found[0][:, 0]


def _all_means(found: tuple[Any, Any]) -> Any:
    return found[0]


def _variance(found: tuple[Any, Any]) -> Any:
    return found[1]
