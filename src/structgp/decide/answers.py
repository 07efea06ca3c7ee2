"""What a user's function answers, as a number."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_number(answer: Any) -> float:
    """The number that a function gave; NaN and infinity are numbers here."""
    found = np.asarray(answer)
    try:
        if found.dtype.kind not in "biufO":
            raise TypeError
        return float(found.reshape(()))
    except (TypeError, ValueError):
        raise TypeError(f"the function must return a number, got {answer!r}") from None
