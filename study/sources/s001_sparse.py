"""Naish-Guzman, chapters 1 and 2: evidence, classification by EP, inducing inputs."""

import numpy as np
from benchmarks import classification
from benchmarks.classification import TABLE as GPC
from benchmarks.data import Part
from benchmarks.problems.inducing import SEED, labels, parts_of

from study.baselines import boosted_labels, inside, mean_of, of_labels, support_vectors
from study.registry import Case, Found, How, Rows, below, between, diagram, experiment, less, near, smaller

REGRESSION, LABELS, INDUCING = "exact regression", "classification by EP", "inducing inputs for labels"

diagram("001.figure-1.1", "Evidence and model selection, a sketch", "§1.1", "evidence")
diagram("001.figure-1.6", "EP as projections", "§1.3", LABELS)
diagram("001.figure-2.2", "Graphs of sparse approximations", "§2.1.3", INDUCING)
diagram("001.figure-2.4", "A tensor product in the derivatives", "§2.5", INDUCING)


@experiment(
    "001.figure-1.2",
    "Prior and posterior of a squared exponential, with 95 % bands",
    "§1.2.1",
    system=REGRESSION,
    note="200 draws of the prior seen at 5 places.",
    cases=Case((near("part of the draws inside the bands of their posterior", 0.95, 0.02),), minutes=0.1),
)
def figure_1_2(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    rng = np.random.default_rng(how.first)
    x, at = rng.uniform(-5, 5, 5), np.linspace(-5, 5, 101)
    gp = sg.GP(sg.SquaredExponential(), sg.Gaussian(1e-4))
    f = gp.sample(np.concatenate([x, at]), n=200, seed=how.first)
    y = f[:, :5] + 0.01 * rng.standard_normal((200, 5))
    covered = []
    for draw, seen in zip(f, y, strict=True):
        p = gp.condition(x, seen).predict(at)
        covered.append(inside(p.mean, p.sd, draw[5:]))
    return {"part of the draws inside the bands of their posterior": mean_of(covered)}


@experiment(
    "001.figure-1.3",
    "The evidence of two observations against lengthscale and variance",
    "§1.2.3",
    system="evidence",
    baseline="the evidence at the best of a grid of 80 × 80",
    note="Two equal values, one unit apart; noise variance 0.01.",
    cases=Case((near("log evidence at the learned values, over the grid's best", 0.0, 0.02),), minutes=0.1),
)
def figure_1_3(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    x, y = np.array([0.0, 1.0]), np.array([1.0, 0.5])
    known = sg.Gaussian(sg.fixed(0.01))
    fitted = sg.GP(sg.SquaredExponential(), known).fit(x, y, parameters="best", restarts=5)
    a, b = np.meshgrid(np.linspace(-3, 4, 80), np.linspace(-4, 3, 80))
    k, v = np.exp(b - 0.5 * np.exp(-2 * a)), np.exp(b) + 0.01
    det = v**2 - k**2
    log = -0.5 * (v * (y @ y) - 2 * k * y[0] * y[1]) / det - 0.5 * np.log(det) - np.log(2 * np.pi)
    return {"log evidence at the learned values, over the grid's best": Found(float(fitted.log_evidence - log.max()))}


@experiment(
    "001.figure-1.4",
    "Two explanations of one data set, two peaks of the evidence",
    "§1.2.3",
    system="evidence",
    note="Seven values (lengthscale 1, noise sd 0.1) drawn until the evidence has two tops; the task of 004.figure-15.5.",
    cases=Case(
        (
            near("tops of the log evidence over lengthscale and noise", 2, 0),
            between("log evidence learned less that of the higher top", "(ours) learning ends at the higher one", -0.01, 0.3),
        ),
        minutes=0.4,
    ),
)
def figure_1_4(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    x, y = two_stories(how.first)
    found = evidence_surface(x, y)
    gp = sg.GP(sg.SquaredExponential(1.0, sg.fixed(1.0)), sg.Gaussian(0.1))
    learned = gp.fit(x, y, parameters="best").log_evidence
    return {
        "tops of the log evidence over lengthscale and noise": Found(float(len(tops(found)))),
        "log evidence learned less that of the higher top": Found(float(learned - max(found[i, j] for i, j in tops(found)))),
    }


def surface(x: np.ndarray, y: np.ndarray, lengths: np.ndarray, noises: np.ndarray) -> np.ndarray:
    """The log evidence of a squared exponential of variance one, by NumPy, at all pairs of lengthscale and noise variance."""
    d2 = (x[:, None] - x) ** 2
    log = np.empty((len(lengths), len(noises)))
    for i, length in enumerate(lengths):
        values, vectors = np.linalg.eigh(np.exp(-0.5 * d2 / length**2))
        spread = values[:, None] + noises
        log[i] = -0.5 * np.sum((vectors.T @ y)[:, None] ** 2 / spread + np.log(2 * np.pi * spread), axis=0)
    return log


LENGTHS, NOISES = np.exp(np.linspace(-1.2, 4.0, 45)), np.exp(np.linspace(-5.0, 1.5, 45))


def tops(log: np.ndarray) -> np.ndarray:
    """Where inside of a surface its local maxima are, by rows."""
    around = [np.roll(log, shift, (0, 1)) for shift in ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1))]
    return np.argwhere(np.all([log > other for other in around], axis=0)[1:-1, 1:-1]) + 1


def two_stories(first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Seven draws of a process with lengthscale one and noise sd 0.1: the first of them with two tops in the evidence."""
    for seed in range(first, first + 500):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-5, 5, 7)
        root = np.linalg.cholesky(np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.01 * np.eye(7))
        y = root @ rng.standard_normal(7)
        if len(tops(surface(x, y, LENGTHS, NOISES))) == len(tops(surface(x, y, LENGTHS[::2], NOISES[::2]))) == 2:
            break
    return x, y


def evidence_surface(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same surface by the package, at every second pair."""
    import structgp as sg

    of = lambda length, noise: sg.GP(sg.SquaredExponential(length), sg.Gaussian(noise)).log_evidence(x, y)
    return np.array([[of(length, noise) for noise in NOISES[::2]] for length in LENGTHS[::2]])


@experiment(
    "001.figure-1.5",
    "Logit and probit: which is the more careful",
    "§1.2.5",
    system=LABELS,
    baseline="probit",
    cases=Case((below("mean |p − ½| of the logit, latent N(m, 1), m in [−4, 4]", "more conservative"),), minutes=0.1),
)
def figure_1_5(case: str, how: How) -> dict[str, Found]:
    import structgp as sg
    from structgp.posterior import Prediction

    m = np.linspace(-4, 4, 41)
    logit, probit = (Prediction(m, np.ones(41), sg.Bernoulli(link)).probability for link in ("logit", "probit"))
    sure = lambda p: float(np.mean(np.abs(p - 0.5)))
    return {"mean |p − ½| of the logit, latent N(m, 1), m in [−4, 4]": Found(sure(logit), sure(probit))}


@experiment(
    "001.figure-2.1",
    "What two sparse models draw away from their inducing inputs",
    "§2.1.3",
    system=INDUCING,
    baseline='the variance of a "dtc" of the same data',
    note="Predictive variance of f with the prior variance 1, five inducing inputs near data in [−1, 1], seen at 6.",
    cases=Case(
        (
            near("variance far away, FITC", 1.0, 0.02, "prior"),
            between("variance far away, SoR", "none is left", 0.0, 0.02),
        ),
        minutes=0.2,
    ),
)
def figure_2_1(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    rng = np.random.default_rng(how.first)
    x = rng.uniform(-1, 1, 40)
    y = np.sin(3 * x) + 0.1 * rng.standard_normal(40)
    gp = sg.GP(sg.SquaredExponential(0.5), sg.Gaussian(0.01))
    places = np.linspace(-1, 1, 5)[:, None]
    at = {
        name: gp.condition(x, y, approximate=sg.Inducing(places, name)).predict([6.0]).variance[0] for name in ("fitc", "sor")
    }
    return {"variance far away, FITC": Found(at["fitc"]), "variance far away, SoR": Found(at["sor"])}


def parity(D: int, rows: int, seed: int, centre: float = 1.9, test: int = 1000) -> Part:
    """Clusters of unit variance at the corners of a cube; the label is the parity of the corner."""
    rng = np.random.default_rng(seed)
    corners = np.array(np.meshgrid(*[[-1, 1]] * D)).reshape(D, -1).T
    which = np.arange(rows + test) % len(corners)
    which[rows:] = rng.integers(len(corners), size=test)
    X = centre * corners[which] + rng.standard_normal((rows + test, D))
    y = (np.prod(corners[which], axis=1) > 0) * 1.0
    return Part(X[:rows], y[:rows], X[rows:], y[rows:])


VECTORS = "support vectors"


def parity_error(D: int, rows: int, seed: int, centre: float, way: str) -> dict[str, float]:
    """Of a set of `parity`: by so many learned inducing inputs ("4 inputs"), by all rows, or by a support vector machine."""
    import structgp as sg

    part = parity(D, rows, seed, centre)
    if way == VECTORS:
        return {"error": of_labels(support_vectors(part), part.y_test)[0]}
    if way != "dense":
        return {"error": labels(part, int(way.split()[0]), None, None).error}
    gp = sg.GP(sg.SquaredExponential(1.5, 4.0), sg.Bernoulli())
    fitted = gp.fit(part.X_train, part.y_train, inference="ep", structure="dense", parameters="best", restarts=0)
    return {"error": of_labels(fitted.predict(part.X_test).probability, part.y_test)[0]}


XOR_ROWS = (40, 100, 200, 400)
TEN_EACH = "ten rows of each cluster are few: a tuned support vector machine misses the bar on them as well"


@experiment(
    "001.figure-2.3",
    "XOR: four inducing inputs are enough, however many rows there are",
    "§2.4",
    system=INDUCING,
    baseline="a tuned support vector machine on the same rows",
    note="Centres at ±1.5, best possible error 0.1247; means over sets of 40, 100, 200 and 400 rows.",
    cases=Case(
        tuple(
            less(f"error with 4 inputs, {N} rows", 0.15, "the bar", within=0.02, why=TEN_EACH if N == 40 else "")
            for N in XOR_ROWS
        ),
        minutes=1.5,
        repeats=10,
    ),
    each=parity_error,
    over=lambda case, how: [(2, N, k, 1.5, way) for N in XOR_ROWS for k in how.numbers for way in ("4 inputs", VECTORS)],
)
def figure_2_3(case: str, rows: Rows) -> dict[str, Found]:
    found = {}
    for N in XOR_ROWS:
        own = Rows({args: row for args, row in rows.items() if args[1] == N})
        found[f"error with 4 inputs, {N} rows"] = mean_of(own.column("error", "4 inputs"), own.column("error", VECTORS))
    return found


TABLE_2_2 = {2: (0.069, {4: 0.054, 6: 0.055, 8: 0.056}), 3: (0.090, {8: 0.122, 12: 0.083, 16: 0.082})}
TABLE_2_2 |= {4: (0.139, {16: 0.233, 24: 0.133, 32: 0.121})}
OPTIMUM = (
    "the spacing is not printed; with ours no classifier has less than 0.056, 0.081 and 0.105 in two, three and four columns"
)
ROWS_2_2 = {2: 80, 3: 160, 4: 320}


@experiment(
    "001.table-2.2",
    "Parity in two, three and four columns: few inducing inputs",
    "§2.4",
    system=INDUCING,
    baseline="a tuned support vector machine on the same rows",
    note="Centres at ±1.9, which the printed errors imply; dense EP is the GP of the source.",
    cases={
        f"D = {D}": Case(
            (
                less("error, dense", dense, "GP", within=0.1, why=OPTIMUM),
                *(less(f"error, {M} inputs", error, f"SPGPC, M = {M}", within=0.1, why=OPTIMUM) for M, error in sparse.items()),
            ),
            minutes={2: 1, 3: 2, 4: 4}[D],
            repeats=10,
        )
        for D, (dense, sparse) in TABLE_2_2.items()
    },
    each=parity_error,
    over=lambda case, how: [
        (int(case[-1]), ROWS_2_2[int(case[-1])], k, 1.9, way)
        for k in how.numbers
        for way in ("dense", *(f"{M} inputs" for M in TABLE_2_2[int(case[-1])][1]), VECTORS)
    ],
)
def table_2_2(case: str, rows: Rows) -> dict[str, Found]:
    ways = ("dense", *(f"{M} inputs" for M in TABLE_2_2[int(case[-1])][1]))
    return {f"error, {way}": mean_of(rows.column("error", way), rows.column("error", VECTORS)) for way in ways}


# error and −log p of SPGPC, and the error of the support vector machine of the source
TABLE_2_1 = {
    "synth": (0.087, 0.234, 0.098),
    "crabs": (0.043, 0.105, 0.168),
    "banana": (0.107, 0.261, 0.106),
    "breast-cancer": (0.281, 0.557, 0.277),
    "diabetis": (0.230, 0.485, 0.226),
    "flare-solar": (0.338, 0.569, 0.331),
    "german": (0.236, 0.491, 0.247),
    "heart": (0.172, 0.414, 0.166),
    "image": (0.031, 0.087, 0.040),
    "ringnorm": (0.014, 0.089, 0.016),
    "splice": (0.126, 0.306, 0.102),
    "thyroid": (0.037, 0.128, 0.056),
    "titanic": (0.231, 0.520, 0.223),
    "twonorm": (0.026, 0.086, 0.027),
    "waveform": (0.099, 0.228, 0.107),
}
MINUTES_2_1 = {
    "image": 30,
    "splice": 25,
    "german": 6,
    "flare-solar": 1,
}


FOLDS = "other splits than the source's: an error of 0.1 on 1,000 rows has a standard error of 0.01, on 75 rows of 0.035"


def folder_of(name: str) -> str:
    return {"synth": "ripley_synth", "crabs": "crabs"}.get(name, f"raetsch_{name}")


def one_labelling(name: str, number: int, way: str) -> dict[str, float]:
    """Error and −log p on one split: EP with all rows or with inducing inputs, a support vector machine or boosting."""
    if way == "dense":
        found = classification.score(name, number, "isotropic")
        return {"error": found.error, "log": found.nlp}
    part = classification.parts(name)[number]
    if way.endswith("inputs"):
        few = labels(part, int(way.split()[0]), None, None)
        return {"error": few.error, "log": few.negative_log}
    error, log = of_labels((support_vectors if way == VECTORS else boosted_labels)(part), part.y_test)
    return {"error": error, "log": log}


@experiment(
    "001.table-2.1",
    "Labels of fifteen sets: EP with all rows, and with few inducing inputs",
    "§2.3",
    system=f"{LABELS}, {INDUCING}",
    baseline="a tuned support vector machine (error and −log p, its probabilities by cross-validation); gradient boosting",
    note=("Means over stored splits (the source: ten folds of its own); the numbers of inducing inputs are the source's."),
    cases={
        name: Case(
            (
                less("error, dense", GPC[name][0], "GPC", why=FOLDS),
                less("−log p, dense", GPC[name][1], "GPC", why=FOLDS),
                less(f"error, {SEED[folder_of(name)]} inputs", error, "SPGPC", why=FOLDS),
                less(f"−log p, {SEED[folder_of(name)]} inputs", log, "SPGPC", why=FOLDS),
                less("error, dense, beside the source's SVM", vectors, "SVM", why=FOLDS),
                smaller("error, dense, beside boosting"),
            ),
            minutes=MINUTES_2_1.get(name, 1),
            repeats={"synth": 1, "image": 3, "splice": 3}.get(name, 10),
        )
        for name, (error, log, vectors) in TABLE_2_1.items()
    },
    each=one_labelling,
    over=lambda case, how: [
        (case, k, way) for k in how.numbers for way in ("dense", f"{SEED[folder_of(case)]} inputs", VECTORS, "boosting")
    ],
)
def table_2_1(case: str, rows: Rows) -> dict[str, Found]:
    few = f"{SEED[folder_of(case)]} inputs"
    beside = lambda way, name, peer=VECTORS: mean_of(rows.column(name, way), rows.column(name, peer))
    return {
        "error, dense": beside("dense", "error"),
        "−log p, dense": beside("dense", "log"),
        f"error, {few}": beside(few, "error"),
        f"−log p, {few}": beside(few, "log"),
        "error, dense, beside the source's SVM": beside("dense", "error"),
        "error, dense, beside boosting": beside("dense", "error", "boosting"),
    }


HELD = "the source moves the inputs, 51,200 numbers for 200 of them; ours stay where k-means lays them"


@experiment(
    "001.usps",
    "USPS, 4 against the rest, with 200 and 400 inducing inputs",
    "§2.3",
    system=INDUCING,
    baseline="gradient boosting",
    cases={
        "200": Case((less("error", 0.0194, "SPGPC", why=HELD), less("−log p", 0.051, "SPGPC", why=HELD)), minutes=2),
        "400": Case((less("error", 0.0179, "SPGPC", why=HELD), less("−log p", 0.048, "SPGPC", why=HELD)), minutes=3),
    },
)
def usps(case: str, how: How) -> dict[str, Found]:
    part = parts_of("usps", None)[0]
    found, peer = labels(part, int(case), None, None), of_labels(boosted_labels(part), part.y_test)
    return {"error": Found(found.error, peer[0]), "−log p": Found(found.negative_log, peer[1])}


TABLE_2_3 = {2: (0.0782, 0.242), 4: (0.0688, 0.160), 6: (0.0995, 0.203), 8: (0.1520, 0.304)}


def projected(part: Part, d: int, inputs: int, seed: int) -> tuple[float, float]:
    """Error and −log p of labels that depend on d learned projections, through inducing inputs in their plane."""
    import structgp as sg

    center, scale = part.X_train.mean(axis=0), part.X_train.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    W = np.linalg.qr(np.random.default_rng(seed).standard_normal((part.X_train.shape[1], d)))[0]
    gp = sg.GP(sg.Project(sg.SquaredExponential(1.0, 4.0), W), sg.Bernoulli(), mean=sg.ConstantMean())
    fitted = gp.fit(
        (part.X_train - center) / scale, part.y_train, approximate=sg.Inducing(inputs), parameters="best", restarts=0
    )
    return of_labels(fitted.predict((part.X_test - center) / scale).probability, part.y_test)


@experiment(
    "001.table-2.3",
    "Image set: labels through 2 to 8 learned projections",
    "§2.5.2",
    system="supervised projection",
    baseline="a tuned support vector machine on all 18 columns",
    note="30 inducing inputs, the first split. The source reports it as a failure: 0.031 without projections.",
    cases={
        f"d = {d}": Case((less("error", error, "projected SPGPC"), less("−log p", log, "projected SPGPC")), minutes=0.3)
        for d, (error, log) in TABLE_2_3.items()
    },
)
def table_2_3(case: str, how: How) -> dict[str, Found]:
    part = parts_of("raetsch_image", None)[how.first]
    part = part._replace(y_train=(part.y_train > 0) * 1.0, y_test=(part.y_test > 0) * 1.0)
    error, log = projected(part, int(case[-1]), 30, how.first)
    peer = of_labels(support_vectors(part), part.y_test)
    return {"error": Found(error, peer[0]), "−log p": Found(log, peer[1])}


def xor_among_noise(seed: int, way: str) -> dict[str, float]:
    """Error of labels of two columns among ten: by two projections, by lengthscales, or by boosting."""
    import structgp as sg

    rng, part = np.random.default_rng(1000 + seed), parity(2, 200, seed, 2.5)
    noisy = lambda X: np.column_stack([X, rng.standard_normal((len(X), 8))])
    part = part._replace(X_train=noisy(part.X_train), X_test=noisy(part.X_test))
    if way == "projection":
        return {"error": projected(part, 2, 4, seed)[0]}
    if way == "boosting":
        return {"error": of_labels(boosted_labels(part), part.y_test)[0]}
    gp = sg.GP(sg.SquaredExponential(np.full(10, 3.0), 4.0), sg.Bernoulli())
    fitted = gp.fit(part.X_train, part.y_train, approximate=sg.Inducing(4), inference="ep", parameters="best", restarts=2)
    return {"error": of_labels(fitted.predict(part.X_test).probability, part.y_test)[0]}


@experiment(
    "001.figure-2.5",
    "XOR among eight columns of noise: projections against a lengthscale for each column",
    "§2.5.3",
    system="supervised projection",
    baseline="gradient boosting",
    note="Four inducing inputs, 200 rows, centres at ±2.5 (nearly separable).",
    cases=Case(
        (
            less("mean error, projection to two columns", 0.37, "projection"),
            less("least error, projection to two columns", 0.075, "projection"),
            less("mean error, lengthscales", 0.068, "ARD"),
            less("least error, lengthscales", 0.02, "ARD"),
        ),
        minutes=0.7,
        repeats=10,
    ),
    each=xor_among_noise,
    over=lambda case, how: [(seed, way) for seed in how.numbers for way in ("projection", "lengthscales", "boosting")],
)
def figure_2_5(case: str, rows: Rows) -> dict[str, Found]:
    turned, scaled, others = (rows.column("error", way) for way in ("projection", "lengthscales", "boosting"))
    return {
        "mean error, projection to two columns": mean_of(turned, others),
        "least error, projection to two columns": Found(min(turned), min(others)),
        "mean error, lengthscales": mean_of(scaled, others),
        "least error, lengthscales": Found(min(scaled), min(others)),
    }
