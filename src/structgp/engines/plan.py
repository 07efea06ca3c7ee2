"""Which algorithm runs: every form that the prior has here, what it costs, and why the others cannot be had."""

from __future__ import annotations

import dataclasses
import math

import jax

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..posterior import Model
from ..structure.approximate import NAMES
from ..structure.base import No, Structure
from .base import Cost, Engine
from .cholesky import Cholesky
from .eigen import Eigen
from .independent import SEVERAL
from .kalman import Kalman
from .space_time import SpaceTimeChains
from .toeplitz import FourierToeplitz
from .toeplitz_grid import ToeplitzLines

ENGINES: tuple[Engine, ...] = (Kalman(), Eigen(), SpaceTimeChains(), ToeplitzLines(), FourierToeplitz(), Cholesky())


@dataclasses.dataclass(frozen=True)
class Offer:
    """One algorithm: its cost, or the reason why it does not apply."""

    engine: Engine
    cost: Cost | None = None
    reason: str | None = None
    note: str = ""
    error: float = 0.0

    @property
    def quality(self) -> str:
        """Whether the answer is exact, and how far the covariance is off if it is not."""
        return f"approximate (covariance error {self.error:.1e})" if self.error else self.engine.accuracy

    def __str__(self) -> str:
        if self.cost is None:
            return f"{self.engine.name:<10} no: {self.reason}"
        cost = f"{self.engine.name:<10} {self.quality}   {units(self.cost.flops, 'flop'):>9}   {units(self.cost.bytes, 'B'):>7}"
        return f"{cost}   {self.note}" if self.note else cost


@dataclasses.dataclass(frozen=True)
class Plan:
    """The offers that were compared, the chosen one first."""

    offers: tuple[Offer, ...]

    @property
    def engine(self) -> Engine:
        """The algorithm that runs."""
        return self.offers[0].engine

    def given(self, model: Model, inputs: Inputs, data: Data) -> Plan:
        """The plan once the data are known, which may ask for another version of the chosen algorithm."""
        engine = self.engine.specialised(model, inputs, data)
        first = self.offers[0] if type(engine) is type(self.engine) else _offer(engine, model, inputs)
        return Plan((first, *self.offers[1:]))

    def __str__(self) -> str:
        return "\n".join(str(offer) for offer in self.offers)

    __repr__ = __str__


def plan(model: Model, inputs: Inputs, structure: str = "auto", approximate: str | None = None) -> Plan:
    """Compare the algorithms for a model on inputs: the cheapest first, or the one for the structure that is asked for.

    `approximate` names what may stand in for kernels without a finite state; asked for by name, it is taken, or refused.
    """
    if approximate is not None:
        return _approximate_plan(model, inputs, structure, approximate)
    engines = ENGINES if model.likelihood.latents == 1 else SEVERAL
    offers = [_offer(engine.specialised(model, inputs), model, inputs) for engine in engines]
    known = [engine.structure for engine in engines]
    if structure not in ("auto", *known):
        raise ValueError(f"structure must be 'auto' or one of {known}, got {structure!r}")
    if structure != "auto":
        asked = offers[known.index(structure)]
        if asked.reason:
            raise ValueError(f"structure={structure!r} cannot be had: {asked.reason}; structure='auto' takes the best that can")
        return Plan((asked, *(offer for offer in offers if offer is not asked)))
    cost = lambda offer: offer.cost.flops if offer.cost else float("inf")
    return Plan(tuple(sorted(offers, key=cost)))


def _approximate_plan(model: Model, inputs: Inputs, structure: str, approximate: str) -> Plan:
    if approximate not in NAMES:
        raise ValueError(f"approximate must be one of {list(NAMES)}, or None to be exact, got {approximate!r}")
    if structure not in ("auto", Kalman.structure):
        raise ValueError(f"structure={structure!r} is exact, so nothing is approximate there: leave out one of the two")
    if model.likelihood.latents > 1:
        raise ValueError(f"approximate={approximate!r} cannot be had for several latents: leave it out")
    asked = _offer(Kalman(approximate=approximate).specialised(model, inputs), model, inputs)
    if asked.reason:
        raise ValueError(f"approximate={approximate!r} cannot be had: {asked.reason}")
    others = [_offer(engine.specialised(model, inputs), model, inputs) for engine in ENGINES]
    return Plan((asked, *(offer for offer in others if not isinstance(offer.engine, Kalman))))


def _offer(engine: Engine, model: Model, inputs: Inputs) -> Offer:
    kernel = model.kernel
    form = form_by_shape(engine, kernel, inputs)
    if isinstance(form, No):
        return Offer(engine, reason=form.reason)
    if not engine.any_sign and not model.likelihood.log_concave:
        return Offer(engine, reason=f"{type(model.likelihood).__name__} is not log-concave, so that factors may be negative")
    return Offer(engine, engine.cost(kernel, inputs), note=engine.note(kernel), error=engine.error(kernel))


def form_by_shape(engine: Engine, kernel: Kernel, inputs: Inputs) -> Structure | No:
    """The form by shapes alone: nothing is computed."""
    found: list[Structure | No] = []
    jax.eval_shape(lambda: found.append(engine.form(kernel, inputs)))
    return found[0]


def units(value: float, unit: str) -> str:
    """A number with a prefix: 42 kflop, 20 kB."""
    power = min(int(math.log10(max(value, 1.0)) // 3), 6)
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}{unit}"
