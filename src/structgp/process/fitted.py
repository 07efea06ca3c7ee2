"""A Gaussian process given data: predictions, samples, and what the data had to say."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from .._types import double_precision
from ..engines import memory
from ..engines.basis import columns
from ..engines.cholesky import CholeskyConditional
from ..engines.plan import Plan, plan
from ..inference.choose import choose
from ..inputs.layouts import Inputs, clocks_of, duplicates, together
from ..inputs.observations import Data, joined
from ..inputs.outputs import read_rows
from ..parameters.tree import as_numpy
from .conditioning import Conditioned, Posterior, bytes_for_more, condition, given_more
from .observed import AtObservations
from .places import AtPlaces
from .planned import remedies_for
from .stream import Stream, from_fitted
from .summary import parameter_table

COUNTED = 20000  # rows up to which a summary counts those that repeat


class BasisWeights(NamedTuple):
    """The posterior of basis weights: a mean and a variance for each, and their covariance, the same for all targets."""

    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.variance)


@dataclasses.dataclass(frozen=True)
class Fitted(AtPlaces, AtObservations):
    """A GP conditioned on data, with learned parameters when it comes from `fit` (then `learning` says how).

    Where the likelihood sees several latents, everything that is said of f has a last axis for them.
    """

    @double_precision
    def equivalent_kernel(self, X: Any) -> np.ndarray:
        """How much each observation counts in the mean at new places, (M, N): mean = weights @ y for a zero mean."""
        self._needs_gaussian("the equivalent kernel")
        dense = self if isinstance(self.conditional, CholeskyConditional) else self._by_matrix()
        return np.asarray(_equivalent_kernel(dense.posterior, self._new_points(X)))[:, : len(self.inputs)]

    @double_precision
    def basis_weights(self) -> BasisWeights:
        """The posterior of the weights of the mean's basis functions (and of what the kernel leaves free)."""
        mean = np.asarray(self.weights.mean)
        if not len(mean):
            raise ValueError("this model has no basis functions: give GP a mean=Basis(...)")
        covariance = np.asarray(self.weights.covariance())
        of_mean = jax.eval_shape(self.gp.mean.features, jax.ShapeDtypeStruct((self.inputs.dimension,), np.float64)).shape[0]
        prior = np.zeros(len(mean))
        prior[:of_mean] = getattr(self.gp.mean, "mean", 0.0)
        return BasisWeights(self._shaped(mean + prior[:, None]), self._spread(np.diagonal(covariance)), covariance)

    @double_precision
    def update(
        self, X: Any, y: Any, noise: Any = None, missing: str = "error", extra: Any = None, weights: Any = None
    ) -> Fitted:
        """The process given more data, with the parameters it has."""
        names, width = self.data.outputs or (), self.inputs.dimension - 1
        new, data = read_rows(self.gp, X, y, noise, missing, extra, weights, clocks_of(self.inputs), names, width)
        self._check_dimension(new)
        if data.y.shape[1] != self._targets:
            raise ValueError(f"update: y has {data.y.shape[1]} targets, but the model was given {self._targets}")
        return type(self).of(self.gp, *with_more(self, new, data), learning=self.learning)

    def given(self, X: Any, y: Any, **options: Any) -> Fitted:
        """The same process with the same parameters, given other data: `options` are those of `GP.condition`."""
        return self.gp.condition(X, y, **options)

    @double_precision
    def stream(self) -> Stream:
        """A model that goes on in time from here and keeps no data: constant work and memory for each new observation."""
        self._needs_gaussian("a stream")
        return from_fitted(self.gp, self.inputs, self.conditional, self.data, self.plan)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: arrays on the host, because JAX restores its own in the precision of the caller's setting."""
        return {field.name: as_numpy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def summary(self) -> str:
        """A table of the parameters and an account of the fit."""
        seen = int(np.sum(self.data.seen))
        evidence = f"log evidence   {self.log_evidence:.6g}  ({seen} observations)"
        return "\n".join([repr(self.gp), "", *parameter_table(self.gp, self.learning), "", evidence, *self.account()])

    def account(self) -> list[str]:
        """How the fit came about, line by line."""
        lines = [f"engine         {self.plan.engine.name}, {self.plan.chosen.quality}"]
        if names := self.likelihood.latent_names:
            lines.append(f"latents        {', '.join(f'kernels[{c}] is the {name}' for c, name in enumerate(names))}")
        counted = [f"column {d} in {clock!r}" for d, clock in enumerate(clocks_of(self.inputs)) if clock is not None]
        if counted:
            lines.append(f"dates          {'; '.join(counted)}")
        if self.evidence_error > 0:
            lines.append(f"evidence       has a standard error of {self.evidence_error:.2g}, from random probes")
        loose = float(getattr(self.conditional, "variance_error", 0.0))
        if loose > 0:
            lines.append(f"variances      of many places at once are within {100 * loose:.2g} %, by a look at some cells")
        if float(getattr(self.conditional, "jitter", 0.0)) > 0:
            lines.append(f"jitter         {float(self.conditional.jitter):.1e} was added to the prior variance")  # type: ignore[attr-defined]
        repeated = duplicates(self.inputs) if len(self.inputs) <= COUNTED else 0
        if repeated:
            lines.append(f"inputs         {repeated} of {len(self.inputs)} rows repeat an earlier one")
        if self.inference:
            lines.append(f"inference      {self.inference}")
        if self.learning:
            lines.append(f"learning       {self.learning}")
        if self.plan.parameters:
            lines.append(f"parameters     {self.plan.parameters}")
        return lines

    def __repr__(self) -> str:
        return f"Fitted({self.gp!r}, {len(self.inputs)} places, log evidence {self.log_evidence:.6g})"

    def _by_matrix(self) -> Fitted:
        """The same process, of the kernel that was really used, by the whole covariance matrix."""
        gp = self.gp.replace(kernel=as_numpy(self.conditional.kernel))  # type: ignore[attr-defined]
        chosen = plan(gp, self.inputs, "dense")
        chosen.check_memory(self.inputs)
        dense = condition(gp, self.inputs, self.data, chosen)
        return Fitted.of(gp, self.inputs, self.data, dense)


FittedLatents = Fitted  # what a model of several latents was once called


@jax.jit
def _equivalent_kernel(posterior: Posterior, X: Any) -> Any:
    conditional: Any = posterior.conditional
    T, factor = posterior.targets, posterior.weights.factor
    rho = columns(posterior.prior, X)[1] - conditional.at(X)[0][:, T:]
    return conditional.weights(X) + rho @ jax.scipy.linalg.cho_solve((factor, True), conditional.alpha[:, T:].T)


def _check_more(posterior: Posterior, chosen: Plan, inputs: Inputs, before: int, both: Data) -> None:
    """Refuse an update whose matrix does not fit, and say what would take all of the data."""
    needed = bytes_for_more(posterior, len(inputs) - before, before)
    if needed > memory.available():
        remedies = remedies_for(chosen, posterior.prior, inputs, "auto", both, None)
        anew = "".join(f", or {remedy.words}" for remedy in remedies)
        memory.check(needed, f"an update to {len(inputs)} rows", f"condition anew, with fewer rows{anew}")


def with_more(fitted: Any, new: Inputs, data: Data) -> tuple[Inputs, Data, Conditioned]:
    """The data of `fitted` and more, and the process given both: the factor grows where there is one."""
    old, before, after = fitted.data, len(fitted.inputs), len(new)
    both = Data(
        np.concatenate([old.y, data.y]),
        np.concatenate([old.noise, data.noise]),
        np.concatenate([old.seen, data.seen]),
        old.flat,
        joined(old.extra, data.extra, before, after),
        joined(old.weight, data.weight, before, after),
        outputs=old.outputs,
    )
    gp, inputs = fitted.gp, together(fitted.inputs, new)
    if fitted.inference is None and isinstance(fitted.conditional, CholeskyConditional):
        chosen = plan(gp, inputs, "dense", data=both)
        _check_more(fitted.posterior, chosen, inputs, before, both)
        return inputs, both, Conditioned(given_more(fitted.posterior, new, data, before), chosen)
    chosen = fitted.plan.again(gp, inputs, both) or plan(gp, inputs, data=both)
    chosen.check_memory(inputs)
    rule = None if fitted.inference is None else choose(gp.likelihood, fitted.inference.method)
    if rule is None:
        return inputs, both, condition(gp, inputs, both, chosen)
    return inputs, both, condition(gp, inputs, both, chosen, rule, (fitted.inference.w, fitted.inference.h))
