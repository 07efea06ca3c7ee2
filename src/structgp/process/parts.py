"""A series in parts, on one machine or on many: read, learned from and conditioned on without ever being in one place."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from .._types import Seed, double_precision, generator, whole
from ..crew import Crew, crew_for
from ..engines import memory
from ..engines.approximation import FiniteState, as_approximation
from ..engines.chain_parts import ChainInParts
from ..engines.inducing_inputs import Inducing
from ..inputs.clock import Clocks
from ..inputs.layouts import as_inputs
from ..inputs.observations import Data
from ..inputs.parts import Facts, Source, clocks_of_rows, in_order, look, read_all, read_part, share_of
from ..learn.account import Learning, warn_if_pressed
from ..learn.clock import Deadline
from ..learn.initialise import candidates, limits_of, units_of
from ..learn.maximise import climb
from ..learn.objective import Objective
from ..learn.parts import SeriesEvidence
from ..parameters.tree import free_vector
from ..structure.base import No
from .conditioning import check_inputs
from .fitted_parts import SHARE, Cuts, FittedParts, Known, PartsPlan, held_parts, plan_of
from .parts_of_rows import condition_rows, fit_rows

TAKEN = {"structure": ("auto", "markov"), "method": ("evidence",), "parameters": ("auto", "best")}

Sources = tuple[list[Any], list[Any], list[Any]]


class Looked(NamedTuple):
    """Data in parts that were looked at once: their rows where they will be worked on, and what is known of each."""

    rows: list[Any]
    facts: list[Facts]
    crew: Crew
    clocks: Clocks
    missing: str
    sources: list[Source]

    @property
    def observed(self) -> tuple[int, int]:
        """How many values were seen, and of how many targets."""
        return sum(fact.seen for fact in self.facts), self.facts[0].targets

    @property
    def some(self) -> tuple[np.ndarray, Data]:
        """Rows from all parts that tell where learning begins."""
        join = lambda *parts: np.concatenate(parts)
        return join(*(fact.X for fact in self.facts)), jax.tree.map(join, *(fact.data for fact in self.facts))


@double_precision
def read_parts(sources: Sources, gp: Any, missing: str, over: Any, options: dict[str, Any]) -> Looked:
    """The parts where they will be worked on, and what has to be known of them; those without rows are left out."""
    _check_options(gp, options)
    crew = crew_for(over, SHARE * memory.available())
    lists = [list(part) for part in sources]
    count = len(lists[0])
    same = lambda value: [value] * count
    rows, clocks = read_all(crew, read_part, clocks_of_rows, *lists, same(gp.likelihood), same(missing))
    looked = crew.map(look, rows, same(share_of(count)), range(count))
    some = [i for i, facts in enumerate(looked) if facts is not None]
    if not some:
        raise ValueError("there are no rows: check what the parts are read from")
    facts = [looked[i] for i in some]
    if len({(fact.targets, len(fact.first)) for fact in facts}) > 1:
        raise ValueError("X and y must have the same columns in all parts")
    ends = np.stack([facts[0].first, facts[-1].last])
    check_inputs(gp, as_inputs(ends))
    read_from = [Source(*(part[i] for part in lists)) for i in some]
    return Looked([rows[i] for i in some], facts, crew, clocks, missing, read_from)


def climbers(gp: Any, over: Any, method: str) -> Crew:
    """Who does the climbs and moves the chains of data in memory, each by itself."""
    if method != "evidence":
        raise ValueError(f"over= has the climbs of an evidence done elsewhere, and method={method!r} makes none: leave it out")
    if not gp.likelihood.is_gaussian and not gp.likelihood.log_concave:
        raise ValueError(
            f"the sites of {type(gp.likelihood).__name__} depend on those that were found before, so that its climbs stay "
            "together: leave out over"
        )
    return crew_for(over, 0.0)


def in_time(looked: Looked, gp: Any) -> tuple[Cuts, Known]:
    """The parts of a series in the order of time, each with the model."""
    order = in_order(looked.facts)
    facts = [looked.facts[i] for i in order]
    firsts, lasts = (np.array([float(getattr(fact, name)[0]) for fact in facts]) for name in ("first", "last"))
    cuts = Cuts(
        *(firsts, lasts, tuple(fact.rows for fact in facts), tuple(order)),
        *(*looked.observed, facts[0].data.flat, min(fact.least_noise for fact in facts)),
        *(looked.clocks, looked.missing, tuple(looked.sources[i] for i in order)),
    )
    return cuts, held_parts(gp, cuts, [looked.rows[i] for i in order], looked.crew)


def _check_options(gp: Any, options: dict[str, Any]) -> None:
    """Refuse what a series in parts cannot do."""
    if not gp.likelihood.is_gaussian:
        raise ValueError(
            f"data in parts must have Gaussian noise, not {type(gp.likelihood).__name__}, whose sites take many passes over "
            "all rows: fit on some of the rows in memory"
        )
    if options.get("structure") == "dense":
        raise ValueError("structure='dense' has no parts: its matrix couples all rows")
    for name, value in options.items():
        taken = TAKEN.get(name, (None, 0, ()))
        if not any(value is known or (isinstance(value, (str, tuple, int)) and value == known) for known in taken):
            can = f": leave it out, or take {taken[-1]!r}" if name in TAKEN else ": leave it out"
            raise ValueError(f"{name}={value!r} is not for data in parts{can}")


def _engine(gp: Any, cuts: Cuts, approximate: Any) -> tuple[Any, ChainInParts]:
    """What makes the static choices that suit a model, and those of this one; refused where there is no chain."""
    approximation = as_approximation(approximate)
    if approximation is not None and not isinstance(approximation, FiniteState):
        raise ValueError(f"data in parts take approximate=Inducing(500), 'state-space' or 'matern', got {approximation}")
    name, ends = getattr(approximation, "name", None), (cuts.firsts[0], cuts.lasts[-1])
    found = ChainInParts.along(gp.kernel, *ends, name)
    if isinstance(found, No):
        raise ValueError(
            f"data in parts need a kernel with a finite state along one column: {found.reason}. "
            "structure='dense' has no parts: its matrix couples all rows; approximate=Inducing(500) has"
        )
    tuned = lambda model: found.tuned(model, float(ends[0]), cuts.least_noise)
    return tuned, tuned(gp)


@double_precision
def plan_parts(gp: Any, looked: Looked, approximate: Any = None) -> PartsPlan:
    """What would run, and what it would send."""
    cuts, known = in_time(looked, gp)
    return plan_of(gp, cuts, known.crew, _engine(gp, cuts, approximate)[1])


@double_precision
def condition_parts(gp: Any, looked: Looked, approximate: Any = None) -> Any:
    """The process given data in parts, with the parameters as they are."""
    approximation = as_approximation(approximate)
    if isinstance(approximation, Inducing):
        return condition_rows(gp, looked, approximation)
    cuts, known = in_time(looked, gp)
    return _given(gp, cuts, known, *_engine(gp, cuts, approximate))


def _given(
    gp: Any, cuts: Cuts, known: Known, tuned: Any, engine: ChainInParts, learning: Learning | None = None
) -> FittedParts:
    theta = free_vector(gp)
    evidence = SeriesEvidence(gp, *known, tuned, cuts.series)
    others = evidence.others(theta, engine)
    if others is None:
        raise ValueError("the parts have no finite message at these values: check the data for extreme values")
    log_evidence, weights = evidence.weights(theta, *evidence.sums(theta, engine, others))
    if not np.isfinite(log_evidence):
        raise ValueError(f"the log evidence is {log_evidence}: check the data for extreme values, or give other values")
    plan = plan_of(gp, cuts, known.crew, engine)
    return FittedParts(gp, plan, weights, log_evidence, learning, cuts, tuple(others), engine, known)


@double_precision
def fit_parts(
    gp: Any,
    looked: Looked,
    *,
    approximate: Any,
    restarts: int | None,
    seed: Seed,
    max_evaluations: int,
    progress: Any,
    deadline: Deadline,
) -> Any:
    """Learn from data in parts, then condition on them."""
    began = time.perf_counter()
    options: dict[str, Any] = {"restarts": whole(restarts or 0, "restarts"), "seed": generator(seed), "progress": progress}
    options |= {"max_evaluations": max_evaluations, "deadline": deadline}
    approximation = as_approximation(approximate)
    if isinstance(approximation, Inducing):
        return fit_rows(gp, looked, approximation, options)
    cuts, known = in_time(looked, gp)
    tuned, _ = _engine(gp, cuts, approximate)
    X, data = looked.some
    objective = Objective(gp, SeriesEvidence(gp, *known, tuned, cuts.series))
    starts = [free_vector(candidate) for candidate in candidates(gp, X, data)]
    count = max(cuts.seen * cuts.targets, 1)
    options |= {"units": units_of(gp, X, data), "limits": limits_of(gp, X, data)}
    learned, learning = climb(gp, objective, starts, count, began, **options)
    warn_if_pressed(learning, stacklevel=5)
    return _given(learned, cuts, known, tuned, tuned(learned), learning)
