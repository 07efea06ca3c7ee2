"""Optimisation, gradients and integrals with few evaluations, beside BoTorch, Optuna, scikit-optimize and random search.

    python -m benchmarks.optimise functions --jobs 8                 # four functions, ten seeds, every installed method
    python -m benchmarks.optimise functions --problems branin --seeds 2 --methods structgp random
    python -m benchmarks.optimise first --seeds 3                    # from the start of a process to its first suggestion
    python -m benchmarks.optimise tuning --jobs 8                    # hyperparameters of HistGradientBoosting, 60 evaluations
    python -m benchmarks.optimise bumps --jobs 8                     # Gaussian bumps: aligned, rotated, several models
    python -m benchmarks.optimise integrals --seeds 100              # are intervals of integrals honest?
    python -m benchmarks.optimise gradients --seeds 20               # beside central differences at equal evaluations
    python -m benchmarks.optimise pole --jobs 8 --seeds 20           # double pole balancing with incremental networks
    python -m benchmarks.optimise history --seeds 1                  # structgp suggest, from a table of 10,000 runs

What only another Python has (torch comes late to new ones) is run by that one into the same file, and shown with the rest:

    python3.11 -m benchmarks.optimise functions --methods botorch optuna-gp skopt --json runs.json
    python -m benchmarks.optimise functions --json runs.json

Every run has a process of its own with one thread, and the same initial points for all methods. Regrets are final and of the
best value seen; `first` are the CPU seconds from the start of the process to the first suggestion of a model, imports included,
`warm` the median CPU milliseconds of a suggestion in the second half. A method that is not installed keeps its row, with the
reason. Seeds come first: `--wall SECONDS` ends what is running and shows what is there, `--json FILE` has a line for each
run as it ends, and runs that are in it already are not made again. `--here` makes all runs in one process, where programs are
compiled once: for everything but `first`.
"""

import argparse
import importlib.util
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.processes import DIED, each, on_one_thread

METHODS = ("structgp", "botorch", "optuna-gp", "optuna-tpe", "skopt", "random")
NEEDS = {"botorch": "botorch", "optuna-gp": "optuna", "optuna-tpe": "optuna", "skopt": "skopt"}

HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def branin(x: np.ndarray) -> float:
    """Two inputs, three equal minima."""
    a, b = x
    level = (b - 5.1 / (4 * np.pi**2) * a * a + 5 / np.pi * a - 6) ** 2
    return float(level + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10 - 0.39788735772973816)


def hartmann(x: np.ndarray) -> float:
    """Six inputs, several minima."""
    parts = np.exp(-np.sum(HARTMANN_A * (x - HARTMANN_P) ** 2, axis=1))
    return float(3.322368011391339 - np.array([1, 1.2, 3, 3.2]) @ parts)


def rosenbrock(x: np.ndarray) -> float:
    """A bent valley; values over six orders of magnitude."""
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def ackley(x: np.ndarray) -> float:
    """A funnel with many small pits."""
    return float(-20 * np.exp(-0.2 * np.sqrt(np.mean(x * x))) - np.exp(np.mean(np.cos(2 * np.pi * x))) + 20 + np.e)


def levy(x: np.ndarray) -> float:
    """A bent washboard."""
    w = 1 + (x - 1) / 4
    middle = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)
    return float(np.sin(np.pi * w[0]) ** 2 + middle.sum() + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2))


def michalewicz(x: np.ndarray) -> float:
    """Five inputs, narrow valleys that cross, flat elsewhere."""
    return float(4.687658 - np.sum(np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x * x / np.pi) ** 20))


def goldstein(x: np.ndarray) -> float:
    """Goldstein and Price's: two inputs, values over five orders of magnitude."""
    a, b = x
    first = 1 + (a + b + 1) ** 2 * (19 - 14 * a + 3 * a * a - 14 * b + 6 * a * b + 3 * b * b)
    second = 30 + (2 * a - 3 * b) ** 2 * (18 - 32 * a + 12 * a * a + 48 * b - 36 * a * b + 27 * b * b)
    return float(first * second - 3)


def styblinski(x: np.ndarray) -> float:
    """Styblinski and Tang's: two minima along each input."""
    return float(0.5 * np.sum(x**4 - 16 * x**2 + 5 * x) + 39.166165703771 * len(x))


PROBLEMS: dict[str, tuple[Callable[[np.ndarray], float], list[tuple[float, float]], int]] = {
    "branin": (branin, [(-5, 10), (0, 15)], 25),
    "hartmann": (hartmann, [(0, 1)] * 6, 60),
    "rosenbrock": (rosenbrock, [(-5, 10)] * 4, 60),
    "ackley": (ackley, [(-32.768, 32.768)] * 5, 60),
    # nothing was chosen by these
    "levy": (levy, [(-10, 10)] * 4, 60),
    "michalewicz": (michalewicz, [(0, np.pi)] * 5, 60),
    "goldstein": (goldstein, [(-2, 2)] * 2, 30),
    "styblinski": (styblinski, [(-5, 5)] * 5, 60),
}
BARS = ("branin", "hartmann", "rosenbrock", "ackley")


STEPS = (0.1, 0.15, 0.2, 0.3)  # of central differences


class Asker:
    """One method: asked for a place of the unit cube, told what came of it (small values are good)."""

    def __init__(self, method: str, D: int, seed: int, kinds: Any = None) -> None:
        self.method, self.D, self.seed, self.kinds = method, D, seed, kinds
        self.U: list[np.ndarray] = []
        self.y: list[float] = []
        self.rng = np.random.default_rng(seed)
        if method == "structgp":
            import structgp as sg

            space = kinds if kinds is not None else sg.Space([(0.0, 1.0)] * D)
            self.opt = sg.Optimiser(space, seed=seed)
        elif method.startswith("optuna"):
            import optuna

            optuna.logging.set_verbosity(optuna.logging.ERROR)
            samplers = {"optuna-gp": optuna.samplers.GPSampler, "optuna-tpe": optuna.samplers.TPESampler}
            first = min(2 * D + 1, 20)  # told before anything is asked
            self.study = optuna.create_study(sampler=samplers[method](seed=seed, n_startup_trials=first))
            self.trial: Any = None
        elif method == "skopt":
            import skopt

            self.skopt = skopt.Optimizer([(0.0, 1.0)] * D, n_initial_points=1, random_state=seed)

    def tell(self, u: np.ndarray, y: float) -> None:
        """What came of a place."""
        self.U.append(np.asarray(u))
        self.y.append(y)
        if self.method == "structgp":
            self.opt.tell(u, y)
        elif self.method.startswith("optuna"):
            import optuna

            if self.trial is not None:
                self.study.tell(self.trial, y)
                self.trial = None
            else:
                spread = {f"x{i}": optuna.distributions.FloatDistribution(0, 1) for i in range(self.D)}
                values = {f"x{i}": float(value) for i, value in enumerate(u)}
                self.study.add_trial(optuna.trial.create_trial(params=values, distributions=spread, value=y))
        elif self.method == "skopt":
            self.skopt.tell(list(map(float, u)), y)

    def ask(self) -> np.ndarray:
        """Where to look next."""
        if self.method == "structgp":
            return np.asarray(self.opt.ask())
        if self.method == "random":
            return self.rng.uniform(size=self.D)
        if self.method == "botorch":
            return self._botorch()
        if self.method == "skopt":
            return np.asarray(self.skopt.ask())
        self.trial = self.study.ask()
        return np.array([self.trial.suggest_float(f"x{i}", 0, 1) for i in range(self.D)])

    def _botorch(self) -> np.ndarray:
        import torch
        from botorch.acquisition import LogExpectedImprovement
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.optim import optimize_acqf
        from gpytorch.mlls import ExactMarginalLogLikelihood

        torch.set_num_threads(1)
        torch.manual_seed(self.seed + len(self.y))
        X = torch.tensor(np.array(self.U), dtype=torch.double)
        Y = -torch.tensor(self.y, dtype=torch.double)[:, None]
        model = SingleTaskGP(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bounds = torch.tensor([[0.0] * self.D, [1.0] * self.D], dtype=torch.double)
        found, _ = optimize_acqf(LogExpectedImprovement(model, Y.max()), bounds, q=1, num_restarts=10, raw_samples=512)
        return found[0].detach().numpy()


def start_points(D: int, seed: int) -> np.ndarray:
    """The places that all methods begin with."""
    from scipy.stats import qmc

    count = min(2 * D + 1, 20)
    return qmc.Sobol(D, rng=np.random.default_rng([seed, 99])).random(1 << (count - 1).bit_length())[:count]


def run_function(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """One optimisation."""
    f, box, usual = PROBLEMS[name]
    count = evaluations or usual
    ends = np.array(box, dtype=float)
    at = lambda u: f(ends[:, 0] + np.asarray(u) * np.ptp(ends, axis=1))
    asker = Asker(method, len(box), seed)
    trace, spent, first = [], [], math.nan
    for u in start_points(len(box), seed)[:count]:
        value = at(u)
        asker.tell(u, value)
        trace.append(value)
    while len(trace) < count:
        began = time.process_time()
        u = np.clip(asker.ask(), 0, 1)
        first = time.process_time() if math.isnan(first) else first
        value = at(u)
        asker.tell(u, value)  # some learn here
        spent.append(time.process_time() - began)
        trace.append(value)
    best = np.minimum.accumulate(trace)
    return {
        "regret": float(best[-1]),
        "half": float(best[count // 2]),
        "warm": 1e3 * float(np.median(spent[len(spent) // 2 :])),
        "first": first,
    }


def run_first(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """CPU seconds of a fresh process that is told random places and asks once, with nothing imported that it does not need."""
    f, box, _ = PROBLEMS[name]
    ends = np.array(box, dtype=float)
    asker = Asker(method, len(box), seed)
    for u in np.random.default_rng([seed, 13]).uniform(size=(evaluations or 2 * len(box) + 1, len(box))):
        asker.tell(u, f(ends[:, 0] + u * np.ptp(ends, axis=1)))
    asker.ask()
    spent = time.process_time()
    return {"regret": spent, "half": math.nan, "first": spent, "warm": math.nan}


# hyperparameters of HistGradientBoosting


def tuning_space() -> Any:
    """Six parameters, mixed."""
    import structgp as sg

    return sg.Space(
        learning_rate=sg.log(0.01, 0.5),
        max_leaf_nodes=sg.integer(4, 64),
        min_samples_leaf=sg.integer(1, 50),
        l2_regularization=sg.log(1e-6, 10.0),
        max_features=(0.2, 1.0),
        loss=["squared_error", "absolute_error"],
    )


def boosting_error(point: dict[str, Any], X: np.ndarray, y: np.ndarray, rng: np.random.Generator, repeats: int = 1) -> float:
    """The error of three-fold cross-validation with random folds, which is noisy."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold

    errors = []
    for _ in range(repeats):
        for rest, held in KFold(3, shuffle=True, random_state=int(rng.integers(2**31))).split(X):
            model = HistGradientBoostingRegressor(max_iter=100, random_state=int(rng.integers(2**31)), **point).fit(
                X[rest], y[rest]
            )
            errors.append(np.mean((model.predict(X[held]) - y[held]) ** 2))
    return float(np.sqrt(np.mean(errors)))


def run_tuning(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """One search for hyperparameters; the error of the point that is recommended, by five times as many folds."""
    import structgp as sg
    from benchmarks.data import load

    X, y = load(name).inputs_and_target()
    X, y = X[:600], (y[:600] - np.mean(y)) / np.std(y)
    space, rng, count = tuning_space(), np.random.default_rng([seed, 5]), evaluations or 60
    began = time.process_time()
    seen: list[tuple[dict[str, Any], float]] = []
    if method == "structgp":
        opt = sg.Optimiser(space, seed=seed)
        for _ in range(count):
            point = opt.ask()
            seen.append((point, boosting_error(point, X, y, rng)))
            opt.tell(*seen[-1])
    elif method == "random":
        for u in np.random.default_rng(seed).uniform(size=(count, len(space))):
            seen.append((space.point(u), boosting_error(space.point(u), X, y, rng)))
    else:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {"optuna-gp": optuna.samplers.GPSampler, "optuna-tpe": optuna.samplers.TPESampler}
        study = optuna.create_study(sampler=samplers[method](seed=seed))
        for _ in range(count):
            trial = study.ask()
            point = {
                "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
                "max_leaf_nodes": trial.suggest_int("max_leaf_nodes", 4, 64),
                "min_samples_leaf": trial.suggest_int("min_samples_leaf", 1, 50),
                "l2_regularization": trial.suggest_float("l2_regularization", 1e-6, 10.0, log=True),
                "max_features": trial.suggest_float("max_features", 0.2, 1.0),
                "loss": trial.suggest_categorical("loss", ["squared_error", "absolute_error"]),
            }
            seen.append((point, boosting_error(point, X, y, rng)))
            study.tell(trial, seen[-1][1])
    best = opt.recommend().point if method == "structgp" else min(seen, key=lambda pair: pair[1])[0]
    spent = time.process_time() - began
    return {
        "regret": boosting_error(best, X, y, np.random.default_rng(0), 5),
        "first": spent,
        "warm": math.nan,
        "half": math.nan,
    }


# Gaussian bumps


def givens(D: int, angle: float = math.pi / 4) -> np.ndarray:
    """The product of all rotations of two axes by one angle."""
    V = np.eye(D)
    for i in range(D):
        for j in range(i + 1, D):
            G = np.eye(D)
            G[i, i] = G[j, j] = math.cos(angle)
            G[i, j], G[j, i] = -math.sin(angle), math.sin(angle)
            V = V @ G
    return V


def bump_model(method: str, D: int) -> dict[str, Any]:
    """What an optimiser believes of a bump."""
    import structgp as sg

    aligned = sg.SquaredExponential(np.full(D, 0.3))
    turned = sg.SquaredExponential(sg.GivensMetric(np.full(D, 0.3), np.full(D * (D - 1) // 2, 0.1)))
    return {
        "aligned": {"model": aligned},
        "rotated": {"model": turned},
        "both": {"models": {"aligned": aligned, "rotated": turned}},
        "best": {"model": aligned, "parameters": "best"},
        "matern": {},
    }[method]


def trust_region(measured: Callable[[Any], float], f: Callable[[Any], float], start: Any, side: float, most: int) -> int:
    """Samples of SciPy's COBYQA from a place until the noiseless value is 0.975, in a box that wide, 0.15 at first."""
    from scipy.optimize import minimize

    samples: list[float] = []

    def asked(x: Any) -> float:
        if not samples or max(samples) < 0.975:  # what comes after is not counted
            samples.append(f(x))
        return -measured(x)

    def until(x: Any) -> None:
        if max(samples) >= 0.975:
            raise StopIteration

    box = [(x - side / 2, x + side / 2) for x in start]
    minimize(asked, start, method="COBYQA", bounds=box, callback=until, options={"maxfev": most, "initial_tr_radius": 0.15})
    return len(samples)


def known_shape(
    measured: Callable[[Any], float], f: Callable[[Any], float], start: Any, scales: Any, sd: float, most: int
) -> int:
    """Samples of one who knows how wide and how high a bump is, and the noise of its logarithm, and goes where its top most
    probably is, 0.25 at a time, by Gauss and Newton's method from a fifth of the way to where it is."""
    Z: list[np.ndarray] = []
    logs: list[float] = []
    x, width, first = start, 2.0, 0.8 * start / scales
    while len(Z) < most:
        Z.append(x / scales)
        if f(x) >= 0.975:
            break
        logs.append(math.log(max(measured(x), 1e-3 * f(x))))
        top = first
        for _ in range(30):
            apart = np.array(Z) - top
            missed = np.array(logs) + 0.5 * np.sum(apart**2, axis=1)
            H = apart.T @ apart / sd**2 + np.eye(len(top)) / width**2
            top = top + 0.7 * np.linalg.solve(H, apart.T @ missed / sd**2 - (top - first) / width**2)
        near = scales * Z[int(np.argmin(np.sum((np.array(Z) - top) ** 2, axis=1)))]
        x = np.clip(top * scales, near - 0.25, near + 0.25)
    return len(Z)


def run_bump(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """How many samples it takes from a value of 0.05 to one of 0.975: e24, e24-tenth, e24-noisy, aligned-D or rotated-D.

    By models of the process, by "cobyqa", a trust-region method without derivatives, or by one who knows the shape ("known").
    Noise is in proportion to the value: a tenth of it, or the 32 % that a variance of 0.1 makes.
    """
    import structgp as sg

    began = time.process_time()
    sd = {"e24-tenth": 0.1, "e24-noisy": math.sqrt(0.1)}.get(name, 0.0)
    noisy = sd > 0
    e24 = name.startswith("e24")
    D = 3 if e24 else int(name.split("-")[1])
    scales = np.array([0.3, 0.65, 1.0]) if e24 else np.linspace(0.1, 1.0, D)
    V = givens(D) if name.startswith("rotated") else np.eye(D)
    f = lambda x: float(np.exp(-0.5 * np.sum((V @ x / scales) ** 2)))
    rng = np.random.default_rng([seed, 8])
    start = V.T @ (math.sqrt(math.log(400) / D) * scales)
    side = 4.0  # the unit cube is this wide, centred near the start, so that nothing is told of where the optimum lies
    low = start - side / 2 + rng.uniform(-0.2, 0.2, D)
    reach = sg.Bounded(0.25 / side) if e24 else sg.Adaptive(0.15 / side, 1.5, 0.1 / side, 1.0 / side)
    measured = lambda x: f(x) * (1 + (sd * rng.standard_normal() if noisy else 0.0))
    x, count, most = start, 0, evaluations or 150
    if method in ("cobyqa", "known"):
        known = method == "known"
        count = (
            known_shape(measured, f, start, scales, sd or 1e-3, most) if known else trust_region(measured, f, start, side, most)
        )
        return {"regret": float(count), "first": math.nan, "warm": math.nan, "half": math.nan}
    opt = sg.Optimiser(
        [(a, a + side) for a in low],
        maximise=True,
        noise=None if noisy else 0.0,
        region=reach,
        initial=1,
        seed=seed,
        warp=noisy,  # the source bends no values; the default is kept where noise is in proportion to them
        **bump_model(method, D),
    )
    while count < most:
        opt.tell(x, measured(x))
        count += 1
        if f(x) >= 0.975:
            break
        if count == 1:  # the first model of one point is none
            x = start + 0.1 * np.random.default_rng([seed, 9]).standard_normal(D) * 0.5
            continue
        x = np.asarray(opt.ask())
    return {"regret": float(count), "first": time.process_time() - began, "warm": math.nan, "half": f(x)}


# integrals and gradients


def run_integral(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """|error| / sd of the integral of a random function of one variable."""
    from scipy.integrate import quad

    import structgp as sg

    rng = np.random.default_rng([seed, 10])
    kind = seed % 4
    a, b, c, d = rng.normal(size=4)
    shapes = [
        lambda x: a + b * math.sin(3 * c * x + d),
        lambda x: a * abs(x - c) + b * math.cos(4 * x + d),
        lambda x: a * math.exp(-((x - c) ** 2) / 0.5) + b * x,
        lambda x: a / (0.3 + (x - c) ** 2) + b * x * x,
    ]
    f = shapes[kind]
    truth = quad(f, -2.5, 2.5, limit=400, points=[min(max(c, -2.4), 2.4)])[0]
    found = sg.integrate(f, (-2.5, 2.5), evaluations or 12, seed=0, prior=method)
    return {
        "regret": abs(found.mean - truth) / max(found.sd, 1e-9 * abs(truth) + 1e-12),
        "half": abs(found.mean - truth),
        "first": math.nan,
        "warm": math.nan,
    }


def run_gradient(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """Relative error of the gradient of a bump in six dimensions with noise of sd 0.02."""
    import structgp as sg

    rng, count = np.random.default_rng([seed, 11]), evaluations or 25
    scales, center = np.linspace(0.3, 1.0, 6), rng.uniform(0.2, 0.4, 6)
    f = lambda x: float(np.exp(-0.5 * np.sum(((x - center) / scales) ** 2)))
    noisy = lambda x: f(x) + 0.02 * rng.standard_normal()
    x0 = np.full(6, 0.55)
    truth = -f(x0) * (x0 - center) / scales**2
    if method.startswith("central"):
        h, each = float(method.split("-")[1]), max(count // 12, 1)
        slope = lambda e: np.mean([(noisy(x0 + h * e) - noisy(x0 - h * e)) / (2 * h) for _ in range(each)])
        found = np.array([slope(e) for e in np.eye(6)])
    else:
        found = sg.estimate_gradient(noisy, x0, count, active=method == "active", seed=seed).mean
    return {
        "regret": float(np.linalg.norm(found - truth) / np.linalg.norm(truth)),
        "half": math.nan,
        "first": math.nan,
        "warm": math.nan,
    }


def run_history(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """CPU seconds of `structgp suggest` for a table of so many runs, of which some failed and one is pending."""
    rng, count = np.random.default_rng([seed, 12]), evaluations or 10_000
    lines = ["a,b,c,d,e,f,y"]
    for row in rng.uniform(size=(count, 6)):
        value = "failed" if row[0] > 0.97 else f"{hartmann(row) + 0.01 * rng.standard_normal():.6g}"
        lines.append(",".join([*(f"{u:.6g}" for u in row), value]))
    options = [part for variable in "abcdef" for part in ("--bounds", f"{variable}=0:1")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        path.write_text("\n".join([*lines, "0.5,0.5,0.5,0.5,0.5,0.5,"]) + "\n")
        command = [sys.executable, "-m", "structgp", "suggest", str(path), "--minimise", "y", *options, "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    point = np.array([answer["suggestions"][0]["point"][variable] for variable in "abcdef"])
    return {"regret": spent, "half": hartmann(point), "first": spent, "warm": math.nan}


def run_pole(name: str, method: str, seed: int, evaluations: int | None = None) -> dict[str, Any]:
    """Evaluations until two poles stand still, and the fitness reached."""
    from benchmarks.double_pole import balance

    began = time.process_time()
    found = balance(seed, name, method, evaluations or 250)
    return {
        "regret": float(found.evaluations),
        "half": found.fitness,
        "first": time.process_time() - began,
        "warm": float(found.units),
    }


STUDIES: dict[str, tuple[Callable[..., dict[str, Any]], tuple[str, ...], tuple[str, ...], str]] = {
    "functions": (run_function, BARS, METHODS, "regret"),
    "first": (run_first, ("branin", "hartmann"), METHODS[:-1], "CPU seconds"),
    "tuning": (run_tuning, ("uci_concrete", "uci_energy"), ("structgp", "optuna-tpe", "random"), "cross-validated error"),
    "bumps": (
        run_bump,
        ("e24", "e24-tenth", "e24-noisy", *(f"{kind}-{D}" for D in (2, 3, 4, 5, 6) for kind in ("aligned", "rotated"))),
        ("aligned", "rotated", "both", "cobyqa", "known"),
        "samples",
    ),
    "integrals": (run_integral, ("random",), ("kernel", "antiderivative"), "|error| / sd"),
    "gradients": (run_gradient, ("bump",), ("active", "even", *(f"central-{h}" for h in STEPS)), "relative error"),
    "history": (run_history, ("hartmann",), ("suggest",), "CPU seconds"),
    "pole": (run_pole, ("long", "short"), ("aligned", "smooth", "aligned+rotated", "random"), "evaluations"),
}


def _about(job: tuple[str, str, str, int, int | None]) -> dict[str, Any]:
    return dict(zip(("study", "problem", "method", "seed", "evaluations"), job, strict=True))


def _one(job: tuple[str, str, str, int, int | None]) -> dict[str, Any]:
    study, problem, method, seed, evaluations = job
    about = _about(job)
    if method in NEEDS and importlib.util.find_spec(NEEDS[method]) is None:
        return {**about, "reason": f"{NEEDS[method]} is not installed"}
    try:
        return {**about, **STUDIES[study][0](problem, method, seed, evaluations)}
    except Exception as problem_met:
        return {**about, "reason": f"{type(problem_met).__name__}: {problem_met}"}


def apart(jobs: list[Any], workers: int, wall: float) -> Iterator[dict[str, Any]]:
    """All runs that end in time, each in a process of its own."""
    for job, row in each(_one, jobs, workers, wall):
        yield row or {**_about(job), "reason": DIED}


def show(rows: list[dict[str, Any]], what: str) -> None:
    """A table: medians over the seeds, the worst in brackets."""
    print(f"{'problem':<14}{'method':<14}{'runs':>5}{what:>24}{'(worst)':>12}{'half way':>11}{'first s':>9}{'warm ms':>9}")
    for problem, method in dict.fromkeys((row["problem"], row["method"]) for row in rows):
        own = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        good = [row for row in own if "regret" in row]
        if not good:
            print(f"{problem:<14}{method:<14}{0:>5}  {own[0]['reason']}")
            continue
        column = lambda name, good=good: np.array([row[name] for row in good], dtype=float)
        middle = lambda name, column=column: float(np.median(column(name)))
        spread = f"{middle('regret'):.4g}"
        print(
            f"{problem:<14}{method:<14}{len(good):>5}{spread:>24}{np.max(column('regret')):>12.4g}{middle('half'):>11.4g}"
            f"{middle('first'):>9.3g}{middle('warm'):>9.4g}"
        )
        if what == "|error| / sd":
            print(f"{'':<14}{'':<14}below 2 in {100 * np.mean(column('regret') < 2):.0f} %")
        if what == "samples":
            print(f"{'':<14}{'':<14}mean {np.mean(column('regret')):.1f} ± {np.std(column('regret')):.1f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--problems", nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--here", action="store_true", help="all runs in this process")
    parser.add_argument("--wall", type=float, default=1e6, help="seconds")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    on_one_thread()
    _, problems, methods, what = STUDIES[given.study]
    jobs = [
        (given.study, problem, method, seed, given.evaluations)
        for seed in range(given.seeds)
        for problem in given.problems or problems
        for method in given.methods or methods
    ]
    key = lambda row: tuple(row[name] for name in _about(jobs[0]))
    old = given.json.read_text().splitlines() if given.json and given.json.exists() else []
    rows = [row for row in map(json.loads, old) if key(row) in jobs and "reason" not in row]
    done = set(map(key, rows))
    left = [job for job in jobs if job not in done]
    deadline = time.monotonic() + given.wall
    here = (_one(job) for job in left if time.monotonic() < deadline)
    with threadpool_limits(1):  # of what is loaded already
        for row in here if given.here else apart(left, given.jobs, given.wall):
            rows.append(row)
            if given.json:
                with given.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    order = {job[1:3]: number for number, job in reversed(list(enumerate(jobs)))}
    show(sorted(rows, key=lambda row: (order[row["problem"], row["method"]], row["seed"])), what)
    if len(rows) < len(jobs):
        print(f"{len(jobs) - len(rows)} of {len(jobs)} runs did not end in time")


if __name__ == "__main__":
    main()
