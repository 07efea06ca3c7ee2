"""Boyle, chapters 1 to 7: filtered noise, several outputs, systems, few basis functions, turned metrics."""

from typing import Any

import numpy as np
from benchmarks import outputs

from study.baselines import mean_of, rmse
from study.registry import Case, Found, How, Rows, above, below, between, diagram, experiment, near

EXACT, FILTERS, OUTPUTS = "exact regression", "filtered noise", "several outputs"
SYSTEMS, REDUCED, METRICS = "identification of systems", "few basis functions", "turned metrics"

for name, title, place, system in (
    ("2.1", "A linear filter", "§2.1", FILTERS),
    ("2.3", "A finite filter", "§2.2.1", FILTERS),
    ("2.4", "A recursive filter", "§2.2.2", FILTERS),
    ("3.1", "One output, and two that share noise", "§3.2", OUTPUTS),
):
    diagram(f"003.figure-{name}", title, place, system)


@experiment(
    "003.figure-1.1",
    "A process that is not Gaussian: exp(w) sin(αx)",
    "§1.3.1",
    system=EXACT,
    baseline="a Gaussian of as many values",
    note="20,000 draws of f(1); excess kurtosis. Nothing of it is a Gaussian process: it is there for contrast.",
    cases=Case((above("excess kurtosis of f(1)", "not Gaussian", 5.0),), minutes=0.05),
)
def figure_1_1(case: str, how: How) -> dict[str, Found]:
    from scipy.stats import kurtosis

    rng = np.random.default_rng(how.first)
    f = np.exp(0.5 * rng.standard_normal(20_000)) * np.sin(1 + rng.standard_normal(20_000))
    return {"excess kurtosis of f(1)": Found(abs(float(kurtosis(f))), abs(float(kurtosis(rng.standard_normal(20_000)))))}


@experiment(
    "003.figure-1.2",
    "Draws of a Gaussian process, two of whose values are jointly Gaussian",
    "§1.3.1",
    system=EXACT,
    note="20,000 draws; the kernel, which is not given, is a squared exponential of lengthscale 0.3.",
    cases=Case((near("correlation of f(0.3) and f(0.5)", float(np.exp(-0.5 * (0.2 / 0.3) ** 2)), 0.02, "exact"),), minutes=0.1),
)
def figure_1_2(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    f = sg.GP(sg.SquaredExponential(0.3)).sample(np.array([0.3, 0.5]), n=20_000, seed=how.first)
    return {"correlation of f(0.3) and f(0.5)": Found(float(np.corrcoef(f.T)[0, 1]))}


@experiment(
    "003.figure-2.2",
    "The covariance of an ideal low-pass filter beside a squared exponential",
    "§2.1.3",
    system=FILTERS,
    baseline="the squared exponential",
    cases=Case((below("least covariance of Sinc", "negative in places", 1.0),), minutes=0.1),
)
def figure_2_2(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    x = np.linspace(0, 5, 400)[:, None]
    least = lambda kernel: float(np.asarray(sg.covariance(kernel, x, np.zeros((1, 1)))).min())
    return {"least covariance of Sinc": Found(least(sg.Sinc()), least(sg.SquaredExponential()))}


NARROW = "few draws, of which one whose translation or coupling was not found holds next to nothing"


def _coupled(says: str, factor: float) -> tuple:
    return (
        below("error where the output is not seen", says, factor),
        between("its 95 % band holds", "(ours)", 0.85, 1.0, why=NARROW),
    )


def coupled(row: dict[str, float]) -> dict[str, Found]:
    """Two outputs of a study of `benchmarks.outputs`."""
    return {
        "error where the output is not seen": Found(row["rmse"], row["alone"]),
        "its 95 % band holds": Found(row["cover"], row["cover alone"]),
    }


COUPLED = "`python -m benchmarks.outputs {}`: functions of our own, drawn anew for each seed; averaged over parameters."


@experiment(
    "003.figure-3.2",
    "An output that is a translated copy of another, with a gap",
    "§3.3.1",
    system=OUTPUTS,
    baseline="each output alone, the control model of the source",
    note=COUPLED.format("e4"),
    cases=Case(_coupled("learns translation and coupling, fills the gap", 0.5), minutes=0.5, repeats=20),
    mean=True,
)
def figure_3_2(case: str, seed: int) -> dict[str, Found]:
    return coupled(outputs.e4(seed, "auto"))


@experiment(
    "003.figure-3.3",
    "Two copies in the plane, one not seen in a quarter",
    "§3.3.2",
    system=OUTPUTS,
    baseline="each output alone, the control model of the source",
    note=COUPLED.format("e5"),
    cases=Case(_coupled("only the dependent model fits output 2", 0.5), minutes=0.5, repeats=12),
    mean=True,
)
def figure_3_3(case: str, seed: int) -> dict[str, Found]:
    return coupled(outputs.e5(seed, "auto"))


@experiment(
    "003.figure-3.4",
    "Two outputs that are coupled in part, one not seen in a half",
    "§3.3.3",
    system=OUTPUTS,
    baseline="each output alone, the control model of the source",
    note=COUPLED.format("e6"),
    cases=Case(_coupled("better than independent, less striking", 1.0), minutes=0.5, repeats=12),
    mean=True,
)
def figure_3_4(case: str, seed: int) -> dict[str, Found]:
    return coupled(outputs.e6(seed, "auto"))


@experiment(
    "003.figure-3.5",
    "Three series, two of which are heard later by the third: its next ten steps",
    "§3.5",
    system=OUTPUTS,
    baseline="the third series alone",
    note="`python -m benchmarks.outputs e7 --parameters best`.",
    cases=Case(
        (
            below("error six steps ahead", "far better than independent", 0.3),
            below("error ten steps ahead", "far better than independent", 0.7),
            between("largest error of a lag", "(ours) lags are found", 0.0, 0.05),
        ),
        minutes=0.7,
        repeats=8,
    ),
    each=outputs.e7,
    over=lambda case, how: [(seed, "best") for seed in how.numbers],
)
def figure_3_5(case: str, rows: Rows) -> dict[str, Found]:
    return {
        "error six steps ahead": mean_of(rows.column("step 6"), rows.column("alone 6")),
        "error ten steps ahead": mean_of(rows.column("step 10"), rows.column("alone 10")),
        "largest error of a lag": Found(max(rows.column("lag error"))),
    }


def finite_filters(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Two finite filters of one noise, as `outputs.e8` has them, learned from 100 steps; and their true responses."""
    import structgp as sg

    k = np.arange(25)
    true = np.stack([np.exp(-0.5 * ((k - 3) / 2.5) ** 2), -np.exp(-0.5 * ((k - 18) / 1.5) ** 2)])
    noise = np.random.default_rng(seed).standard_normal(124)
    y = np.stack([np.convolve(noise, h)[24:124] for h in true])
    X = np.stack([np.tile(np.arange(100.0), 2), np.repeat([0.0, 1.0], 100)], axis=1)
    start = 0.5 * np.stack([np.exp(-k / 4.0), -np.exp(-(((k - 16) / 4.0) ** 2))])
    start = start + 0.1 * np.random.default_rng(seed + 1).standard_normal((2, 25))
    fitted = sg.GP(sg.FIR(start), sg.Gaussian(sg.fixed(1e-3))).fit(X, y.ravel(), parameters="best", restarts=0)
    return fitted, np.asarray(fitted.kernel.weights), true


@experiment(
    "003.figure-3.6",
    "Two finite filters of one noise: their responses are found up to a sign",
    "§3.7.1",
    system=FILTERS,
    note="25 weights each, 100 steps; shapes, which are only drawn, are ours.",
    cases=Case(
        (between("least correlation of a found with its true response", "very similar except for −1", 0.9, 1.0),), minutes=0.2
    ),
)
def figure_3_6(case: str, how: How) -> dict[str, Found]:
    _, found, true = finite_filters(how.first)
    alike = [abs(float(np.corrcoef(a, b)[0, 1])) for a, b in zip(found.reshape(2, -1), true, strict=True)]
    return {"least correlation of a found with its true response": Found(min(alike))}


@experiment(
    "003.figure-3.7",
    "Forecasts of the second series, which hears the noise 16 steps late",
    "§3.7.1",
    system=FILTERS,
    baseline="the second series alone",
    note="`python -m benchmarks.outputs e8`; the spread of the forecast, in units of the series.",
    cases=Case(
        (
            below("spread fourteen steps ahead", "low for sixteen steps, alone for six", 0.7),
            above("spread twenty steps ahead over that at fourteen", "then it grows", 1.3),
        ),
        minutes=0.5,
        repeats=5,
    ),
    mean=True,
)
def figure_3_7(case: str, seed: int) -> dict[str, Found]:
    row = outputs.e8(seed, "best")
    return {
        "spread fourteen steps ahead": Found(row["sd 14"], row["alone 14"]),
        "spread twenty steps ahead over that at fourteen": Found(row["sd 20"] / row["sd 14"], 1.0),
    }


@experiment(
    "003.figure-3.8",
    "Covariances of the two series: found, and those of the true filters",
    "§3.7.1",
    system=FILTERS,
    cases=Case(
        (between("correlation of the found with the true covariances", "match for lags up to 24", 0.9, 1.0),), minutes=0.2
    ),
)
def figure_3_8(case: str, how: How) -> dict[str, Found]:
    _, found, true = finite_filters(how.first)
    all_of = lambda h: np.concatenate([np.correlate(h[i], h[j], "full") for i, j in ((0, 0), (0, 1), (1, 1))])
    return {
        "correlation of the found with the true covariances": Found(
            float(np.corrcoef(all_of(found.reshape(2, -1)), all_of(true))[0, 1])
        )
    }


@experiment(
    "003.figure-3.9",
    "Two fields of one noise, one a translated copy of the other",
    "§3.8",
    system=FILTERS,
    note="Gaussian filters in the plane, translated by (0.5, 0.25), 200 draws; the source only draws them.",
    cases=Case(
        (between("correlation of one at x with the other at x + shift", "differ by a translation", 0.95, 1.0),), minutes=0.3
    ),
)
def figure_3_9(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    shift, rng = np.array([0.5, 0.25]), np.random.default_rng(how.first)
    places = rng.uniform(-1, 1, (20, 2))
    X = np.concatenate([np.column_stack([places, np.zeros(20)]), np.column_stack([places + shift, np.ones(20)])])
    kernel = sg.Lagged(sg.GaussianFilters(2, 1, own=False), shift[None])
    f = sg.GP(kernel).sample(X, n=200, seed=how.first)
    both = f.reshape(200, 2, 20)
    return {
        "correlation of one at x with the other at x + shift": Found(
            abs(float(np.corrcoef(both[:, 0].ravel(), both[:, 1].ravel())[0, 1]))
        )
    }


@experiment(
    "003.figure-4.1",
    "Systems identified from inputs and outputs",
    "§4.1",
    system=SYSTEMS,
    baseline="least squares with its length by AICc (the classical way of the source, §4.1.1)",
    note="`python -m benchmarks.outputs bank`: the source has a diagram and no data; random systems of order 2 to 12 stand in.",
    cases=Case((above("fit W of the impulse response, low-pass input, SNR 1", "(ours)"),), minutes=0.2, repeats=10),
    mean=True,
)
def figure_4_1(case: str, seed: int) -> dict[str, Found]:
    import structgp as sg

    g, u, y = outputs.record(seed, "low-pass, SNR 1")
    fit = lambda **options: outputs.closeness(g, sg.identify(u, y, lags=len(g), **options).weights[0])
    return {"fit W of the impulse response, low-pass input, SNR 1": Found(fit(), fit(method="ls", length="aicc"))}


@experiment(
    "003.figure-5.1",
    "A process that is smooth on the left and rapid on the right, of 24 basis functions",
    "§5.5",
    system=REDUCED,
    baseline="one lengthscale for all places",
    note=(
        "A warped input, whose lengthscale changes as r(x) does; data of our own. The claim about far places is of `augmented`."
    ),
    cases=Case(
        (
            below("error of the function, lengthscale that changes", "smooth for x < 0, rapid for x > 0"),
            near("variance far away over the prior's, SoR augmented", 1.0, 0.05, "constant far away"),
        ),
        minutes=0.3,
        repeats=5,
    ),
)
def figure_5_1(case: str, how: How) -> dict[str, Found]:
    import jax.numpy as jnp

    import structgp as sg

    warped, plain = [], []
    at = np.linspace(-1, 1, 201)
    stretch = lambda x: x + 4.5 * jnp.logaddexp(0.0, 12.0 * x) / 12.0
    for seed in how.numbers:
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(-1, 1, 40))
        places = np.concatenate([x, at])[:, None]
        f = sg.GP(sg.Warp(sg.SquaredExponential(0.75), stretch)).sample(places, seed=seed)[0]
        y = f[:40] + 0.1 * rng.standard_normal(40)
        for own, kernel in ((warped, sg.Warp(sg.SquaredExponential(), stretch)), (plain, sg.SquaredExponential())):
            fitted = sg.GP(kernel, sg.Gaussian(0.1)).fit(x, y, parameters="best")
            own.append(rmse(fitted.predict(at).mean, f[40:]))
    gp = sg.GP(sg.SquaredExponential(0.3), sg.Gaussian(0.01))
    few = gp.condition(x, y, approximate=sg.Inducing(x[::2, None], "sor"))
    far = float(np.ravel(sg.augmented(few, np.array([[9.0]])).variance)[0])
    return {
        "error of the function, lengthscale that changes": mean_of(warped, plain),
        "variance far away over the prior's, SoR augmented": Found(far),
    }


@experiment(
    "003.figure-6.1",
    "Two outputs through eight basis functions each",
    "§6.1",
    system=REDUCED,
    baseline="output 1 alone",
    note="Ten values each, output 1 only where x > 0; exact, and with 16 inducing inputs.",
    cases=Case(
        (
            below("sd of output 1 where only output 2 is seen", "low uncertainty", 0.5),
            near("error with 16 inducing inputs over the exact one's", 1.0, 0.3),
        ),
        minutes=0.6,
    ),
)
def figure_6_1(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    rng = np.random.default_rng(how.first)
    f = outputs.smooth(rng, 1.0, 4.0)
    x1, x2, at = rng.uniform(0, 1, 10), np.linspace(-1, 1, 10), np.linspace(-0.9, -0.1, 17)
    y1, y2 = f(x1) + 0.025 * rng.standard_normal(10), 0.8 * f(x2) + 0.025 * rng.standard_normal(10)
    kernel, noise = sg.GaussianFilters(2, 1, own=False, lengthscale=np.full((2, 1), 0.4)), sg.Gaussian([1e-3, 1e-3])
    X = np.concatenate([np.column_stack([x1, np.zeros(10)]), np.column_stack([x2, np.ones(10)])])
    y, new = np.concatenate([y1, y2]), np.column_stack([at, np.zeros(17)])
    gp = sg.GP(kernel, noise)
    exact = gp.fit(X, y, parameters="best")
    few = exact.gp.condition(X, y, approximate=sg.Inducing(X[:16]))
    alone = sg.GP(sg.SquaredExponential(0.4), sg.Gaussian(1e-3)).fit(x1, y1, parameters="best").predict(at)
    p, q = exact.predict(new), few.predict(new)
    return {
        "sd of output 1 where only output 2 is seen": Found(float(p.sd.mean()), float(alone.sd.mean())),
        "error with 16 inducing inputs over the exact one's": Found(rmse(q.mean, f(at)) / rmse(p.mean, f(at))),
    }


@experiment(
    "003.figure-7.1",
    "Draws in the plane, aligned with the axes and turned",
    "§7.1",
    system=METRICS,
    baseline="the same directions of an aligned kernel",
    note="Mean squared steps along the two diagonals of 50 draws, lengthscales 0.3 and 1 turned by 45°.",
    cases=Case(
        (above("steps along one diagonal over those along the other, turned", "features are turned", 2.0),), minutes=0.2
    ),
)
def figure_7_1(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    rng = np.random.default_rng(how.first)
    base, step = rng.uniform(-2, 2, (30, 2)), 0.1 * np.array([[1.0, 1.0], [1.0, -1.0]])
    places = np.concatenate([base, base + step[0], base + step[1]])

    def ratio(kernel: Any) -> float:
        f = sg.GP(kernel).sample(places, n=50, seed=how.first).reshape(50, 3, 30)
        one, other = (float(np.mean((f[:, k] - f[:, 0]) ** 2)) for k in (1, 2))
        return max(one / other, other / one)

    scales = np.array([0.3, 1.0])
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    found = ratio(sg.Rotated(sg.SquaredExponential(scales), turn)), ratio(sg.SquaredExponential(scales))
    return {"steps along one diagonal over those along the other, turned": Found(*found)}


@experiment(
    "003.figure-7.2",
    "Which directions a Gaussian prior of Cholesky factors prefers",
    "§7.2",
    system=METRICS,
    baseline="uniform directions",
    note=(
        "200,000 draws where the source has 5·10⁶; largest over least density of the angle in 12 bins. The Haar prior "
        "of ours is even."
    ),
    cases={
        name: Case((above("largest over least density of the angle", "not uniform", 1.2),), minutes=0.05) for name in ("a", "b")
    },
)
def figure_7_2(case: str, how: How) -> dict[str, Found]:
    rng = np.random.default_rng(how.first)
    diagonal, off = (0.5, 0.5) if case == "a" else (0.25, 0.75)
    u = np.exp(diagonal * rng.standard_normal((200_000, 2)))
    c = off * rng.standard_normal(200_000)
    S = np.stack([np.stack([u[:, 0] ** 2, u[:, 0] * c], -1), np.stack([u[:, 0] * c, c**2 + u[:, 1] ** 2], -1)], -2)
    spread = lambda angles: (lambda n: float(n.max() / n.min()))(np.histogram(angles % np.pi, 12, (0, np.pi))[0])
    leading = np.linalg.eigh(S)[1][:, :, 1]
    return {
        "largest over least density of the angle": Found(
            spread(np.arctan2(leading[:, 1], leading[:, 0])), spread(rng.uniform(0, np.pi, 200_000))
        )
    }
