"""Latent inputs: maps of the oil flow beside principal components, and missing cells of real tables beside other imputers.

    python -m benchmarks.latent oil                         # 1000 rows in two coordinates, three seeds; PCA beside them
    python -m benchmarks.latent oil100                      # the 100 rows of the published comparison, and kernel PCA
    python -m benchmarks.latent missing oil_flow crabs      # 20 % of the cells held out, three draws of them
    python -m benchmarks.latent new                         # 300 new rows of the oil flow with cells dropped
    python -m benchmarks.latent profile                     # what an evaluation of the bound takes, part by part

Errors are rows whose nearest other row in the map has another label. Errors of cells are root mean squares in units of the
spread of their columns. Probabilistic PCA is given the number of components that suits the held-out cells best. Seconds are
those of the processor, all threads together, with compilation.
"""

import argparse
import ast
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import structgp as sg
from benchmarks.data import Unavailable, arrays, load
from benchmarks.report import table
from structgp.linalg.principal import principal

SEEDS = (0, 1, 2)
SHARE = 0.2  # of the cells that are held out


def errors(Z: np.ndarray, labels: np.ndarray) -> int:
    """Rows whose nearest other row has another label."""
    from scipy.spatial import cKDTree

    nearest = cKDTree(Z).query(Z, 2)[1]
    nearest = np.where(nearest[:, 0] == np.arange(len(Z)), nearest[:, 1], nearest[:, 0])
    return int(np.sum(labels[nearest] != labels))


def oil(part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Rows of the oil flow and their phases."""
    columns = load("oil_flow").columns
    rows = columns["part"] == part
    return np.column_stack([columns[f"x{d}"] for d in range(1, 13)])[rows], columns["phase"][rows]


def maps(args: argparse.Namespace, few: bool = False) -> None:
    """The map from the default start, seed by seed, beside principal components."""
    from sklearn.decomposition import PCA, KernelPCA

    X, labels = oil()
    if few:
        rows_of = arrays("oil_flow", "subset100")["train_rows"]
        X, labels = X[rows_of], labels[rows_of]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    rows: list[dict[str, Any]] = [{"map": "the columns themselves", "errors": errors(scaled, labels)}]
    rows.append({"map": "PCA", "errors": errors(PCA(2).fit_transform(X), labels)})
    rows.append({"map": "PCA of scaled columns", "errors": errors(PCA(2).fit_transform(scaled), labels)})
    kernels = [
        (g, errors(KernelPCA(2, kernel="rbf", gamma=g).fit_transform(scaled), labels)) for g in (0.01, 0.03, 0.1, 0.3, 1)
    ]
    gamma, best = min(kernels, key=lambda one: one[1])
    rows.append({"map": f"kernel PCA, the best of five lengthscales (gamma {gamma:g})", "errors": best})
    for seed in SEEDS:
        processor, clock = time.process_time(), time.perf_counter()
        model = sg.GPLVM(2, random_state=seed).fit(X)
        took = time.process_time() - processor, time.perf_counter() - clock
        row = {"map": f"GPLVM, seed {seed}", "errors": errors(model.embedding_, labels), "bound": round(model.log_evidence_, 1)}
        rows.append({**row, "CPU s": round(took[0], 1), "s": round(took[1], 1)})
    print(table(rows))


def tables(name: str) -> np.ndarray:
    """The numeric columns of a set that change, at most 1500 rows drawn at random."""
    if name == "oil_flow":
        return oil()[0]
    found = load(name).columns
    X = np.column_stack([values for values in found.values() if values.dtype.kind == "f"])
    X = X[np.isfinite(X).all(axis=1)]
    X = X[:, X.std(axis=0) > 0]
    return X[np.sort(np.random.default_rng(0).permutation(len(X))[:1500])]


class Holes:
    """A table with cells held out, and how well they were filled in."""

    def __init__(self, X: np.ndarray, draws: int) -> None:
        self.X, self.rows = (X - X.mean(axis=0)) / X.std(axis=0), {}
        self.draws = []
        for seed in SEEDS[:draws]:
            gone = np.random.default_rng(seed).uniform(size=X.shape) < SHARE
            gone[gone.all(axis=1), 0] = False
            self.draws.append((np.where(gone, np.nan, self.X), gone))

    def error(self, filled: np.ndarray, gone: np.ndarray) -> float:
        """Root mean square over the cells that were held out."""
        return float(np.sqrt(np.mean((filled - self.X)[gone] ** 2)))

    def add(self, name: str, scores: list[float], **more: Any) -> None:
        """A row of the table."""
        each = " ".join(f"{score:.3f}" for score in scores)
        self.rows[name] = {"filled by": name, "error": f"{np.mean(scores):.4f}", "each": each, **more}

    def fill(self, name: str, impute: Callable[[np.ndarray], np.ndarray]) -> None:
        """The errors of one imputer."""
        self.add(name, [self.error(impute(holes), gone) for holes, gone in self.draws])

    def fill_by_components(self) -> None:
        """Probabilistic principal components, as many as suit the cells that were held out."""
        counts = range(1, self.X.shape[1])
        scores = [[self.error(principal(holes, q).filled, gone) for holes, gone in self.draws] for q in counts]
        best = int(np.argmin([np.mean(each) for each in scores]))
        self.add(f"probabilistic PCA, {counts[best]} components", scores[best])

    def fill_by_map(self, words: str) -> None:
        """A map with some options, and how many of the cells its 95 % intervals hold."""
        scores, inside, took = [], [], []
        for seed, (holes, gone) in enumerate(self.draws):
            began = time.process_time()
            model = sg.GPLVM(**options_of(words), random_state=seed).fit(holes)
            filled, sd = model.impute(holes, return_std=True)
            took.append(time.process_time() - began)
            scores.append(self.error(filled, gone))
            inside.append(float(np.mean(np.abs(filled - self.X)[gone] < 1.96 * sd[gone])))
        self.add(f"GPLVM({words})", scores, cover=f"{np.mean(inside):.2f}", **{"CPU s": f"{np.mean(took):.0f}"})


def options_of(words: str) -> dict[str, Any]:
    """Options in the form name=value,name=value."""
    return {name: ast.literal_eval(value) for name, value in (pair.split("=") for pair in words.split(",") if pair)}


def missing(args: argparse.Namespace) -> None:
    """Held-out cells, filled in by several."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer

    for name in args.sets or ["oil_flow", "crabs"]:
        X = tables(name)
        holes = Holes(X, args.draws)
        holes.fill("the mean", lambda table: np.where(np.isnan(table), np.nanmean(table, axis=0), table))
        holes.fill("IterativeImputer", lambda table: IterativeImputer(max_iter=30, random_state=0).fit_transform(table))
        holes.fill("KNNImputer", lambda table: KNNImputer().fit_transform(table))
        holes.fill_by_components()
        for words in args.ways:
            holes.fill_by_map(words)
        print(f"{name}: {X.shape[0]} rows of {X.shape[1]} columns, {SHARE:.0%} of the cells held out, {args.draws} draws")
        print(table(list(holes.rows.values())), flush=True)


def new(args: argparse.Namespace) -> None:
    """New rows of the oil flow with cells dropped: labels by the nearest row of the map, and the dropped cells."""

    X, labels = oil()
    V, truth = (part[:300] for part in oil("valid"))
    model = sg.GPLVM(2).fit(X)
    rows = []
    for dropped in (0, 4, 8):
        rng = np.random.default_rng(0)
        gone = np.argsort(rng.uniform(size=V.shape), axis=1) < dropped
        holes = np.where(gone, np.nan, V)
        processor = time.process_time()
        Z = model.transform(holes)
        took = time.process_time() - processor
        from scipy.spatial import cKDTree

        near = cKDTree(model.embedding_).query(Z)[1]
        row = {"dropped of 12": dropped, "label errors of 300": int(np.sum(labels[near] != truth)), "CPU s": round(took, 2)}
        if dropped:
            filled = model.impute(holes)
            nearest = np.array([np.argmin(np.nansum((X - h) ** 2, axis=1)) for h in holes])
            error = lambda guess, gone=gone: round(float(np.sqrt(np.mean(((guess - V)[gone] / X.std()) ** 2))), 3)
            row |= {
                "error": error(filled),
                "of the nearest row": error(X[nearest]),
                "of the mean": error(0 * V + X.mean(axis=0)),
            }
        rows.append(row)
    print(table(rows))


def profile(args: argparse.Namespace) -> None:
    """What one evaluation takes, part by part, beside one product of the rows with the inducing inputs."""
    from structgp.models.latent.fit import fit_latents

    X, rows = oil()[0], []
    for believed in (False, True):
        for share in (0.0, SHARE):
            holes = np.where(np.random.default_rng(0).uniform(size=X.shape) < share, np.nan, X)
            fitted = fit_latents(holes, 2, believed=believed, max_evaluations=1)
            what = f"{'Gaussians' if believed else 'points'}, {share:.0%} missing"
            rows.append({"places": what, "rows": len(X), "inducing": len(fitted.model.kernel.inputs), **_parts(fitted)})
    print(table(rows))


def _parts(fitted: Any) -> dict[str, str]:
    """What the parts of an evaluation take."""
    import jax

    from structgp.linalg.features import cells as numbers
    from structgp.models.latent.model import value_and_gradient
    from structgp.parameters.tree import free_vector
    from structgp.structure.dense import covariance

    with jax.enable_x64(True):
        model, cells = jax.device_put((fitted.model, fitted.cells))
        theta, U, z = free_vector(model), model.kernel.inputs, model.latents.z
        cross = jax.jit(lambda U, z: covariance(model.kernel.kernel, U, z))
        whiten = jax.jit(lambda K: numbers.solve_lower(model.root(), K, len(U)))
        K = cross(U, z)
        V = whiten(K)
        took = {"one product": _best(jax.jit(lambda V: V @ V.T), V), "K": _best(cross, U, z), "V": _best(whiten, K)}
        took["sums"] = _best(jax.jit(numbers.grams), V, cells.patterns)
        took["bound"] = _best(jax.jit(lambda model, cells: model.bound(cells)), model, cells)
        took["with gradient"] = _best(value_and_gradient, theta, model, cells)
    return {name: f"{value:.2f} ms" for name, value in took.items()}


def _best(function: Callable[..., Any], *arguments: Any, count: int = 9) -> float:
    """Milliseconds of the processor, the least of a few calls."""
    import jax

    jax.block_until_ready(function(*arguments))
    took = []
    for _ in range(count):
        began = time.process_time()
        jax.block_until_ready(function(*arguments))
        took.append(time.process_time() - began)
    return 1e3 * min(took)


COMMANDS = {"profile": profile, "oil": maps, "oil100": lambda args: maps(args, True), "missing": missing, "new": new}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latent", description=__doc__)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--ways", nargs="*", default=["dimensions='auto'"], help="options of GPLVM, as name=value,name=value")
    args = parser.parse_args(argv)
    try:
        COMMANDS[args.command](args)
    except Unavailable as why:
        print(why)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
