"""The choice among candidates: each learns from a part of the rows, the best is given all of them.

A model of a series is there to forecast, so that candidates forecast the end of the rows that they learned from, from several
places before it, as far ahead as what is held out. A few forecasts of one series say little, and where they do not clearly
disagree the evidence decides, as it does for curves and grids: at its peak, less ½ log n for each number that was learned
(Schwarz 1978), so that a random walk is not outdone by whatever has more to adjust. Neighbours are alike, and n, the number of
things seen that tell of a parameter, is taken as √N. Tables are compared as `models.judge` says, row by row; where rows are
places on a map, a function of the place is taken unless a sum of functions is clearly better. Along a line the best is tried
again for the logarithm of a positive level; where it leaves outliers, groups of them, or residuals that are larger in some
places, the same with Student-t, twinned or heteroscedastic noise is tried last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from ...learn.clock import NEVER, OUT_OF_TIME, Deadline
from ...learn.peak import choose as averaging
from ...models import judge
from ...models.candidates import OTHERS, Candidate
from ...models.judge import log_probabilities
from ...parameters.tree import free_vector
from ...process.mixture import FittedMixture
from ..model import TABLES, Evaluation, Trial
from .candidates import FEW_PER_COLUMN, as_shape, swells
from .noise import left_by, noise_asked
from .problem import Problem
from .scores import evaluate, left_out
from .timing import Timing, Watch

FEW_ROWS = 20  # below this no row can be spared
ALIKE = 1e-3  # of two candidates that differ by less, the first is taken
ORIGINS = 5  # places from which a candidate forecasts, at most
BY_CHANCE = 0.02  # how rarely forecasts that are as good may look so much worse; of five pieces 3 standard errors
FEW_PIECES = 3  # forecasts from fewer places have no standard error to speak of

Say = Callable[[str, int, float | None], None]  # what is done, the number of the evaluation, the best log evidence so far


def quiet(what: str, evaluation: int = 0, evidence: float | None = None) -> None:
    """Nobody is told."""


class Outcome(NamedTuple):
    """The best candidate given all rows, all that were tried, how the best did on rows it had not seen, and what to note."""

    fitted: Any
    trials: tuple[Trial, ...]
    evaluation: Evaluation
    notes: tuple[str, ...]
    rows: np.ndarray  # that it was given


class Attempt(NamedTuple):
    """A candidate that was tried, or not; the log probabilities of what it forecast, place by place, or of rows held out."""

    trial: Trial
    fitted: Any
    candidate: Candidate
    scores: np.ndarray | None = None


def compare(
    problem: Problem,
    candidates: list[Candidate],
    deadline: Deadline,
    say: Say = quiet,
    parameters: Any = "best",
    likelihood: str = "auto",
) -> Outcome:
    """Try the candidates that there is time for, and give the best of them all rows; learning ends when its time is over.

    Candidates are compared by their best parameters; the chosen one is then averaged over `parameters` that are unsure: for
    its scores from the rows that are not held out, and at last from all of them. Where a likelihood is named, numbers scatter
    as it says.
    """
    asked = noise_asked(likelihood, problem.task)
    rng = np.random.default_rng(problem.seed)
    held, kind = hold_out(problem, rng)
    unlearned = held if problem.shape != "grid" else np.zeros_like(held)  # a grid with holes takes long to learn from
    tried: list[Attempt] = []
    timing, averaged = Timing(deadline), [one for one in candidates if _must_average(one, problem, parameters)]
    early = candidates[0] if asked is None and swells(problem) else None
    for candidate in _then_other_noise(timing.in_order(candidates, averaged), tried, problem, asked, early):
        pace = timing.pace()
        left, expected = timing.left(candidate), pace * candidate.seconds
        if tried and expected > left:
            note = f"left out: about {expected:.0f} s of learning, {max(left, 0):.0f} s were left"
            tried.append(Attempt(Trial(candidate.name, note=note), None, candidate))
            continue
        say(candidate.name, 0, None)
        until, watch = timing.learning(), timing.watch(candidate, any(candidate is one for one in averaged))
        spare = timing.scoring() if any(attempt.fitted is not None for attempt in tried) else NEVER
        tried.append(_try(problem, candidate, unlearned, rng, say, until, watch, spare))
    tried.sort(key=lambda attempt: [*candidates, attempt.candidate].index(attempt.candidate))  # the simpler first
    ran = [attempt for attempt in tried if attempt.fitted is not None]
    if not ran:
        raise ValueError(f"no candidate could be learned: {tried[0].trial.note}")
    of_kind = [one for one in ran if asked and all(one.candidate is not plain for plain in candidates)]
    if asked and not of_kind:
        raise ValueError(
            f"likelihood {likelihood!r} goes with one function of all columns, which could not be learned here: "
            "give a longer --budget, or leave it to auto"
        )
    best = _best(of_kind or ran, problem)
    why = {id(attempt): said for attempt, said in zip(ran, _reasons(ran, best, problem), strict=True)}
    trials = tuple(dataclasses.replace(one.trial, chosen=one is best, why=why.get(id(one), "")) for one in tried)
    alone, late = best.fitted, ""
    if parameters != "best" and best.candidate.rows is None and not _out_of_time(best.fitted):
        if parameters != "auto" or timing.allows_average(best.candidate):
            say("averaging over what is unsure", 0, None)
            learned = np.flatnonzero(~unlearned)
            places = as_shape(problem.X[learned], problem.shape)
            best = best._replace(fitted=best.candidate.average(best.fitted, places, problem.y[learned], parameters))
            if not any(isinstance(part, FittedMixture) for part in _parts(best.fitted)) and _unsure(best, problem):
                late = (
                    f"{best.trial.name}: its best parameters are taken as certain, though few rows leave them unsure, "
                    "and intervals are narrower for it"
                )
        elif best.candidate.plan is not None and _unsure(best, problem):
            late = "there was no time to average over what these rows leave unsure: a longer --budget gives honest intervals"

    def given(rows: np.ndarray) -> tuple[Any, np.ndarray]:
        """The best candidate given some rows as far as it can take them, and which it took."""
        taken = _some(rows, best.candidate.rows, problem, rng)
        fitted = best.candidate.refit(best.fitted, as_shape(problem.X[taken], problem.shape), problem.y[taken])
        return fitted, taken

    seen = best.fitted if (held == unlearned).all() else given(np.flatnonzero(~held))[0]
    evaluation = evaluate(problem, seen, held, kind)
    if best.fitted is not alone and evaluation.covered and (held == unlearned).all() and not deadline.passed():
        before = evaluate(problem, alone, held, kind).scores["this model"]
        evaluation = dataclasses.replace(evaluation, with_best=before)
    say("giving the chosen model all rows", 0, None)
    every = np.arange(len(problem.y))
    if best.fitted is not alone and unlearned.any() and timing.allows_average(best.candidate):
        places = as_shape(problem.X, problem.shape)  # few rows: the last may say what none before did
        fitted, rows = best.candidate.average(best.fitted, places, problem.y, parameters), every
    else:
        fitted, rows = given(every) if unlearned.any() or best.candidate.rows else (best.fitted, every)
    if timing.left() > 0:
        evaluation = dataclasses.replace(evaluation, left_out=left_out(problem, fitted, held))
    whole = len(rows) == len(every)
    notes: tuple[str, ...] = () if whole else (f"learned from {len(rows)} of {len(every)} rows, chosen at random",)
    if _out_of_time(best.fitted):
        notes = (*notes, "time was over before the chosen model had converged: a longer --budget may make it better")
    if parameters not in ("auto", "best") and best.fitted is alone and not late:
        notes = (*notes, f"parameters are the best ones, as {best.trial.name} is not averaged over them here")
    notes = (*notes, late) if late else notes
    if problem.shape == "grid" and held.any():
        notes = (*notes, "the parameters were learned from all cells, those that were held out for the scores included")
    return Outcome(fitted, trials, evaluation, notes, rows)


def _parts(fitted: Any) -> tuple[Any, ...]:
    """The models that a fitted one is made of: one for each class, or itself."""
    return getattr(fitted, "parts", (fitted,))


def _unsure(best: Attempt, problem: Problem) -> bool:
    """Whether so few rows leave the parameters of this model unsure."""
    rows, numbers = len(problem.y), best.candidate.numbers
    return any(averaging("auto", rows, numbers(part)).averaging is not None for part in _parts(best.fitted))


def _must_average(candidate: Candidate, problem: Problem, parameters: Any) -> bool:
    """Whether the best parameters alone would pretend to know what so few rows for their columns leave unsure."""
    N, D = problem.X.shape
    few = problem.shape in TABLES and N < FEW_PER_COLUMN * D and candidate.plan is not None and candidate.rows is None
    return few and averaging(parameters, N, D + OTHERS).averaging is not None


def _out_of_time(fitted: Any) -> bool:
    learning = [getattr(part, "learning", None) for part in _parts(fitted)]
    return any(one is not None and one.message == OUT_OF_TIME for one in learning)


def _then_other_noise(
    candidates: list[Candidate], tried: list[Attempt], problem: Problem, asked: str | None, early: Candidate | None = None
) -> Iterator[Candidate]:
    """The candidates; after them the best so far for noise in proportion to the level, where values are positive, and with
    other noise, where what it left speaks for it; or with the noise that is asked for alone. One of which that is expected is
    tried in proportion to the level at once."""
    scaled: dict[str, Candidate] = {}  # in proportion to the level, by the name of the plain one
    in_proportion = lambda one: scaled.setdefault(one.name, one.proportional())
    for candidate in candidates:
        yield candidate
        if candidate is early and candidate.proportional is not None:
            yield in_proportion(candidate)
    if asked is not None:
        yield from _with_noise(asked, tried, problem)
        return
    ran = [attempt for attempt in tried if attempt.fitted is not None]
    first = _best(ran, problem).candidate if ran else None
    if first is not None and first.proportional is not None and first.name not in scaled:
        yield in_proportion(first)
    ran = [attempt for attempt in tried if attempt.fitted is not None]
    plain = [attempt for attempt in ran if attempt.candidate.robust is not None]
    if plain:
        best = _best(plain, problem)
        left = left_by(best.fitted)
        told = any(_best(ran, problem).candidate is one for one in scaled.values())  # how noise changes is said by it
        kinds = (kind for kind in left.kinds if not (told and kind == "heteroscedastic"))
        others = (best.candidate.robust(best.fitted.gp, kind, left.scale) for kind in kinds)  # type: ignore[misc]
        yield from (one for one in others if one is not None)


def _with_noise(kind: str, tried: list[Attempt], problem: Problem) -> list[Candidate]:
    """The best so far with noise of one kind; nothing where it is the plain one."""
    plain = [attempt for attempt in tried if attempt.fitted is not None and attempt.candidate.robust is not None]
    if not kind or not plain:
        return []
    best = _best(plain, problem)
    made = best.candidate.robust(best.fitted.gp, kind, left_by(best.fitted).scale)  # type: ignore[misc]
    return [] if made is None else [made]


def _best(ran: list[Attempt], problem: Problem) -> Attempt:
    """The first of those that are about as good as the best."""
    if problem.shape == "places":
        return _best_of_places(ran, problem)
    if problem.shape == "table" or (problem.shape == "series" and not _forecasts(problem)):
        return ran[judge.best([_tried(attempt, problem) for attempt in ran])]
    ran = _good_forecasters(ran) if _forecasts(problem) else ran
    highest = max(_merit(attempt, problem) for attempt in ran)
    return next(attempt for attempt in ran if _merit(attempt, problem) >= highest - ALIKE)


def _best_of_places(ran: list[Attempt], problem: Problem) -> Attempt:
    """Of functions of the place the best; a sum of functions of single columns, which draws stripes on a map, only where all of
    these are clearly behind it."""
    ran = sorted(ran, key=lambda attempt: attempt.candidate.plan is None)
    first = ran[judge.best([_tried(attempt, problem) for attempt in ran], by_evidence=False)]
    alike = [attempt for attempt in ran if (attempt.candidate.plan is None) == (first.candidate.plan is None)]
    return alike[judge.best([_tried(attempt, problem) for attempt in alike])]


def _tried(attempt: Attempt, problem: Problem) -> judge.Tried:
    evidence = judge.charged_evidence(attempt.candidate, attempt.fitted, len(problem.y), problem.task)
    return judge.Tried(evidence, attempt.scores, attempt.candidate.rows is None)


def _reasons(ran: list[Attempt], best: Attempt, problem: Problem) -> list[str]:
    """Why the best was taken, and why each of the others was not."""
    if problem.shape in TABLES or (problem.shape == "series" and not _forecasts(problem)):
        return judge.reasons([_tried(attempt, problem) for attempt in ran], [one is best for one in ran].index(True))
    if len(ran) < 2:
        return [""]
    good = {id(one) for one in (_good_forecasters(ran) if _forecasts(problem) else ran)}
    said = []
    for attempt in ran:
        less = _merit(best, problem) - _merit(attempt, problem)
        if attempt is best:
            said.append("taken: most evidence" + (" of those that forecast as well" if len(good) < len(ran) else ""))
        elif id(attempt) not in good:
            said.append("clearly worse forecasts")
        else:
            said.append(f"log evidence less by {less:.3g}, charged for what it learned" if less > ALIKE else "as much evidence")
    return said


def _forecasts(problem: Problem) -> bool:
    return problem.shape == "series" and problem.task != "classification"


def _good_forecasters(ran: list[Attempt]) -> list[Attempt]:
    """Those whose forecasts are not clearly worse than the best, place by place."""
    pieces = {id(one): one.scores for one in ran if one.scores is not None and np.isfinite(one.scores).all()}
    if not pieces or min(map(len, pieces.values())) < FEW_PIECES:
        return ran
    best = max(pieces.values(), key=np.mean)
    behind = {key: best - scores for key, scores in pieces.items() if len(scores) == len(best)}
    clearly = stdtrit(len(best) - 1, 1 - BY_CHANCE)
    near = [key for key, d in behind.items() if d.mean() <= clearly * d.std(ddof=1) / np.sqrt(len(d))]
    return [attempt for attempt in ran if id(attempt) in near]


def _merit(attempt: Attempt, problem: Problem) -> float:
    """What candidates are compared by, lowest where it is no number."""
    learned = len(free_vector(attempt.fitted.gp)) if hasattr(attempt.fitted, "gp") else 0
    value = (attempt.trial.log_evidence or 0.0) + attempt.candidate.price - 0.25 * learned * np.log(len(problem.y))
    return -np.inf if np.isnan(value) else value


def hold_out(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Which rows are kept from learning, and which these are in words."""
    N = len(problem.y)
    held = np.zeros(N, dtype=bool)
    if N < FEW_ROWS:
        return held, ""
    if problem.shape == "series" and problem.task != "classification":
        held[np.argsort(problem.X[:, 0], kind="stable")[-max(N // 10, 1) :]] = True
        return held, "the last tenth of the series"
    held[rng.permutation(N)[: N // 5]] = True
    if len(np.unique(problem.y[~held])) < len(np.unique(problem.y)) and problem.task == "classification":
        return np.zeros(N, dtype=bool), ""  # a rare class would not be learned
    return held, "a random fifth of the rows"


def _some(rows: np.ndarray, most: int | None, problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """At most so many of the rows, at random; one of each class at least."""
    if most is None or len(rows) <= most:
        return rows
    first = [] if not problem.classes else [rows[problem.y[rows] == c][0] for c in range(len(problem.classes))]
    drawn = rng.permutation(rows)[: most - len(first)]
    return np.unique(np.concatenate([drawn, np.asarray(first, dtype=int)]))


def _try(
    problem: Problem,
    candidate: Candidate,
    held: np.ndarray,
    rng: np.random.Generator,
    say: Say,
    deadline: Deadline,
    watch: Watch,
    spare: Deadline = NEVER,
) -> Attempt:
    """Learn with a candidate and see how it does; with one for whose scores `spare` has no time there is nothing to compare."""
    rows = _some(np.flatnonzero(~held), candidate.rows, problem, rng)

    def tell(evaluation: int, evidence: float) -> None:
        watch.tick()
        say(candidate.name, evaluation, evidence)

    try:
        fitted = candidate.fit(as_shape(problem.X[rows], problem.shape), problem.y[rows], tell, deadline)
        scores = _score(problem, candidate, fitted, rows, held, spare)
    except OutOfTime:
        note = "left out: no time was left to see how it does"
        return Attempt(Trial(candidate.name, seconds=watch.end(), note=note), None, candidate)
    except (ValueError, FloatingPointError) as met:
        note = f"failed: {str(met).splitlines()[0]}"
        return Attempt(Trial(candidate.name, seconds=watch.end(), note=note), None, candidate)
    mean = None if scores is None else float(np.mean(scores))
    return Attempt(Trial(candidate.name, float(fitted.log_evidence), mean, watch.end()), fitted, candidate, scores)


class OutOfTime(Exception):
    """There is no time for the scores of a candidate."""


def _score(
    problem: Problem, candidate: Candidate, fitted: Any, rows: np.ndarray, held: np.ndarray, spare: Deadline
) -> np.ndarray | None:
    """The log probability of a row in each piece that is forecast, or of each row held out; None where none could be spared."""
    if not held.any():
        return None
    if spare.passed():
        raise OutOfTime
    if _forecasts(problem):
        return forecast_scores(problem, candidate, fitted, rows, int(held.sum()), spare)
    return log_probabilities(fitted, problem.task, problem.X[held], problem.y[held])


def forecast_scores(
    problem: Problem, candidate: Candidate, fitted: Any, rows: np.ndarray, horizon: int, spare: Deadline = NEVER
) -> np.ndarray | None:
    """The mean log probability of each of the last pieces, forecast with the parameters as they were learned from all."""
    order = rows[np.argsort(problem.X[rows, 0], kind="stable")]
    X, y = problem.X[order], problem.y[order]
    found, took = [], 0.0
    for origin in range(len(y) - ORIGINS * horizon, len(y), horizon):
        if origin < FEW_ROWS:
            continue
        if not spare.allows(took):
            raise OutOfTime
        began = spare.clock()
        before = candidate.refit(fitted, X, np.where(np.arange(len(y)) < origin, y, np.nan))
        piece = slice(origin, origin + horizon)
        found.append(np.mean(log_probabilities(before, problem.task, X[piece], y[piece])))
        took = spare.clock() - began
    return np.array(found) if found else None
