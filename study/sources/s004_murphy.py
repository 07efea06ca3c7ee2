"""Murphy, chapter 15: what a chapter of a textbook shows."""

from typing import Any

import numpy as np
from benchmarks.data import arrays, find, read_csv

from study.baselines import mean_of, of_labels, rmse, support_vectors
from study.registry import Case, Found, How, above, below, between, diagram, experiment, less, near, smaller
from study.sources.s001_sparse import LENGTHS, evidence_surface, parity, tops, two_stories

REGRESSION, PARAMETERS, LABELS, COUNTS = "exact regression", "beliefs about parameters", "classification", "counts"

diagram("004.figure-15.1", "A process for two training points and one test point", "§15.1", REGRESSION)


@experiment(
    "004.figure-15.2",
    "Draws given five values without noise",
    "§15.2.1",
    system=REGRESSION,
    baseline="scikit-learn's process with the same kernel",
    cases=Case(
        (
            near("largest distance of a draw from the values", 0.0, 1e-3, "interpolates"),
            near("largest difference of means to scikit-learn's", 0.0, 1e-5, "exact"),
        ),
        minutes=0.2,
    ),
)
def figure_15_2(case: str, how: How) -> dict[str, Found]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    import structgp as sg

    x, y, at = np.array([-4.0, -3.0, -1.0, 0.0, 2.0]), np.array([-2.0, 0.0, 1.0, 2.0, -1.0]), np.linspace(-5, 5, 41)
    fitted = sg.GP(sg.SquaredExponential(), sg.Gaussian(1e-8)).condition(x, y)
    peer = GaussianProcessRegressor(RBF(), alpha=1e-8, optimizer=None).fit(x[:, None], y)
    draws = fitted.sample(x, n=20, seed=how.first)
    return {
        "largest distance of a draw from the values": Found(float(np.abs(draws - y).max())),
        "largest difference of means to scikit-learn's": Found(
            float(np.abs(fitted.predict(at).mean - peer.predict(at[:, None])).max())
        ),
    }


@experiment(
    "004.figure-15.3",
    "Twenty noisy values under three settings of the parameters",
    "§15.2.3",
    system=REGRESSION,
    baseline="the setting that made the data, (1, 1, 0.1)",
    note="20 draws of the process with (ℓ, σ_f, σ_y) = (1, 1, 0.1); error of the function at 50 places.",
    cases=Case(
        (
            above("error with (0.3, 1.08, 0.00005)", "too wiggly"),
            above("error with (3, 1.16, 0.89)", "too smooth"),
            below("error learned", "(ours) learning finds it", 1.25),
        ),
        minutes=0.4,
        repeats=20,
    ),
    mean=True,
)
def figure_15_3(case: str, seed: int) -> dict[str, Found]:
    import structgp as sg

    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.uniform(-7, 7, 20), np.linspace(-6, 6, 50)])
    f = sg.GP(sg.SquaredExponential()).sample(places, seed=seed)[0]
    x, y = places[:20], f[:20] + 0.1 * rng.standard_normal(20)
    make = lambda ell, size, noise: sg.GP(sg.SquaredExponential(float(ell), float(size) ** 2), sg.Gaussian(noise**2))
    error = lambda fitted: rmse(fitted.predict(places[20:]).mean, f[20:])
    own = error(make(1, 1, 0.1).condition(x, y))
    return {
        "error with (0.3, 1.08, 0.00005)": Found(error(make(0.3, 1.08, 0.00005).condition(x, y)), own),
        "error with (3, 1.16, 0.89)": Found(error(make(3, 1.16, 0.89).condition(x, y)), own),
        "error learned": Found(error(make(1, 1, 0.3).fit(x, y)), own),
    }


@experiment(
    "004.figure-15.4",
    "Draws in the plane with three metrics",
    "§15.2.3",
    system="metrics",
    note="Correlation of two values one apart along an axis or a diagonal, 20,000 draws, beside exp(−½ dᵀMd).",
    cases={
        name: Case((near("largest error of a correlation", 0.0, 0.03, "exact"),), minutes=0.1)
        for name in ("isotropic", "lengthscales", "factor")
    },
)
def figure_15_4(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    metrics: dict[str, tuple[Any, np.ndarray]] = {
        "isotropic": (sg.SquaredExponential(1.0), np.eye(2)),
        "lengthscales": (sg.SquaredExponential(np.array([1.0, 3.0])), np.diag([1.0, 1 / 9])),
        "factor": (
            sg.SquaredExponential(sg.FactorMetric(np.array([[1.0], [-1.0]]), np.array([6.0, 6.0]))),
            np.array([[1.0, -1.0], [-1.0, 1.0]]) + np.eye(2) / 36,
        ),
    }
    kernel, M = metrics[case]
    steps = np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7], [0.7, -0.7]])
    f = sg.GP(kernel).sample(np.concatenate([np.zeros((1, 2)), steps]), n=20_000, seed=how.first)
    found = np.array([np.corrcoef(f[:, 0], f[:, k + 1])[0, 1] for k in range(4)])
    return {"largest error of a correlation": Found(float(np.abs(found - np.exp(-0.5 * np.sum(steps @ M * steps, 1))).max()))}


@experiment(
    "004.figure-15.5",
    "Seven values, two tops of the evidence: wiggly with little noise, smooth with much",
    "§15.2.4",
    system=PARAMETERS,
    baseline="(of the last row) one",
    note="The seven values are not printed: drawn (ℓ = 1, noise sd 0.1) until there are two tops, as for 001.figure-1.4.",
    cases=Case(
        (
            near("tops of the log evidence", 2, 0),
            between("lengthscale of the wiggly one", "about 1", 0.2, 3.0),
            above("lengthscale of the smooth one over it", "10 and 1", 2.0),
        ),
        minutes=0.3,
    ),
)
def figure_15_5(case: str, how: How) -> dict[str, Found]:
    top = tops(evidence_surface(*two_stories(how.first)))
    wiggly, smooth = (LENGTHS[::2][i] for i in sorted(top[:, 0])) if len(top) == 2 else (np.nan, np.nan)
    return {
        "tops of the log evidence": Found(float(len(top))),
        "lengthscale of the wiggly one": Found(float(wiggly)),
        "lengthscale of the smooth one over it": Found(float(smooth / wiggly), 1.0),
    }


@experiment(
    "004.figure-15.6",
    "Averages over parameters: a grid, Monte Carlo, a central composite design",
    "§15.2.4.2",
    system=PARAMETERS,
    baseline="the best parameters",
    note="Twelve values of a draw, ten times; −log p of 30 values held out. Monte Carlo is Hamiltonian.",
    cases=Case(
        tuple(below(f"−log p, {way}", "better than a point") for way in ("grid", "hmc", "ccd")), minutes=0.5, repeats=10
    ),
    mean=True,
)
def figure_15_6(case: str, seed: int) -> dict[str, Found]:
    import structgp as sg

    x = np.random.default_rng(seed).uniform(-5, 5, 42)
    y = sg.GP(sg.SquaredExponential(), sg.Gaussian(0.04)).sample(x, seed=seed, observed=True)[0]

    def score(way: str) -> float:
        fitted = sg.GP(sg.SquaredExponential(), sg.Gaussian(0.1)).fit(x[:12], y[:12], parameters=way)
        return -float(np.mean(fitted.predict(x[12:]).log_prob(y[12:])))

    best = score("best")
    return {f"−log p, {way}": Found(score(way), best) for way in ("grid", "hmc", "ccd")}


@experiment(
    "004.figure-15.7",
    "Labels in the plane: parameters set by hand, and learned",
    "§15.3.1",
    system=LABELS,
    baseline="a tuned support vector machine",
    note="Four overlapping clusters, 120 rows: the picture's data are not printed.",
    cases=Case(
        (
            smaller("error, learned"),
            smaller("−log p, learned"),
            above("−log p with lengthscales a fifth as long", "sharp turns"),
        ),
        minutes=0.4,
        repeats=20,
    ),
    mean=True,
)
def figure_15_7(case: str, seed: int) -> dict[str, Found]:
    import structgp as sg

    part = parity(2, 120, seed, 1.5)
    gp = sg.GP(sg.SquaredExponential(1.0, 4.0), sg.Bernoulli("logit"))
    fitted = gp.fit(part.X_train, part.y_train, inference="laplace", parameters="best")
    kernel = sg.SquaredExponential(float(fitted.kernel.lengthscale) / 5, float(fitted.kernel.variance))
    by_hand = sg.GP(kernel, sg.Bernoulli("logit")).condition(part.X_train, part.y_train, inference="laplace")
    ours, short = (of_labels(model.predict(part.X_test).probability, part.y_test) for model in (fitted, by_hand))
    peer = of_labels(support_vectors(part), part.y_test)
    return {
        "error, learned": Found(ours[0], peer[0]),
        "−log p, learned": Found(ours[1], peer[1]),
        "−log p with lengthscales a fifth as long": Found(short[1], ours[1]),
    }


@experiment(
    "004.table-15.1",
    "Likelihood, slope and curvature of logit and probit labels",
    "§15.3.1",
    system=LABELS,
    note="Slopes and curvatures of the package beside the printed formulas, f from −8 to 8, both labels.",
    cases={link: Case((near("largest difference", 0.0, 1e-9, "exact"),), minutes=0.1) for link in ("logit", "probit")},
)
def table_15_1(case: str, how: How) -> dict[str, Found]:
    import jax
    from scipy.special import expit, log_ndtr

    import structgp as sg

    f, off = np.linspace(-8, 8, 65), 0.0
    with jax.enable_x64(True):
        for label, sign in ((1.0, 1.0), (0.0, -1.0)):
            value, slope, W = (np.asarray(v) for v in sg.Bernoulli(case).derivatives(np.full(65, label), f))
            if case == "logit":
                printed = -np.logaddexp(0, -sign * f), label - expit(f), -expit(f) * (1 - expit(f))
            else:
                ratio = np.exp(-0.5 * f**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(sign * f))
                printed = log_ndtr(sign * f), sign * ratio, -(ratio**2) - sign * f * ratio
            off = max(off, *(np.abs(a - b).max() for a, b in zip((value, slope, -W), printed, strict=True)))
    return {"largest difference": Found(float(off))}


@experiment(
    "004.figure-15.8",
    "Heart disease in 911 cells of Finland: relative risk",
    "§15.3.3",
    system=COUNTS,
    baseline="Poisson regression on the coordinates (scikit-learn), −log p of a fifth of the cells",
    note="Deaths in cells of 20 km with expected counts; Laplace's approximation. The source shows two maps.",
    cases=Case(
        (
            above("mean log risk in the east over that in the west", "higher in the east"),
            above("mean variance in the north over that in the south", "higher in the north"),
            smaller("−log p of cells held out"),
        ),
        minutes=1,
    ),
)
def figure_15_8(case: str, how: How) -> dict[str, Found]:
    from scipy.stats import poisson
    from sklearn.linear_model import PoissonRegressor

    import structgp as sg

    columns = read_csv(find("finland_heart") / "data_20km.csv.gz")
    names = list(columns)
    y, expected = columns["deaths"], columns["expected"]
    X = np.column_stack([columns[name] for name in names if name not in ("deaths", "expected")][:2])
    Z = (X - X.mean(axis=0)) / X.std()
    gp = sg.GP(sg.Matern32(0.3, 0.1), sg.Poisson(), mean=0.0)
    fit = lambda rows: gp.fit(Z[rows], y[rows], extra=expected[rows], inference="laplace", parameters="best", restarts=0)
    whole = fit(np.arange(len(y))).predict(Z, extra=expected)
    order = np.random.default_rng(how.first).permutation(len(y))
    test, train = np.split(order, [len(y) // 5])
    p = fit(train).predict(Z[test], extra=expected[test])
    line = PoissonRegressor(alpha=0.0).fit(Z[train], y[train] / expected[train], sample_weight=expected[train])
    other = -float(np.mean(poisson.logpmf(y[test], line.predict(Z[test]) * expected[test])))
    east, north = Z[:, 0] > np.median(Z[:, 0]), Z[:, 1] > np.median(Z[:, 1])
    return {
        "mean log risk in the east over that in the west": Found(
            float(whole.mean[east].mean()), float(whole.mean[~east].mean())
        ),
        "mean variance in the north over that in the south": Found(
            float(whole.variance[north].mean()), float(whole.variance[~north].mean())
        ),
        "−log p of cells held out": Found(-float(np.mean(p.log_prob(y[test]))), other),
    }


@experiment(
    "004.figure-15.9",
    "The kernel of infinitely many erf units",
    "§15.4.5",
    system="kernels",
    baseline="draws with σ = 1",
    note="σ₀ = σ = 10 in the picture; here against the printed formula, and the steps of draws for two σ.",
    cases=Case(
        (
            near("largest difference to the printed formula", 0.0, 1e-10, "exact"),
            above("mean step of draws with σ = 10", "varies more quickly than σ = 1"),
        ),
        minutes=0.2,
    ),
)
def figure_15_9(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    x = np.linspace(-4, 4, 81)
    one = np.column_stack([np.ones_like(x), x])
    S = np.diag([100.0, 100.0])
    inner = one @ S @ one.T
    size = 1 + 2 * np.diag(inner)
    printed = 2 / np.pi * np.arcsin(2 * inner / np.sqrt(np.outer(size, size)))
    kernel = lambda sigma: sg.ArcSine(sigma**2, 100.0)
    ours = np.asarray(sg.covariance(kernel(10.0), x[:, None], x[:, None]))
    step = lambda sigma: float(np.mean(np.abs(np.diff(sg.GP(kernel(sigma)).sample(x, n=50, seed=how.first), axis=1))))
    return {
        "largest difference to the printed formula": Found(float(np.abs(ours - printed).max())),
        "mean step of draws with σ = 10": Found(step(10.0), step(1.0)),
    }


@experiment(
    "004.figure-15.10",
    "Oil flow: 12 columns in the plane, by a latent-variable model, kernel PCA and PCA",
    "§15.5",
    system="latent-variable models",
    baseline="kernel PCA; PCA (scikit-learn)",
    note="`python -m benchmarks.latent oil100`: of 100 rows those whose nearest neighbour in the plane is of another phase. "
    "Kernel PCA has the best of five widths by its errors, which favours it.",
    cases=Case(
        (
            less("errors, latent-variable model", 4, "GP-LVM"),
            near(
                "errors, kernel PCA",
                13,
                3,
                "kernel PCA",
                why="kernel, width and scale are not printed; this is scikit-learn's on columns of unit spread",
            ),
            near("errors, PCA", 20, 3, "PCA"),
        ),
        minutes=1,
    ),
)
def figure_15_10(case: str, how: How) -> dict[str, Found]:
    from benchmarks.latent import errors, oil
    from sklearn.decomposition import PCA, KernelPCA

    import structgp as sg

    X, labels = oil()
    rows = arrays("oil_flow", "subset100")["train_rows"]
    X, labels = X[rows], labels[rows]
    wrong = lambda Z: errors(np.asarray(Z), labels)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    kernels = [wrong(KernelPCA(2, kernel="rbf", gamma=g).fit_transform(scaled)) for g in (0.01, 0.03, 0.1, 0.3, 1.0)]
    ours = [float(wrong(sg.GPLVM(2, random_state=seed).fit(X).embedding_)) for seed in how.numbers]
    return {
        "errors, latent-variable model": mean_of(ours, [min(kernels)]),
        "errors, kernel PCA": Found(min(kernels)),
        "errors, PCA": Found(wrong(PCA(2).fit_transform(X))),
    }
