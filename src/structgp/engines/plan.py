"""Which algorithm runs: every form that the prior has here, what it costs, and why the others cannot be had."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .. import where
from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Sum
from ..parameters.tree import free_vector, learned_leaves
from ..posterior import Model
from ..structure.approximate import NAMES
from ..structure.base import No
from .additive import AdditiveEngine
from .approximation import NAMED, Approximation, as_approximation, of_structure
from .base import (
    GLIMPSE,
    MANY_ROWS,
    NOT_NEEDED,
    NOT_SAID,
    PLACES,
    SOME,
    Cost,
    Engine,
    Offer,
    form_by_shape,
    gaussian,
    units,
)
from .block_toeplitz import BlockLevinson
from .cholesky import LARGEST, Cholesky, SignedCholesky, cost_of_matrix
from .eigen import Eigen
from .grid_holes import Krylov
from .grid_seen import SeenCells
from .independent import SEVERAL
from .inducing import FIRST, HELD, TOGETHER, InducingEngine, exact_rows
from .inducing_inputs import Inducing as Inducing
from .kalman import Kalman
from .machine import REFERENCE, Machine, Work, at_hand, reference
from .memory import check_offers, fits, fitting_first
from .neighbours import Neighbours as Neighbours
from .space_time import JointChain, SpaceTimeChains
from .toeplitz import FourierToeplitz
from .toeplitz_grid import ToeplitzLines
from .toeplitz_holes import FourierHoles
from .woodbury import Woodbury

# Of one structure the most general algorithm stands last: its reasons are the ones to give.
ENGINES: tuple[Engine, ...] = (
    Kalman(),
    Eigen(),
    SeenCells(),
    Krylov(),
    SpaceTimeChains(),
    JointChain(),
    ToeplitzLines(),
    FourierToeplitz(),
    FourierHoles(),
    BlockLevinson(),
    Woodbury(),
    SignedCholesky(),
    Cholesky(),
)
BY_NAME: tuple[Engine, ...] = (AdditiveEngine(24),)  # not exact in all they say: taken when asked for, and only then
RESTARTS = 3
SEARCHED = 2  # the same where sites are looked for through inducing inputs
FEW_ROWS = 500  # up to this many observations, learning starts from several places by itself
STARTS, EACH = 9, 3  # evaluations of a climb: at its starts, and for each number that is learned
MOST = 500  # of a climb, when nothing is said
CLEANED = 3  # climbs of plain processes that tell outliers apart, typically
SHORT = 0.05  # seconds of an evaluation, up to which all algorithms are fast
LONG = 10.0  # seconds from which on a step says beforehand how long it will take
SLOW = 600.0  # seconds of learning from which on it is said what would be quicker
COMPILED = 4  # programs that a prediction takes
WIDER = {"space-time": "kronecker"}  # what stands in for a structure that the prior has, but no algorithm for these data


class Estimate(NamedTuple):
    """About how many seconds the steps take on this machine, once compiled, and how much memory."""

    learn: float
    evaluations: int
    condition: float
    predict: float  # at 1,000 places
    compile: float
    bytes: float
    everywhere: float  # prediction at all places that were given
    sample: float  # one joint draw at 200 places
    leave_one_out: float
    update: float  # by one row
    save: float  # to a file, and read from it again

    def __str__(self) -> str:
        learn = f"learn ≈ {duration(self.learn)} ({self.evaluations} evaluations)"
        rest = f"condition {duration(self.condition)}, predict {PLACES:,} places {duration(self.predict)}"
        return f"{learn}, {rest}, compile ≈ {duration(self.compile)}, memory {units(self.bytes, 'B')}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The offers that were compared, the chosen one first, and what was seen in the inputs that nobody said.

    After learning it also says what was done about parameters, and why.
    """

    offers: tuple[Offer, ...]
    seen: str = ""
    evaluations: int = 60  # of the evidence that learning typically takes
    parameters: str = ""
    members: int = 1  # processes that are conditioned and asked, where parameters are averaged over
    to_begin: Work = NOT_SAID  # what learning takes before it climbs
    on_host: bool = False  # of a machine with an accelerator, where that would take longer
    places: int = 0  # that were given
    remedies: tuple[Remedy, ...] = ()  # what would be quicker by far, where learning takes long

    def estimate(self, machine: Machine | None = None) -> Estimate:
        """About how long what was chosen takes: on this machine, unless another is given."""
        cost = self.chosen.cost or Cost(0.0, 0.0)
        with where.on_host() if self.on_host else contextlib.nullcontext():
            machine = machine or at_hand()
        works = cost.conditioning, cost.prediction(), *self._others(cost)
        condition, predict, *others = (machine.seconds(self._by_all(work)) for work in works)
        learn, compiling = machine.seconds(self.learning()), machine.compile * cost.programs
        return Estimate(learn, self.evaluations, condition, predict, compiling, cost.bytes, *others)

    def _others(self, cost: Cost) -> tuple[Work, ...]:
        """What else can be asked of a process that was conditioned."""
        N = self.places
        return cost.prediction_everywhere(N), cost.drawing(N), cost.leaving_out(N), cost.updating, cost.keeping

    def _learning(self, cost: Cost, evaluations: int) -> Work:
        return self.to_begin + cost.learning(evaluations)

    def check_memory(self, inputs: Inputs) -> None:
        """Refuse what does not fit, and name what would: those remedies that are no offers as well."""
        offered = {offer.engine.structure for offer in self.offers if offer.cost}
        check_offers(self.offers, inputs, [words for words, other in self.remedies if other.engine.structure not in offered])

    def learning(self) -> Work:
        """What learning takes."""
        return self._learning(self.chosen.cost or Cost(0.0, 0.0), self.evaluations)

    def _by_all(self, work: Work) -> Work:
        """The work of all members, in one program."""
        return dataclasses.replace(self.members * work, calls=work.calls)

    @property
    def chosen(self) -> Offer:
        """What is taken up."""
        return self.offers[0]

    @property
    def engine(self) -> Engine:
        """The algorithm that runs."""
        return self.chosen.engine

    @property
    def rows(self) -> float:
        """The rows of the largest matrix that LAPACK gets."""
        return self.chosen.cost.rows if self.chosen.cost else 0

    def run_by(self, engine: Engine, accuracy: str | None = None) -> Plan:
        """The same plan with the static choices that were made when it was carried out, and how right it then was."""
        said = self.chosen.accuracy if accuracy is None else accuracy
        taken = self._taking(dataclasses.replace(self.chosen, engine=engine, accuracy=said))
        return dataclasses.replace(taken, remedies=())

    def tuned(self, model: Model, inputs: Inputs, data: Data) -> Plan:
        """The same algorithm for other values of the parameters: its static choices made anew."""
        again = self.again(model, inputs, data)  # what was chosen for other values is kept
        return self.run_by(self.engine.tuned(model, inputs, data)) if again is None else again

    def again(self, model: Model, inputs: Inputs, data: Data) -> Plan | None:
        """The same algorithm for other values or more data; None where it does not apply to them."""
        offer = self.engine.offer(model, inputs, data)
        if isinstance(offer, No):
            return None
        said = self.chosen.accuracy if offer.accuracy == "exact" else offer.accuracy
        known = dataclasses.replace(self, places=len(inputs))
        return known._taking(dataclasses.replace(offer, note=offer.note or self.chosen.note, accuracy=said))

    def seconds(self, machine: Machine) -> float:
        """About how many seconds all steps take on a machine, compilation included."""
        cost = self.chosen.cost or Cost(0.0, 0.0)
        steps = self._learning(cost, self.evaluations), self._by_all(cost.conditioning), self._by_all(cost.prediction())
        return sum(map(machine.seconds, steps)) + machine.compile * cost.programs

    def predicts(self, places: int) -> None:
        """Move a prediction at so many places from the host to the accelerator, if it is worth compiling for."""
        if self.on_host and self.chosen.cost and where.accelerated():
            host, accelerator = (REFERENCE[kind] for kind in ("cpu", "gpu"))
            work = self._by_all(self.chosen.cost.prediction(places))
            if host.seconds(work) > accelerator.seconds(work) + COMPILED * accelerator.compile:
                where.move(where.on_accelerator)

    def before(self, other: Plan) -> bool:
        """Whether what was chosen here goes before what was chosen for the same data seen in another way."""
        exact = self.chosen.quality == "exact", other.chosen.quality == "exact"
        return exact[0] if exact[0] != exact[1] else _rank(self.chosen) <= _rank(other.chosen)

    def _taking(self, offer: Offer) -> Plan:
        return dataclasses.replace(self, offers=(offer, *self.offers[1:]))

    @property
    def may_be_slow(self) -> bool:
        """Whether learning could take long on a machine like this one, or does not fit into its memory; nothing is measured."""
        return reference().seconds(self.learning()) > SLOW / 5 or not fits(self.chosen)

    def warn_if_slow(self, left: float = math.inf, stacklevel: int = 2) -> bool:
        """Say that learning takes long, and what would be quicker, unless it has to end before that; whether it was said."""
        if left <= SLOW or not self.may_be_slow or (seconds := self.estimate().learn) <= SLOW:
            return False
        remedies = "; ".join([*self._instead(), "fit(…, seconds=600) keeps the best of ten minutes"])
        said = f"learning takes about {duration(seconds)} by the {self.engine.name} engine: {remedies}"
        warnings.warn(said, UserWarning, stacklevel + 1)
        return True

    def _instead(self) -> list[str]:
        """What would be quicker, and how long it would take."""
        return [f"{remedy.words} learns in about {duration(remedy.plan.estimate().learn)}" for remedy in self.remedies]

    def announce(self, step: str, count: int = 1, wanted: Any = None) -> None:
        """Say how long a step will take if that is long: on a terminal, or where it is asked for.

        `count` are the evaluations of learning, or the places of a prediction.
        """
        cost = self.chosen.cost
        if not (sys.stderr.isatty() if wanted is None else wanted is True) or cost is None:
            return
        works = {
            "learning": self._learning(cost, count),
            "conditioning": cost.conditioning,
            "prediction": cost.prediction(count),
        }
        if reference().seconds(works[step]) > LONG / 5:  # else nothing is measured for it
            seconds = at_hand().seconds(works[step])
            if seconds > LONG:
                sys.stderr.write(f"{step} takes about {duration(seconds)} by the {self.engine.name} engine\n")

    def __str__(self) -> str:
        reasons = [(offer.engine.structure, offer.reason) for offer in self.offers]
        again = lambda i: reasons[i][1] == NOT_NEEDED.reason or reasons[i] in reasons[:i]  # said once for each structure
        lines = [str(offer) for i, offer in enumerate(self.offers) if offer.cost or not again(i)]
        if self.chosen.cost:
            estimate = self.estimate()
            lines.insert(1, f"{'':<10} {estimate}")
            if self.remedies and (estimate.learn > SLOW or not fits(self.chosen)):
                lines.insert(2, f"{'':<10} instead: {'; '.join(self._instead())}")
        said = (
            [self.seen] * bool(self.seen)
            + ["runs on the host: the accelerator would take longer"] * self.on_host
            + [f"parameters {self.parameters}"] * bool(self.parameters)
        )
        return "\n".join(lines + said)

    __repr__ = __str__


class Remedy(NamedTuple):
    """What could be asked for instead: the words that do, and the plan that it leads to."""

    words: str
    plan: Plan


def plan(
    model: Model,
    inputs: Inputs,
    structure: str = "auto",
    approximate: str | Approximation | None = None,
    data: Data | None = None,
    inference: str | None = None,
) -> Plan:
    """Compare the algorithms for a model on inputs and data: the cheapest first, or that for the structure asked for.

    Without data all places are taken to be seen equally well. `approximate` is what may stand in for the prior, a value or a
    name; asked for, it is taken, or refused. `inference` names the way in which sites will be found, None for Gaussian data.
    """
    structure, approximation = asked_for(approximate, structure)
    if approximation is not None:
        return _approximate_plan(model, inputs, structure, approximation, data, inference)
    engines, named = (ENGINES, BY_NAME) if model.likelihood.latents == 1 else (SEVERAL, ())
    check_structure(structure, model.likelihood.latents)
    offers = fitting_first(sorted((_answer(engine, model, inputs, data) for engine in engines), key=_rank))
    evaluations = evaluations_for(model, inputs, data)
    many = isinstance(model.kernel, Sum) and inputs.dimension > 1  # what is not asked for is worth a line there only
    offers += [_answer(engine, model, inputs, data) for engine in named if many or engine.structure == structure]
    if structure != "auto":
        chosen = _asked(offers, structure, model, inputs)
        offers = [chosen, *(offer for offer in offers if offer is not chosen)]
    to_begin = work_before(model, inputs, data, offers[0])
    found = Plan(tuple(offers), _seen_in(inputs), evaluations, to_begin=to_begin, places=len(inputs))
    if structure != "auto":
        return found
    if data is not None and _flops(found.chosen) > LARGEST**3:
        _refuse_what_is_too_large(found, plan(model, inputs).engine.structure, int(np.sum(data.seen)))
    return found


def check_structure(structure: Any, latents: int = 1, more: Iterable[str] = ()) -> None:
    """Refuse what is no structure: an exact one, what may stand in for it by name, or one `more` that this door knows."""
    engines: tuple[Engine, ...] = (*ENGINES, *BY_NAME) if latents == 1 else SEVERAL
    known = list(dict.fromkeys([*(engine.structure for engine in engines), *sorted(NAMED), *NAMES, *more]))
    if not isinstance(structure, str) or structure not in ("auto", *known):
        raise ValueError(
            f"structure must be 'auto' or one of {known}, or say how many as 'inducing:200' and 'neighbours:20' do, "
            f"got {structure!r}"
        )


def _seen_in(inputs: Inputs) -> str:
    return f"the rows of X are the cells of a grid: {inputs!r}" if isinstance(inputs, Grid) and inputs.from_rows else ""


def asked_for(approximate: str | Approximation | None, structure: str) -> tuple[str, Approximation | None]:
    """The structure, and what may stand in for the prior: what was given, or what the name of the structure stands for."""
    given = as_approximation(approximate)
    return of_structure(structure) if given is None else (structure, given)


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms" if seconds >= 0.001 else "1 ms"
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def _answer(engine: Engine, model: Model, inputs: Inputs, data: Data | None) -> Offer:
    offer = engine.offer(model, inputs, data)
    return Offer(engine, reason=offer.reason) if isinstance(offer, No) else offer


def evaluations_for(
    model: Model, inputs: Inputs, data: Data | None = None, restarts: int | None = None, engine: Engine | None = None
) -> int:
    """How many evaluations of the evidence learning typically takes: for each climb, the more the more numbers are learned."""
    more = restarts_for(model, inputs, data, engine) if restarts is None else restarts
    more += tells_outliers_apart(model)
    most = HELD + TOGETHER if engine is not None and _in_stages(model, data, engine) else (1 + more) * MOST
    return min(evaluations_of(len(free_vector(model)), more), most)


def evaluations_of(numbers: int, restarts: int) -> int:
    """The same for so many numbers and climbs besides the first."""
    return STARTS + (1 + restarts) * EACH * numbers if numbers else 1


def _in_stages(model: Model, data: Data | None, engine: Engine) -> bool:
    """Whether learning looks at some rows exactly, and then climbs with inducing inputs held before it moves them."""
    return engine.learner == InducingEngine.learner and gaussian(model, data)


def restarts_for(model: Model, inputs: Inputs, data: Data | None = None, engine: Engine | None = None) -> int:
    """How many climbs are added when nothing is said."""
    if len(inputs) > FEW_ROWS:
        return 0
    if gaussian(model, data):
        return RESTARTS
    if model.likelihood.latents > 1 and model.likelihood.default_inference == "ep":
        return 0  # with sites of several latents an evaluation is a search, and it fails where nothing fits
    return SEARCHED if engine is not None and engine.learner == InducingEngine.learner else 0


def tells_outliers_apart(model: Model) -> bool:
    """Whether learning begins also where a plain process would, without the rows that it does not expect."""
    return model.likelihood.told_apart(1.0, 2.0, 0.1) is not None


def work_before(model: Model, inputs: Inputs, data: Data | None, offer: Offer) -> Work:
    """What learning takes before it climbs: the climbs on some of the rows that tell where to begin."""
    numbers, rows = len(free_vector(model)), len(inputs) if data is None else int(np.sum(data.seen))
    climbing = lambda rows, climbs: evaluations_of(numbers, climbs - 1) * cost_of_matrix(rows, inputs.dimension).evaluation
    if offer.cost and _in_stages(model, data, offer.engine):
        others = sum(leaf.free_size for leaf in learned_leaves(model) if not leaf.path.endswith(".inputs"))
        exact = cost_of_matrix(min(rows, exact_rows(int(offer.cost.rows))), inputs.dimension).evaluation
        return min(evaluations_of(others, 0), FIRST) * exact
    if not numbers or offer.engine.learner != "evidence":
        return NOT_SAID
    if gaussian(model, data):
        looks = offer.grain and isinstance(inputs, Grid)
        return climbing(min(rows, GLIMPSE), 1 + restarts_for(model, inputs, data)) if looks else NOT_SAID
    if tells_outliers_apart(model):
        return climbing(min(rows, GLIMPSE), CLEANED)
    if offer.engine.structure == "dense" and rows > MANY_ROWS:
        return evaluations_of(numbers, 0) * (offer.cost.evaluation if offer.cost else NOT_SAID) * (SOME / rows) ** 3
    return NOT_SAID


def _flops(offer: Offer) -> float:
    return offer.cost.flops if offer.cost else math.inf


def _rank(offer: Offer) -> tuple[float, float]:
    """Seconds of an evaluation on the reference machine; what is short anyway is ranked by its operations.

    The reference stands for the machine at hand, so that the same data go the same way everywhere, and a measurement that went
    wrong does no harm. Among a few milliseconds, what a loop and a call cost hides which algorithm fits the data.
    """
    if offer.cost is None:
        return math.inf, math.inf
    return max(reference().seconds(offer.cost.evaluation), SHORT), offer.cost.flops


def _asked(offers: list[Offer], structure: str, model: Model, inputs: Inputs) -> Offer:
    """The cheapest offer for a structure that is asked for by name."""
    own = [offer for offer in offers if offer.engine.structure == structure]
    wider = [offer for offer in offers if offer.engine.structure == WIDER.get(structure)]
    has_form = any(not isinstance(form_by_shape(offer.engine, model.kernel, inputs), No) for offer in own)
    for offer in own + wider * has_form:
        if offer.cost:
            return offer
    reason = _reason(own)
    raise ValueError(f"structure={structure!r} cannot be had: {reason}; structure='auto' takes the best that can")


def _reason(offers: list[Offer]) -> str:
    """Why none of some offers can be had: the last word of those who have one."""
    return [offer.reason for offer in offers if offer.reason and offer.reason != NOT_NEEDED.reason][-1]


def _refuse_what_is_too_large(found: Plan, usual: str, rows: int) -> None:
    """Where gaps leave nothing but a matrix that is too large, the structure that they spoil says why."""
    spoilt = [offer for offer in found.offers if offer.engine.structure == usual and offer.reason]
    if found.engine.structure != usual and spoilt:
        raise ValueError(
            f"{_reason(spoilt)}, which leaves matrices that are too large for {rows} observations: leave out such places, "
            "take a kernel with a finite state along the long axis, or give approximate=sg.Inducing(500)"
        )


def _approximate_plan(
    model: Model, inputs: Inputs, structure: str, approximation: Approximation, data: Data | None, inference: str | None
) -> Plan:
    approximation.check(model, structure)
    needless = approximation.needless(inputs)
    if needless:
        found = plan(model, inputs, data=data)
        return Plan((dataclasses.replace(found.chosen, note=needless), *found.offers[1:]))
    asked = _answer(approximation.engine(model, inference), model, inputs, data)
    if asked.reason:
        raise ValueError(f"approximate={approximation} cannot be had: {asked.reason}")
    asked = dataclasses.replace(asked, accuracy=approximation.accuracy(inputs) or asked.accuracy)
    exact = ENGINES if model.likelihood.latents == 1 else SEVERAL
    others = [engine for engine in exact if engine.structure != approximation.structure]
    offers = (asked, *(_answer(engine, model, inputs, data) for engine in others))
    to_begin = work_before(model, inputs, data, asked)
    evaluations = evaluations_for(model, inputs, data, engine=asked.engine)
    return Plan(offers, _constant_in(inputs), evaluations, to_begin=to_begin, places=len(inputs))


def _constant_in(inputs: Inputs) -> str:
    X = np.asarray(inputs.points)
    which = [str(d) for d in np.flatnonzero(np.ptp(X, axis=0) == 0)] if len(X) > 1 else []
    if not which:
        return ""
    columns, are = ("columns", "are") if len(which) > 1 else ("column", "is")
    return f"{columns} {', '.join(which)} of X, counted from 0, {are} constant: nothing can be learned there"
