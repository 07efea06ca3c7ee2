"""What a person reads of a fitted model: its parameters line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..learn.account import Learning
from ..learn.believe import WeakBeliefs
from ..parameters.supports import Positive
from ..parameters.tree import Leaf, learned_leaves, leaves

MANY = 40  # numbers of an array up to which a summary shows it


def parameter_table(gp: Any, learning: Learning | None) -> list[str]:
    """The parameters line by line: path, value, and what is special about them."""
    rows = [("parameter", "value", "")]
    for leaf in leaves(gp):
        rows.append((leaf.path, _shown(np.asarray(leaf.value)), _remark(leaf, learning)))
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:<{width}}  {value:>12}  {note}".rstrip() for name, value, note in rows]


def _shown(value: np.ndarray) -> str:
    if value.ndim == 2 and value.size > MANY:
        return f"{value.shape[0]} rows of {value.shape[1]}"
    return np.array2string(value, precision=4, threshold=12)


def _remark(leaf: Leaf, learning: Learning | None) -> str:
    """What is special about a parameter: fixed, tied, with a prior, at a bound."""
    at_bound = learning.at_bound if learning else ()
    bounded = leaf.path in {name.rsplit("[", 1)[0] if np.ndim(leaf.value) else name for name in at_bound}
    remarks = {
        "fixed": leaf.fixed,
        f"tied to {leaf.follows}": leaf.follows,
        f"prior {leaf.prior}": leaf.prior,
        "at a bound": bounded,
    }
    return ", ".join(remark for remark, holds in remarks.items() if holds)


def interval_table(believed: Sequence[Any], gp: Any, beliefs: WeakBeliefs) -> list[str]:
    """The learned numbers line by line: 5, 50 and 95 % quantiles, and what was believed of them before the data."""
    rows = [("parameter", "5 %", "50 %", "95 %", "believed before")]
    ours = _said_before(gp, beliefs)
    for entry, one in enumerate(believed):
        rows.append((one.name, *(f"{value:.4g}" for value in (one.low, one.median, one.high)), ours[entry]))
    width = max(len(row[0]) for row in rows)
    lines = [f"{name:<{width}}  {low:>10}  {middle:>10}  {high:>10}  {note}".rstrip() for name, low, middle, high, note in rows]
    others = [leaf for leaf in leaves(gp) if leaf.fixed or leaf.follows]
    kept = [f"{leaf.path}  {_shown(np.asarray(leaf.value))}  {_remark(leaf, None)}" for leaf in others]
    return lines + kept


def _said_before(gp: Any, beliefs: WeakBeliefs) -> list[str]:
    """What was believed of each entry of θ, in words."""
    center, unit, words, at = beliefs.center, np.abs(np.diag(beliefs.units)), [], 0
    for leaf in learned_leaves(gp):
        for entry in range(at, at + leaf.free_size):
            if not beliefs.ours[entry]:
                words.append(str(leaf.prior) if leaf.prior is not None else "uniform")
            elif not np.isfinite(beliefs.width[entry]):
                words.append("nothing: kept at its best")
            elif isinstance(leaf.support, Positive):
                words.append(f"{np.exp(center[entry] * unit[entry]):.3g} times e^±{beliefs.width[entry]:g}")
            else:
                words.append(f"{center[entry] * unit[entry]:.3g} ± {beliefs.width[entry] * unit[entry]:.3g}")
        at += leaf.free_size
    return words
