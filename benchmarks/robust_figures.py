"""The small experiments of A. Naish-Guzman's thesis (Cambridge 2007) on outliers, by number of the figure.

    python -m benchmarks.robust_figures             # all of them
    python -m benchmarks.robust_figures 3.12 4.6    # some

The thesis shows most of these as pictures; the functions return the numbers behind what is said of them, which are printed.
Figures 3.8, 3.10, 3.11, 4.2, 4.4 and 4.9 are the
studies `friedman`, `motorcycle`, `referee` and `labels` of `benchmarks.robust`.
"""

import sys
import warnings
from typing import Any

import numpy as np
from scipy import stats

import structgp as sg

Numbers = dict[str, float]


def _error(fitted: Any, x: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((fitted.predict(x).signal.mean - truth) ** 2)))


def _sinc(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-10, 10, 60))
    truth = np.sinc(x / np.pi)
    return x, truth, truth + 0.05 * rng.standard_normal(60)


def _twinned(gate: Any = None, signal: Any = None) -> Any:
    kernels: Any = sg.Independent(gate or sg.SquaredExponential(1.0, 2.0), signal or sg.SquaredExponential(2.0))
    return sg.GP(kernels, sg.Twinned(0.01, 1.0), sg.ConstantMean([1.5, 0.0]))


def figure_3_1() -> Numbers:
    """One outlier, and a group of four, under Gaussian noise, a mixture and twinned noise."""
    x, truth, y = _sinc()
    one, group = y.copy(), y.copy()
    one[30] += 1.5
    group[28:32] += 1.5
    models = {"Gaussian": sg.Gaussian(0.01), "mixture": sg.MixtureNoise(0.1, 1.0, 0.1)}
    found = {}
    for name, data in (("no outlier", y), ("one outlier", one), ("a group of four", group)):
        for way, noise in models.items():
            fitted = sg.GP(sg.SquaredExponential(2.0), noise).fit(x, data, parameters="best")
            found[f"error, {name}, {way}"] = _error(fitted, x, truth)
        found[f"error, {name}, twinned"] = _error(_twinned().fit(x, data, parameters="best"), x, truth)
    return found


def figure_3_5() -> Numbers:
    """Data drawn from a twinned process: outliers come in runs."""
    x = np.linspace(0, 10, 400)
    f = np.asarray(_twinned().sample(x, n=50, seed=0))
    y = _twinned().likelihood.sample(np.random.default_rng(0), f)
    far = np.abs(y - f[..., 1]) > 0.3
    after = far[:, 1:][far[:, :-1]].mean()
    return {"rows three narrow sd off": float(far.mean()), "of those after one that is": float(after)}


def figure_3_6() -> Numbers:
    """The likelihood of an observation as a function of f, where the gate is at ±1."""
    f = np.linspace(-6, 6, 1201)
    noise, tail = sg.Twinned(0.04, 4.0), np.abs(f - 1.0) > 1.0
    found = {}
    for u in (1.0, -1.0):
        p = np.exp(np.asarray(noise.log_prob(1.0, np.stack([np.full_like(f, u), f], axis=-1))))
        p /= p.sum()
        found[f"likelihood more than 1 from the observation, gate {u:+.0f}"] = float(p[tail].sum())
    return found


def figure_3_7() -> Numbers:
    """Bad rows at the left and a tight group near 0, under four kinds of noise."""
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-12, 12, 90), 1.0 + 0.15 * rng.standard_normal(7)])
    truth = np.sinc(x / np.pi)
    y, left, group = truth + 0.05 * rng.standard_normal(97), np.abs(x + 10) < 1.2, np.arange(97) >= 90
    y[left] += 0.7 * rng.standard_normal(left.sum())
    y[group] -= 1.2
    ways = {"Gaussian": sg.Gaussian(0.01), "Laplace": sg.LaplaceNoise(0.1), "mixture": sg.MixtureNoise(0.1, 1.0, 0.1)}
    found = {}
    for name, noise in ways.items():
        fitted = sg.GP(sg.SquaredExponential(2.0), noise).fit(x, y, parameters="best")
        found |= {f"error, {name}": _error(fitted, x, truth), f"lengthscale, {name}": float(fitted.kernel.lengthscale)}
    fitted = _twinned().fit(x, y, parameters="best")
    p, length = fitted.outlier_probability, float(fitted.kernel.kernels[1].lengthscale)
    found |= {"error, twinned": _error(fitted, x, truth), "lengthscale, twinned": length}
    found |= {"P(outlier) in the group": float(p[group].mean()), "P(outlier) at the left": float(p[left].mean())}
    return found | {"P(outlier) elsewhere": float(p[~(left | group)].mean())}


def figure_3_9() -> Numbers:
    """A cosine whose noise is a slower wave: two widths saturate, a process of the log noise does not."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-15, 15, 200))
    width = 0.05 + 0.45 * np.sin(0.2 * x) ** 2
    y = np.cos(x) + width * rng.standard_normal(200)
    twinned = _twinned().fit(x, y, parameters="best")
    gates, likelihood = twinned.gate.mean, twinned.likelihood
    ratio = float(likelihood.other.noise / likelihood.real.noise)
    found = {"lowest gate": float(gates.min()), "highest gate": float(gates.max()), "wide over narrow variance": ratio}
    kernels: Any = sg.Independent(sg.SquaredExponential(3.0), sg.SquaredExponential(1.5))
    changing = sg.GP(kernels, sg.HeteroscedasticGaussian(), sg.ConstantMean([-3.0, 0.0])).fit(x, y, parameters="best")
    for name, fitted in (("twinned", twinned), ("heteroscedastic", changing)):
        p = fitted.predict(x)
        sd = np.sqrt(np.maximum(p.observed.variance - p.signal.variance, 1e-12))
        off = np.exp(np.mean(np.abs(np.log(sd / width))))
        found |= {f"factor of the noise sd, {name}": float(off), f"log evidence, {name}": float(fitted.log_evidence)}
    return found


def figure_3_12() -> Numbers:
    """An observation at 5 where f is believed to be 0 ± 1, one to six times: what is then believed of f."""
    f, u = np.linspace(-4, 7, 2201), np.linspace(-16, 16, 1601)
    real, other = (stats.norm.pdf(5.0, f, sd) for sd in (0.2, 5.0))
    mixture = 0.975 * real + 0.025 * other
    belief = stats.norm.pdf(u, 0.0, 4.0)
    prior = stats.norm.pdf(f)
    gp = sg.GP(sg.Independent(sg.SquaredExponential(1.0, 16.0), sg.SquaredExponential(1.0)), sg.Twinned(0.04, 25.0))
    iid = sg.GP(sg.SquaredExponential(1.0), sg.MixtureNoise(0.2, 5.0, 0.025))
    found = {}
    for n in range(1, 7):
        by_gate = stats.norm.cdf(u)[:, None] * real + stats.norm.cdf(-u)[:, None] * other
        twinned = prior * (belief @ by_gate**n)
        single = prior * mixture**n
        at_five = [p[f > 3].sum() / p.sum() for p in (single, twinned)]
        x, y = np.zeros(n), np.full(n, 5.0)
        means = [
            float(iid.condition(x, y, structure="dense").predict([0.0]).mean[0]),
            float(gp.condition(x, y, structure="dense").predict([0.0]).signal.mean[0]),
        ]
        times = f"seen {n} times"
        found |= {f"mass near 5, {times}, mixture": float(at_five[0]), f"mass near 5, {times}, twinned": float(at_five[1])}
        found |= {f"mean by EP or its like, {times}, mixture": means[0], f"mean by EP or its like, {times}, twinned": means[1]}
    return found


def figure_3_13() -> Numbers:
    """Three outliers that come first: one after the other into a stream of sites, and all at once."""
    x = np.array([0.0, 0.05, -0.05, *np.linspace(-0.4, 0.4, 9)])
    y = np.array([3.0, 3.1, 2.9, *(0.05 * np.cos(40 * x[3:]))])
    twinned = _twinned(sg.SquaredExponential(0.5, 4.0), sg.SquaredExponential(1.0))
    mixture = sg.GP(sg.SquaredExponential(1.0), sg.MixtureNoise(0.1, 1.0, 0.1))
    found = {}
    for name, gp in (("mixture", mixture), ("twinned", twinned)):
        fitted = gp.condition(x[:3], y[:3])
        first = float(fitted.predict([0.0]).signal.mean[0])
        fitted = fitted.update(x[3:], y[3:])
        after = float(fitted.predict([0.0]).signal.mean[0])
        found |= {f"f(0) after three outliers, {name}": first, f"f(0) after nine good rows, {name}": after}
    return found


def figure_4_3() -> Numbers:
    """An observation 3 of a signal 0 ± 1: it moves a twinned signal, not one of which outliers know nothing."""
    found = {}
    for name, noise in (("twinned", sg.Twinned(0.25, 9.0)), ("ignorant", sg.Ignorant(0.25, 9.0))):
        kernels: Any = sg.Independent(sg.SquaredExponential(), sg.SquaredExponential())
        fitted = sg.GP(kernels, noise).condition(np.zeros(1), np.full(1, 3.0), structure="dense")
        p = fitted.predict([0.0])
        found |= {f"mean of f, {name}": float(p.signal.mean[0]), f"sd of f, {name}": float(p.signal.sd[0])}
        found[f"P(outlier), {name}"] = float(fitted.outlier_probability[0])
    return found


def figure_4_5() -> Numbers:
    """Two functions of ten columns in one table, with parameters near the truth, beside processes that know which is which."""
    ratios, sure = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, own = rng.uniform(size=(150, 10)), rng.random(150) < 0.5
        scales = [np.exp(rng.normal(0.0, 0.5, 10)) for _ in range(2)]
        kernels = [sg.SquaredExponential(scale, 1.0) for scale in scales]
        f = np.stack(
            [sg.GP(kernel, sg.Gaussian(0.01)).sample(X, n=1, seed=seed + 50 * i)[0] for i, kernel in enumerate(kernels)]
        )
        y = np.where(own, f[0] + 2.0, f[1] - 2.0) + 0.1 * rng.standard_normal(150)
        both: Any = sg.Independent(*kernels)
        fitted = sg.GP(both, sg.TwoProcesses(0.01, 0.01, 0.5), sg.ConstantMean([2.0, -2.0])).condition(X, y, structure="dense")
        found = fitted.inference.mean
        error = np.sqrt(np.mean((found - np.stack([f[0] + 2.0, f[1] - 2.0], axis=1)) ** 2, axis=0))
        oracle = []
        for kernel, rows, level, truth in zip(kernels, (own, ~own), (2.0, -2.0), (f[0] + 2.0, f[1] - 2.0), strict=True):
            told = sg.GP(kernel, sg.Gaussian(0.01), sg.ConstantMean(level)).condition(X[rows], y[rows])
            oracle.append(np.sqrt(np.mean((told.predict(X).mean - truth) ** 2)))
        ratios.append(error.mean() / np.mean(oracle))
        sure.append(np.mean((fitted.outlier_probability > 0.5) == ~own))
    over = "error over that of processes that are told"
    return {
        over: float(np.mean(ratios)),
        f"{over}, worst": float(np.max(ratios)),
        "rows given to the right one": float(np.mean(sure)),
    }


def figure_4_6() -> Numbers:
    """A step as two experts and a gate, with noise of 0.01 and then of 1e-5."""
    x = np.linspace(-1, 1, 60)
    y = np.where(x > 0, 1.0, -1.0) + 0.003 * np.cos(60 * x)
    found = {}
    for noise in (0.01, 1e-5):
        kernels: Any = sg.Independent(sg.SquaredExponential(0.5, 9.0), sg.SquaredExponential(3.0), sg.SquaredExponential(3.0))
        fitted = sg.GP(kernels, sg.TwoExperts(noise, noise), sg.ConstantMean([0.0, 1.0, -1.0])).condition(x, y)
        at = np.linspace(-1, 1, 401)
        p = fitted.predict(at)
        error = np.sqrt(np.mean((p.observed.mean - np.where(at > 0, 1.0, -1.0)) ** 2))
        between = np.sum(np.abs(p.observed.mean) < 0.8) * (at[1] - at[0])
        found |= {f"error, noise {noise:g}": float(error), f"width of the step, noise {noise:g}": float(between)}
    return found


FIGURES = {
    name.removeprefix("figure_").replace("_", "."): work for name, work in globals().items() if name.startswith("figure_")
}


def main() -> None:
    """The command line."""
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or FIGURES:
        for what, number in FIGURES[name]().items():
            print(f"{name:<5} {what:<60} {number:.4g}", flush=True)


if __name__ == "__main__":
    main()
