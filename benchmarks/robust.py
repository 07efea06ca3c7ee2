"""Robust regression: twinned and heteroscedastic noise beside Student-t and Gaussian noise.

    python -m benchmarks.robust friedman --kind 2 --sets 10 --jobs 8      # clusters of outliers (kind 1: scattered ones)
    python -m benchmarks.robust motorcycle --jobs 8                       # twelve stored folds
    python -m benchmarks.robust noise --sets 3 --jobs 8                   # real tables whose noise changes
    python -m benchmarks.robust labels --sets 3                           # labels that are wrong in bands (--waves 0.8 1.6 2.4)
    python -m benchmarks.robust classes --sets 3                          # several classes by EP and by Laplace's method
    python -m benchmarks.robust scale --rows 1000000                      # a long series with groups of outliers
    python -m benchmarks.robust referee --sets 4                          # EP and other samplers against Gibbs sampling
    python -m benchmarks.robust fit                                       # a cold TwinnedGPRegressor().fit on 500 rows

Friedman: 90 rows with noise and 10 outliers, ten columns; rmse and −log p of the noise-free function at 2000 rows, in standard
units of the training data. Motorcycle and noise: −log p and rmse of rows held out, in standard units. Every model is learned as
a user would, with its defaults, at its best parameters.
"""

import argparse
import concurrent.futures
import itertools
import multiprocessing
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.data import load

WAYS = ("Gaussian", "Student-t", "twinned", "heteroscedastic", "triplet")
TABLES = ("sunspots_monthly", "portfolios30_daily", "uci_abalone", "uci_boston", "uci_yacht")
MOST = 500  # rows of these to learn from
SERIES = TABLES[:2]  # the last column against the number of the row


def friedman(kind: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and targets with outliers, in standard units; which are outliers; test rows and the function there."""
    rng = np.random.default_rng(seed)
    function = lambda X: 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    X = rng.uniform(size=(90, 10))
    y = function(X) + rng.standard_normal(90)
    if kind == 1:
        more, wrong = rng.uniform(size=(10, 10)), 15 + 3 * rng.standard_normal(10)
    else:
        centres = np.repeat(rng.uniform(size=(2, 10)), 5, axis=0)
        more, wrong = centres + np.sqrt(1e-3) * rng.standard_normal((10, 10)), rng.standard_normal(10)
    X, y, outlier = np.vstack([X, more]), np.concatenate([y, wrong]), np.arange(100) >= 90
    test = rng.uniform(size=(2000, 10))
    level, size, middle, spread = y.mean(), y.std(), X.mean(axis=0), X.std(axis=0)
    return (X - middle) / spread, (y - level) / size, outlier, (test - middle) / spread, (function(test) - level) / size


def model(way: str, D: int, smooth: bool) -> Any:
    """An estimator, with squared exponentials where the study asks for them."""
    import structgp as sg

    kernel = sg.SquaredExponential(np.full(D, np.sqrt(D)) if D > 1 else 1.0) if smooth else None
    if way == "twinned":
        return sg.TwinnedGPRegressor(kernel)
    if way == "heteroscedastic":
        return sg.HeteroscedasticGPRegressor(kernel, gate=sg.SquaredExponential(np.sqrt(D), 1.0) if smooth else None)
    return sg.GPRegressor(kernel, noise=None if way == "Gaussian" else "student-t", parameters="best", seconds=None)


def one_friedman(kind: int, seed: int, way: str) -> dict[str, Any]:
    """One set, one model."""
    X, y, outlier, test, truth = friedman(kind, seed)
    began = time.process_time()
    fitted = model(way, 10, True).fit(X, y)
    mean, sd = fitted.predict(test, return_std=True, latent=True)
    row: dict[str, Any] = {"way": way, "rmse": np.sqrt(np.mean((mean - truth) ** 2))}
    row["nlp"] = np.mean(0.5 * ((mean - truth) / sd) ** 2 + np.log(sd) + 0.5 * np.log(2 * np.pi))
    row |= {"evidence": fitted.log_evidence_, "cpu": time.process_time() - began}
    if way == "twinned":
        p, learning = fitted.outlier_probability_, fitted.fitted_.learning
        row |= {"outliers": p[outlier].mean(), "clean": p[~outlier].mean(), "evaluations": learning.evaluations}
        row["runner-up"] = np.nan if learning.runner_up is None else learning.runner_up - learning.objective
    return row


def one_held_out(name: str, part: int, rows: int, way: str) -> dict[str, Any]:
    """One split of a real table, one model."""
    import structgp as sg

    X, y, train, test = split(name, part, rows)
    began = time.process_time()
    if way == "triplet":
        kernels = (sg.Matern32(0.5, 2.0), sg.Matern32(0.5, 2.0), sg.SquaredExponential(0.5))
        gp = sg.GP(sg.Independent(*kernels), sg.Triplet(0.01, 0.1, 0.5), sg.ConstantMean([0.5, 0.5, 0.0]))
        fitted = gp.fit(X[train], y[train], parameters="best")
        p = fitted.predict(X[test])
        logs, mean, inference = p.log_prob(y[test]), p.signal.mean, fitted.inference
    else:
        found = model(way, X.shape[1], name == "motorcycle").fit(X[train], y[train])
        logs, mean, inference = found.log_prob(X[test], y[test]), found.predict(X[test]), found.fitted_.inference
    return {
        "way": way,
        "nlp": -np.mean(logs),
        "rmse": np.sqrt(np.mean((mean - y[test]) ** 2)),
        "converged": inference is None or inference.converged,
        "cpu": time.process_time() - began,
    }


def split(name: str, part: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X, y in standard units, and the rows to learn from and to test on: the stored fold, or so many and 200 random rows."""
    table = load(name)
    names = [column for column, values in table.columns.items() if values.dtype.kind == "f"]
    X, y = table.inputs_and_target(names[-1], names[:-1]) if name not in SERIES else _series(table)
    numbers = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X, y = X[numbers], y[numbers]
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    if name == "motorcycle":
        train, test = table.splits[part]
        return X, y, train, test
    order = np.random.default_rng(part).permutation(len(y))
    rows = min(most, 3 * len(y) // 4)
    return X, y, order[:rows], order[rows : rows + 200]


def _series(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """The last column against the number of the row: 1500 months, or days."""
    y = np.asarray(list(table.columns.values())[-1], dtype=float)[:1500]
    return np.arange(len(y), dtype=float)[:, None], y


def one_labels(seed: int, wave: float) -> dict[str, Any]:
    """Labels of the sign of sin(wave · x) that are wrong in narrow bands: error and −log p of the true sign."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-6, 6, 120))
    true = np.sin(wave * x) > 0
    wrong = np.zeros(120, bool)
    for start in rng.choice(114, 7, replace=False):
        wrong[start : start + 3] = True
    at = np.linspace(-6, 6, 400)
    truth = np.sin(wave * at) > 0
    row: dict[str, Any] = {"wrong labels": int(wrong.sum())}
    for name, estimator in (("probit", sg.GPClassifier(parameters="best")), ("robust", sg.RobustGPClassifier())):
        fitted = estimator.fit(x[:, None], true ^ wrong)
        p = fitted.predict_proba(at[:, None])[:, 1]
        row |= {f"{name} error": np.mean((p > 0.5) != truth), f"{name} nlp": -np.mean(np.log(np.where(truth, p, 1 - p)))}
    suspected = fitted.outlier_probability_  # type: ignore[possibly-undefined]
    return row | {"P(wrong)": suspected[wrong].mean(), "P(right)": suspected[~wrong].mean()}


def one_classes(name: str, part: int, way: str) -> dict[str, Any]:
    """Several classes by EP and by Laplace's method: 200 random rows to learn from and 200 to test on."""
    import structgp as sg

    table = load(name)
    labels = next(column for column in ("phase", "Type") if column in table.columns)
    X = np.stack([values for column, values in table.columns.items() if column != labels and values.dtype.kind == "f"], axis=1)
    classes, y = np.unique(np.asarray(table.columns[labels]), return_inverse=True)
    X, order = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-12), np.random.default_rng(part).permutation(len(y))
    train, test = order[: min(200, len(y) // 2)], order[-min(200, len(y) // 2) :]
    likelihood = sg.MultinomialProbit(len(classes)) if way == "probit by EP" else sg.Categorical(len(classes))
    began = time.process_time()
    fitted = sg.GP(sg.SquaredExponential(np.sqrt(X.shape[1]), 4.0), likelihood).fit(X[train], y[train], parameters="best")
    p = fitted.predict(X[test]).probability
    row: dict[str, Any] = {"way": way, "nlp": -np.mean(np.log(p[np.arange(len(test)), y[test]]))}
    return row | {"error": np.mean(p.argmax(axis=1) != y[test]), "cpu": time.process_time() - began}


def scale(rows: int, ways: Any) -> None:
    """Twinned and Student-t noise at known parameters on a long series with groups of 3 to 11 shifted rows."""
    import structgp as sg

    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.5, 1.5, rows)) * 0.05
    truth = np.sin(t) + 0.5 * np.sin(0.37 * t)
    y, outlier = truth + 0.1 * rng.standard_normal(rows), np.zeros(rows, bool)
    for start in rng.choice(rows - 12, rows // 200, replace=False):
        group = slice(start, start + rng.integers(3, 12))
        outlier[group], y[group] = True, y[group] + rng.choice([-1, 1]) * rng.uniform(1.0, 3.0)
    twinned = sg.GP(
        sg.Independent(sg.Matern32(0.3, 2.0), sg.Matern52(2.0, 1.0)), sg.Twinned(0.01, 4.0), sg.ConstantMean([2.0, 0.0])
    )
    models = {"twinned": twinned, "Student-t": sg.GP(sg.Matern52(2.0, 1.0), sg.StudentT(3.0, 0.1))}
    for name in ways or models:
        for how in ("compiling included", "compiled")[: 2 if rows <= 200_000 else 1]:
            began, clock = time.process_time(), time.perf_counter()
            fitted = models[name].condition(t, y, inference="ep")
            spent = time.process_time() - began, time.perf_counter() - clock
            print(f"{name:10} {how}: {spent[0]:.1f} s of CPU, {spent[1]:.1f} s")
        f = fitted.inference.mean[:, 1] if name == "twinned" else fitted.inference.mean
        error = np.sqrt(np.mean((f - truth) ** 2))
        print(f"{name:10} {fitted.inference}; rmse {error:.4f}")
        named = fitted.outlier_probability > 0.5
        found = np.sum(named & outlier)
        print(f"{'':10} outliers: precision {found / named.sum():.3f}, recall {found / outlier.sum():.3f} of {outlier.sum()}")
    import resource

    print(f"{'':10} most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def referee_problem(seed: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """A sine with a group of six outliers and three single ones among 50 rows, and a model with sensible parameters."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-3, 3, 50))
    y, outlier = np.sin(1.5 * x) + 0.1 * rng.standard_normal(50), np.zeros(50, bool)
    first = rng.integers(8, 36)
    outlier[first : first + 6] = True
    outlier[rng.choice(np.flatnonzero(~outlier), 3, replace=False)] = True
    y[outlier] += rng.choice([-1, 1]) * rng.uniform(1.5, 3.0) + 0.3 * rng.standard_normal(9)
    kernels = sg.Independent(sg.SquaredExponential(0.6, 2.0), sg.SquaredExponential(1.0))
    return sg.GP(kernels, sg.Twinned(0.01, 4.0), sg.ConstantMean([1.5, 0.0])), x, y, outlier


def one_referee(seed: int) -> dict[str, Any]:
    """EP and other samplers against Gibbs sampling, in posterior standard deviations, and the error of P(outlier)."""
    gp, x, y, _ = referee_problem(seed)
    fitted = gp.condition(x, y, structure="dense")
    sided = lambda draws: np.asarray(gp.likelihood.outlier_probability(y, draws, np.zeros_like(draws))).mean(axis=0)
    began = time.process_time()
    gibbs = gp.mcmc(x, y, n=10_000, warmup=1000, method="gibbs", seed=seed)
    row: dict[str, Any] = {"gibbs cpu": time.process_time() - began, "gibbs least effective": gibbs.effective_sample_size.min()}
    halves = np.array_split(gibbs.draws, 2)
    row["halves of f"] = np.sqrt(np.mean(((halves[0] - halves[1]).mean(axis=0) / gibbs.sd)[:, 1] ** 2))
    mean, sd, p = gibbs.mean, gibbs.sd, sided(gibbs.draws)
    off = (fitted.inference.mean - mean) / sd
    row |= {"EP f rms": np.sqrt(np.mean(off[:, 1] ** 2)), "EP f worst": np.abs(off[:, 1]).max()}
    row |= {"EP sd ratio": np.median(np.sqrt(fitted.inference.variance[:, 1]) / sd[:, 1])}
    row |= {
        "EP gate rms": np.sqrt(np.mean(off[:, 0] ** 2)),
        "EP P(outlier) worst": np.abs(fitted.outlier_probability - p).max(),
    }
    for method in ("elliptical", "hmc"):
        other = gp.mcmc(x, y, n=4000, warmup=1000, thin=5 if method == "elliptical" else 1, method=method, seed=seed)
        row[f"{method} f rms"] = np.sqrt(np.mean(((other.mean - mean) / sd)[:, 1] ** 2))
        row[f"{method} P(outlier) worst"] = np.abs(sided(other.draws) - p).max()
    return row


def cold_fit() -> None:
    """How long a user waits."""
    import structgp as sg

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, 500))
    y = np.sin(x) + 0.1 * rng.standard_normal(500)
    y[200:215] += 2.0
    began, clock = time.process_time(), time.perf_counter()
    fitted = sg.TwinnedGPRegressor().fit(x[:, None], y)
    print(f"{time.perf_counter() - clock:.1f} s, {time.process_time() - began:.1f} s of CPU; {fitted.fitted_.learning}")
    print(f"P(outlier): {fitted.outlier_probability_[200:215].mean():.3f} of outliers, ", end="")
    print(f"{np.delete(fitted.outlier_probability_, slice(200, 215)).mean():.4f} of the others")


def _quietly(work: Any, *case: Any) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    try:
        return work(*case)
    except Exception as problem:
        return {"way": case[-1], "failed": f"{type(problem).__name__}: {problem}"[:200]}


def table(work: Any, cases: list[tuple], jobs: int) -> None:
    """One line for each case as it ends, then means and medians for each model."""
    found = []
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_quietly, work, *case): case for case in cases}
        for future in concurrent.futures.as_completed(futures):
            case, row = futures[future], future.result()
            found.append((case, row))
            print(
                *case,
                *(f"{name} {value:.4g}" if not isinstance(value, str) else value for name, value in row.items()),
                flush=True,
            )
    groups = sorted({(case[:1] if isinstance(case[0], str) else (), row.get("way", "")) for case, row in found})
    for first, way in groups:
        rows = [row for case, row in found if row.get("way", "") == way and case[: len(first)] == first and "failed" not in row]
        numbers = [name for name in (rows[0] if rows else ()) if name != "way"]
        shown = (f"{n} {np.mean([r[n] for r in rows]):.4g} (median {np.median([r[n] for r in rows]):.4g})" for n in numbers)
        print("mean", *first, way, f"{len(rows)} ended", *shown)
    if all("nlp" in row or "failed" in row for _, row in found):
        _winners(found)


def _winners(found: list[tuple[tuple, dict[str, Any]]]) -> None:
    """For each table the model whose −log p is least on average, and how far the next is behind, split by split."""
    for first in sorted({case[0] for case, _ in found}):
        rows = [(case, row) for case, row in found if case[0] == first and "nlp" in row]
        ways = {
            way: {case[1]: row["nlp"] for case, row in rows if row["way"] == way} for way in {row["way"] for _, row in rows}
        }
        order = sorted(ways, key=lambda way: np.mean(list(ways[way].values())))
        if len(order) < 2:
            continue
        behind = np.array([ways[order[1]][part] - value for part, value in ways[order[0]].items() if part in ways[order[1]]])
        error = behind.std(ddof=1) / np.sqrt(len(behind)) if len(behind) > 1 else np.nan
        print(f"least −log p of {first}: {order[0]}, before {order[1]} by {behind.mean():.3f} ± {error:.3f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["friedman", "motorcycle", "noise", "labels", "classes", "referee", "scale", "fit"])
    parser.add_argument("--kind", type=int, default=2)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--waves", nargs="*", type=float, default=[0.8])
    parser.add_argument("--ways", nargs="*", default=None)
    given = parser.parse_args()
    if given.study == "scale":
        scale(given.rows, given.ways)
    elif given.study == "fit":
        cold_fit()
    elif given.study == "friedman":
        ways = given.ways or WAYS[:3]
        seeds = range(given.first, given.first + given.sets)
        table(one_friedman, [(given.kind, *case) for case in itertools.product(seeds, ways)], given.jobs)
    elif given.study == "classes":
        ways = given.ways or ("probit by EP", "softmax by Laplace")
        table(one_classes, list(itertools.product(("oil_flow", "uci_glass"), range(given.sets), ways)), given.jobs)
    elif given.study == "referee":
        table(one_referee, [(seed,) for seed in range(given.sets)], given.jobs)
    elif given.study == "labels":
        table(one_labels, list(itertools.product(range(given.sets), given.waves)), given.jobs)
    else:
        names, parts = (
            (("motorcycle",), range(min(given.sets, 12))) if given.study == "motorcycle" else (TABLES, range(given.sets))
        )
        ways = given.ways or (WAYS if given.study == "motorcycle" else WAYS[:4])
        table(one_held_out, list(itertools.product(names, parts, [min(given.rows, MOST)], ways)), given.jobs)


if __name__ == "__main__":
    main()
