"""Two poles on one cart, balanced by a network that grows unit by unit, its weights found by optimisation.

State (x, ẋ, θ₁, θ̇₁, θ₂, θ̇₂), the start (0, 0, 0, 0, 1°, 0); poles of 0.1 m and 0.01 kg, 1 m and 0.1 kg, a cart of 1 kg,
gravity 9.8, friction 5e-4 of the cart and 2e-6 of the hinges; Runge and Kutta's fourth order in steps of 0.01 s; a force of
±10 N at most. A run ends after 1000 steps, when a pole leans by more than 36°, or when the cart is 2.4 m from the middle.
Fitness (Gruau) is 0.1 t/1000 + 0.9 · 0.75/Σ(|x| + |ẋ| + |θ| + |θ̇|) over the last 101 steps, the second part only after
100; 5 counts as solved. θ is that of the long pole; of the short one, as the numbers above would have it, there is a trap:
a cart that stands still under an upright short pole while the long one falls, which takes 112 steps, has a fitness of 1 to 3.
It is often compared with 3578 evaluations of NEAT, which had to survive longer instead of standing still: not the same task.
"""

import math
from operator import mul
from typing import Any, NamedTuple

import numpy as np

MASS, LENGTH = (0.01, 0.1), (0.05, 0.5)  # half-lengths
INPUTS = np.array([2.4, 1.5, 0.63, 2.0, 0.63, 2.0])  # sizes of the state
POLES = {"short": (0, 1, 2, 3), "long": (0, 1, 4, 5)}  # what must stand still
SOLVED = 5.0
UNITS, PATIENCE = 5, 64


class Balanced(NamedTuple):
    """What was reached."""

    fitness: float
    evaluations: int
    units: int


def _slopes(state: list[float], force: float) -> list[float]:
    _, v, *hinges = state
    pull, mass, parts = 0.0, 1.0, []
    for m, length, theta, omega in zip(MASS, LENGTH, hinges[::2], hinges[1::2], strict=True):
        sin, cos, drag = math.sin(theta), math.cos(theta), 2e-6 * omega / (m * length)
        pull += m * length * omega**2 * sin + 0.75 * m * cos * (drag - 9.8 * sin)
        mass += m * (1 - 0.75 * cos**2)
        parts.append((cos, drag - 9.8 * sin, length, omega))
    a = (force - math.copysign(5e-4, v) * (v != 0) + pull) / mass
    return [v, a, *(number for cos, rest, length, omega in parts for number in (omega, -0.75 / length * (a * cos + rest)))]


def fitness(weights: Any, pole: str = "long", steps: int = 1000, h: float = 0.01) -> float:
    """Of a network: a row for each unit, with weights of the state, a bias and the weight of its output."""
    watched = POLES[pole]
    units = [(row[:6] / INPUTS, row[6], row[7]) for row in np.asarray(weights, dtype=float)]
    units = [(inputs.tolist(), float(bias), float(out)) for inputs, bias, out in units]
    moved = lambda state, slopes, step: [s + step * k for s, k in zip(state, slopes, strict=True)]
    state, past = [0.0, 0.0, 0.0, 0.0, math.pi / 180, 0.0], []
    for _ in range(steps):
        drives = (out * math.tanh(bias + sum(map(mul, inputs, state))) for inputs, bias, out in units)
        force = 10 * math.tanh(sum(drives))
        k1 = _slopes(state, force)
        k2 = _slopes(moved(state, k1, 0.5 * h), force)
        k3 = _slopes(moved(state, k2, 0.5 * h), force)
        k4 = _slopes(moved(state, k3, h), force)
        state = [s + h / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)]
        if abs(state[0]) > 2.4 or max(abs(state[2]), abs(state[4])) > math.pi / 5:
            break
        past.append(sum(abs(state[i]) for i in watched))
    still = 0.0 if len(past) < 100 else 0.75 / max(sum(past[-101:]), 1e-300)
    return 0.1 * len(past) / steps + 0.9 * still


class AtRandom:
    """Uniform places, asked for and told of as an optimiser's."""

    def __init__(self, bounds: list[tuple[float, float]], seed: int) -> None:
        self.low, self.high = np.array(bounds).T
        self.rng, self.best = np.random.default_rng(seed), (-np.inf, np.zeros(len(bounds)))

    def ask(self) -> np.ndarray:
        return self.rng.uniform(self.low, self.high)

    def tell(self, z: np.ndarray, value: float) -> None:
        self.best = max(self.best, (value, z), key=lambda pair: pair[0])


def balance(seed: int, pole: str = "long", model: str = "aligned", most: int = 250) -> Balanced:
    """Units are added one by one, each with eight weights of its own, until the poles stand still; by models, or at random."""
    units: list[np.ndarray] = []
    total, best = 0, -np.inf
    for _ in range(UNITS):
        value = lambda z, units=units: fitness([*units, np.sinh(z)], pole)
        bounds = [*[(-2.0, 2.0)] * 7, (0.0, 2.0)]  # tanh is odd: an output of the other sign is the same network
        opt = AtRandom(bounds, seed + len(units)) if model == "random" else _optimiser(bounds, model, seed)
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
        units.append(np.sinh(opt.best[1] if isinstance(opt, AtRandom) else np.asarray(opt.best.point)))
        best = max(best, max(trace))
    return Balanced(best, total, UNITS)


def _optimiser(bounds: list[tuple[float, float]], model: str, seed: int) -> Any:
    import structgp as sg

    kernel = sg.Matern52(np.full(8, 0.5))
    models = {"aligned": kernel, "smooth": sg.SquaredExponential(np.full(8, 0.5)), "rotated": sg.Rotated(kernel)}
    chosen = {name: models[name] for name in model.split("+")}
    return sg.Optimiser(bounds, maximise=True, noise=0.0, region=sg.Adaptive(0.2), initial=16, seed=seed, models=chosen)
