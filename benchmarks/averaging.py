"""What averaging over parameters does to intervals, and how good evidences are.

    python -m benchmarks.averaging coverage                      # 95 and 50 % intervals and log densities, small tables
    python -m benchmarks.averaging coverage --ways best laplace --splits 4
    python -m benchmarks.averaging wide --ways best auto         # the same where there are more columns than rows tell of
    python -m benchmarks.averaging labels                        # −log p of test labels with the best parameters, and averaged
    python -m benchmarks.averaging evidence                      # log Bayes factors by AIS against quadrature
    python -m benchmarks.averaging evidence --box 10             # the same where 16 places are far apart: several modes
    python -m benchmarks.averaging tables                        # tables 8.1–8.3 of Boyle (2007), and one by one = at once
    python -m benchmarks.averaging stream                        # two models of 60 rows of 6 columns that arrive one by one
    python -m benchmarks.averaging cost                          # CPU time of `fit` and `predict` beside the best parameters

Coverage: Matérn-5/2 with a lengthscale for each column, N random rows, 200 others to test; y is standardised by all rows. Log
densities are means over test rows.
"""

import argparse
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import arrays, load

CELLS = (
    *(("draw", 20), ("power", 20), ("concrete", 20), ("energy", 20), ("kin8nm", 20)),
    *(("draw", 50), ("concrete", 50), ("energy", 50), ("kin8nm", 50), ("nile", 30)),
)
WIDE = tuple((kind, N, D) for kind in ("few", "many", "digits") for N, D in ((40, 60), (100, 80), (200, 60)))
WAYS = ("auto", "best", "laplace", "sixteen", "polished", "ccd", "importance", "hmc")
LABELS = ("crabs", "raetsch_heart", "raetsch_thyroid", "raetsch_breast-cancer", "pima_ripley", "ripley_synth", "uci_ionosphere")
TEST = 200


class Score(NamedTuple):
    """One split."""

    log_prob: float
    within_95: float
    within_50: float
    seconds: float


def table(name: str, seed: int, columns: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and a standardised target.

    Of wide tables three columns matter ("few"), or all, some more and some less ("many"), or they are pixels in the middle of
    digits, of which another one tells ("digits").
    """
    import structgp as sg

    if name in ("few", "many"):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((500, columns))
        if name == "few":
            y = np.sin(X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] ** 2 + 0.2 * rng.standard_normal(500)
        else:
            lengths = np.sqrt(columns) * np.geomspace(0.5, 20, columns)
            y = sg.GP(sg.Matern52(lengths), sg.Gaussian(0.05)).sample(X, 1, seed=seed, observed=True)[0]
    elif name == "digits":
        pixels = arrays("usps")["X_test"].astype(float)
        near = np.argsort(np.hypot(*(np.indices((16, 16)) - 7.5)).ravel(), kind="stable")  # from the middle
        X, y = pixels[:, near[1 : columns + 1]], pixels[:, near[0]]
    elif name == "draw":
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (300, 8))
        kernel = sg.Matern52(np.array([0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0]))
        y = sg.GP(kernel, sg.Gaussian(0.01)).sample(X, 1, seed=seed, observed=True)[0]
    elif name == "nile":
        columns = list(load("nile_622_1284").columns.values())
        X, y = columns[0][:, None], columns[-1]
    else:
        X, y = load(f"uci_{name}").inputs_and_target()
    seen = ~np.isnan(y)
    X, y = X[seen], y[seen]
    return X, (y - y.mean()) / y.std()


def options(way: str) -> Any:
    """What `fit` is told about parameters."""
    import structgp as sg

    if way in ("polished", "sixteen"):
        return sg.Averaging(polish=1) if way == "polished" else sg.Averaging(members=16)
    return sg.Averaging("hmc", members=32) if way == "hmc" else way


def score(cell: tuple[Any, ...], split: int, way: str) -> Score:
    """Learn from a few rows and score others."""
    import structgp as sg

    name, N, *columns = cell
    X, y = table(name, split, *columns)
    order = np.random.default_rng(1000 * split + N).permutation(len(y))
    train, test = order[:N], order[N : N + TEST]
    gp = sg.GP(sg.Matern52(np.ones(X.shape[1]) if X.shape[1] > 1 else 1.0), mean=sg.ConstantMean())
    began = time.process_time()
    found = gp.fit(X[train], y[train], parameters=options(way)).predict(X[test])
    seconds = time.process_time() - began
    ends = [found.interval(level) for level in (0.95, 0.5)]
    within = [float(np.mean((low <= y[test]) & (y[test] <= high))) for low, high in ends]
    return Score(float(np.mean(found.log_prob(y[test]))), *within, seconds)


def line(name: str, N: Any, way: str, found: np.ndarray) -> str:
    """One row of the table."""
    return f"{name:<12} {N:>3} {way:<11} {found[0]:>11.3f} {found[1]:>6.3f} {found[2]:>6.3f} {found[3]:>6.2f}"


def coverage(cells: Iterable[tuple[Any, ...]], ways: list[str], splits: int) -> None:
    """Print a line for each table and way, and the means."""
    print(f"{'table':<12} {'N':>3} {'way':<11} {'log density':>11} {'95 %':>6} {'50 %':>6} {'CPU s':>6}")
    means: dict[str, list[np.ndarray]] = {way: [] for way in ways}
    for cell in cells:
        for way in ways:
            found = np.mean([score(cell, split, way) for split in range(splits)], axis=0)
            means[way].append(found)
            print(line(*cell[:2], way, found), flush=True)
    for way, rows in means.items():
        print(line("mean", "", way, np.mean(rows, axis=0)), f"  least 95 %: {np.min(rows, axis=0)[1]:.3f}")


def labels(sets: list[str], splits: int) -> None:
    """Mean −log p of the labels of test rows, and the part that was wrong, of `GPClassifier`."""
    import structgp as sg
    from benchmarks.sets import part_of

    print(f"{'set':<22} {'splits':>6}  " + "  ".join(f"{way:>8} {'wrong':>6}" for way in ("best", "averaged")))
    for name in sets:
        found: list[list[float]] = []
        for split in range(splits):
            try:
                part = part_of(name, split)
            except IndexError:  # no more of them are stored
                break
            row: list[float] = []
            for parameters in ("best", "laplace"):
                model = sg.GPClassifier(structure="dense", parameters=parameters, random_state=0)
                p = model.fit(part.X_train, part.y_train).predict_proba(part.X_test)
                code = np.searchsorted(model.classes_, part.y_test)
                row += [-float(np.mean(np.log(p[np.arange(len(code)), code]))), float(np.mean(p.argmax(axis=1) != code))]
            found.append(row)
        a, b, c, d = np.mean(found, axis=0)
        print(f"{name:<22} {len(found):>6}  {a:>8.4f} {b:>6.3f}  {c:>8.4f} {d:>6.3f}", flush=True)


def plane(scales: tuple[float, float], seed: int, box: float) -> tuple[np.ndarray, np.ndarray]:
    """16 places in a square and a draw of a process there, seen with a little noise."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    X = rng.uniform(0, box, (16, 2))
    return X, sg.GP(sg.SquaredExponential(np.array(scales)), sg.Gaussian(0.01)).sample(X, 1, seed=seed, observed=True)[0]


def evidences(models: dict[str, Any], X: np.ndarray, y: np.ndarray, **how: Any) -> list[Any]:
    """Of every model."""
    import structgp as sg

    return [sg.evidence(gp, X, y, restarts=0, **how) for gp in models.values()]


def evidence(repeats: int, chains: int, box: float) -> None:
    """Log Bayes factors of one lengthscale to two, with variance and noise known, against quadrature."""
    import structgp as sg

    known = {"variance": sg.fixed(1.0)}
    models = {
        "one": sg.GP(sg.SquaredExponential(1.0, **known), sg.Gaussian(sg.fixed(0.01))),
        "two": sg.GP(sg.SquaredExponential(np.ones(2), **known), sg.Gaussian(sg.fixed(0.01))),
    }
    ways: dict[str, dict[str, Any]] = {
        "laplace": {"method": "laplace"},
        "ais": {"method": "ais"},
        "ais, metropolis": {"method": "ais", "move": "metropolis", "schedule": "ratio"},
        "ais from the prior": {"method": "ais", "start": "prior"},
        "smc from the prior": {"method": "smc", "start": "prior", "schedule": "even"},
    }
    print(f"{'lengthscales':<14} {'way':<20} {'rms error':>9} {'reported':>9} {'evaluations a chain':>20}")
    for scales in ((2.0, 2.0), (10.0, 1.0)):
        errors: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        for seed in range(repeats):
            X, y = plane(scales, seed, box)
            exact = evidences(models, X, y, method="quadrature")
            for way, how in ways.items():
                pair = evidences(models, X, y, **how, **({} if way == "laplace" else {"chains": chains, "seed": seed}))
                error = (pair[0].log - pair[1].log) - (exact[0].log - exact[1].log)
                said = float(np.hypot(*(part.error or 0.0 for part in pair)))
                errors[way].append((error, said, max(part.evaluations for part in pair)))
        for way, rows in errors.items():
            e, s, n = np.array(rows).T
            said = f"{np.sqrt(np.mean(s**2)):.3f}" if s.any() else "–"
            print(f"{scales!s:<14} {way:<20} {np.sqrt(np.mean(e**2)):>9.3f} {said:>9} {n.mean():>20.0f}", flush=True)


def _one_lengthscale(size: int, center: float) -> Any:
    """A squared exponential of unit variance with so many lengthscales, believed to be around e^center."""
    import structgp as sg

    kernel = sg.SquaredExponential(np.full(size, 0.5) if size > 1 else 0.5, sg.fixed(1.0))
    return kernel.with_prior(lengthscale=sg.LogNormal(center, 1.0))


def laplace_ratios(seeds: Iterable[int]) -> dict[int, list[float]]:
    """Boyle's table 8.1: Laplace's evidence over the true one, for 6 and for 18 places."""
    import structgp as sg

    one = sg.GP(_one_lengthscale(1, 0.0), sg.Gaussian(sg.fixed(0.05**2)))
    ratios: dict[int, list[float]] = {6: [], 18: []}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((18, 2))
        y = np.exp(-0.5 * np.sum(X * X, axis=1)) + 0.05 * rng.standard_normal(18)
        for N, found in ratios.items():
            laplace, exact = (evidences({"one": one}, X[:N], y[:N], method=way)[0].log for way in ("laplace", "quadrature"))
            found.append(float(np.exp(laplace - exact)))
    return ratios


def bayes_factors(scales: tuple[float, float], seed: int, chains: int, one_by_one: bool = True) -> dict[str, float]:
    """Boyle's tables 8.2 and 8.3: the log Bayes factor of one lengthscale to two on a data set, by several ways."""
    import structgp as sg

    models = {
        "isotropic": sg.GP(_one_lengthscale(1, np.log(2.0)), sg.Gaussian(sg.fixed(1e-4))),
        "two": sg.GP(_one_lengthscale(2, np.log(2.0)), sg.Gaussian(sg.fixed(1e-4))),
    }
    rng = np.random.default_rng(100 + seed)
    X = rng.standard_normal((16, 2))
    truth = sg.GP(sg.SquaredExponential(np.array(scales)), sg.Gaussian(1e-4))
    y = truth.sample(X, 1, seed=seed, observed=True)[0]
    factor = lambda pair: pair[0].log - pair[1].log
    error = lambda pair: float(np.hypot(*(part.error or 0.0 for part in pair)))
    exact, laplace = (factor(evidences(models, X, y, method=way)) for way in ("quadrature", "laplace"))
    pair = evidences(models, X, y, method="ais", chains=chains, seed=seed)
    found = {"truth": exact, "laplace": laplace, "ais": factor(pair), "error": error(pair)}
    found["evaluations"] = max(part.evaluations for part in pair)
    if one_by_one:
        stream = sg.EvidenceStream(models, chains=2 * chains, seed=seed)
        for x, value in zip(X, y, strict=True):
            stream.tell(x, value)
        arrived = list(stream.evidences.values())
        found |= {"one by one": factor(arrived), "its error": error(arrived)}
    return found


def tables(repeats: int, chains: int) -> None:
    """Boyle's tables: Laplace against the truth for one lengthscale, AIS and Laplace for two models, data one by one."""
    print("8.1  Laplace / truth, 5, 50 and 95 % of data sets (the seed: .82-.88 for 6 places, .94-1.02 for 18)")
    for N, found in laplace_ratios(range(5 * repeats)).items():
        print(f"     {N:>2} places  " + "  ".join(f"{q:.3f}" for q in np.quantile(found, [0.05, 0.5, 0.95])))
    print("8.2, 8.3  log Bayes factor of one lengthscale to two, 5 data sets of each kind")
    heads = ("truth", "laplace", "ais", "error", "evaluations", "one by one", "its error")
    print(f"{'lengthscales':<12} " + " ".join(f"{head:>11}" for head in heads))
    for scales in ((2.0, 2.0), (10.0, 1.0)):
        for seed in range(5):
            row = bayes_factors(scales, seed, chains)
            print(f"{scales!s:<12} " + " ".join(f"{row[head]:>11.4g}" for head in heads), flush=True)


def stream(chains: int) -> None:
    """CPU seconds of the evidences of aligned and rotated lengthscales while data arrive, compiling included."""
    import structgp as sg

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    known = sg.Gaussian(sg.fixed(1e-4))
    y = sg.GP(sg.SquaredExponential(np.array([1.0, 1.5, 2.0, 3.0, 5.0, 8.0])), known).sample(X, 1, seed=0, observed=True)[0]
    kernel = sg.SquaredExponential(np.ones(6))
    found = sg.EvidenceStream({"aligned": sg.GP(kernel, known), "rotated": sg.GP(sg.Rotated(kernel), known)}, chains=chains)
    began = time.process_time()
    for count, (x, value) in enumerate(zip(X, y, strict=True), 1):
        found.tell(x, value)
        if count % 10 == 0:
            said = ", ".join(f"{name} {p:.3f}" for name, p in found.probabilities.items())
            print(f"{count:>3} rows  {time.process_time() - began:>6.1f} CPU s  {said}", flush=True)


def timed(repeats: int, task: Any, *arguments: Any, **named: Any) -> float:
    """CPU seconds of a call."""
    began = time.process_time()
    for _ in range(repeats):
        task(*arguments, **named)
    return (time.process_time() - began) / repeats


def cost(repeats: int) -> None:
    """CPU time of `fit` and of `predict` at ten thousand places, averaged over parameters and with the best."""
    import structgp as sg

    heads = ("N", "columns", "fit best", "averaged", "ratio", "predict best", "averaged", "ratio", "interval", "averaged")
    print(" ".join(f"{head:>12}" for head in heads))
    for N, D in ((50, 1), (50, 8), (200, 4), (500, 8)):
        rng = np.random.default_rng(0)
        X, places = rng.standard_normal((N, D)), rng.standard_normal((10_000, D))
        y = np.sin(X.sum(axis=1)) + 0.1 * rng.standard_normal(N)
        gp = sg.GP(sg.Matern52(np.ones(D) if D > 1 else 1.0), mean=sg.ConstantMean())
        seconds = []
        for way in ("best", "laplace"):
            fitted = gp.fit(X, y, parameters=way)
            fitted.predict(places).interval()
            seconds.append(timed(repeats, gp.fit, X, y, parameters=way))
            seconds.append(timed(repeats, lambda places, fitted=fitted: fitted.predict(places).mean, places))
            seconds.append(timed(repeats, lambda places, fitted=fitted: fitted.predict(places).interval(), places))
        a, c, e, b, d, f = seconds
        print(" ".join(f"{value:>12.3g}" for value in (N, D, a, b, b / a, c, d, d / c, e, f)), flush=True)


def main() -> None:
    """Run one of the studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("coverage", "wide", "labels", "evidence", "tables", "stream", "cost"))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=["best", "laplace", "hmc"])
    parser.add_argument("--sets", nargs="*", choices=LABELS, default=LABELS, help="of labels")
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--box", type=float, default=5.0)
    chosen = parser.parse_args()
    if chosen.study == "coverage":
        coverage(CELLS, chosen.ways, chosen.splits)
    elif chosen.study == "wide":
        coverage(WIDE, chosen.ways, chosen.splits)
    elif chosen.study == "labels":
        labels(chosen.sets, chosen.splits)
    elif chosen.study == "evidence":
        evidence(chosen.splits, chosen.chains, chosen.box)
    elif chosen.study == "tables":
        tables(chosen.splits, chosen.chains)
    elif chosen.study == "stream":
        stream(2 * chosen.chains)
    else:
        cost(3)


if __name__ == "__main__":
    main()
