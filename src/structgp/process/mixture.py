"""A GP given data, averaged over its parameters: a mixture of processes, one for each draw of θ.

It answers what a `Fitted` answers. Means are averages, variances add what the members differ by, and of new observations the
whole mixture is kept: its quantiles and densities are those of the mixture, not of a normal with its moments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .._types import Seed, double_precision, generator, whole
from ..inputs.rows import filled, size_for
from ..learn.peak import Draws, Evidence
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.supports import Interval, Positive, Real
from ..parameters.tree import free_names, learned_leaves
from ..posterior import MixturePrediction, Moments, Prediction, Result, mixed_moments, tilted
from .conditioning import Posterior
from .fitted import BasisWeights, Fitted
from .given import Drawn
from .members import Members, draws_of_some, marginals_of_all
from .places import GradientBelief
from .stream import Stream
from .summary import interval_table

ALONE = 1.5  # equally weighted members, below which an average is hardly one


class ParameterBelief(NamedTuple):
    """What is believed of one number among the parameters after the data."""

    name: str
    mean: float
    sd: float
    low: float  # 5 %
    median: float
    high: float  # 95 %


@double_precision
def averaged(mode: Fitted, draws: Draws) -> FittedMixture | Fitted:
    """The mixture of those draws at which the process can be conditioned; the mode where there are none. The plan says so."""
    members = Members(mode, draws.thetas)
    together, found = members.conditioned(), []
    good = [] if together is None else np.flatnonzero(np.isfinite(together.log_evidence)).tolist()
    for number in range(len(members)) if together is None else ():
        member = _if_it_can_be(members.__getitem__, number)
        if member is not None:
            good.append(number)
            found.append(member)
    weights = draws.weights[good]
    if not weights.sum() > 0:
        return _alone(mode, len(members), stacklevel=7)
    weights = weights / weights.sum()
    if len(good) < len(members):
        mode = _without_some(mode, len(good), len(members))
    mixture = FittedMixture(mode, dataclasses.replace(draws, thetas=draws.thetas[good], weights=weights))
    if together is not None and len(good) < len(members):
        together = jax.tree.map(lambda leaf: leaf[np.array(good)], together)
    return mixture._with_members(found, together) if members.kept else mixture


def _if_it_can_be(member: Callable[[int], Fitted], number: int) -> Fitted | None:
    """One of the members, or None where the process cannot be conditioned at its parameters."""
    with contextlib.suppress(ValueError), warnings.catch_warnings():  # θ so far out that its covariance is none
        warnings.simplefilter("ignore", RuntimeWarning)
        found = member(number)
        if found.inference is None or found.inference.converged:
            return found
    return None


def _alone(mode: Fitted, members: int, stacklevel: int) -> Fitted:
    """The mode of an average none of whose members is left."""
    none = f"the process can be conditioned at none of {members} draws around them"
    warnings.warn(
        f"parameters are not averaged over: {none}; narrower priors or bounds keep draws near them",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
    return _planned(mode, parameters=f"best: {none}", members=1)


def _without_some(mode: Fitted, good: int, members: int) -> Fitted:
    """The mode of an average that some of the members were left out of."""
    why = f"{members - good} of {members} draws are left out: the process cannot be conditioned there"
    return _planned(mode, parameters="; ".join(filter(None, (mode.plan.parameters, why))), members=good)


def _planned(fitted: Fitted, **said: Any) -> Fitted:
    """The same with a plan that says more."""
    return dataclasses.replace(fitted, plan=dataclasses.replace(fitted.plan, **said))


def _of_mode(name: str) -> Any:
    doc = f"`{name}` at the mode of the parameters, as a `Fitted` has it."
    return property(lambda self: getattr(self.mode, name), doc=doc)


@dataclasses.dataclass(frozen=True)
class FittedMixture(Drawn, Result):
    """A GP given data, averaged over draws of its parameters with weights that sum to one.

    `mode` is the `Fitted` with the most probable parameters; kernel, likelihood, plan and the like are those of the mode.
    """

    mode: Fitted
    draws: Draws

    gp = _of_mode("gp")
    kernel = _of_mode("kernel")
    likelihood = _of_mode("likelihood")
    inputs = _of_mode("inputs")
    data = _of_mode("data")
    plan = _of_mode("plan")
    conditional = _of_mode("conditional")
    posterior = _of_mode("posterior")
    inference = _of_mode("inference")
    learning = _of_mode("learning")
    log_evidence = _of_mode("log_evidence")
    evidence_error = _of_mode("evidence_error")
    evidence_bounds = _of_mode("evidence_bounds")
    account = _of_mode("account")

    @functools.cached_property
    def members(self) -> Members:
        """The process at each draw of the parameters."""
        return Members(self.mode, self.draws.thetas)

    @property
    def weights(self) -> np.ndarray:
        """How much each member counts."""
        return self.draws.weights

    @property
    def evidence(self) -> Evidence:
        """log p(y) with the parameters integrated out; `log_evidence` is that at the mode."""
        return self.draws.evidence

    @double_precision
    def predict(
        self, X: Any, covariance: bool | str = False, part: int | None = None, extra: Any = None, output: Any = None
    ) -> MixturePrediction:
        """The belief about f at new places, as of `Fitted.predict`, averaged over the parameters."""
        found = None if covariance or output is not None else self._at_once(X, part, extra)
        if found is None:
            found = tuple(member.predict(X, covariance, part, extra, output) for member in self.members)
        return MixturePrediction(found, self.weights, self.likelihood)

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False, extra: Any = None) -> np.ndarray:
        """n joint draws of f at new places, each with parameters of its own; with `observed` of new observations."""
        n, rng = whole(n, "n", 1), generator(seed)
        which = rng.choice(len(self.weights), size=n, p=self.weights)
        each = size_for(int(np.max(np.bincount(which))), 1)  # one number for all: every other is another program
        numbers = np.unique(which)
        found = self._drawn(numbers, X, each, rng)
        parts, rows = [], []
        for place, number in enumerate(numbers):
            rows.append(np.flatnonzero(which == number))
            member = self.members[int(number)]
            if found is None:
                parts.append(member.sample(X, each, rng, observed, extra)[: len(rows[-1])])
            else:
                f = found[place, : len(rows[-1])]
                parts.append(member.likelihood.sample(rng, f, member._extra(extra, self._new_points(X))) if observed else f)
        return np.concatenate(parts)[np.argsort(np.concatenate(rows))]

    @double_precision
    def gradient(self, X: Any) -> np.ndarray:
        """The gradient of the posterior mean in the inputs at new places."""
        return self._average([member.gradient(X) for member in self.members])

    @double_precision
    def derivative(self, X: Any, order: int = 1, *, dim: int | None = None, part: int | None = None) -> Moments:
        """The belief about a derivative of f at new places, as of `Fitted.derivative`."""
        return self._moments([member.derivative(X, order, dim=dim, part=part) for member in self.members])

    @double_precision
    def gradient_posterior(self, x: Any) -> GradientBelief:
        """The belief about the gradient of f at one place, as of `Fitted.gradient_posterior`."""
        parts = [member.gradient_posterior(x) for member in self.members]
        return GradientBelief(self._average([part.mean for part in parts]), self._covariance(parts))

    @double_precision
    def integral(self, box: Any) -> Moments:
        """The belief about ∫f over a box, as of `Fitted.integral`."""
        return self._moments([member.integral(box) for member in self.members])

    @double_precision
    def filtered(self) -> Moments:
        """The belief about f at each observed place given the observations up to there, with parameters that saw all."""
        return self._moments([member.filtered() for member in self.members])

    @double_precision
    def smoothed(self) -> Moments:
        """The belief about f at each observed place given all observations."""
        return self._moments([member.smoothed() for member in self.members])

    @double_precision
    def lag_one(self) -> np.ndarray:
        """The covariances of f at successive times, sorted, given all observations: (N − 1,)."""
        within = self._average([member.lag_one() for member in self.members])
        order = np.asarray(self.inputs.order)
        means = np.stack([member.smoothed().mean[order] for member in self.members])
        apart = means - self._average(list(means))
        return within + self._average(list(apart[:, :-1] * apart[:, 1:]))

    @double_precision
    def leave_one_out(self) -> Moments:
        """Mean and variance of each observation given all the others, without refitting.

        The parameters have not seen it either: p(θ | others) ∝ p(θ | all) / p(yᵢ | others, θ), for Gaussian observations.
        """
        parts = [member.leave_one_out() for member in self.members]
        means, variances = (np.stack([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
        weights = self.weights
        if self.inference is None:
            y = self.data.y[:, 0] if self.data.flat else self.data.y
            logs = 0.5 * ((y - means) ** 2 / variances + np.log(variances))
            weights = tilted(self.weights, logs if logs.ndim == 2 else logs.sum(axis=2))
        return mixed_moments(means, variances, weights)

    @property
    def outlier_probability(self) -> np.ndarray:
        """The probability that each observation is an outlier, given all of them; NaN where nothing was seen."""
        return self._average([member.outlier_probability for member in self.members])

    @property
    def gate(self) -> Moments:
        """The belief about what decides how each observation arises, at their places."""
        return self._moments([member.gate for member in self.members])

    @property
    def degrees_of_freedom(self) -> float:
        """How many parameters the smoother uses, on average."""
        return float(np.dot(self.weights, [member.degrees_of_freedom for member in self.members]))

    @double_precision
    def equivalent_kernel(self, X: Any) -> np.ndarray:
        """How much each observation counts in the mean at new places, (M, N)."""
        return self._average([member.equivalent_kernel(X) for member in self.members])

    @double_precision
    def basis_weights(self) -> BasisWeights:
        """The posterior of the weights of basis functions."""
        parts = [member.basis_weights() for member in self.members]
        mean, variance = self._moments(parts)
        return BasisWeights(mean, variance, self._covariance(parts))

    @double_precision
    def update(
        self, X: Any, y: Any, noise: Any = None, missing: str = "error", extra: Any = None, weights: Any = None
    ) -> FittedMixture | Fitted:
        """Given more data: every member is, and counts by how probable the new observations were to it.

        The draws of the parameters stay where they are: where the data move the parameters far, fit again. Those at which the
        process cannot be given these data are left out.
        """
        more = X, y, noise, missing, extra, weights
        mode = self.mode.update(*more)
        updated = lambda number: self.members[number].update(*more)
        every = range(len(self.weights))
        after = {number: one for number in every if (one := _if_it_can_be(updated, number)) is not None}
        if not after:
            return _alone(mode, len(every), stacklevel=4)
        if len(after) < len(every):
            mode = _without_some(mode, len(after), len(every))
        good = list(after)
        gain = np.array([member.log_evidence - self.members[number].log_evidence for number, member in after.items()])
        new = self.weights[good] * np.exp(gain - gain.max())
        grown = dataclasses.replace(self.evidence, log=self.evidence.log + float(gain.max() + np.log(new.sum())))
        thetas = self.draws.thetas[good]
        draws = dataclasses.replace(self.draws, thetas=thetas, weights=new / new.sum(), evidence=grown, sides=None)
        if draws.effective < ALONE <= self.draws.effective:
            warnings.warn(
                f"update: after these data the {len(new)} draws of the parameters are worth {draws.effective:.2f}, and "
                "intervals are nearly those of one: fit again, with all data",
                RuntimeWarning,
                stacklevel=3,
            )
        return FittedMixture(mode, draws)._with_members(list(after.values()))

    @double_precision
    def given(self, X: Any, y: Any, **options: Any) -> FittedMixture | Fitted:
        """The same belief about the parameters, given other data: `options` are those of `GP.condition`."""
        remark = "of the data that the belief is from"
        draws = dataclasses.replace(self.draws, evidence=dataclasses.replace(self.evidence, remark=remark))
        mode = self.gp.condition(X, y, **options)
        return FittedMixture(mode, draws) if mode.inference is None else averaged(mode, draws)

    def stream(self) -> Stream:
        """A model that goes on in time with the most probable parameters, and keeps no data."""
        return self.mode.stream()

    @double_precision
    def parameters(self) -> tuple[ParameterBelief, ...]:
        """What is believed of each learned number: mean, standard deviation, and the 5, 50 and 95 % quantiles."""
        names, found, at = free_names(self.gp), [], 0
        for leaf in learned_leaves(self.gp):
            for entry in range(at, at + leaf.free_size):
                alone = isinstance(leaf.support, (Real, Positive, Interval))  # each number by itself
                value = leaf.support.constrain if alone else lambda theta: theta
                bounds = self.draws.beliefs.bounds[entry]
                points, mass, quantiles = self.draws.marginal(entry)
                nodes = value(np.clip(points, *bounds))
                mean = float(mass @ nodes)
                spread = float(np.sqrt(mass @ (nodes - mean) ** 2))
                ends = value(np.clip(quantiles, *bounds))
                found.append(ParameterBelief(names[entry], mean, spread, *map(float, ends)))
            at += leaf.free_size
        return tuple(found)

    def summary(self) -> str:
        """A table of the parameters with their intervals and an account of the fit."""
        seen = int(np.sum(self.data.seen))
        table = interval_table(self.parameters(), self.gp, self.draws.beliefs)
        lines = [repr(self.gp), "", self._words() + ":", "", *table, ""]
        lines.append(f"log evidence   {self.evidence}  ({seen} observations)")
        lines.append(f"at the mode    {self.log_evidence:.6g}")
        lines.append(f"draws          {len(self.weights)}, worth {self.draws.effective:.3g} of equal weight")
        return "\n".join(lines + self.mode.account())

    def __repr__(self) -> str:
        return f"FittedMixture({self.gp!r}, {len(self.inputs)} places, {self._words()}, log evidence {self.evidence.log:.6g})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: members follow from the mode and θ."""
        return {"mode": self.mode, "draws": self.draws}

    def _words(self) -> str:
        count = len(free_names(self.gp))
        many = "" if count == 1 else "s"
        return f"averaged over {len(self.weights)} draws of {count} parameter{many} ({self.draws.method})"

    def _with_members(self, members: Sequence[Fitted], together: Posterior | None = None) -> FittedMixture:
        self.__dict__["members"] = Members(self.mode, self.draws.thetas, members, together)
        return self

    def _at_once(self, X: Any, part: int | None, extra: Any) -> tuple[Prediction, ...] | None:
        """What all members predict, by one computation; None where each has to be asked."""
        together = self._together(X)
        if together is None:
            return None
        Xs, part = self._new_points(X), self.mode._which_part(part)
        self.plan.announce("prediction", len(Xs))
        self.plan.predicts(len(Xs))
        with lapack_threads(self.plan.rows):
            look = functools.partial(marginals_of_all, part=part)
            means, variances = self.mode._in_chunks(look, Xs, part, together)
        extra = self.mode._extra(extra, Xs)
        return tuple(self.members[k]._told(X, means[:, k], variances[:, k], extra) for k in range(len(self.weights)))

    def _drawn(self, numbers: np.ndarray, X: Any, n: int, rng: np.random.Generator) -> np.ndarray | None:
        """n draws of f from each of these members, by one computation; None where each has to be asked."""
        together = self._together(X)
        Xs = np.zeros(0) if together is None else self._new_points(X)
        if together is None or not len(Xs):
            return None
        self.mode._check_draws(len(Xs), n)
        padded = filled(numbers, size_for(len(numbers), 1))
        keys = jax.random.split(jax.random.key(int(rng.integers(2**62))), len(padded))
        with lapack_threads(self.plan.rows):
            draws = np.asarray(draws_of_some(together, padded, keys, Xs, n))
        return self.mode._over(X, draws[..., 0], axis=2) if self.mode._single else draws

    def _together(self, X: Any) -> Posterior | None:
        """All members as one value, where they look at these places as they are."""
        if self.mode._places_of_outputs(X) is not None:
            return None
        ready = self.mode._as_grid(X) is None and self.conditional.for_places(self._new_points(X)) is self.conditional
        return self.members.together if ready and self.members.kept else None

    def _average(self, values: Sequence[np.ndarray]) -> np.ndarray:
        return np.tensordot(self.weights, np.stack(values), axes=1)

    def _moments(self, parts: Sequence[Any]) -> Moments:
        means, variances = (np.stack([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
        return mixed_moments(means, variances, self.weights)

    def _covariance(self, parts: Sequence[Any]) -> np.ndarray:
        """What the members leave open of several numbers, and what they differ by: one for all targets."""
        means = np.stack([part.mean for part in parts])
        apart = (means - self._average(list(means))).reshape(*means.shape[:2], -1)
        between = np.einsum("k,kit,kjt->ij", self.weights, apart, apart) / apart.shape[2]
        return self._average([part.covariance for part in parts]) + between

    def _new_points(self, X: Any) -> np.ndarray:
        return self.mode._new_points(X)
