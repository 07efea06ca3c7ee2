"""Many small minimisations at once: one evaluation serves them all, and each goes its own way.

Every problem runs BFGS with backtracking inside its bounds, on a dense inverse Hessian, because a model has few parameters.
A tick evaluates the trial points of all problems together; a problem whose trial is good moves on, another shortens its step,
one that has ended waits. So there are as many evaluations as the slowest needs, however many problems there are, and each
evaluation is one batched computation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from .clock import NEVER, Deadline

DECREASE = 1e-4  # part of the decrease that the slope promises which a step must deliver
LONGEST = 3.0  # of a step, in any coordinate
SHORTEST = 1e-9  # a step below this cannot be told from rounding
FLAT = 1e-4  # gradient at which a step that leads nowhere counts as the end


@dataclasses.dataclass(frozen=True)
class Ends:
    """Where S problems ended."""

    theta: np.ndarray  # (S, P)
    value: np.ndarray  # (S,)
    gradient: np.ndarray  # (S, P), zero where a bound holds
    converged: np.ndarray
    evaluations: np.ndarray


def minimise_all(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    starts: np.ndarray,
    bounds: np.ndarray,
    *,
    relative: float,
    flat: float,
    max_evaluations: int,
    deadline: Deadline = NEVER,
) -> Ends:
    """Minimise S functions of P numbers from `starts` (S, P) within `bounds` (S, P, 2).

    A problem ends when a step gains less than the part `relative` of its value, or its gradient is below `flat`; all end with
    the best that they have found when the deadline passes.
    """
    low, high = bounds[..., 0], bounds[..., 1]
    theta = np.clip(starts, low, high)
    value, gradient = evaluate(theta)
    H = np.tile(np.eye(theta.shape[1]), (len(theta), 1, 1))
    fresh = np.ones(len(theta), bool)  # no curvature seen yet
    free = _free(theta, gradient, low, high)
    open_ = np.abs(gradient * free).max(axis=1, initial=0.0) > flat
    converged, evaluations = ~open_, np.ones(len(theta), int)
    direction, length = _directions(H, gradient, free)
    while open_.any() and evaluations.max() < max_evaluations and not deadline.passed():
        trial = np.where(open_[:, None], np.clip(theta + length[:, None] * direction, low, high), theta)
        try:
            new_value, new_gradient = evaluate(trial)
        except KeyboardInterrupt:  # what was found so far is kept
            break
        evaluations += open_
        step = trial - theta
        promised = _dot(gradient, step)
        good = open_ & (new_value <= value + DECREASE * promised) & (promised < 0)
        H, fresh = _learn(H, fresh, good, step, new_gradient - gradient)
        gained = value - new_value
        small = gained <= relative * np.maximum(np.maximum(np.abs(value), np.abs(new_value)), 1.0)
        length = np.where(good, length, length * _shorter(promised, new_value - value))
        theta = np.where(good[:, None], trial, theta)
        value, gradient = np.where(good, new_value, value), np.where(good[:, None], new_gradient, gradient)
        free = _free(theta, gradient, low, high)
        slope = np.abs(gradient * free).max(axis=1, initial=0.0)
        stuck = open_ & ~good & (length * np.abs(direction).max(axis=1, initial=0.0) < SHORTEST)
        again = stuck & ~fresh  # the curvature may be at fault: once more along the slope
        H, fresh = np.where(again[:, None, None], np.eye(theta.shape[1]), H), fresh | again
        converged |= (good & (small | (slope <= flat))) | (stuck & ~again & (slope <= FLAT))
        open_ &= ~converged & ~(stuck & ~again)
        turned, full = _directions(H, gradient, free)
        moved = good | again
        direction, length = np.where(moved[:, None], turned, direction), np.where(moved, full, length)
    return Ends(theta, value, gradient * free, converged, evaluations)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sum(a * b, axis=1)


def _free(theta: np.ndarray, gradient: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which coordinates are not held by a bound that the descent would cross."""
    return ~(((theta <= low) & (gradient > 0)) | ((theta >= high) & (gradient < 0)))


def _directions(H: np.ndarray, gradient: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quasi-Newton directions among the free coordinates, and how far along them to try first."""
    held = free[:, :, None] & free[:, None, :]
    direction = -np.einsum("sij,sj->si", np.where(held, H, 0.0), gradient)
    uphill = _dot(direction, gradient) >= 0
    direction = np.where(uphill[:, None], -gradient * free, direction)
    furthest = np.abs(direction).max(axis=1, initial=0.0)
    return direction, np.minimum(1.0, LONGEST / np.maximum(furthest, LONGEST))


def _shorter(promised: np.ndarray, rise: np.ndarray) -> np.ndarray:
    """The minimum of the parabola through what is known along a step, between a tenth and a half of it."""
    curve = 2 * (rise - promised)
    return np.clip(-promised / np.where(curve > 0, curve, np.inf), 0.1, 0.5)


def _learn(
    H: np.ndarray, fresh: np.ndarray, good: np.ndarray, step: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The inverse Hessians after one more step; where the function bends down, longer steps next time."""
    curvature, squared = _dot(step, change), _dot(change, change)
    bends_up = curvature > 1e-10 * np.sqrt(_dot(step, step) * squared)
    use = good & bends_up
    rho = 1 / np.where(use, curvature, 1.0)
    scale = np.where(use & fresh, curvature / np.where(use, squared, 1.0), 1.0)
    H0 = H * scale[:, None, None]
    left = np.eye(H.shape[1]) - rho[:, None, None] * step[:, :, None] * change[:, None, :]
    updated = left @ H0 @ left.swapaxes(1, 2) + rho[:, None, None] * step[:, :, None] * step[:, None, :]
    stretched = np.where((good & ~bends_up)[:, None, None], 4.0 * H, H)
    return np.where(use[:, None, None], updated, stretched), fresh & ~use
