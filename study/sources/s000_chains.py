"""Saatçi, chapters 1 and 2: Gaussian processes, and chains."""

import time

import numpy as np
from benchmarks.data import Part

from study.baselines import (
    boosted_labels,
    cpu_seconds,
    gaussian_process,
    inside,
    mean_of,
    of_labels,
    problem_results,
    rmse,
    slope,
    value,
)
from study.registry import Case, Found, How, above, below, between, diagram, experiment, less, near, smaller

REGRESSION, CHAIN, CHAIN_EP = "exact regression", "a chain in place of the matrix", "EP along a chain"


@experiment(
    "000.figure-1.1",
    "Functions drawn from the prior of a linear model with weights N(0, I)",
    "§1.1",
    system="Bayesian linear regression",
    cases=Case((near("sd of f(1) over that of f(0)", 2**0.5, 0.05, "exact"),), minutes=0.1),
)
def figure_1_1(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    draws = sg.GP(sg.Linear() + sg.Constant()).sample(np.array([0.0, 1.0]), n=20_000, seed=how.first)
    spread = draws.std(axis=0)
    return {"sd of f(1) over that of f(0)": Found(spread[1] / spread[0])}


@experiment(
    "000.figure-1.2",
    "Posterior of a linear model, with two standard deviations",
    "§1.1",
    system="Bayesian linear regression",
    baseline="scikit-learn's BayesianRidge, error of the line",
    note="Weights from the prior, 50 places, noise variance 0.25, 20 draws; the source gives no data.",
    cases=Case(
        (
            near("largest difference to the weight-space posterior", 0.0, 1e-8, "exact"),
            smaller("error of the line"),
        ),
        minutes=0.1,
        repeats=20,
    ),
)
def figure_1_2(case: str, how: How) -> dict[str, Found]:
    from sklearn.linear_model import BayesianRidge

    import structgp as sg

    at, off, ours, others = np.linspace(-1, 1, 21), [], [], []
    phi = lambda x: np.stack([np.ones_like(x), x], axis=1)
    for seed in how.numbers:
        rng = np.random.default_rng(seed)
        x, weights = rng.uniform(-1, 1, 50), rng.standard_normal(2)
        y = phi(x) @ weights + 0.5 * rng.standard_normal(50)
        p = sg.GP(sg.Linear() + sg.Constant(), sg.Gaussian(0.25)).condition(x, y).predict(at)
        A = phi(x).T @ phi(x) / 0.25 + np.eye(2)
        mean = phi(at) @ np.linalg.solve(A, phi(x).T @ y / 0.25)
        variance = np.sum(phi(at) * np.linalg.solve(A, phi(at).T).T, axis=1)
        off.append(max(np.abs(p.mean - mean).max(), np.abs(p.variance - variance).max()))
        ours.append(rmse(p.mean, phi(at) @ weights))
        others.append(rmse(BayesianRidge().fit(x[:, None], y).predict(at[:, None]), phi(at) @ weights))
    return {
        "largest difference to the weight-space posterior": Found(max(off)),
        "error of the line": mean_of(ours, others),
    }


@experiment(
    "000.figure-1.3",
    "Draws of squared exponential and Matérn-3/2 processes",
    "§1.3",
    system=REGRESSION,
    baseline="the squared exponential with the same lengthscale",
    cases=Case((above("mean step of Matérn-3/2 at gaps of 0.01 lengthscales", "rougher functions"),), minutes=0.1),
)
def figure_1_3(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    x = 0.01 * np.arange(200)
    steps = [
        float(np.mean(np.abs(np.diff(sg.GP(kernel).sample(x, n=50, seed=how.first), n=2, axis=1))))
        for kernel in (sg.Matern32(), sg.SquaredExponential())
    ]
    return {"mean step of Matérn-3/2 at gaps of 0.01 lengthscales": Found(*steps)}


@experiment(
    "000.figure-1.4",
    "Regression with a squared exponential and its 95 % band",
    "§1.3",
    system=REGRESSION,
    baseline="scikit-learn's process at its highest evidence",
    note="20 draws of the prior (lengthscale 1, noise variance 0.01), 30 places in [0, 10] each; parameters are learned.",
    cases=Case(
        (
            between("part of the function inside the 95 % band", "a 95 % band", 0.9, 1.0),
            smaller("error of the function"),
        ),
        minutes=0.4,
        repeats=20,
    ),
    mean=True,
)
def figure_1_4(case: str, seed: int) -> dict[str, Found]:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    import structgp as sg

    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.uniform(0, 10, 30), np.linspace(0, 10, 50)])
    f = sg.GP(sg.SquaredExponential()).sample(places, seed=seed)[0]
    y = f[:30] + 0.1 * rng.standard_normal(30)
    p = sg.GP(sg.SquaredExponential(), sg.Gaussian(0.1)).fit(places[:30], y).predict(places[30:])
    peer = gaussian_process(ConstantKernel() * RBF() + WhiteKernel(0.1), places[:30], y)
    return {
        "part of the function inside the 95 % band": Found(inside(p.mean, p.sd, f[30:])),
        "error of the function": Found(rmse(p.mean, f[30:]), rmse(peer.predict(places[30:, None]), f[30:])),
    }


diagram("000.figure-2.1", "Regression as inference on a vector Markov process", "§2.1", CHAIN)
diagram("000.figure-2.2", "The linear system of a stochastic differential equation", "§2.2", CHAIN)
diagram("000.figure-2.4", "One update of EP", "§2.4.1", CHAIN_EP)
diagram("000.figure-2.5", "Factor graphs of a chain and of what EP makes of it", "§2.4.2", CHAIN_EP)


@experiment(
    "000.figure-2.3",
    "Spectra of Matérn kernels and of Taylor's series come near the squared exponential's",
    "§2.2",
    system=CHAIN,
    baseline="the same for Matérn-1/2",
    note="Largest difference of the covariances at unit lengthscale; a spectrum itself has no claim with a number.",
    cases=Case(
        (
            below("Matérn-11/2 from the squared exponential", "nearer as ν grows", 0.3),
            below('approximate="state-space" from it', "nearer as the order grows", 0.05),
        ),
        minutes=0.1,
    ),
)
def figure_2_3(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    x, zero = np.linspace(0, 4, 200)[:, None], np.zeros((1, 1))
    of = lambda kernel: np.asarray(sg.covariance(kernel, x, zero))[:, 0]
    smooth = of(sg.SquaredExponential())
    off = lambda nu: float(np.abs(of(sg.Matern(nu=nu)) - smooth).max())
    t = np.linspace(0, 4, 41)
    gp = sg.GP(sg.SquaredExponential(), sg.Gaussian(0.1))
    y = np.sin(t)
    exact, chain = (gp.condition(t, y, **how) for how in ({"structure": "dense"}, {"approximate": "state-space"}))
    difference = np.abs(exact.predict(t).mean - chain.predict(t).mean).max()
    return {
        "Matérn-11/2 from the squared exponential": Found(off(5.5), off(0.5)),
        'approximate="state-space" from it': Found(float(difference), off(0.5)),
    }


def probit_chain(N: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in [-5, 5], a draw of a Matérn-7/2 process of variance 4 there, and labels by a probit."""
    from scipy.special import ndtr

    import structgp as sg

    t = np.linspace(-5, 5, N)
    f = sg.GP(sg.Matern72(0.5, 4.0)).sample(t, seed=seed)[0]
    return t, f, (np.random.default_rng(seed).uniform(size=N) < ndtr(f)).astype(float)


@experiment(
    "000.figure-2.6",
    "Time of EP for labels along a line against their number",
    "§2.5",
    system=CHAIN_EP,
    baseline="dense EP of ours, N = 500 to 2000 (the source: slope 3.1)",
    note="Parameters as they are, EP to convergence where the source makes ten sweeps; chains of 2,000 to 128,000 labels.",
    cases=Case((less("log–log slope of CPU time, chain", 1.1), above("slope of the dense one", "3.1", 1.3)), minutes=1),
)
def figure_2_6(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    gp = sg.GP(sg.Matern72(0.5, 4.0), sg.Bernoulli())

    def grows(sizes: tuple[int, ...], structure: str) -> float:
        seconds = []
        for N in sizes:
            t, _, y = probit_chain(N, how.first)
            work = lambda t=t, y=y: gp.condition(t, y, inference="ep", structure=structure)
            seconds.append(cpu_seconds(work))
        return slope(sizes, seconds)

    chain, dense = grows((2000, 8000, 32_000, 128_000), "markov"), grows((500, 1000, 2000), "dense")
    return {"log–log slope of CPU time, chain": Found(chain, dense), "slope of the dense one": Found(dense, chain)}


@experiment(
    "000.figure-2.7",
    "10,000 labels along a line: the function behind them",
    "§2.5",
    system=CHAIN_EP,
    baseline="gradient boosting on the same labels",
    cases=Case(
        (
            between("part of the function within two sd", "a band of two sd", 0.9, 1.0),
            smaller("−log p of 10,000 fresh labels", within=0.001),
        ),
        minutes=0.3,
    ),
)
def figure_2_7(case: str, how: How) -> dict[str, Found]:
    from scipy.special import ndtr

    import structgp as sg

    t, f, y = probit_chain(10_000, how.first)
    p = sg.GP(sg.Matern72(0.5, 4.0), sg.Bernoulli()).fit(t, y, inference="ep", parameters="best").predict(t)
    fresh = (np.random.default_rng(how.first + 1).uniform(size=len(t)) < ndtr(f)).astype(float)
    part = Part(t[:, None], y, t[:, None], fresh)
    ours, peer = of_labels(p.probability, fresh)[1], of_labels(boosted_labels(part), fresh)[1]
    return {
        "part of the function within two sd": Found(inside(p.mean, p.sd, f, 2.0)),
        "−log p of 10,000 fresh labels": Found(ours, peer),
    }


@experiment(
    "000.figure-2.8",
    "Days with snow in Whistler: learned, and inferred with the parameters as they are",
    "§2.5",
    system=CHAIN_EP,
    note=(
        "`python -m benchmarks whistler-fit whistler-inference`; Matérn-5/2. Seconds of CPU, compiling included while learning."
    ),
    cases=Case(
        (
            less("seconds to learn", 400),
            less("seconds of inference", 8),
            near("lengthscale, days", 37, 20, "EM, Matérn-7/2"),
        ),
        minutes=0.3,
    ),
)
def figure_2_8(case: str, how: How) -> dict[str, Found]:
    seconds = cpu_seconds(lambda: problem_results("whistler-inference", 13880, ["structgp"]))
    began = time.process_time()
    found = problem_results("whistler-fit", 13880, ["structgp"])
    return {
        "seconds to learn": Found(time.process_time() - began),
        "seconds of inference": Found(seconds),
        "lengthscale, days": Found(value(found, "structgp", "lengthscale")),
    }
