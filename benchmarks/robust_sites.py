"""EP of several latents against referees on thirty small random problems each, and what a call with full sites costs.

    python -m benchmarks.robust_sites twinned labels heteroscedastic     # ten rows each, --sets 30
    python -m benchmarks.robust_sites calls --rows 20000                 # one call with full sites, in calls with sites apart

Referees: of twinned noise the sum over all settings of the switches; of the others importance sampling with quasi-random points
from a t density around what EP says, with f integrated out where it can be. Errors of means are in true posterior standard
deviations. "Effective" is how many points count.
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

N = 10
HOPELESS = 40.0  # by so much a setting of the switches may be less likely than the likeliest, or is left out
HEAVY = 5.0  # degrees of freedom of the density that points are drawn from


class Told(NamedTuple):
    """What a referee says: log p(y), means and standard deviations of the latents, and P(outlier), as far as it knows them."""

    evidence: float
    mean: np.ndarray  # (N, C), NaN of what was not asked
    sd: np.ndarray
    outliers: np.ndarray | None
    effective: float


def problems(name: str, count: int, first: int = 0) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Random parameters; half of the data from the model and half a sine with a block of three rows that are off."""
    return itertools.starmap(PROBLEMS[name], ((np.random.default_rng(seed), seed) for seed in range(first, first + count)))


def _kernels(rng: np.random.Generator, least: float, most: float) -> tuple[np.ndarray, Any]:
    import structgp as sg

    x = np.sort(rng.uniform(-3.0, 3.0, N))
    lengths, variance = np.exp(rng.uniform(np.log(0.4), np.log(3.0), 2)), np.exp(rng.uniform(np.log(least), np.log(most)))
    return x, sg.Independent(sg.SquaredExponential(lengths[0], variance), sg.SquaredExponential(lengths[1], 1.0))


def _twinned(rng: np.random.Generator, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    import structgp as sg

    x, kernels = _kernels(rng, 0.5, 6.0)
    level, narrow = rng.uniform(-0.3, 2.0), np.exp(rng.uniform(np.log(0.003), np.log(0.1)))
    wide = np.exp(rng.uniform(0.0, np.log(10.0)))
    gp = sg.GP(kernels, sg.Twinned(narrow, wide), sg.ConstantMean([level, 0.0]))
    if seed % 2:
        return gp, x, gp.sample(x, n=1, seed=seed, observed=True)[0]
    y = np.sin(1.5 * x) + np.sqrt(narrow) * rng.standard_normal(N)
    y[4:7] += 3.0
    return gp, x, y


def _labels(rng: np.random.Generator, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    import structgp as sg

    x, kernels = _kernels(rng, 0.5, 6.0)
    slopes = np.exp(rng.uniform(np.log([2.0, 0.05]), np.log([5.0, 0.5])))
    gp = sg.GP(kernels, sg.TwinnedLabels(*slopes), sg.ConstantMean([rng.uniform(-0.3, 2.0), 0.0]))
    if seed % 2:
        return gp, x, gp.sample(x, n=1, seed=seed, observed=True)[0]
    y = np.sin(1.5 * x) > 0
    y[4:7] ^= True
    return gp, x, y * 1.0


def _heteroscedastic(rng: np.random.Generator, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    import structgp as sg

    x, kernels = _kernels(rng, 0.3, 3.0)
    level = rng.uniform(np.log(0.01), np.log(0.3))
    gp = sg.GP(kernels, sg.HeteroscedasticGaussian(), sg.ConstantMean([level, 0.0]))
    if seed % 2:
        return gp, x, gp.sample(x, n=1, seed=seed, observed=True)[0]
    y = np.sin(1.5 * x) + np.exp(0.5 * level) * rng.standard_normal(N)
    y[4:7] += rng.standard_normal(3)
    return gp, x, y


def priors(gp: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (C, N) and covariances (C, N, N) of the latents before anything is seen."""
    import structgp as sg

    K = np.stack([np.asarray(sg.covariance(kernel, x[:, None], x[:, None])) for kernel in gp.kernel.kernels])
    return np.repeat(np.asarray(gp.mean.value)[:, None], len(x), axis=1), K + 1e-9 * np.eye(len(x))


def over_all_switches(gp: Any, x: np.ndarray, y: np.ndarray, _: Any = None) -> Told:
    """Twinned noise, summed over all settings of its switches; how probable they are, by quasi-random gates."""
    (mean_u, _f), (K_u, K_f) = priors(gp, x)
    settings = (np.arange(2**N)[:, None] >> np.arange(N)) & 1  # 1 for an outlier
    noise = np.where(settings, float(gp.likelihood.other.noise), float(gp.likelihood.real.noise))
    logs, means, variances = given_noise(K_f, noise, y)
    likely = logs > logs.max() - HOPELESS
    settings, means, variances = settings[likely], means[likely], variances[likely]
    logs = logs[likely] + log_orthants(mean_u, K_u + np.eye(N), 1 - 2 * settings)
    evidence, weight = np.logaddexp.reduce(logs), special.softmax(logs)
    mean = weight @ means
    sd = np.sqrt(weight @ (variances + (means - mean) ** 2))
    unknown = np.full(N, np.nan)
    return Told(evidence, np.stack([unknown, mean], 1), np.stack([unknown, sd], 1), weight @ settings, np.inf)


def log_orthants(mean: np.ndarray, C: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """log P(sides · z > 0), z ~ N(mean, C), for rows of sides ±1: one coordinate given those before it (Genz, 1992)."""
    L, points = np.linalg.cholesky(C), 2**8
    q = stats.qmc.Sobol(len(L) - 1, seed=0).random(points)
    white, logs = np.zeros((len(sides), points, len(L))), np.zeros((len(sides), points))
    for n in range(len(L)):
        side = sides[:, n, None]
        p = special.ndtr(side * (mean[n] + white[:, :, :n] @ L[n, :n]) / L[n, n])
        logs += np.log(p + 1e-300)
        if n < len(L) - 1:
            white[:, :, n] = -side * special.ndtri(np.maximum(q[:, n] * p, 1e-300))
    return special.logsumexp(logs, axis=1) - np.log(points)


def given_noise(K: np.ndarray, noise: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log N(y; 0, K + noise) for rows of noise variances, and mean and variance of f given each."""
    L = np.linalg.cholesky(K + noise[:, :, None] * np.eye(len(y)))
    both = np.concatenate([np.broadcast_to(y[:, None], (len(L), len(y), 1)), np.broadcast_to(K, L.shape)], axis=2)
    half = np.linalg.solve(L, both)
    z, V = half[..., 0], half[..., 1:]
    logs = -0.5 * np.sum(z**2, axis=1) - np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)
    means, variances = np.einsum("ci,cij->cj", z, V), np.diagonal(K) - np.sum(V**2, axis=1)
    return logs - 0.5 * len(y) * np.log(2 * np.pi), means, variances


def by_points(gp: Any, x: np.ndarray, y: np.ndarray, fitted: Any) -> Told:
    """Importance sampling around what EP says: labels in all latents, changing noise in its logarithm alone."""
    mean, K = priors(gp, x)
    alone = gp.likelihood.gates == 0
    sites = fitted.inference
    root = _joined(np.linalg.cholesky(K))  # latents are m + root ξ, ξ ~ N(0, I)
    m, Pi = mean.ravel(), _precision(np.asarray(sites.w))
    precision = np.eye(len(m)) + root.T @ Pi @ root
    centre = np.linalg.solve(precision, root.T @ (np.asarray(sites.h).T.ravel() - Pi @ m))
    size = N if alone else len(m)  # the log noise comes first, and its part of ξ makes all of it
    points, log_q = _around(centre[:size], np.linalg.inv(precision)[:size, :size], 2 ** (14 if alone else 17))
    log_p = -0.5 * np.sum(points**2, axis=1) - 0.5 * size * np.log(2 * np.pi)
    points = m[:size] + points @ root[:size, :size].T
    latents = points.reshape(len(points), -1, N)
    if alone:
        log_likelihood, means, variances = given_noise(K[1], np.exp(latents[:, 0]), y - mean[1])
        values = np.stack([latents[:, 0], means + mean[1]], axis=2)
        extra = np.stack([np.zeros_like(variances), variances], axis=2)
    else:
        values, extra = np.moveaxis(latents, 1, 2), 0.0
        log_likelihood = np.asarray(gp.likelihood.log_prob(y, values)).sum(axis=1)
    logs = log_p + log_likelihood - log_q
    weight = special.softmax(logs)
    average = np.einsum("p,pnc->nc", weight, values)
    variance = np.einsum("p,pnc->nc", weight, extra + (values - average) ** 2)
    outliers = None
    if not alone:
        outliers = weight @ np.asarray(gp.likelihood.outlier_probability(y, values, np.zeros_like(values)))
    return Told(special.logsumexp(logs) - np.log(len(logs)), average, np.sqrt(variance), outliers, float(1 / np.sum(weight**2)))


def _joined(K: np.ndarray) -> np.ndarray:
    C, n, _ = K.shape
    return np.einsum("cd,cij->cidj", np.eye(C), K).reshape(C * n, C * n)


def _precision(w: np.ndarray) -> np.ndarray:
    """Sites (N, C) or (N, C, C) as one matrix over latents and places."""
    n, C = w.shape[:2]
    blocks = w if w.ndim == 3 else w[:, :, None] * np.eye(C)
    return np.einsum("icd,ij->cidj", blocks, np.eye(n)).reshape(C * n, C * n)


def _around(centre: np.ndarray, spread: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Quasi-random points of a t density, and its logarithm there."""
    d = len(centre)
    q = np.clip(stats.qmc.Sobol(d + 1, seed=0).random(count), 1e-12, 1 - 1e-12)
    L = np.linalg.cholesky(1.2 * spread)
    stretch = np.sqrt(HEAVY / stats.chi2.ppf(q[:, d:], HEAVY))
    points = centre + stretch * stats.norm.ppf(q[:, :d]) @ L.T
    return points, stats.multivariate_t(centre, L @ L.T, HEAVY).logpdf(points)


def one(name: str, gp: Any, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The errors of EP on one problem, or NaN where it did not converge."""
    fitted = gp.condition(x, y, structure="dense")
    row = {"converged": float(fitted.inference.converged), "calls": float(fitted.inference.calls)}
    told = REFEREES[name](gp, x, y, fitted)
    off = np.sqrt(np.mean(((fitted.inference.mean - told.mean) / told.sd) ** 2, axis=0))
    row |= {"log evidence": fitted.log_evidence - told.evidence, "f": off[1], "gate or log noise": off[0]}
    if told.outliers is not None:
        row["P(outlier)"] = float(np.mean(np.abs(fitted.outlier_probability - told.outliers)))
    row["sd of f, times"] = float(np.mean(np.sqrt(fitted.inference.variance[:, 1]) / told.sd[:, 1]))
    return row | {"effective": told.effective}


def study(name: str, count: int, first: int) -> None:
    """Root mean squares over the problems where EP converged."""
    rows = [one(name, *problem) for problem in problems(name, count, first)]
    ended = [row for row in rows if row["converged"]]
    column = lambda key: np.array([row[key] for row in ended])
    print(f"\n{name}: {len(ended)} of {len(rows)} converged, calls {np.median(column('calls')):.0f}, at most ", end="")
    print(f"{column('calls').max():.0f}, effective points at least {column('effective').min():.0f}")
    for key in ended[0]:
        if key in ("converged", "calls", "effective"):
            continue
        values = column(key)
        if np.isnan(values).all():
            continue
        rms, worst = np.sqrt(np.mean(values**2)), values[np.argmax(np.abs(values))]
        print(f"  {key:<20} rms {rms:.3f}   mean {values.mean():+.3f}   mean size {np.abs(values).mean():.3f}", end="")
        print(f"   median size {np.median(np.abs(values)):.3f}   worst {worst:+.3f}", flush=True)


def calls(rows: int) -> None:
    """Seconds of one call of a chain engine, marginals of both latents and the normaliser, with both forms of sites."""
    import jax
    import jax.numpy as jnp

    import structgp as sg
    from structgp.inference.base import Problem
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import read_observations

    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.5, 1.5, rows)) * 0.05
    y = np.sin(t) + 0.1 * rng.standard_normal(rows)
    kernel, mean = sg.Independent(sg.Matern32(0.3, 2.0), sg.Matern52(2.0, 1.0)), sg.ConstantMean([1.5, 0.0])
    took: dict[str, float] = {}
    with jax.enable_x64(True):
        for name, likelihood in (("apart", sg.Twinned()), ("full", sg.HeteroscedasticGaussian())):
            gp, inputs = sg.GP(kernel, likelihood, mean), as_inputs(t)
            data = read_observations(likelihood, y, None, "error", inputs)
            engine = gp.plan(inputs, structure="markov").engine
            w = np.tile([0.2, 5.0], (rows, 1)) * rng.uniform(0.5, 1.5, (rows, 2))
            w = w if name == "apart" else w[:, :, None] * np.eye(2) + 0.1 * (1 - np.eye(2))
            h = 0.1 * rng.standard_normal((rows, 2))

            @jax.jit
            def call(gp: Any, inputs: Any, data: Any, w: Any, h: Any, engine: Any = engine) -> Any:
                return Problem.of(gp, inputs, data, engine, True).given(w, h)[:3]

            arguments = gp, inputs, data, jnp.asarray(w), jnp.asarray(h)
            jax.block_until_ready(call(*arguments))
            spent = []
            for _ in range(5):
                began = time.process_time()
                jax.block_until_ready(call(*arguments))
                spent.append(time.process_time() - began)
            took[name] = min(spent)
            print(f"{name:6} {type(engine).__name__}: {1e9 * took[name] / rows:.0f} ns a row of {rows}", flush=True)
    print(f"full / apart: {took['full'] / took['apart']:.2f}")


PROBLEMS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "twinned": _twinned,
    "labels": _labels,
    "heteroscedastic": _heteroscedastic,
}
REFEREES: dict[str, Callable[..., Told]] = {
    "twinned": over_all_switches,
    "labels": by_points,
    "heteroscedastic": by_points,
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=[*PROBLEMS, "calls"])
    parser.add_argument("--sets", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.studies:
        if name == "calls":
            calls(given.rows)
        else:
            study(name, given.sets, given.first)


if __name__ == "__main__":
    main()
