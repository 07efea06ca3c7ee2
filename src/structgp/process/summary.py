"""What a person reads of a fitted model: its parameters line by line."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..learn.maximise import Learning
from ..parameters.tree import Leaf, leaves

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
