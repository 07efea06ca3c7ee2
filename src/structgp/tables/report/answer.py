"""The answer of a model in plain words, as it stands at the head of a report."""

from __future__ import annotations

import numpy as np

from ..._types import how_many
from ...inputs.reading import few
from ..model import TableModel
from .effects import effects_of
from .terms import found_terms
from .words import Part, forecast_rows, parts_of, rough_number, scale_of, short_number, shown

MOST_EFFECTS = 4  # columns that are named
ABOUT = ("season", "wave", "trend", "random walk", "smooth part", "function of")  # how parts begin that are told first


def answer(model: TableModel) -> str:
    """What was found, what comes next, and how far off the model was, in a paragraph."""
    return " ".join(part for part in (_course(model), _found(model), _next(model), _how_far_off(model)) if part)


def _course(model: TableModel) -> str:
    """From where to where a series went: its means over a tenth at either end, or over a season where that is longer."""
    if model.shape != "series" or model.task == "classification":
        return ""
    t, y = np.asarray(model.fitted.inputs.points)[:, 0], np.asarray(model.fitted.data.y)[:, 0]
    span = float(np.ptp(t))
    width = max([0.1 * span, *(term.period for term in found_terms(model) if term.period and term.period < span / 2)])
    begin, end = y[t <= t.min() + width], y[t >= t.max() - width]
    low, high = (short_number(float(np.nanmean(part))) for part in (begin, end))
    return f"The level of {model.target} went from about {low} at the beginning to about {high} at the end."


def _found(model: TableModel) -> str:
    """The columns that matter and those that do not, or the parts of a function."""
    effects = [effect for effect in effects_of(model) if effect.firm]
    if effects:
        first, *others = effects[:MOST_EFFECTS]
        moves = lambda effect: (
            f"±{rough_number(effect.size)}" + (f" in the probability of {effect.label}" if effect.label else "")
        )
        more = f", then {few([f'{one.name} ({moves(one)})' for one in others])}" if others else ""
        unit = "" if effects[0].label else f" {scale_of(model)}"
        nothing = sum(not effect.firm for effect in effects_of(model))
        rest = f" Of {how_many(nothing, 'other column')} no effect is sure." if nothing else ""
        return f"What matters most for {model.target} is {first.name}, which moves it by {moves(first)}{unit}{more}.{rest}"
    told = [part for part in parts_of(model) if part.name.removeprefix("another ").startswith(ABOUT)]
    if not told or not found_terms(model):
        return ""
    *before, last = [_in_words(part) for part in told]
    return f"In {model.target} there is {', '.join(before)}{', and ' if before else ''}{last}."


def _in_words(part: Part) -> str:
    name = part.name if part.name.startswith("another ") else f"a {part.name}"
    return f"{name}, which {part.learned.split(';')[0].split(', and')[0]}"


def _next(model: TableModel) -> str:
    """The first and the last step of a forecast."""
    rows = forecast_rows(model)[1:]
    said = [f"{mean} ({interval.replace(' … ', ' to ')}) at {at}" for at, mean, interval in rows]
    if not said:
        return ""
    after = f", and {said[-1]}" if len(said) > 1 else ""
    return f"It is expected to be {said[0]}{after}, in brackets with 95 % probability."


def _how_far_off(model: TableModel) -> str:
    """What predictions of rows held out were worth, beside the best plain method."""
    scores = model.evaluation.scores
    if not scores:
        return ""
    main = next(iter(scores["this model"]))
    others = {name: found[main] for name, found in scores.items() if name != "this model"}
    best = min(others, key=lambda name: others[name])
    own, plain = shown(scores["this model"][main], main), shown(others[best], main)
    if main == "error rate":
        plainly = f"to say always the most frequent gives {plain}"
        return f"Of {model.evaluation.kind}, which it had not seen, {own} were told wrongly; {plainly}."
    unit = f" {model.target}" if model.task == "regression" else ""
    return (
        f"On {model.evaluation.kind}, which it had not seen, it was off by {own}{unit} (root mean square); {best} by {plain}."
    )
