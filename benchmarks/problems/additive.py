"""Additive models and projection pursuit: learning time against N, and accuracy on real data beside other methods.

Time, as for all problems: ``python -m benchmarks additive-learn additive-labels``. Accuracy on the stored splits, one row for
each set and method; then the methods that no other beats in both error and time:

    python -m benchmarks.problems.additive                                  # all sets, all methods, first split
    python -m benchmarks.problems.additive kin40k --splits 1 --seconds 480  # one set
    python -m benchmarks.problems.additive magic ijcnn1 --splits 5          # classification
    python -m benchmarks.problems.additive magic --first 2                  # the third split alone, to run splits side by side
    python -m benchmarks.problems.additive --rows FILES                     # rows printed by such runs, averaged over splits
    python -m benchmarks.problems.additive --figure front.png               # runtime against error over the regression sets

NMSE is the squared error over that of the training mean; MNLP the mean negative log density in the units of y, noise
included; cover the share of test values in their 95 % intervals. For labels: error rate and mean negative log probability.
Seconds are wall time, compilation included, in this one process.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.data import Part, arrays, load
from benchmarks.registry import Result, Run, Unavailable, problem

D = 8
NOISE = 0.01
REGRESSION = ("pumadyn8fm", "pumadyn8nm", "pumadyn32nm", "elevators", "kin40k", "friedman", "synthetic")
LABELS = ("magic", "ijcnn1", "breast_cancer_wisconsin", "idle-columns")
# What the thesis of Saatçi (2011) reports: additive, projection pursuit, dense Gaussian process.
THESIS = {
    "pumadyn8fm": (0.0716, 0.0514, 0.0545),
    "pumadyn8nm": (0.376, 0.0507, 0.0304),
    "elevators": (0.167, 0.128, 0.104),
    "kin40k": (0.945, 0.185, 0.0128),
    "friedman": (0.113, 0.0424, float("nan")),
    "magic": (0.142, float("nan"), float("nan")),
    "ijcnn1": (0.0513, float("nan"), float("nan")),
}


class Additive(NamedTuple):
    """Rows and a sum of smooth functions of their columns, with noise."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    f_test: np.ndarray


def matern_draws(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """A sum of draws of unit Matérn-7/2 processes, one for each column, through random waves."""
    total = np.zeros(len(X))
    for column in X.T:
        omega = rng.standard_t(7, 200)
        total += np.sqrt(2 / 200) * np.cos(column[:, None] * omega + rng.uniform(0, 2 * np.pi, 200)).sum(axis=1)
    return total


def make(N: int) -> Additive:
    """D columns, uniform over ten lengthscales."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (N + 1000, D))
    f = np.concatenate([matern_draws(np.random.default_rng(2), X[at : at + 20000]) for at in range(0, len(X), 20000)])
    return Additive(X[:N], f[:N] + np.sqrt(NOISE) * rng.standard_normal(N), X[N:], f[N:])


def score(data: Additive, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    """The error of f at new places, in standard deviations of the noise."""
    spread = np.sqrt(NOISE)
    return {
        name: {"rms error / noise": float(np.sqrt(np.mean((np.array(r["mean"]) - data.f_test) ** 2)) / spread)}
        for name, r in results.items()
    }


LEARN = problem(
    name="additive-learn",
    about="additive regression, D = 8, Matérn-7/2, noise variance 0.01: all parameters learned, then f at 1000 new places",
    make=make,
    sizes=(2000, 10_000, 50_000, 200_000, 1_000_000),
    quick=(500,),
    score=score,
    repeat=1,
    calls=1,
    seconds=0.0,
)


@LEARN.method("structgp", requires=("structgp",))
def structgp_learn(data: Additive) -> Run:
    import structgp as sg

    def call() -> Result:
        fitted = sg.AdditiveGP(sg.Matern72()).fit(data.X, data.y, progress=False)
        return {"mean": fitted.mean(data.X_test).tolist(), "evaluations": fitted.learning.evaluations}

    return Run(call)


@LEARN.method("hist-gradient-boosting", requires=("sklearn",))
def boosting_learn(data: Additive) -> Run:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return Run(lambda: {"mean": HistGradientBoostingRegressor().fit(data.X, data.y).predict(data.X_test).tolist()})


LABEL_SETS = {15_216: "magic", 39_990: "ijcnn1"}  # by their number of rows


def make_labels(N: int) -> Part:
    """The first split of the set with so many rows, or labels of so many made-up ones."""
    if N in LABEL_SETS:
        return parts_of(LABEL_SETS[N])[0]
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N + 1000, 5))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.standard_normal(len(X)) > 1).astype(float)
    return Part(X[:N], y[:N], X[N:], y[N:])


LABEL_LEARN = problem(
    name="additive-labels",
    about="additive classification of magic (N = 15,216, D = 10) and ijcnn1 (N = 39,990, D = 13): learned, then the test rows",
    make=make_labels,
    sizes=tuple(LABEL_SETS),
    quick=(300,),
    score=lambda part, results: {name: {"error rate": r["error"]} for name, r in results.items()},
    repeat=1,
    calls=1,
    seconds=0.0,
)


@LABEL_LEARN.method("structgp", requires=("structgp",))
def structgp_labels(part: Part) -> Run:
    import structgp as sg

    return _error_rate(part, sg.AdditiveGPClassifier)


@LABEL_LEARN.method("hist-gradient-boosting", requires=("sklearn",))
def boosting_labels(part: Part) -> Run:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _error_rate(part, HistGradientBoostingClassifier)


def _error_rate(part: Part, make_one: Callable[[], object]) -> Run:
    def call() -> Result:
        model = make_one().fit(part.X_train, part.y_train)  # type: ignore[attr-defined]
        return {"error": float(np.mean(model.predict(part.X_test) != part.y_test))}

    return Run(call)


# accuracy


HEADER = "| set | method | error | −log p | cover | seconds |\n|---|---|---|---|---|---|"


class Score(NamedTuple):
    """Two scores and a coverage of one method on one set; NaN where a method has none."""

    error: float
    negative_log: float
    cover: float
    seconds: float


def parts_of(name: str) -> list[Part]:
    """The stored splits of a set, or a generated one."""
    if name == "friedman":
        return [friedman(seed) for seed in range(3)]
    if name == "idle-columns":
        return [idle_columns(seed) for seed in range(3)]
    if name == "synthetic":
        data = make(8000)
        y_test = data.f_test + np.sqrt(NOISE) * np.random.default_rng(3).standard_normal(len(data.f_test))
        return [Part(data.X, data.y, data.X_test, y_test)]
    if name == "ijcnn1":
        table, splits = arrays(name), arrays(name, "splits")
        X, y = np.column_stack([table["x"], table["phase"]]), table["y"]
        return [Part(X[a], y[a], X[b], y[b]) for a, b in zip(splits["train"], splits["test"], strict=True)]
    if name == "breast_cancer_wisconsin":
        return list(load(name, "data_449").parts())
    return list(load(name).parts())


def friedman(seed: int) -> Part:
    """Friedman's function of five of seven columns, with unit noise: 40,000 rows to learn from, 5000 to test on."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(45_000, 7))
    y = of_five_columns(X) + rng.standard_normal(len(X))
    return Part(X[:40_000], y[:40_000], X[40_000:], y[40_000:])


def of_five_columns(X: np.ndarray) -> np.ndarray:
    """Friedman's function."""
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def idle_columns(seed: int) -> Part:
    """Labels whose log odds are Friedman's function, with fifteen columns that do not matter: how easily a model is misled."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(20_000, 20))
    f = of_five_columns(X)
    y = (rng.uniform(size=len(f)) < 1 / (1 + np.exp(-2 * (f - f.mean()) / f.std()))).astype(float)
    return Part(X[:16_000], y[:16_000], X[16_000:], y[16_000:])


def of_regression(part: Part, mean: np.ndarray, sd: np.ndarray | None, seconds: float) -> Score:
    """NMSE, MNLP and coverage."""
    residual = part.y_test - mean
    nmse = float(np.sum(residual**2) / np.sum((part.y_test - part.y_train.mean()) ** 2))
    if sd is None:
        return Score(nmse, float("nan"), float("nan"), seconds)
    mnlp = float(np.mean(0.5 * (residual / sd) ** 2 + np.log(sd) + 0.5 * np.log(2 * np.pi)))
    return Score(nmse, mnlp, float(np.mean(np.abs(residual) < 1.959964 * sd)), seconds)


def of_labels(part: Part, probability: np.ndarray, seconds: float) -> Score:
    """Error rate and mean negative log probability."""
    seen = part.y_test > 0
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    return Score(float(np.mean((p > 0.5) != seen)), float(-np.mean(np.log(np.where(seen, p, 1 - p)))), float("nan"), seconds)


def estimators(name: str, seconds: float, seed: int) -> dict[str, Callable[[], object]]:
    """The methods for a set, each made when it is its turn."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, SVR

    import structgp as sg

    if name in LABELS:
        return {
            "additive": sg.AdditiveGPClassifier,
            "projection pursuit": lambda: sg.ProjectionPursuitGPClassifier(seconds=seconds, random_state=seed),
            "hist-gradient-boosting": lambda: HistGradientBoostingClassifier(random_state=seed),
            "SVC": lambda: make_pipeline(StandardScaler(), SVC(C=10.0, probability=True)),
        }
    return {
        "additive": sg.AdditiveGPRegressor,
        "projection pursuit": lambda: sg.ProjectionPursuitGPRegressor(seconds=seconds, random_state=seed),
        "hist-gradient-boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
        "SVR": lambda: make_pipeline(StandardScaler(), SVR(C=10.0, epsilon=0.01)),
        "SGPR": lambda: SparseGP(500),
    }


class SparseGP:
    """GPyTorch's sparse Gaussian process regression with inducing points at random rows."""

    def __init__(self, points: int) -> None:
        self.points = points

    def fit(self, X: np.ndarray, y: np.ndarray) -> "SparseGP":
        """Learn by 100 steps of Adam on the bound."""
        try:
            import gpytorch
            import torch
        except ImportError:
            raise Unavailable("gpytorch not installed") from None

        tensor = lambda values: torch.as_tensor(values, dtype=torch.float64)
        self.center, self.scale, self.level, self.unit = X.mean(0), X.std(0) + 1e-12, y.mean(), y.std()
        Z, z = tensor((X - self.center) / self.scale), tensor((y - self.level) / self.unit)
        inducing = Z[torch.randperm(len(Z))[: self.points]].clone()

        class Model(gpytorch.models.ExactGP):
            def __init__(self, likelihood: object) -> None:
                super().__init__(Z, z, likelihood)
                self.mean = gpytorch.means.ConstantMean()
                base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1]))
                self.kernel = gpytorch.kernels.InducingPointKernel(base, inducing, likelihood)

            def forward(self, x: object) -> object:
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        self.model = Model(self.likelihood).double()
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)
        optimiser = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.model.train()
        for _ in range(100):
            optimiser.zero_grad()
            loss = -bound(self.model(Z), z)
            loss.backward()
            optimiser.step()
        self.model.eval()
        self.likelihood.eval()
        self.tensor = tensor
        return self

    def predict(self, X: np.ndarray, return_std: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of new observations."""
        import torch

        with torch.no_grad():
            seen = self.likelihood(self.model(self.tensor((X - self.center) / self.scale)))
        return self.level + self.unit * seen.mean.numpy(), self.unit * seen.variance.sqrt().numpy()


def measure(name: str, part: Part, estimator: object) -> Score:
    """One method on one split."""
    clock = time.perf_counter()
    estimator.fit(part.X_train, part.y_train)  # type: ignore[attr-defined]
    if name in LABELS:
        probability = estimator.predict_proba(part.X_test)[:, 1]  # type: ignore[attr-defined]
        return of_labels(part, probability, time.perf_counter() - clock)
    try:
        mean, sd = estimator.predict(part.X_test, return_std=True)  # type: ignore[attr-defined]
    except TypeError:
        mean, sd = estimator.predict(part.X_test), None  # type: ignore[attr-defined]
    return of_regression(part, mean, sd, time.perf_counter() - clock)


def compare(names: Iterable[str], first: int, splits: int, seconds: float, only: set[str]) -> dict[tuple[str, str], Score]:
    """Mean scores over splits, printed as they come."""
    print(HEADER)
    found = {}
    for name in names:
        if name in THESIS:
            additive, pursuit, dense = THESIS[name]
            print(f"| {name} | thesis: additive, projection pursuit, dense | {additive}, {pursuit}, {dense} | | | |")
        chosen = list(enumerate(parts_of(name)))[first : first + splits]
        for method in estimators(name, seconds, 0):
            if only and method not in only:
                continue
            try:
                scores = [measure(name, part, estimators(name, seconds, i)[method]()) for i, part in chosen]
            except Unavailable as reason:
                print(f"| {name} | {method} | {reason} | | | |")
                continue
            mean = Score(*np.mean(scores, axis=0))
            found[name, method] = mean
            print(row(name, method, mean), flush=True)
    return found


def row(name: str, method: str, mean: Score) -> str:
    """One line of the table."""
    return f"| {name} | {method} | {mean.error:.4f} | {mean.negative_log:.3f} | {mean.cover:.3f} | {mean.seconds:.1f} |"


def read_rows(text: str) -> dict[tuple[str, str], Score]:
    """The rows that `compare` printed, here or on other machines; the mean where a set and method has several."""
    rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.count(" | ") == 5 and "thesis" not in line)
    found: dict[tuple[str, str], list[Score]] = {}
    for name, method, *scores in rows:
        if name != "set":
            found.setdefault((name, method), []).append(Score(*map(float, scores)))
    return {key: Score(*np.mean(scores, axis=0)) for key, scores in found.items()}


def on_front(found: Mapping[tuple[str, str], Score]) -> dict[str, list[str]]:
    """For each set, the methods that no other beats in both error and time, the fastest first."""
    best: dict[str, list[str]] = {}
    for (name, method), s in sorted(found.items(), key=lambda item: item[1].seconds):
        others = [o for (set_, _), o in found.items() if set_ == name]
        if not any(o.seconds < s.seconds and o.error < s.error for o in others):
            best.setdefault(name, []).append(method)
    return best


def print_front(found: Mapping[tuple[str, str], Score]) -> None:
    """The fronts as a table."""
    print("\n| set | fastest … most accurate: error in seconds |\n|---|---|")
    for name, methods in on_front(found).items():
        steps = (f"{method} {found[name, method].error:.4f} in {found[name, method].seconds:.1f} s" for method in methods)
        print(f"| {name} | {' → '.join(steps)} |")


def draw_front(found: Mapping[tuple[str, str], Score], path: str) -> None:
    """Runtime against error, one panel for each set; methods that no other beats in both are joined."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    names = list(dict.fromkeys(name for name, _ in found))
    columns = min(4, len(names))
    size = -(-len(names) // columns), columns
    figure, axes = plt.subplots(*size, figsize=(3.2 * columns, 3.0 * size[0]), layout="constrained", squeeze=False)
    colours = dict(
        zip(dict.fromkeys(method for _, method in found), plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False)
    )
    for ax in np.ravel(axes)[len(names) :]:
        ax.axis("off")
    for ax, name in zip(np.ravel(axes), names, strict=False):
        points = {method: s for (set_, method), s in found.items() if set_ == name}
        best = [points[method] for method in on_front(found)[name]]
        ax.plot([s.seconds for s in best], [s.error for s in best], color="#9dc1e8")
        for method, s in points.items():
            ax.plot(s.seconds, s.error, "o", label=method, color=colours[method])
        ax.set(xscale="log", yscale="log", title=name, xlabel="seconds", ylabel="error")
        for axis, steps in ((ax.xaxis, (1,)), (ax.yaxis, (1, 2, 5))):
            axis.set_major_locator(LogLocator(subs=steps))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
    last = np.ravel(axes)[-1]
    handles, labels = axes[0][0].get_legend_handles_labels()
    (last if len(names) % columns else axes[0][0]).legend(handles, labels, loc="center", fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.problems.additive")
    parser.add_argument("sets", nargs="*", default=list(REGRESSION))
    parser.add_argument("--splits", type=int, default=1, help="how many splits")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--seconds", type=float, default=300.0, help="bound for the search of projection pursuit")
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--figure", help="draw runtime against error into this file")
    parser.add_argument(
        "--rows", nargs="*", default=[], help="files with rows printed before: the front of those, nothing is run"
    )
    arguments = parser.parse_args()
    if arguments.rows:
        found = read_rows("\n".join(Path(path).read_text() for path in arguments.rows))
        print("\n".join([HEADER, *(row(*key, mean) for key, mean in found.items())]))
    else:
        found = compare(arguments.sets, arguments.first, arguments.splits, arguments.seconds, set(arguments.methods))
    print_front(found)
    if arguments.figure:
        draw_front(found, arguments.figure)


if __name__ == "__main__":
    main()
