"""Saatçi, chapter 4: additive models and projection pursuit."""

import time
from typing import Any

import numpy as np
from benchmarks.data import Part, arrays
from benchmarks.problems.additive import estimators, matern_draws, measure, parts_of

from study.baselines import boosted_labels, boosting, cpu_seconds, mean_of, nmse, of_labels, slope, support_vectors
from study.registry import Case, Found, How, Rows, between, diagram, experiment, less, near, smaller

ADDITIVE, PURSUIT, LABELS = "additive models", "projection pursuit", "additive labels"
OF_COLUMNS = (
    "learning factorises one matrix of all spline features, columns times knots of them: free of the number of rows, "
    "and between "
    "the square and the cube of the number of columns"
)
SEARCH = 60.0  # seconds for the search of projection pursuit

diagram("000.figure-4.1", "Additive regression", "§4.1", ADDITIVE)
diagram("000.figure-4.2", "Additive regression with priors on its parameters", "§4.2", ADDITIVE)
diagram("000.figure-4.3", "Additive regression with a chain for each column", "§4.2", ADDITIVE)
diagram("000.figure-4.4", "Projected additive regression", "§4.3", PURSUIT)


def columns_of(N: int, D: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, uniform over ten lengthscales, and a sum of draws of unit Matérn-7/2 processes of their columns."""
    X = np.random.default_rng(seed).uniform(0, 10, (N, D))
    return X, matern_draws(np.random.default_rng(seed + 1), X)


def additive_part(N: int, D: int, seed: int, test: int = 1000) -> Part:
    """The same with noise of variance 0.01, and rows to test on."""
    X, f = columns_of(N + test, D, seed)
    y = f + 0.1 * np.random.default_rng(seed + 2).standard_normal(N + test)
    return Part(X[:N], y[:N], X[N:], y[N:])


def label_part(N: int, D: int, seed: int, test: int = 1000) -> Part:
    """Labels by the logistic function of such a sum."""
    X, f = columns_of(N + test, D, seed)
    y = (np.random.default_rng(seed + 2).uniform(size=N + test) < 1 / (1 + np.exp(-f))).astype(float)
    return Part(X[:N], y[:N], X[N:], y[N:])


@experiment(
    "000.figure-4.5",
    "Time to learn an additive model against the number of rows",
    "§4.5.1.3",
    system=ADDITIVE,
    baseline="gradient boosting",
    note=(
        "Eight columns, Matérn-7/2, 2,000, 10,000 and 50,000 rows; CPU seconds, compiled. `python -m benchmarks "
        "additive-learn`."
    ),
    cases=Case((less("log–log slope", 1.05, "Additive-VB, PPGPR, SPGP"), smaller("CPU seconds for 50,000 rows")), minutes=1),
)
def figure_4_5(case: str, how: How) -> dict[str, Found]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    import structgp as sg

    sizes, ours, peer = (2000, 10_000, 50_000), [], []
    for N in sizes:
        part = additive_part(N, 8, how.first)
        ours.append(cpu_seconds(lambda p=part: sg.AdditiveGP(sg.Matern72()).fit(p.X_train, p.y_train, progress=False)))
        peer.append(cpu_seconds(lambda p=part: HistGradientBoostingRegressor().fit(p.X_train, p.y_train)))
    return {
        "log–log slope": Found(slope(sizes, ours), slope(sizes, peer)),
        "CPU seconds for 50,000 rows": Found(ours[-1], peer[-1]),
    }


@experiment(
    "000.figure-4.6",
    "Time to learn an additive model against the number of columns",
    "§4.5.1.3",
    system=ADDITIVE,
    note="1,000 rows; 5, 10, 20 and 40 columns; CPU seconds of an evaluation of the bound and its gradient, compiled.",
    cases=Case((between("log–log slope of an evaluation", "linear in D", 0.0, 1.3, why=OF_COLUMNS),), minutes=3),
)
def figure_4_6(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    sizes, seconds = (5, 10, 20, 40), []
    for D in sizes:
        part, spent = additive_part(1000, D, how.first), []
        model = sg.AdditiveGP(sg.Matern72())
        for _ in range(2):
            began = time.process_time()
            fitted = model.fit(part.X_train, part.y_train, progress=False, max_evaluations=20)
            spent.append((time.process_time() - began) / fitted.learning.evaluations)
        seconds.append(spent[-1])
    return {"log–log slope of an evaluation": Found(slope(sizes, seconds))}


TABLE_4_1 = {
    "synthetic": ((0.698, "Additive-MCMC"), (1.070, "Additive-Full"), (0.669, "PPGPR-greedy"), (1.204, "PPGPR-greedy")),
    "friedman": ((0.110, "Additive-MCMC"), (1.923, "Additive-MCMC"), (0.0401, "PPGPR-MCMC"), (1.426, "PPGPR-greedy")),
}
TABLE_4_2 = {
    "elevators": ((0.145, "Additive-MCMC"), (-4.587, "Additive-Full"), (0.128, "PPGPR-greedy"), (-4.684, "PPGPR-greedy")),
    "pumadyn8fm": ((0.0705, "Additive-MCMC"), (1.608, "Additive-MCMC"), (0.0502, "PPGPR-MCMC"), (1.437, "PPGPR-greedy")),
    "pumadyn8nm": ((0.372, "Additive-Full"), (2.640, "Additive-MCMC"), (0.0430, "PPGPR-MCMC"), (1.421, "PPGPR-MCMC")),
    "kin40k": ((0.945, "Additive-MCMC"), (1.388, "Additive-Full"), (0.138, "PPGPR-MCMC"), (0.428, "PPGPR-MCMC")),
}
SPARSE = {  # SPGP: NMSE and MNLP; of the process of all rows NMSE
    "friedman": (0.0408, 1.410),
    "synthetic": (0.792, 1.702),
    "elevators": (0.114, -4.811),
    "pumadyn8fm": (0.0540, 1.478),
    "pumadyn8nm": (0.0306, 1.394),
    "kin40k": (0.0502, -0.326),
}
SECONDS = {  # Additive-VB, PPGPR-greedy
    "synthetic": (125, 114),
    "friedman": (682, 523),
    "elevators": (178, 211),
    "pumadyn8fm": (92, 103),
    "pumadyn8nm": (93, 105),
    "kin40k": (438, 674),
}


SPLIT = "one split of our own, not the source's"


def _rows_of_table(name: str, table: dict) -> tuple:
    one, one_log, two, two_log = table[name]
    rough = "functions that are rougher than twelve sines make intervals too wide"
    short = (
        "one split of our own, and a search of 60 s of the clock on a machine that other work shared; means over splits, with "
        "more time, are in docs/notes/additive.md"
    )
    tail = rough if name == "synthetic" else short
    return (
        less("additive: NMSE", one[0], one[1], why=SPLIT),
        near_or_less("additive: MNLP", *one_log, why=SPLIT),
        less("projection pursuit: NMSE", two[0], two[1], why=tail),
        near_or_less("projection pursuit: MNLP", *two_log, why=tail),
        less("inducing inputs: NMSE", SPARSE[name][0], "SPGP", why=SPLIT),
        near_or_less("inducing inputs: MNLP", SPARSE[name][1], "SPGP", why=SPLIT),
        less("additive: seconds", SECONDS[name][0], "Additive-VB"),
        less("projection pursuit: seconds", SECONDS[name][1], "PPGPR-greedy"),
    )


def near_or_less(name: str, published: float, by: str, why: str = ""):
    """Mean negative log densities pass through zero: what makes no difference is 0.02, whatever their size."""
    return less(name, published, by, within=0.02 / abs(published), why=why)


METHODS = ("additive", "projection pursuit", "inducing inputs")
PEER = "boosting"


def one_regression(name: str, number: int, method: str) -> dict[str, float]:
    """A model of ours, or gradient boosting, on one split of a set."""
    part = regression_set(name, number)
    began = time.process_time()
    if method == PEER:
        error, log = nmse(boosting(part), part), float("nan")
    else:
        model = estimator_of(method, name, number, len(part.X_train))
        score = measure(name, part, model)
        error, log = score.error, score.negative_log
    row = {"error": error, "log": log, "seconds": time.process_time() - began}
    return row | ({"projections": float(len(np.asarray(model.fitted_.directions)))} if method == "projection pursuit" else {})


def regression_set(name: str, number: int) -> Part:
    """A split of a set; "NAME-1000" has the first thousand rows to learn from."""
    if name.startswith("synthetic"):
        return additive_part(8000, {"synthetic": 4, "synthetic, eight columns": 8}[name], number)
    part = parts_of(name.removesuffix("-1000"))[number]
    return part._replace(X_train=part.X_train[:1000], y_train=part.y_train[:1000]) if name.endswith("-1000") else part


def of_every_model(name: str, how: How) -> list[tuple]:
    """Arguments of `one_regression`."""
    return [(name, number, method) for number in how.numbers for method in (*METHODS, PEER)]


def regression(rows: Rows) -> dict[str, Found]:
    """The three models of ours over the splits, and gradient boosting."""
    found: dict[str, Found] = {}
    for method in METHODS:
        found[f"{method}: NMSE"] = mean_of(rows.column("error", method), rows.column("error", PEER))
        found[f"{method}: MNLP"] = mean_of(rows.column("log", method))
        if method != "inducing inputs":
            found[f"{method}: seconds"] = Found(float(np.mean(rows.column("seconds", method))))
    return found


def estimator_of(method: str, name: str, seed: int, rows: int):
    """A model of ours for a set: additive, projection pursuit, or inducing inputs."""
    import structgp as sg

    if method == "inducing inputs":
        return _Sparse(sg.SquaredExponential, min(500, rows))
    return estimators(name, SEARCH, seed)[method]()


class _Sparse:
    """FITC or its like with learned inducing inputs, columns and targets in standard units."""

    def __init__(self, kernel, inputs: int) -> None:
        self.kernel, self.inputs = kernel, inputs

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Sparse":
        import structgp as sg

        spread = X.std(axis=0)
        self.center, self.scale = X.mean(axis=0), np.where(spread > 1e-9 * np.abs(X.mean(axis=0)), spread, 1.0)
        self.level, self.unit = y.mean(), y.std()
        gp = sg.GP(self.kernel(np.ones(X.shape[1])), sg.Gaussian(0.1))
        rows = (X - self.center) / self.scale
        self.fitted = gp.fit(rows, (y - self.level) / self.unit, approximate=sg.Inducing(self.inputs))
        return self

    def predict(self, X: np.ndarray, return_std: bool = True):
        p = self.fitted.predict((X - self.center) / self.scale)
        return self.level + self.unit * p.mean, self.unit * p.observed.sd


REGRESSION_NOTE = (
    "Beside the best additive and the best projected model of the source stand ours, each learned once with its "
    "defaults (60 s for "
    "the search of projection pursuit); inducing inputs beside SPGP. Splits are stored ones, not those of the source. "
    "Seconds are CPU "
    "seconds here, compiling included, and whatever a machine of 2011 took there. Targets and MNLP are in the units of "
    "the file."
)


@experiment(
    "000.table-4.1",
    "Additive models, projection pursuit and inducing inputs on synthetic rows and on Friedman's function",
    "§4.5.1",
    system=f"{ADDITIVE}, {PURSUIT}",
    baseline="gradient boosting (NMSE)",
    note=REGRESSION_NOTE
    + " The printed generator (noise variance 0.01, four unit processes) cannot give the printed NMSE of 0.7: it is kept "
    "as printed.",
    cases={
        "synthetic": Case(_rows_of_table("synthetic", TABLE_4_1), minutes=5),
        "friedman": Case(_rows_of_table("friedman", TABLE_4_1), minutes=8),
    },
    each=one_regression,
    over=of_every_model,
)
def table_4_1(case: str, rows: Rows) -> dict[str, Found]:
    return regression(rows)


@experiment(
    "000.table-4.2",
    "The same on data of robots and aeroplanes",
    "§4.5.1",
    system=f"{ADDITIVE}, {PURSUIT}",
    baseline="gradient boosting (NMSE)",
    note=REGRESSION_NOTE,
    cases={
        name: Case(_rows_of_table(name, TABLE_4_2), minutes=minutes)
        for name, minutes in {"elevators": 1.5, "pumadyn8fm": 0.7, "pumadyn8nm": 0.7, "kin40k": 2}.items()
    },
    each=one_regression,
    over=of_every_model,
)
def table_4_2(case: str, rows: Rows) -> dict[str, Found]:
    return regression(rows)


def off_by(fitted, truths: list, X: np.ndarray) -> float:
    """The error of each term of a sum up to its level, over its own spread; the largest of them."""
    worst = 0.0
    for part, truth in zip(fitted.components(), truths, strict=True):
        at_data = np.interp(X, part.x, part.mean) if X.ndim == 1 else None
        values = truth(part.x)
        inner = (part.x > np.quantile(part.x, 0.02)) & (part.x < np.quantile(part.x, 0.98))
        difference = (part.mean - values)[inner] if at_data is None else at_data - truth(X)
        worst = max(worst, float(np.std(difference) / np.std(values)))
    return worst


def functions_of(D: int, seed: int) -> list:
    """The functions whose sum `matern_draws` is, one by one."""
    rng, made = np.random.default_rng(seed + 1), []
    for _ in range(D):
        omega = rng.standard_t(7, 200)
        phase = rng.uniform(0, 2 * np.pi, 200)
        made.append(lambda x, w=omega, p=phase: np.sqrt(2 / 200) * np.cos(x[:, None] * w + p).sum(axis=1))
    return made


@experiment(
    "000.figure-4.7",
    "The four functions of the synthetic rows, found up to their levels",
    "§4.5.1",
    system=ADDITIVE,
    cases=Case((between("error of the worst function over its spread", "recovered up to offsets", 0.0, 0.1),), minutes=0.3),
)
def figure_4_7(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    part = additive_part(8000, 4, how.first)
    fitted = sg.AdditiveGP(sg.Matern72()).fit(part.X_train, part.y_train, progress=False)
    return {"error of the worst function over its spread": Found(off_by(fitted, functions_of(4, how.first), part.X_train))}


@experiment(
    "000.figure-4.8",
    "Pumadyn-8fm: two lines and nothing else",
    "§4.5.1",
    system=ADDITIVE,
    cases=Case(
        (
            near("terms with more than a tenth of the effect of all", 2, 0, "by eye"),
            between("R² of the least straight of the two as a line", "two linear components", 0.95, 1.0),
        ),
        minutes=0.3,
    ),
)
def figure_4_8(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    part = parts_of("pumadyn8fm")[how.first]
    terms = sg.AdditiveGP(sg.Matern72()).fit(part.X_train, part.y_train, progress=False).components()
    effects = np.array([term.effect**2 for term in terms])
    largest = np.argsort(-effects)[:2]
    straight = [np.corrcoef(terms[d].x, terms[d].mean)[0, 1] ** 2 for d in largest]
    return {
        "terms with more than a tenth of the effect of all": Found(float(np.sum(effects > 0.1 * effects.sum()))),
        "R² of the least straight of the two as a line": Found(float(min(straight))),
    }


STOPPED = "the search stops by its clock, not where a further projection would no longer pay"


@experiment(
    "000.figure-4.9",
    "kin40k: how many projections",
    "§4.5.1",
    system=PURSUIT,
    note="The source stops at 20 by the error of a fifth of the rows; ours by the evidence, in 60 s of search.",
    cases=Case((near("projections", 20, 5, "PPGPR-greedy", why=STOPPED),), minutes=2),
    each=one_regression,
    over=lambda case, how: [("kin40k", number, "projection pursuit") for number in how.numbers],
)
def figure_4_9(case: str, rows: Rows) -> dict[str, Found]:
    return {"projections": mean_of(rows.column("projections"))}


@experiment(
    "000.figure-4.10",
    "Time of additive classification against the number of rows",
    "§4.5.2.3",
    system=LABELS,
    baseline="support vector machine with fixed parameters, up to 8,000 rows (the source: slope 2.11)",
    note="Eight columns, parameters as they are; 2,000, 8,000 and 32,000 rows; CPU seconds, compiled.",
    cases=Case((less("log–log slope", 1.11, "Additive-LA"), smaller("CPU seconds for 8,000 rows")), minutes=1),
)
def figure_4_10(case: str, how: How) -> dict[str, Found]:
    from sklearn.svm import SVC

    import structgp as sg

    sizes, ours, peer = (2000, 8000, 32_000), [], []
    model = sg.AdditiveLabels(sg.Matern72(2.0), ranks=False)
    for N in sizes:
        part = label_part(N, 8, how.first, test=1)
        ours.append(cpu_seconds(lambda p=part: model.condition(p.X_train, p.y_train)))
        if N <= 8000:
            peer.append(cpu_seconds(lambda p=part: SVC().fit(p.X_train, p.y_train)))
    return {
        "log–log slope": Found(slope(sizes, ours), slope(sizes[:2], peer)),
        "CPU seconds for 8,000 rows": Found(ours[1], peer[1]),
    }


@experiment(
    "000.figure-4.11",
    "Time of additive classification against the number of columns",
    "§4.5.2.3",
    system=LABELS,
    note="1,000 rows; 5, 10, 20 and 40 columns; parameters as they are; CPU seconds, compiled.",
    cases=Case((between("log–log slope", "linear in D", 0.0, 1.3),), minutes=0.5),
)
def figure_4_11(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    sizes, seconds = (5, 10, 20, 40), []
    for D in sizes:
        part = label_part(1000, D, how.first, test=1)
        model = sg.AdditiveLabels(sg.Matern72(2.0), ranks=False)
        seconds.append(cpu_seconds(lambda p=part, m=model: m.condition(p.X_train, p.y_train), 2))
    return {"log–log slope": Found(slope(sizes, seconds))}


@experiment(
    "000.figure-4.12",
    "The functions behind additive labels",
    "§4.5.2.3",
    system=LABELS,
    baseline="logistic regression, correlation of log odds",
    note="Seen through the sum at fresh rows; 8,000 labels of four columns, where the source has 2,000.",
    cases=Case((between("correlation of the sum with the truth", "recovered, high frequencies lost", 0.8, 1.0),), minutes=0.4),
)
def figure_4_12(case: str, how: How) -> dict[str, Found]:
    from sklearn.linear_model import LogisticRegression

    import structgp as sg

    X, f = columns_of(9000, 4, how.first)
    part = label_part(8000, 4, how.first)
    fitted = sg.AdditiveLabels(sg.Matern72(), ranks=False).fit(part.X_train, part.y_train, progress=False)
    line = LogisticRegression().fit(part.X_train, part.y_train).decision_function(X[8000:])
    together = lambda guess: float(np.corrcoef(guess, f[8000:])[0, 1])
    return {"correlation of the sum with the truth": Found(together(fitted.predict(X[8000:]).mean), together(line))}


TABLE_4_3 = {
    "synthetic": (0.356, 0.557, 167, ""),
    "breast cancer": (0.0, 0.0236, 110, "one split of 90 rows without an error is luck: the printed baselines differ as much"),
}
TABLE_4_4 = {
    "magic": (0.142, 0.348, 1580, ""),
    "ijcnn1": (0.0513, 0.157, 8281, "the 91,701 test rows are not to be had: a split of the training file"),
    "usps": (0.0164, 0.0490, 14_686, ""),
}


def _label_rows(error: float, log: float, seconds: float, why: str) -> tuple:
    return (
        less("error", error, "Additive-LA", why=why),
        less("MNLL", log, "Additive-LA", why=why),
        less("seconds", seconds, "Additive-LA"),
        smaller("beside support vectors: error"),
        smaller("beside support vectors: MNLL"),
    )


def one_label_fit(name: str, number: int, method: str) -> dict[str, Any]:
    """Additive labels, gradient boosting, or, up to 5,000 rows, a tuned support vector machine: on one split of a set."""
    import structgp as sg

    part, nu = label_set(name, number)
    part = part._replace(y_train=(part.y_train > 0) * 1.0, y_test=(part.y_test > 0) * 1.0)
    began = time.process_time()
    if method == VECTORS and len(part.y_train) > 5000:
        return {"error": TOO_MANY, "log": TOO_MANY}
    if method == "additive":
        probability = sg.AdditiveGPClassifier(nu).fit(part.X_train, part.y_train).predict_proba(part.X_test)[:, 1]
    else:
        probability = (support_vectors if method == VECTORS else boosted_labels)(part)
    error, log = of_labels(probability, part.y_test)
    return {"error": error, "log": log, "seconds": time.process_time() - began}


VECTORS, TOO_MANY = "support vectors", "not run: more than 5,000 rows"


def label_set(name: str, number: int) -> tuple[Part, float]:
    """A split of a set of labels, and the smoothness of its additive model."""
    if name.startswith("synthetic"):
        return label_part(*SYNTHETIC_LABELS[name], number), 3.5
    return (usps_zero() if name == "usps" else parts_of(name.replace("breast cancer", "breast_cancer_wisconsin"))[number]), 2.5


SYNTHETIC_LABELS = {"synthetic": (2000, 4), "synthetic, eight columns": (4000, 8)}


def of_every_label_model(name: str, how: How) -> list[tuple]:
    """Arguments of `one_label_fit`."""
    return [(name, number, method) for number in how.numbers for method in ("additive", PEER, VECTORS)]


def labels(rows: Rows) -> dict[str, Found]:
    """Additive labels over the splits, beside gradient boosting and a support vector machine."""
    ours, boosted, vectors = ([rows.column(k, method) for k in ("error", "log")] for method in ("additive", PEER, VECTORS))
    beside = [TOO_MANY if TOO_MANY in column else column for column in vectors]
    return {
        "error": mean_of(ours[0], boosted[0]),
        "MNLL": mean_of(ours[1], boosted[1]),
        "seconds": Found(float(np.mean(rows.column("seconds", "additive")))),
        "beside support vectors: error": mean_of(ours[0], beside[0]),
        "beside support vectors: MNLL": mean_of(ours[1], beside[1]),
    }


@experiment(
    "000.table-4.3",
    "Additive labels, small sets",
    "§4.5.2",
    system=LABELS,
    baseline="gradient boosting; a support vector machine, its width and cost by cross-validation",
    cases={
        "synthetic": Case(_label_rows(*TABLE_4_3["synthetic"]), minutes=0.7),
        "breast cancer": Case(_label_rows(*TABLE_4_3["breast cancer"]), minutes=1, repeats=10),
    },
    each=one_label_fit,
    over=of_every_label_model,
)
def table_4_3(case: str, rows: Rows) -> dict[str, Found]:
    return labels(rows)


def usps_zero() -> Part:
    """0 against the rest, in the stored division."""
    data = arrays("usps")
    return Part(data["X_train"] / 2000.0, (data["y_train"] == 0) * 1.0, data["X_test"] / 2000.0, (data["y_test"] == 0) * 1.0)


@experiment(
    "000.table-4.4",
    "Additive labels, large sets",
    "§4.5.2",
    system=LABELS,
    baseline="gradient boosting",
    cases={
        "magic": Case(_label_rows(*TABLE_4_4["magic"]), minutes=0.3),
        "ijcnn1": Case(_label_rows(*TABLE_4_4["ijcnn1"]), minutes=0.7),
        "usps": Case(_label_rows(*TABLE_4_4["usps"]), minutes=60),
    },
    each=one_label_fit,
    over=of_every_label_model,
)
def table_4_4(case: str, rows: Rows) -> dict[str, Found]:
    return labels(rows)
