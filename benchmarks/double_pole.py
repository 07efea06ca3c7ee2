"""Two poles on one cart, balanced by a network that grows unit by unit, its weights found by optimisation.

State (x, ẋ, θ₁, θ̇₁, θ₂, θ̇₂), the start (0, 0, 0, 0, 1°, 0); poles of 0.1 m and 0.01 kg, 1 m and 0.1 kg, a cart of 1 kg,
gravity 9.8, friction 5e-4 of the cart and 2e-6 of the hinges; Runge and Kutta's fourth order in steps of 0.01 s; a force of
±10 N at most. A run ends after 1000 steps, when a pole leans by more than 36°, or when the cart is 2.4 m from the middle.
Fitness (Gruau) is 0.1 t/1000 + 0.9 · 0.75/Σ(|x| + |ẋ| + |θ₁| + |θ̇₁|) over the last 101 steps, the second part only after
100; 5 counts as solved. It is often compared with 3578 evaluations of NEAT, which had to survive longer instead of standing
still: not the same task.
"""

from typing import Any, NamedTuple

import numpy as np

MASS, LENGTH = np.array([0.01, 0.1]), np.array([0.05, 0.5])  # half-lengths
INPUTS = np.array([2.4, 1.5, 0.63, 2.0, 0.63, 2.0])  # sizes of the state
SOLVED = 5.0
UNITS, PATIENCE = 5, 64


class Balanced(NamedTuple):
    """What was reached."""

    fitness: float
    evaluations: int
    units: int


def _slopes(state: np.ndarray, force: float) -> np.ndarray:
    v, theta, omega = state[1], state[2::2], state[3::2]
    sin, cos, g = np.sin(theta), np.cos(theta), -9.8
    hinge = 2e-6 * omega / (MASS * LENGTH)
    pull = MASS * LENGTH * omega**2 * sin + 0.75 * MASS * cos * (hinge + g * sin)
    a = (force - 5e-4 * np.sign(v) + pull.sum()) / (1.0 + np.sum(MASS * (1 - 0.75 * cos**2)))
    found = np.empty(6)
    found[0], found[1], found[2::2], found[3::2] = v, a, omega, -0.75 / LENGTH * (a * cos + g * sin + hinge)
    return found


def fitness(controller: Any, steps: int = 1000, h: float = 0.01) -> float:
    """Of a function from states to forces."""
    state, past = np.array([0, 0, 0, 0, np.pi / 180, 0]), []
    for _ in range(steps):
        force = 10 * float(np.tanh(controller(state / INPUTS)))
        k1 = _slopes(state, force)
        k2 = _slopes(state + 0.5 * h * k1, force)
        k3 = _slopes(state + 0.5 * h * k2, force)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + _slopes(state + h * k3, force))
        if abs(state[0]) > 2.4 or np.max(np.abs(state[2::2])) > np.pi / 5:
            break
        past.append(np.sum(np.abs(state[:4])))
    still = 0.0 if len(past) < 100 else 0.75 / max(np.sum(past[-101:]), 1e-300)
    return 0.1 * len(past) / steps + 0.9 * still


def balance(seed: int, rotated: bool = False, most: int = 250) -> Balanced:
    """Units are added one by one, each with eight weights of its own, until the poles stand still."""
    import structgp as sg

    units: list[np.ndarray] = []
    total, best = 0, -np.inf
    for _ in range(UNITS):
        value = lambda z, units=units: fitness(_network([*units, np.sinh(z)]))
        models: dict[str, Any] = {}
        if rotated:
            turned = sg.Rotated(sg.Matern52(np.full(8, 0.5)))
            models = {"models": {"aligned": sg.Matern52(np.full(8, 0.5)), "rotated": turned}}
        opt = sg.Optimiser(
            [(-2.0, 2.0)] * 8, maximise=True, noise=0.0, region=sg.Adaptive(0.2), initial=16, seed=seed, **models
        )
        trace: list[float] = []
        while len(trace) < most:
            z = np.zeros(8) if units and not trace else np.asarray(opt.ask())  # a new unit of zeros changes nothing
            found = value(z)
            opt.tell(z, float(np.log(found + 1e-6)))
            trace.append(found)
            total += 1
            if found >= SOLVED:
                return Balanced(found, total, len(units) + 1)
            if len(trace) > PATIENCE and max(trace) == max(trace[:-PATIENCE]):
                break
        assert opt.best is not None
        units.append(np.sinh(np.asarray(opt.best.point)))
        best = max(best, max(trace))
    return Balanced(best, total, UNITS)


def _network(units: list[np.ndarray]) -> Any:
    W = np.array(units)
    return lambda s: float(W[:, 7] @ np.tanh(W[:, :6] @ s + W[:, 6]))
