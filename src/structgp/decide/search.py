"""The place that is worth most: many candidates in one look, the best of them climb side by side."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .._types import by_the_host
from ..inputs.rows import filled
from ..learn.lockstep import minimise_all
from ..linalg.sobol import sobol
from .acquire import Belief, View, drawn, values, values_and_slopes
from .space import Limit, Space

SPREAD, LOCAL = 512, 256  # candidates all over the box, and around the best place
CLIMBERS, TICKS = 8, 80
NARROW = (1e-3, 0.3)  # how far from the best place local candidates go, on average
SAME = 1e-9  # places nearer than this are one
MANY = 1 << 15  # places that are looked at for some that meet all limits
ROUNDS = 8  # of exchanges of whole numbers and categories


@dataclasses.dataclass(frozen=True)
class Search:
    """Where the search may look: a space, limits that are known, and a box of the unit cube."""

    space: Space
    limits: tuple[Limit, ...]
    low: Float[np.ndarray, " D"]
    high: Float[np.ndarray, " D"]

    def meets(self, places: Float[np.ndarray, "M D"]) -> np.ndarray:
        """Which places meet all limits."""
        return (
            np.all([limit.room(self.space, places) >= 0 for limit in self.limits], axis=0)
            if self.limits
            else np.ones(len(places), bool)
        )

    def design(self, count: int, seed: Any) -> Float[np.ndarray, "M D"]:
        """Places that fill the box evenly and meet all limits."""
        size = count
        while True:
            places = self.space.snapped(self.low + (self.high - self.low) * sobol(len(self.space), size, seed))
            places = places[self.meets(places)]
            if len(places) >= count:
                return places[:count]
            if size >= MANY:
                if len(places):
                    return filled(places, count)
                raise ValueError(
                    f"none of {MANY} places meets the constraints {', '.join(repr(limit.text) for limit in self.limits)}: "
                    "loosen them, or narrow the bounds of the variables to where they can be met"
                )
            size = min(4 * size, MANY)

    def candidates(self, center: Float[np.ndarray, " D"], seed: int) -> Float[np.ndarray, "M D"]:
        """Places all over the box, and around the best one."""
        rng = np.random.default_rng([seed, 2])
        wide = np.exp(rng.uniform(np.log(NARROW[0]), np.log(NARROW[1]), (LOCAL, 1)))
        near = np.clip(center + wide * rng.standard_normal((LOCAL, len(center))), self.low, self.high)
        # one coordinate in three stays, so that those who matter may move alone
        near = self.space.snapped(np.where(rng.uniform(size=near.shape) < 1 / 3, np.clip(center, self.low, self.high), near))
        spread = self.design(SPREAD, np.random.default_rng([seed, 3]))
        return np.concatenate([spread, np.where(self.meets(near)[:, None], near, spread[:LOCAL])])


@by_the_host
def best_place(
    view: View, rule: str, search: Search, center: np.ndarray, taken: np.ndarray, seed: int
) -> tuple[Float[np.ndarray, " D"], float]:
    """The place that is worth most and was not taken, and its value."""
    space = search.space
    places = search.candidates(center, seed)
    found = np.array(values(view, space.seen(places), rule))
    place, height = _first_free(*_climbed(view, rule, search, places, found), taken)
    rng, size = np.random.default_rng([seed, 10]), SPREAD + LOCAL
    for _ in range(ROUNDS if any(v.count for v in space.variables) else 0):
        others = space.neighbours(place, rng)
        others = others[search.meets(others) & np.all((others >= search.low) & (others <= search.high), axis=1)][:size]
        if not len(others):
            break
        worth = np.array(values(view, space.seen(filled(others, size)), rule))[: len(others)]
        other, better = _first_free(*_climbed(view, rule, search, others, worth), taken)
        if not better > height:
            break
        place, height = other, better
    return place, height


@by_the_host
def best_of_draw(belief: Belief, number: int, search: Search, center: np.ndarray, taken: np.ndarray, seed: int) -> Any:
    """The place where one draw of f is lowest, and how low."""
    places = search.candidates(center, seed)
    draw = np.array(drawn(belief, number, jax.random.key(seed), search.space.seen(places)))
    return _first_free(places, -draw, taken)


def _different(places: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """The first so many that are not one place; repeated where there are fewer."""
    chosen: list[int] = []
    for i in order:
        if all(np.max(np.abs(places[i] - places[j])) > 1e-3 for j in chosen):
            chosen.append(int(i))
        if len(chosen) == count:
            break
    return np.resize(chosen, count)


def _first_free(places: np.ndarray, worth: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, float]:
    """The best place that was not taken, or the best where all were."""
    order = np.argsort(-np.where(np.isfinite(worth), worth, -np.inf), kind="stable")
    for i in order:
        if not len(taken) or np.min(np.max(np.abs(taken - places[i]), axis=1)) > SAME:
            return places[i], float(worth[i])
    return places[order[0]], float(worth[order[0]])


def _climbed(view: View, rule: str, search: Search, places: np.ndarray, worth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the best of some places climb to in their continuous variables, and after that the places themselves."""
    order = np.argsort(-np.where(np.isfinite(worth), worth, -np.inf), kind="stable")
    climb = _along_limits if search.limits else _climb
    ends, heights = climb(view, rule, search, places[_different(places, order, CLIMBERS)])
    return np.concatenate([ends, places]), np.concatenate([heights, worth])


def _climb(view: View, rule: str, search: Search, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From some places uphill, each in its own way; whole numbers and categories stay."""
    rows, moved = search.space.seen(starts), search.space.moved
    if not moved.any():
        return starts, np.array(values_and_slopes(view, rows, rule)[0])
    low, high = (search.space.seen(corner[None])[0, moved] for corner in (search.low, search.high))

    def at(part: np.ndarray) -> np.ndarray:
        X = rows.copy()
        X[:, moved] = part
        return X

    def fall(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        height, slope = (np.array(found) for found in values_and_slopes(view, at(part), rule)[:2])
        slope = slope[:, moved]
        bad = ~(np.isfinite(height) & np.isfinite(slope).all(axis=1))
        return np.where(bad, 1e25, -height), np.where(bad[:, None], 0.0, -slope)

    bounds = np.tile(np.stack([low, high], axis=1), (len(rows), 1, 1))
    ends = minimise_all(fall, rows[:, moved], bounds, relative=1e-8, flat=1e-5, max_evaluations=TICKS)
    return search.space.snapped(search.space.unseen(at(ends.theta))), -ends.value


def _along_limits(view: View, rule: str, search: Search, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same where limits are known, one after the other by sequential quadratic programming."""
    from scipy.optimize import minimize

    space, ends, heights = search.space, [], []
    moved = np.array([not variable.count for variable in space.variables])
    bounds = list(zip(search.low[moved], search.high[moved], strict=True))
    for start in starts[: CLIMBERS // 2]:

        def at(u: np.ndarray, start: np.ndarray = start) -> np.ndarray:
            place = start.copy()
            place[moved] = np.clip(u, search.low[moved], search.high[moved])
            return place

        def fall(u: np.ndarray) -> tuple[float, np.ndarray]:
            X = filled(space.seen(at(u)[None]), CLIMBERS)
            height, slope = (np.array(part)[0] for part in values_and_slopes(view, X, rule)[:2])
            return (-float(height), -slope[space.moved]) if np.isfinite(height) else (1e25, np.zeros(moved.sum()))

        rooms = [{"type": "ineq", "fun": lambda u, limit=limit: limit.room(space, at(u)[None])[0]} for limit in search.limits]
        if moved.any():
            found = minimize(
                fall, start[moved], jac=True, bounds=bounds, constraints=rooms, method="SLSQP", options={"maxiter": 40}
            )
            end, share = at(found.x), 1.0
            while not search.meets(end[None])[0] and share > 1e-6:  # a little too far: back towards the start
                share *= 0.5
                end = at(start[moved] + share * (found.x - start[moved]))
            end = end if search.meets(end[None])[0] else start
        else:
            end = start
        ends.append(end)
        heights.append(-fall(end[moved])[0])
    return np.array(ends), np.array(heights)
