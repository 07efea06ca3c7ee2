"""The processes at some θ, one for each member of an average: in one computation where their posteriors are of one form."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from .._types import double_precision
from ..engines.plan import Plan
from ..inference.choose import choose
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import FreeMap, as_numpy
from .conditioning import Conditioned, Posterior, condition, few_sizes, given_to_first
from .fitted import Fitted

KEPT = 256e6  # bytes of members that are kept; of larger ones θ is, and they are conditioned again for each answer


class Members(Sequence[Fitted]):
    """The process at each of some θ, conditioned when it is first asked for, and kept where all of them are small."""

    def __init__(
        self, mode: Fitted, thetas: np.ndarray, known: Sequence[Fitted] = (), together: Posterior | None = None
    ) -> None:
        self.mode, self.thetas, self._at = mode, thetas, FreeMap(mode.gp)
        self._known: dict[int, Fitted] = dict(enumerate(known))
        self.kept = are_kept(mode.plan, len(thetas))
        if together is not None:
            self.__dict__["together"] = together

    def __len__(self) -> int:
        return len(self.thetas)

    @overload
    def __getitem__(self, index: int) -> Fitted: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Fitted]: ...
    @double_precision
    def __getitem__(self, index: int | slice) -> Fitted | Sequence[Fitted]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if number in self._known:
            return self._known[number]
        gp, together = as_numpy(self._at(self.thetas[number])), self.__dict__.get("together")
        if together is None:
            member = at_parameters(self.mode, gp, len(self) if self.kept else 0)
        else:
            posterior = jax.tree.map(lambda leaf: np.asarray(leaf)[number], together)
            given = Conditioned(posterior, self.mode.plan)
            member = Fitted.of(gp, self.mode.inputs, self.mode.data, given, self.mode.learning)
        if self.kept:
            self._known[number] = member
        return member

    @functools.cached_property
    def together(self) -> Posterior | None:
        """All posteriors as one with a first axis for the members; None where they are large, or differ in form."""
        if not self.kept:
            return None
        found = None if self._known else self.conditioned()
        return stacked([member.posterior for member in self]) if found is None else found

    def conditioned(self) -> Posterior | None:
        """Gaussian data given to all members in one computation; None where it would be several."""
        fitted, plan = self.mode, self.mode.plan
        if fitted.inference is not None or not self.kept:
            return None
        inputs, data = few_sizes(fitted.inputs, fitted.data, plan.engine)
        models = [self._at(theta) for theta in self.thetas]
        engines = {plan.engine.tuned(model, inputs, data) for model in models}
        if len(engines) > 1:
            return None
        engine = engines.pop()
        if any(engine.prepared(model, inputs, data, search=False) is not inputs for model in models):
            return None
        with lapack_threads(plan.rows):
            return jax.block_until_ready(given_to_first(self.thetas, len(self), fitted.gp, inputs, data, engine))


def are_kept(plan: Plan, members: int) -> bool:
    """Whether so many members of an average are small enough to be kept, and are conditioned in one program."""
    cost = plan.chosen.cost
    return (cost.bytes if cost else 0.0) * members <= KEPT


def stacked(posteriors: Sequence[Posterior]) -> Posterior | None:
    """Posteriors as one with a first axis for them; None where they are not of one form."""
    forms = [(jax.tree.structure(one), [np.shape(leaf) for leaf in jax.tree.leaves(one)]) for one in posteriors]
    if any(form != forms[0] for form in forms):
        return None
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *posteriors)


def at_parameters(fitted: Fitted, gp: Any, members: int = 0) -> Fitted:
    """The same data and the same algorithm with other parameters; sites are searched from those that were found.

    `members` is that of `condition`.
    """
    inferred = fitted.inference
    rule = None if inferred is None else choose(gp.likelihood, inferred.method, fitted.data.weight is not None)
    start = None if inferred is None else (inferred.w, inferred.h)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        given = condition(gp, fitted.inputs, fitted.data, fitted.plan, rule, start, members=members)
    return Fitted.of(gp, fitted.inputs, fitted.data, given, fitted.learning)


@functools.partial(jax.jit, static_argnames="part")
def marginals_of_all(together: Posterior, X: Any, part: int | None) -> tuple[Any, Any]:
    """Means and variances at the rows of X, the members along the second axis."""
    found = jax.lax.map(lambda posterior: posterior.marginals(X, part), together)
    return tuple(jnp.moveaxis(values, 0, 1) for values in found)  # type: ignore[return-value]


@functools.partial(jax.jit, static_argnames="n")
def draws_of_some(together: Posterior, numbers: Any, keys: Any, X: Any, n: int) -> Any:
    """n draws of each of the members with these numbers."""
    member = lambda number: jax.tree.map(lambda leaf: leaf[number], together)
    return jax.lax.map(lambda one: member(one[0]).draw(one[1], X, n), (numbers, keys))
