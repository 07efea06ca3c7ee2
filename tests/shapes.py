"""Types and shapes as they are written, checked at every call while tests run.

Arrays count as arrays on the host and on a device alike: much of the code runs on both, and what matters is their shape.
"""

import typing

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

CONF = BeartypeConf(hint_overrides=FrozenDict({typing.Self: typing.Any}), is_pep484_tower=True)
checker = beartype(conf=CONF)


def check_structgp():
    """Check what structgp's functions are given and return; before the package is imported."""
    jaxtyping.Array = jax.Array | np.ndarray | np.generic
    jaxtyping.install_import_hook("structgp", "shapes.checker")
