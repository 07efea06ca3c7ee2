"""Where an optimiser may look: named variables, and their place in the unit cube that models see.

A *point* is what a user gives and gets: a dictionary of values by name, or an array where the space has no names. A *place* is
a row of the unit cube with one coordinate for each variable: numbers along their range (a log variable along its logarithm),
whole numbers in the middle of equal parts, categories by their number, likewise. A model sees neither: `seen` gives
categories a column each, one-hot and divided by √2 so that two of them are at distance one, and all places in one part of a
whole number are one row. So nothing lies between two whole numbers, and no category is nearer to its neighbour than to others.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

SLACK = 1e-9  # of the size of a constraint's terms: rounding does not break it


@dataclasses.dataclass(frozen=True)
class Continuous:
    """A number between two bounds, along its logarithm if that is where it varies evenly."""

    name: str
    low: float
    high: float
    logarithmic: bool = False

    columns = 1
    count = 0  # of values, 0 where there is no end of them

    def value(self, u: float) -> Any:
        """The value at a coordinate of the unit interval."""
        if u <= 0 or u >= 1:
            return self.low if u <= 0 else self.high  # not a rounding error beyond
        if self.logarithmic:
            return min(max(self.low * math.exp(u * math.log(self.high / self.low)), self.low), self.high)
        return min(max(self.low + u * (self.high - self.low), self.low), self.high)

    def place(self, value: Any) -> float:
        """The coordinate of a value."""
        x = _number(self, value)
        if not self.low <= x <= self.high:
            raise ValueError(
                f"{self.name} = {x:g} lies outside its bounds {self.low:g} to {self.high:g}: widen them, or leave it"
            )
        if self.logarithmic:
            return math.log(x / self.low) / math.log(self.high / self.low)
        return (x - self.low) / (self.high - self.low)

    def __str__(self) -> str:
        return f"{self.name} from {self.low:g} to {self.high:g}{', by its logarithm' if self.logarithmic else ''}"


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole number between two others, both included."""

    name: str
    low: int
    high: int

    columns = 1

    @property
    def count(self) -> int:
        """How many values there are."""
        return self.high - self.low + 1

    def value(self, u: float) -> Any:
        """The value at a coordinate of the unit interval."""
        return self.low + min(max(math.floor(u * self.count), 0), self.count - 1)

    def place(self, value: Any) -> float:
        """The coordinate of a value."""
        x = _number(self, value)
        if x != math.floor(x) or not self.low <= x <= self.high:
            raise ValueError(f"{self.name} must be a whole number from {self.low} to {self.high}, got {value!r}")
        return (int(x) - self.low + 0.5) / self.count

    def __str__(self) -> str:
        return f"{self.name} a whole number from {self.low} to {self.high}"


@dataclasses.dataclass(frozen=True)
class Category:
    """One of some values that have no order."""

    name: str
    choices: tuple[Any, ...]

    @property
    def columns(self) -> int:
        """Of what a model sees."""
        return len(self.choices)

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.choices)

    def value(self, u: float) -> Any:
        """The value at a coordinate of the unit interval."""
        return self.choices[min(max(math.floor(u * self.count), 0), self.count - 1)]

    def place(self, value: Any) -> float:
        """The coordinate of a value."""
        for number, choice in enumerate(self.choices):
            if choice == value or (isinstance(value, str) and str(choice) == value):
                return (number + 0.5) / self.count
        raise ValueError(f"{self.name} must be one of {', '.join(map(str, self.choices))}, got {value!r}")

    def __str__(self) -> str:
        return f"{self.name} one of {', '.join(map(str, self.choices))}"


Variable = Continuous | Whole | Category


def log(low: float, high: float) -> Continuous:
    """A positive number that varies by factors: ``Space(rate=log(1e-4, 1))``."""
    return Continuous("", low, high, True)


def integer(low: int, high: int) -> Whole:
    """A whole number from `low` to `high`: ``Space(stages=integer(1, 8))``."""
    return Whole("", low, high)


@dataclasses.dataclass(frozen=True, init=False)
class Space:
    """The variables of an optimisation by name: ``Space(temp=(20, 80), flow=log(0.1, 10), solvent=["water", "ethanol"])``.

    A pair of numbers is a range, `log` and `integer` make others, and a list holds categories. `Space([(-5, 10), (0, 15)])` has
    no names: its points are arrays.
    """

    variables: tuple[Variable, ...]
    named: bool

    def __init__(self, ranges: Any = None, /, **named: Any) -> None:
        if (ranges is None) == (not named):
            raise ValueError("Space needs variables by name, Space(temp=(20, 80)), or a list of ranges, Space([(20, 80)])")
        if ranges is not None and not isinstance(ranges, Mapping):
            if isinstance(ranges, np.ndarray) and ranges.ndim == 2 and ranges.shape[1] == 2 and ranges.dtype.kind in "iuf":
                ranges = list(map(tuple, ranges.tolist()))  # of numbers there are no categories
            try:
                named = {f"x{i}": variable for i, variable in enumerate(ranges)}
            except TypeError:
                raise TypeError(f"Space needs a list of ranges such as [(20, 80)], got {ranges!r}") from None
        elif ranges is not None:
            named = {str(name): variable for name, variable in ranges.items()}
        if not named:
            raise ValueError("Space needs at least one variable, as in Space(temp=(20, 80))")
        object.__setattr__(self, "variables", tuple(_as_variable(name, variable) for name, variable in named.items()))
        object.__setattr__(self, "named", ranges is None or isinstance(ranges, Mapping))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the variables."""
        return tuple(variable.name for variable in self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def __str__(self) -> str:
        return "; ".join(map(str, self.variables))

    @property
    def columns(self) -> int:
        """How many columns a model sees."""
        return sum(variable.columns for variable in self.variables)

    @property
    def size(self) -> float:
        """How many different points there are; infinitely many where a variable is continuous."""
        return math.prod(variable.count or math.inf for variable in self.variables)

    @property
    def moved(self) -> np.ndarray:
        """Which columns of what a model sees belong to continuous variables."""
        return np.repeat([not variable.count for variable in self.variables], [v.columns for v in self.variables])

    def point(self, place: Float[np.ndarray, " D"]) -> Any:
        """The point at a place of the unit cube."""
        values = [variable.value(float(u)) for variable, u in zip(self.variables, place, strict=True)]
        if self.named:
            return dict(zip(self.names, values, strict=True))
        return np.array(values, dtype=object if any(isinstance(v, Category) for v in self.variables) else None)

    def place(self, point: Any) -> Float[np.ndarray, " D"]:
        """The place of a point; every problem gets one message."""
        if isinstance(point, Mapping):
            missing, strange = ([n for n in a if n not in b] for a, b in ((self.names, point), (point, self.names)))
            if missing or strange:
                what = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(map(str, strange))} besides"
                raise ValueError(f"a point needs values for {', '.join(self.names)}, but this one {what}: {dict(point)!r}")
            values = [point[name] for name in self.names]
        else:
            values = list(np.atleast_1d(np.asarray(point, dtype=None if any(v.count for v in self.variables) else float)))
            if len(values) != len(self):
                raise ValueError(f"a point needs {len(self)} values ({', '.join(self.names)}), got {len(values)}")
        return np.array([variable.place(value) for variable, value in zip(self.variables, values, strict=True)])

    def snapped(self, places: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M D"]:
        """The places with whole numbers and categories in the middle of their parts."""
        counts = np.array([variable.count for variable in self.variables], dtype=float)
        parts = np.maximum(counts, 1.0)
        middle = (np.clip(np.floor(places * parts), 0, parts - 1) + 0.5) / parts
        return np.where(counts > 0, middle, np.clip(places, 0.0, 1.0))

    def seen(self, places: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M C"]:
        """What a model sees of places."""
        found = []
        for variable, u in zip(self.variables, self.snapped(np.asarray(places)).T, strict=True):
            if isinstance(variable, Category):
                number = np.floor(u * variable.count).astype(int)
                found.append(np.eye(variable.count)[number] * math.sqrt(0.5))
            else:
                found.append(u[:, None])
        return np.concatenate(found, axis=1)

    def unseen(self, rows: Float[np.ndarray, "M C"]) -> Float[np.ndarray, "M D"]:
        """The places that a model sees so."""
        found, at = [], 0
        for variable in self.variables:
            part = rows[:, at : at + variable.columns]
            at += variable.columns
            found.append((np.argmax(part, axis=1) + 0.5) / variable.count if isinstance(variable, Category) else part[:, 0])
        return np.stack(found, axis=1)

    def neighbours(self, place: Float[np.ndarray, " D"], rng: np.random.Generator) -> Float[np.ndarray, "M D"]:
        """Places that differ in one whole number, by one step or a few, or in one category; every variable has its turn.

        The first of them are a fair sample, however many values one variable has.
        """
        found, turns = [], []
        for d, variable in enumerate(self.variables):
            here = int(place[d] * variable.count)
            steps = np.arange(variable.count) if isinstance(variable, Category) else here + np.array([-8, -3, -1, 1, 3, 8])
            steps = rng.permutation(steps[(steps >= 0) & (steps < variable.count) & (steps != here)])
            others = np.tile(place, (len(steps), 1))
            others[:, d] = (steps + 0.5) / max(variable.count, 1)
            found.append(others)
            turns.append(np.arange(len(steps)))
        return np.concatenate(found)[np.argsort(np.concatenate(turns), kind="stable")]


def as_space(space: Any) -> Space:
    """A space from itself, from ranges by name, or from a list of ranges."""
    return space if isinstance(space, Space) else Space(space)


@dataclasses.dataclass(frozen=True)
class Limit:
    """Σ weight · value ≤ most over some variables."""

    weights: tuple[tuple[str, float], ...]
    most: float
    text: str = dataclasses.field(compare=False, default="")

    def room(self, space: Space, places: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """How far places are within the limit, in units of its terms: negative where they break it."""
        total, size = np.zeros(len(places)), abs(self.most)
        for name, weight in self.weights:
            variable = space.variables[space.names.index(name)]
            values = np.array([variable.value(float(u)) for u in places[:, space.names.index(name)]], dtype=float)
            total, size = total + weight * values, max(size, abs(weight) * max(abs(variable.low), abs(variable.high)))  # type: ignore[union-attr]
        return (self.most - total) / (size or 1.0) + SLACK


def as_limit(text: str, space: Space) -> Limit:
    """A linear constraint from text: ``"temp + 2*flow <= 100"``."""
    advice = f"write it as in '{space.names[0]} + 2*{space.names[-1]} <= 100'"
    sides = re.split(r"<=|>=|<|>", str(text))
    if len(sides) != 2:
        raise ValueError(f"the constraint {text!r} is not one comparison by <= or >=: {advice}")
    (left, a), (right, b) = (_linear(side, str(text), space, advice) for side in sides)
    sign = -1.0 if ">" in str(text) else 1.0
    total = {name: sign * (left.get(name, 0.0) - right.get(name, 0.0)) for name in {**left, **right}}
    weights = tuple((name, weight) for name, weight in total.items() if weight)
    if not weights:
        raise ValueError(f"the constraint {text!r} has no variable in it: {advice}")
    return Limit(weights, sign * (b - a), str(text))


def _linear(side: str, whole: str, space: Space, advice: str) -> tuple[dict[str, float], float]:
    """The weights of the variables in a linear expression, and its constant."""

    def read(node: ast.AST) -> tuple[dict[str, float], float]:
        match node:
            case ast.Constant(value=int() | float()):
                return {}, float(node.value)  # type: ignore[arg-type]
            case ast.Name(id=name):
                if name not in space.names:
                    raise ValueError(
                        f"the constraint {whole!r} speaks of {name}, but the variables are {', '.join(space.names)}"
                    )
                if isinstance(space.variables[space.names.index(name)], Category):
                    raise ValueError(f"the constraint {whole!r} needs numbers, and {name} is a category: leave it out of it")
                return {name: 1.0}, 0.0
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                return _times(read(operand), -1.0 if isinstance(sign, ast.USub) else 1.0)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
                (w, c), (v, d) = read(left), _times(read(right), 1.0 if isinstance(sign, ast.Add) else -1.0)
                return {name: w.get(name, 0.0) + v.get(name, 0.0) for name in {**w, **v}}, c + d
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                a, b = read(left), read(right)
                if not (a[0] and b[0]):
                    return _times(a, b[1]) if a[0] else _times(b, a[1])
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                a, b = read(left), read(right)
                if not b[0] and b[1]:
                    return _times(a, 1 / b[1])
        raise ValueError(f"the constraint {whole!r} is not linear in the variables: {advice}")

    try:
        return read(ast.parse(side.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"the constraint {whole!r} cannot be read: {advice}") from None


def _times(pair: tuple[dict[str, float], float], factor: float) -> tuple[dict[str, float], float]:
    return {name: factor * weight for name, weight in pair[0].items()}, factor * pair[1]


def _as_variable(name: str, given: Any) -> Variable:
    if not name.isidentifier() and not name.strip():
        raise ValueError("a variable of a Space needs a name")
    if isinstance(given, Continuous):
        return _range(name, given.low, given.high, given.logarithmic)
    if isinstance(given, Whole):
        if any(not isinstance(b, (int, np.integer)) and float(b) != math.floor(b) for b in (given.low, given.high)):
            raise ValueError(f"{name}: integer needs whole numbers, got {given.low!r} and {given.high!r}")
        _check_ends(name, int(given.low), int(given.high))
        return Whole(name, int(given.low), int(given.high))
    if isinstance(given, Category):
        return _category(name, given.choices)
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "USO":
        given = given.tolist()
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(b, numbers.Real) for b in given):
        return _range(name, *given)
    if isinstance(given, (list, set, frozenset)) or (isinstance(given, tuple) and given and isinstance(given[0], str)):
        values = list(given)
        if len(values) == 2 and all(isinstance(b, numbers.Real) and not isinstance(b, bool) for b in values):
            raise ValueError(f"{name}={given!r} may be a range or two categories: write ({values[0]}, {values[1]}), or text")
        return _category(name, values)
    raise TypeError(
        f"{name}={given!r} is not a variable: give a range (20, 80), log(0.1, 10), integer(1, 8), or a list of categories"
    )


def _range(name: str, low: Any, high: Any, logarithmic: bool = False) -> Continuous:
    low, high = float(low), float(high)
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        raise ValueError(f"{name}: bounds must be finite, got {low:g} and {high:g}")
    _check_ends(name, low, high)
    if logarithmic and low <= 0:
        raise ValueError(f"{name}: a log variable needs positive bounds, got {low:g} and {high:g}")
    return Continuous(name, low, high, logarithmic)


def _check_ends(name: str, low: float, high: float) -> None:
    if not low < high:
        remedy = "leave out what does not vary" if low == high else f"write ({high:g}, {low:g})"
        raise ValueError(f"{name}: the lower end must be below the upper one, got {low:g} and {high:g}: {remedy}")


def _category(name: str, values: Sequence[Any]) -> Category:
    if len(set(map(str, values))) < max(len(values), 2):
        remedy = "leave out what does not vary" if len(values) == 1 else "give each of them once"
        raise ValueError(f"{name}: at least two different categories are needed, got {list(values)!r}: {remedy}")
    return Category(name, tuple(values))


def _number(variable: Variable, value: Any) -> float:
    try:
        x = float(value)
    except (TypeError, ValueError):
        x = math.nan
    if isinstance(value, bool) or not math.isfinite(x):
        raise ValueError(f"{variable.name} must be a finite number, got {value!r}")
    return x
