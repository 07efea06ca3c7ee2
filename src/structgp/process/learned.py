"""Learning: where to begin, what is climbed, what is believed of the parameters, and what follows from where it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._types import Seed, generator, whole
from ..engines.approximation import Approximation
from ..engines.base import NOT_SAID
from ..engines.machine import reference
from ..engines.memory import spare
from ..engines.plan import Plan, evaluations_for, restarts_for
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..learn.account import INTERRUPTED, Learning, warn_if_pressed
from ..learn.average import LOOKS_AT_MOVES, average
from ..learn.believe import believe
from ..learn.blocks import block_start
from ..learn.clock import OUT_OF_TIME, Deadline
from ..learn.density import Density
from ..learn.em import maximise_by_em
from ..learn.evidence import objective_at
from ..learn.inducing import climb_with_inputs_held, maximise_through_inputs
from ..learn.initialise import suggested
from ..learn.maximise import maximise
from ..learn.objective import Objective
from ..learn.peak import PATIENCE, Averaging, choose
from ..learn.rotate import check_rotations, perturbed, turned
from ..learn.sites import SiteEvidence
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import free_vector, learned_leaves, leaves, named_values, with_values
from .conditioning import compiled_ahead, condition
from .fitted import Fitted
from .members import are_kept
from .mixture import FittedMixture, averaged
from .parts import climbers
from .planned import Planned

STOPPED = (OUT_OF_TIME, INTERRUPTED)  # where learning ended without a mode to average around
LEARNERS: dict[str, Any] = {"evidence": maximise, "em": maximise_by_em}
OWN: dict[str, Any] = {"inducing": maximise_through_inputs}  # of engines that have a way of their own to climb the evidence


class Asked(NamedTuple):
    """How learning was asked for."""

    restarts: int | None
    seed: Seed
    max_evaluations: int
    progress: bool | None
    deadline: Deadline
    method: str
    parameters: Any
    rotations: int | str
    starts: Sequence[Any]
    over: Any


def check_method(method: Any) -> None:
    """Refuse a way of learning that does not exist."""
    if not isinstance(method, str) or method not in LEARNERS:
        raise ValueError(f"method must be one of {sorted(LEARNERS)}, got {method!r}")


def learned(task: Planned, asked: Asked, approximation: Approximation | None) -> Fitted | FittedMixture:
    """The process at the parameters that were learned, or averaged over them."""
    gp, inputs, data, _, rule = task
    if rule is not None and asked.method == "em":
        raise ValueError("method='em' needs Gaussian observations: leave it out, and the evidence is climbed by its gradient")
    if asked.method == "em" and (len(asked.starts) or asked.rotations):
        raise ValueError("method='em' goes on from the values of the model: leave out starts and rotations, or method")
    restarts = _restarts(task, asked.method) if asked.restarts is None else asked.restarts
    options: dict[str, Any] = {
        "restarts": whole(restarts, "restarts"),
        "seed": generator(asked.seed),
        "max_evaluations": whole(asked.max_evaluations, "max_evaluations", 1),
        "progress": asked.progress,
        "deadline": asked.deadline,
    }
    rotations = check_rotations(asked.rotations)
    others = _of_this_form(gp, asked.starts, approximation, inputs, data)
    chosen = dataclasses.replace(
        task.plan, evaluations=evaluations_for(gp, inputs, data, options["restarts"], task.plan.engine)
    )
    averaging, chosen = decided(gp, chosen, observations(data), asked.parameters, asked.method)
    if not chosen.warn_if_slow(asked.deadline.left(), stacklevel=5):
        chosen.announce("learning", chosen.evaluations, asked.progress)
    first = None
    if averaging is not None and _through_inputs(chosen, asked.method) and (rule is None or _learned_inputs(gp)):
        gp, first = _with_inputs_held(task, chosen, {**options, "others": others})
        others = []
    task = task._replace(gp=gp, plan=chosen)
    beliefs = None if averaging is None else believe(gp, np.asarray(inputs.points), data)
    sites = None if rule is None else SiteEvidence(gp, inputs, data, chosen.engine, rule)
    gradient = None if sites is None else sites.begin(free_vector(gp))
    options |= _climbed(task, sites, beliefs)
    if asked.over is not None:
        options["over"] = climbers(gp, asked.over, asked.method)
    others += _turned(task, rotations, options)
    members = averaging.count if averaging is not None and are_kept(chosen, averaging.count) else 0
    learn = climb_with_inputs_held if first is not None else _learner(chosen, asked.method)
    ahead = functools.partial(compiled_ahead, gp, inputs, data, chosen.engine, rule, members, after=gradient)
    with lapack_threads(chosen.rows), ahead() if spare(chosen.chosen) else contextlib.nullcontext():
        if sites is not None and learn is maximise:
            others += block_start(gp, inputs, data, options["objective"], sites, asked.deadline)
        if others:
            options["others"] = others
        found, learning = learn(gp, inputs, data, chosen.chosen, **options)
        at_best = None if sites is None else sites.sites(free_vector(found), late=asked.deadline.passed())
    learning = learning if first is None else _together(first, learning)
    warn_if_pressed(learning, stacklevel=5)
    chosen = chosen.tuned(found, inputs, data)
    if averaging is not None and isinstance(asked.parameters, str) and asked.parameters == "auto":
        averaging, chosen = averages_in_time(averaging, chosen, len(free_vector(gp)), learning, asked.deadline)
    given = condition(found, inputs, data, chosen, rule, found=at_best, members=members)
    best = Fitted.of(found, inputs, data, given, learning)
    if averaging is None or beliefs is None or learning.message in STOPPED:
        return best
    with lapack_threads(chosen.rows):
        density = options.get("objective") or Density(objective_at(found, gp, inputs, data, chosen.chosen), beliefs)
        may_move = _may_move(chosen, learning, asked.deadline)
        return averaged(best, average(density, free_vector(found), averaging, options.get("over"), may_move))


def decided(gp: Any, chosen: Plan, seen: int, parameters: Any, method: str = "evidence") -> tuple[Averaging | None, Plan]:
    """How parameters are averaged over, and the plan that knows of it."""
    inputs = _learned_inputs(gp)
    free = sum(leaf.free_size for leaf in learned_leaves(gp) if leaf.path not in inputs)
    cost = chosen.chosen.cost
    averaging, why = choose(parameters, seen, free, method, cost.evaluation if cost else NOT_SAID)
    if averaging is None:
        return None, dataclasses.replace(chosen, parameters=why)
    evaluations = chosen.evaluations + averaging.evaluations(free)
    return averaging, dataclasses.replace(chosen, parameters=why, members=averaging.count, evaluations=evaluations)


def observations(data: Data) -> int:
    """How many numbers were observed."""
    return int(np.sum(data.seen)) * data.y.shape[1]


def _learner(chosen: Plan, method: str) -> Any:
    return OWN.get(chosen.engine.learner, LEARNERS[method]) if method == "evidence" else LEARNERS[method]


def _through_inputs(chosen: Plan, method: str) -> bool:
    return _learner(chosen, method) is maximise_through_inputs


def _restarts(task: Planned, method: str) -> int:
    """How often learning begins again when nothing is said."""
    return restarts_for(task.gp, task.inputs, task.data, task.plan.engine) if method == "evidence" else 0


def _climbed(task: Planned, sites: SiteEvidence | None, beliefs: Any) -> dict[str, Any]:
    """What learning climbs, where it is not the plain evidence."""
    if sites is None:
        return {} if beliefs is None else {"beliefs": beliefs}
    gp, engine = task.gp, task.plan.engine
    evidence = Objective(gp, sites)
    climbed: dict[str, Any] = {"objective": evidence if beliefs is None else Density(evidence, beliefs)}
    if engine.structure == "dense":
        of_rows = lambda places, some: SiteEvidence(gp, places, some, engine, sites.inference)
        climbed["objective_of"] = lambda places, some: Objective(gp, of_rows(places, some))
    return climbed


def _turned(task: Planned, rotations: int | str, options: dict[str, Any]) -> list[Any]:
    """Models with other directions to begin at as well."""
    if not rotations:
        return []
    gp, inputs, data, chosen, _ = task
    start = suggested(gp, np.asarray(inputs.points), data)
    if not isinstance(rotations, str):
        return list(turned(start, rotations, options["seed"]))
    climbed = options.get("objective") or objective_at(start, gp, inputs, data, chosen.chosen)
    return [perturbed(start, climbed, options["seed"])]


def _learned_inputs(gp: Any) -> list[str]:
    """The paths of inducing inputs that are learned: they say where f is looked at, and nobody believes anything of them."""
    return [leaf.path for leaf in learned_leaves(gp) if leaf.path.endswith(".inputs")]


def _with_inputs_held(task: Planned, chosen: Plan, options: dict[str, Any]) -> tuple[Any, Learning]:
    """The model with the best inducing inputs, which are held from then on, and how they were found."""
    gp, inputs, data, _, rule = task
    if rule is not None:
        options = options | {"objective": Objective(gp, SiteEvidence(gp, inputs, data, chosen.engine, rule))}
    with lapack_threads(chosen.rows):
        found, learning = maximise_through_inputs(gp, inputs, data, chosen.chosen, **options)
    own = _learned_inputs(gp)
    return found.freeze(*own) if own else found, learning


def _together(first: Learning, then: Learning) -> Learning:
    evaluations, seconds = first.evaluations + then.evaluations, first.seconds + then.seconds
    return dataclasses.replace(then, evaluations=evaluations, seconds=seconds)


def _may_move(chosen: Plan, learning: Any, deadline: Deadline) -> bool:
    """Whether there is time to move members of an average along a density that is far from a normal one."""
    cost, each = chosen.chosen.cost, learning.seconds / max(learning.evaluations, 1)
    seconds = reference().seconds(LOOKS_AT_MOVES * (cost.evaluation if cost else NOT_SAID))
    return seconds <= PATIENCE and deadline.allows(LOOKS_AT_MOVES * each)


def _of_this_form(gp: Any, given: Sequence[Any], approximation: Approximation | None, inputs: Inputs, data: Data) -> list[Any]:
    """Models to begin at as well, as the model with their values."""
    moved = {leaf.path for leaf in leaves(gp) if leaf.path.endswith(".inputs")} | {leaf.path for leaf in learned_leaves(gp)}
    found = []
    shapes = lambda model: {leaf.path: np.shape(leaf.value) for leaf in leaves(model)}
    for number, start in enumerate(given):
        model = start
        if isinstance(start, type(gp)) and approximation is not None and not approximation.needless(inputs):
            model = approximation.applied(start, inputs, data)
        if not isinstance(model, type(gp)) or shapes(model) != shapes(gp):
            raise ValueError(f"starts[{number}] is {start!r}, which has not the parameters of {gp!r}: give models of its form")
        found.append(with_values(gp, {path: value for path, value in named_values(model).items() if path in moved}))
    return found


def averages_in_time(
    averaging: Averaging, chosen: Plan, free: int, learning: Any, deadline: Deadline
) -> tuple[Averaging | None, Plan]:
    """The average that was decided on if there is time for it: about an evaluation for each difference and each member."""
    each = learning.seconds / max(learning.evaluations, 1)
    if deadline.allows(each * (2 * free + averaging.count)):
        return averaging, chosen
    return None, dataclasses.replace(chosen, parameters="best: there was no time to average over them", members=1)
