"""How it is computed: an algorithm that conditions a structure on sites, and what it offers for a model and data."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..posterior import Conditional, Model
from ..sites import Marginals, Sites
from ..structure.base import No, Structure
from ..structure.dense import variance_on_host
from .machine import Work

ShiftOf = Callable[[Marginals], Array]

NOT_NEEDED = No("there is a shorter way for these data")  # of algorithms that ask less of the data than these have


GLIMPSE = 1200  # rows of which a dense fit tells where to begin a costly climb
SOME, MANY_ROWS = 800, 1000  # rows that do the same for observations that are not Gaussian, where there are more than so many
PLACES = 1000  # whose prediction an offer speaks of
DRAWN = 200  # places of a joint draw that is spoken of
LEARNING, EVALUATING, CONDITIONING, PREDICTING = 3000, 150, 1800, 150  # calls that each is worth by Python and dispatch alone
AT_ONCE, DRAWING, LEAVING_OUT, KEEPING = 80, 400, 30, 3000
PLANNING = 3000  # more, where a kernel is tried factor by factor or term by term, or inducing inputs are placed
WARM, COLD = 6, 10  # looks at the marginals in a search for sites: from those of the last evaluation, and from nothing
MOST_HOLES = 5000  # values that may be missing: beyond, what they take away is a large matrix itself
NOT_SAID = Work()


@dataclasses.dataclass(frozen=True)
class Cost:
    """What an algorithm takes: floating-point operations of one evaluation of the evidence, bytes, and the work of each step.

    Where an engine does not say what bounds it, its operations are taken for those of products of matrices.
    """

    flops: float
    bytes: float
    rows: float = math.inf  # of the largest matrix that LAPACK gets from Python: several threads pay for large ones only
    evaluate: Work = NOT_SAID  # the evidence and its gradient, once
    condition: Work = NOT_SAID
    predict: Work = NOT_SAID  # at one place of many
    everywhere: Work = NOT_SAID  # at all own places at once
    draw: Work = NOT_SAID  # together at some places
    leave_out: Work = NOT_SAID  # each observation in turn
    update: Work = NOT_SAID  # by one row more
    keep: Work = NOT_SAID  # what a file does not hold and is computed again from it
    programs: float = 10.0  # what is compiled for all of it, in typical programs

    @property
    def evaluation(self) -> Work:
        """What one evaluation of the evidence and its gradient takes."""
        return self._evaluate + Work(calls=EVALUATING)

    def learning(self, evaluations: int) -> Work:
        """What so many evaluations take, and what comes before them."""
        return evaluations * self.evaluation + Work(calls=LEARNING)

    @property
    def conditioning(self) -> Work:
        """What conditioning takes."""
        return self._condition + Work(calls=CONDITIONING)

    def prediction(self, places: int = PLACES) -> Work:
        """What prediction takes at so many places."""
        each = self._evaluate * (1 / PLACES) if self.predict == NOT_SAID else self.predict
        return each * places + Work(calls=PREDICTING)

    def prediction_everywhere(self, rows: int) -> Work:
        """What prediction takes at all own places, one by one unless they are looked at as a whole."""
        if self.everywhere != NOT_SAID:
            return self.everywhere + Work(calls=AT_ONCE)
        return self.prediction(rows) + Work(functions=250.0 * rows)

    def drawing(self, rows: int) -> Work:
        """What one joint draw at some places takes: by their covariance, unless there is a shorter way."""
        joint = Work(products=2.0 * DRAWN**2 * rows, functions=2.0 * DRAWN * rows, eigen=float(DRAWN) ** 3)
        return (self.prediction(DRAWN) + joint if self.draw == NOT_SAID else self.draw) + Work(calls=DRAWING)

    def leaving_out(self, rows: int) -> Work:
        """What the belief about each observation without it takes: reading it off, where C⁻¹ has a diagonal already."""
        return (Work(functions=100.0 * rows) if self.leave_out == NOT_SAID else self.leave_out) + Work(calls=LEAVING_OUT)

    @property
    def updating(self) -> Work:
        """What one row more takes: conditioning anew, unless something grows."""
        return (self._condition if self.update == NOT_SAID else self.update) + Work(calls=CONDITIONING)

    @property
    def keeping(self) -> Work:
        """What writing a file and reading it takes: a checksum over what it holds, unless that is computed again."""
        return (Work(functions=1.5 * self.bytes) if self.keep == NOT_SAID else self.keep) + Work(calls=KEEPING)

    def searching(self, look: Work) -> Cost:
        """The same where sites have to be found, with so much work for each look at the marginals that they leave."""
        evaluate, condition = self._evaluate + WARM * look, self._condition + COLD * look
        update = self._condition + WARM * look  # what grows with Gaussian data does not where sites change
        known = dataclasses.replace(self, update=update, leave_out=NOT_SAID, programs=self.programs + 10)
        return dataclasses.replace(known, evaluate=evaluate, condition=condition)

    @property
    def _evaluate(self) -> Work:
        return Work(products=self.flops, traffic=self.bytes) if self.evaluate == NOT_SAID else self.evaluate

    @property
    def _condition(self) -> Work:
        return self._evaluate if self.condition == NOT_SAID else self.condition


@dataclasses.dataclass(frozen=True)
class Offer:
    """One algorithm with its static choices made: its cost and how right it is, or the reason why it does not apply."""

    engine: Engine
    cost: Cost | None = None
    reason: str | None = None
    note: str = ""
    error: float = 0.0  # the largest of the covariance, in units of the prior variance
    accuracy: str = "exact"
    grain: float = 0.0  # how much of a log evidence is left to chance: climbing does not go after less
    glimpse: bool = False  # whether a few of the rows should tell where a climb begins

    @property
    def quality(self) -> str:
        """Whether the answer is exact, and how far the covariance is off if it is not."""
        return f"approximate (covariance error {self.error:.1e})" if self.error else self.accuracy

    def __str__(self) -> str:
        if self.cost is None:
            return f"{self.engine.name:<10} no: {self.reason}"
        cost = f"{self.engine.name:<10} {self.quality}   {units(self.cost.flops, 'flop'):>9}   {units(self.cost.bytes, 'B'):>7}"
        return f"{cost}   {self.note}" if self.note else cost


class Engine(eqx.Module):
    """One algorithm for one form of the prior. Its fields are static choices, which `tuned` makes."""

    name: ClassVar[str]
    structure: ClassVar[str]
    learner: ClassVar[str] = "evidence"  # the way of learning that suits it, when none is asked for
    takes_unseen_rows: ClassVar[bool] = False  # they change nothing, exactly, so that rows may come in a few sizes

    @abc.abstractmethod
    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        """What this algorithm takes here, by shapes alone, or why it does not apply; without data, as if all were seen."""

    @abc.abstractmethod
    def form(self, kernel: Kernel, inputs: Inputs) -> Structure | No:
        """The prior in the form that this algorithm uses, or why it has none."""

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> Engine:
        """This algorithm with its static choices made for these values (on the host, cheaply); most have none to make."""
        return self

    def prepared(self, model: Model, inputs: Inputs, data: Data, search: bool = True) -> Inputs:
        """The places with what this algorithm must know of them at these values (on the host); most need nothing.

        Places that were prepared for values like these are returned as they are. Without a search a sketch of the same shape.
        """
        return inputs

    def in_parts(self, inputs: Inputs) -> list[Inputs]:
        """Prepared places in parts over which log|C| and TᵀC⁻¹T are sums, to be computed side by side; most are one."""
        return [inputs]

    def reduced(self, inputs: Inputs, data: Data) -> tuple[Engine, Inputs, Data]:
        """The same evidence of Gaussian data, by an algorithm for fewer places where some do not count."""
        return self, inputs, data

    def on_host(self, model: Model, inputs: Inputs, data: Data) -> Callable[[Any], tuple[Any, Any]] | None:
        """log p(y | θ) of Gaussian data and its gradient as a function on the host, where that is faster; most have none."""
        return None

    def shared(self, data: Data) -> Data:
        """The data, with what all observations have in common said once where this algorithm knows of it."""
        return data

    @abc.abstractmethod
    def log_det_and_gram(self, structure: Any, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """log|C| and TᵀC⁻¹T for the targets T that the sites stand for, differentiable: all that an evidence needs.

        Of natural sites log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h.
        """

    def marginals(self, structure: Any, sites: Sites) -> Marginals:
        """What natural sites leave of the process at their own places; NaN where they leave no density."""
        raise NotImplementedError(f"the {self.name} engine has no marginals for observations that are not Gaussian")

    def marginals_and_applied(self, structure: Any, sites: Sites, shift: ShiftOf) -> tuple[Marginals, Float[Array, " N *C"]]:
        """The marginals, and Σ applied to a shift that follows from them; in one go where the algorithm keeps its factor."""
        found = self.marginals(structure, sites)
        again = dataclasses.replace(sites, shift=shift(found)[..., None])
        return found, self.marginals(structure, again).mean[..., 0]

    @abc.abstractmethod
    def condition(self, structure: Any, sites: Sites) -> Conditional:
        """The process given the sites."""


class Formed(Conditional):
    """A process whose prior is kept in the form that its engine uses."""

    structure: eqx.AbstractVar[Any]

    @property
    def kernel(self) -> Kernel:
        """The kernel of the process."""
        return self.structure.kernel


def term(kernel: Any, part: int | None) -> Kernel:
    """The kernel, or one term of a sum."""
    return kernel if part is None else kernel.terms[part]


def form_by_shape(engine: Engine, kernel: Any, inputs: Inputs) -> Any:
    """The form by shapes alone: nothing is computed."""
    found: list[Structure | No] = []
    jax.eval_shape(lambda: found.append(engine.form(kernel, inputs)))
    return found[0]


def gaussian(model: Model, data: Data | None) -> bool:
    """Whether the observations are their own sites, as far as is known."""
    return model.likelihood.is_gaussian and (data is None or data.weight is None)


def not_gaussian(model: Model, data: Data | None) -> No | None:
    """Why sites would have to be found."""
    return not_concave(model) or (None if gaussian(model, data) else No("the observations are not Gaussian"))


def not_concave(model: Model) -> No | None:
    """Why sites may have negative precisions."""
    if model.likelihood.log_concave:
        return None
    return No(f"{type(model.likelihood).__name__} is not log-concave, so that factors may be negative")


def noise_variance(model: Model, inputs: Inputs, data: Data | None = None) -> Float[np.ndarray, " ..."]:
    """The variance of all Gaussian noise, what is known of it included, on the host: one for all, or one for each place."""
    own = np.asarray(model.likelihood.noise_at(np.asarray(inputs.some_place)))
    if own.ndim:
        own = np.asarray(model.likelihood.noise_at(np.asarray(inputs.points)))
    return own if data is None else own + np.asarray(data.noise)


def hardness(model: Model, inputs: Inputs) -> float:
    """How many times more steps conjugate gradients take, by how far Gaussian noise is below the prior variance."""
    variance = variance_on_host(model.kernel, inputs.some_place)
    below = variance / max(float(np.min(noise_variance(model, inputs))), 1e-12 * variance, np.finfo(float).tiny)
    return max(math.log10(max(below, 1.0)), 1.0)


def not_alike(model: Model, inputs: Inputs, data: Data | None) -> No | None:
    """Why places were not all seen with one noise level, as far as is known."""
    if isinstance(inputs, Grid) and not inputs.complete:
        return No("some cells are missing")
    return not_alike_where_seen(model, inputs, data) or (None if data is None or np.all(data.seen) else _uneven(inputs))


def not_alike_where_seen(model: Model, inputs: Inputs, data: Data | None) -> No | None:
    """The same of those places that were seen at all."""
    if gaussian(model, data) and np.ndim(model.likelihood.noise_at(np.asarray(inputs.some_place))):
        return No(f"the noise of {type(model.likelihood).__name__} depends on the place")
    if data is None:
        return None
    if not np.any(data.seen):
        return No("nothing was seen")
    noise = np.broadcast_to(data.noise, data.seen.shape)[data.seen]
    return _uneven(inputs) if np.ptp(noise) else None


def _uneven(inputs: Inputs) -> No:
    return No(f"some {'cells' if isinstance(inputs, Grid) else 'times'} have no value, or a noise of their own")


def noise_of(sites: Sites) -> Float[Array, ""]:
    """The one noise variance of sites that are equal, or empty; the mean lets the derivative reach all of them."""
    return jnp.count_nonzero(sites.precision) / jnp.sum(sites.precision)


def too_many(holes: int) -> No | None:
    """Why so many missing values are not taken out one by one."""
    return (
        No(f"{holes} values are missing, and only up to {MOST_HOLES} are taken out one by one") if holes > MOST_HOLES else None
    )


def units(value: float, unit: str) -> str:
    """A number with a prefix: 42 kflop, 20 kB."""
    power = min(int(math.log10(max(value, 1.0)) // 3), 6)
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}{unit}"
