"""What the values of a file must satisfy, what is computed again, and what older files called by other names.

A class that was renamed, moved into another or given other fields gets one line in `OLDER`, and its old files stay readable.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engines.base import Offer
from ..engines.basis import Weights
from ..engines.chain_parts import ChainInParts
from ..engines.cholesky import Cholesky, CholeskyConditional, RootConditional
from ..engines.independent import CoupledCholeskyConditional, IndependentCholesky, IndependentKalman
from ..engines.kalman import Kalman
from ..engines.plan import Plan
from ..engines.space_time import SpaceTimeChains
from ..engines.toeplitz import FourierToeplitz
from ..engines.toeplitz_grid import ToeplitzLines
from ..inference.base import Inferred
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..learn.account import Learning
from ..learn.believe import WeakBeliefs
from ..learn.peak import Draws
from ..linalg.blocks import Contrasts
from ..linalg.dense import factors
from ..linalg.dense.cholesky import factorise, lapack_threads
from ..linalg.dense.coupled import couple
from ..linalg.filters.kalman_stream import Filtered
from ..models.changepoints.filter import Belief
from ..models.changepoints.model import ChangePoints
from ..models.changepoints.stream import ChangePointStream
from ..models.labels import FittedLabels, Mode, SineLatent, SplineLatent
from ..parameters.priors import Prior
from ..parameters.tree import Parametrised
from ..posterior import Conditional
from ..process.conditioning import check_inputs, given_sites
from ..process.fitted import Fitted
from ..process.fitted_parts import Cuts, FittedParts, found_again
from ..process.gp import GP
from ..process.series_by import FittedSeriesBy, series_found_again
from ..process.stream import Stream
from ..structure.dense import covariance

# A name in older files: how its fields become a value of today.
OLDER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Mode": lambda fields: Mode(**fields),  # a name that two classes have by now
    "Offer": lambda fields: Offer(**{"accuracy": getattr(fields["engine"], "accuracy", "exact"), **fields}),
    "SpaceTimeChains": lambda fields: SpaceTimeChains(fields["harmonics"]),  # those that did not apply said why
    "ToeplitzLines": lambda fields: ToeplitzLines(fields["axis"]),
    "FourierToeplitz": lambda fields: FourierToeplitz(fields.get("holes", 0)),
    "FittedLatents": lambda fields: _fitted_latents(**fields),
    "CoupledCholesky": lambda fields: IndependentCholesky((Cholesky(),) * fields["latents"]),
    "Draws": lambda fields: Draws(**{"sides": _sides(**fields), **fields}),
    "CoupledKalman": lambda fields: IndependentKalman((Kalman(fields["harmonics"]),) * fields["latents"]),
}

# Fields that older files have and nothing asks for any more.
GONE: dict[str, frozenset[str]] = {"Optimiser": frozenset({"modes"})}


def _fitted_latents(inference: Inferred, **parts: Any) -> Fitted:
    """Several classes as older files have them: without what follows from the sites."""
    gp, inputs, engine = parts["gp"], parts["inputs"], parts["plan"].engine
    w, h, evidence = Contrasts(inference.w), inference.h, np.asarray(parts["log_evidence"])
    with lapack_threads(len(inputs)):
        posterior = jax.block_until_ready(given_sites(gp, inputs, w, h, evidence, engine, False))
        spread = np.asarray(jax.jit(type(posterior).marginals)(posterior, np.asarray(inputs.points))[1])
    inference = dataclasses.replace(inference, w=w, covariance=spread)
    return Fitted(conditional=posterior.conditional, weights=posterior.weights, inference=inference, **parts)


def _sides(method: str, beliefs: WeakBeliefs, **_: Any) -> np.ndarray | None:
    """What draws stand for, in files that do not say it."""
    return np.ones((2, int(np.sum(beliefs.averaged)))) if method in ("laplace", "ccd") else None


class Damage(Exception):
    """What is wrong with a file that is one of ours."""


@functools.singledispatch
def check(value: Any) -> None:
    """Raise `Damage` if the parts of a value do not fit together; run for every value of a file, from the inside out."""


@check.register(Parametrised)
@check.register(Prior)
def _(value: Any) -> None:
    value.__post_init__()


@check.register
def _(fitted: Fitted) -> None:
    _check_kinds(fitted, gp=GP, inputs=Inputs, data=Data, plan=Plan, log_evidence=float, learning=(Learning, type(None)))
    _check_kinds(fitted, conditional=Conditional, weights=Weights, inference=(Inferred, type(None)))
    rows = {len(fitted.inputs), *(len(part) for part in (fitted.data.y, fitted.data.noise, fitted.data.seen))}
    if len(rows) > 1:
        raise Damage(f"its inputs and data have different numbers of rows, {sorted(rows)}")
    check_inputs(fitted.gp, fitted.inputs)


@check.register
def _(fitted: FittedParts) -> None:
    _check_kinds(fitted, gp=GP, cuts=Cuts, engine=ChainInParts, weights=Weights, log_evidence=float)
    cuts = fitted.cuts
    if len({len(part) for part in (cuts.firsts, cuts.lasts, cuts.rows, cuts.order, cuts.sources, fitted.others)}) > 1:
        raise Damage("its parts are not as many as what is known of them")


@check.register
def _(fitted: FittedSeriesBy) -> None:
    _check_kinds(fitted, gp=GP, log_evidences=dict, names=tuple, thetas=tuple, sources=tuple)
    if not len(fitted.names) == len(fitted.thetas) == len(fitted.sources):
        raise Damage("its parts are not as many as what is known of them")


@check.register
def _(fitted: FittedLabels) -> None:
    _check_kinds(fitted, mode=Mode, model=(SplineLatent, SineLatent))
    if np.shape(fitted.mode.factor) != (len(fitted.mode.weights),) * 2:
        raise Damage("its weights have another size than their precision")


@check.register
def _(stream: Stream) -> None:
    number = (float, int, type(None))
    _check_kinds(stream, gp=GP, engine=Kalman, first=number, time=number, state=(Filtered, type(None)), count=int)
    if stream.state is not None and _shapes(stream.state) != _shapes(stream.empty_state()):
        raise Damage("the state of its filter has another size than its model")


@check.register
def _(stream: ChangePointStream) -> None:
    _check_kinds(stream, model=ChangePoints, belief=Belief, timed=bool)
    if _shapes(stream.belief) != _shapes(jax.eval_shape(lambda: stream.empty_belief())):
        raise Damage("its belief has another size than its model")


def _check_kinds(value: Any, **kinds: Any) -> None:
    for name, kind in kinds.items():
        if not isinstance(getattr(value, name), kind):
            raise Damage(f"its {name} is a {type(getattr(value, name)).__name__}")


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


@functools.singledispatch
def complete(value: Any) -> Any:
    """A value with its derived fields: one rule for each class that has any."""
    return value


@complete.register
def _(conditional: CholeskyConditional) -> CholeskyConditional:
    parts = (conditional.kernel, conditional.X, conditional.sites.precision)
    with lapack_threads(len(conditional.X)):
        L, jitter = _factor(*parts)
        if not np.isclose(jitter, conditional.jitter, rtol=1e-9, atol=0.0):  # an updated model keeps what it began with
            L, more = _factor(*parts, conditional.jitter)
            jitter = conditional.jitter + more
    if not np.isfinite(np.asarray(L)[-1, -1]):
        raise Damage("its covariance cannot be factorised")
    object.__setattr__(conditional, "L", L)
    object.__setattr__(conditional, "jitter", jitter)
    return conditional


@complete.register
def _(conditional: CoupledCholeskyConditional) -> CoupledCholeskyConditional:
    with lapack_threads(len(conditional.X)):
        factor = _coupled(conditional.kernels, conditional.X, conditional.sites.precision)
    if not np.isfinite(factor.log_det):
        raise Damage("its sites leave no density")
    object.__setattr__(conditional, "factor", factor)
    return conditional


@complete.register
def _(conditional: RootConditional) -> RootConditional:
    with lapack_threads(len(conditional.X)):
        root, R = _roots(conditional.kernel, conditional.X, conditional.sites.precision)
    if not np.isfinite(np.asarray(R)[-1, -1]):
        raise Damage("its sites leave no density")
    object.__setattr__(conditional, "root", root)
    object.__setattr__(conditional, "R", R)
    return conditional


@complete.register
def _(fitted: FittedParts) -> FittedParts:
    object.__setattr__(fitted, "_known", found_again(fitted.gp, fitted.cuts))
    return fitted


@complete.register
def _(fitted: FittedSeriesBy) -> FittedSeriesBy:
    object.__setattr__(fitted, "_known", series_found_again(fitted))
    return fitted


@jax.jit
def _coupled(kernels: tuple[Kernel, ...], X: Any, precision: Any) -> Any:
    return couple(jnp.stack([covariance(kernel, X, X) for kernel in kernels]), precision)


@jax.jit
def _roots(kernel: Kernel, X: Any, w: Any) -> Any:
    root = factors.root(covariance(kernel, X, X))
    return root, factors.signed_factor(root, w)


@jax.jit
def _factor(kernel: Kernel, X: Any, w: Any, jitter: Any = None) -> Any:
    K = covariance(kernel, X, X)
    return factorise(K if jitter is None else K + jitter * jnp.eye(len(w)), w)
