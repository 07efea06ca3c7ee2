"""Several outputs and systems: accuracy beside independent models, coverage, identification, speed.

    python -m benchmarks.outputs jura                        # cadmium at 100 places from nickel and zinc; beside GPyTorch
    python -m benchmarks.outputs e4 e5 e6 e7 e8 --draws 12 --jobs 8
    python -m benchmarks.outputs unrelated --draws 8         # series that share nothing: what a coupled model loses
    python -m benchmarks.outputs bank --draws 50 --jobs 8    # 50 random systems, seven settings, least squares, TC, DC, default
    python -m benchmarks.outputs bands --draws 50 --jobs 8   # the same by the default alone
    python -m benchmarks.outputs peer --draws 12             # the same systems by the package impulseest, if it is installed
    python -m benchmarks.outputs speed                       # gradients in units of one Matérn-3/2; --rows 1000000
    python -m benchmarks.outputs sensors portfolios          # 15 columns, days missing: together, alone, by a line
    python -m benchmarks.outputs learning --rows 1000000     # learning time and peak memory of four filtered outputs with gaps
    python -m benchmarks.outputs all --jobs 16

E4 to E8 are the experiments of the third seed with functions of our own, drawn anew for each seed. Errors are of the mean in
the gap (or of forecasts), coverage is that of 95 % bands of f, with averaged parameters unless --parameters says otherwise.
"""

import argparse
import concurrent.futures
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import Unavailable


def smooth(rng: np.random.Generator, low: float = 2.0, high: float = 9.0) -> Callable[[Any], np.ndarray]:
    """A smooth function of a number, of standard deviation about one half."""
    c, w, p = rng.standard_normal(6), rng.uniform(low, high, 6), rng.uniform(0, 2 * np.pi, 6)
    return lambda x: 0.3 * np.sum(c * np.sin(w * np.asarray(x)[..., None] + p), axis=-1)


def scores(p: Any, truth: np.ndarray) -> tuple[float, float]:
    """The error of the mean, and how much of the truth the 95 % band of f holds."""
    return float(np.sqrt(np.mean((p.mean - truth) ** 2))), float(np.mean(np.abs(p.mean - truth) <= 1.96 * p.sd))


def _both(
    places: dict[str, Any], y: dict[str, Any], kernel: Any, xs: Any, truth: np.ndarray, parameters: str
) -> dict[str, Any]:
    import structgp as sg

    fitted = sg.GP(kernel, sg.Gaussian([0.01, 0.01])).fit(sg.Outputs(places), y, parameters=parameters)
    base = sg.SquaredExponential()
    alone = sg.GP(base, sg.Gaussian(0.01)).fit(places["b"], y["b"], parameters=parameters)
    error, covered = scores(fitted.predict(xs, output="b"), truth)
    control, covered_alone = scores(alone.predict(xs), truth)
    return {"rmse": error, "cover": covered, "alone": control, "cover alone": covered_alone}


def e4(seed: int, parameters: str) -> dict[str, Any]:
    """A translated output with a gap."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    f, lag = smooth(rng), 0.25
    x1, x2 = rng.uniform(-1, 1, 32), rng.uniform(-1, 1, 400)
    x2 = x2[(x2 < -0.15) | (x2 > 0.65)][:16]
    y = {"a": f(x1) + 0.025 * rng.standard_normal(32), "b": f(x2 - lag) + 0.025 * rng.standard_normal(16)}
    xs = np.linspace(-0.15, 0.65, 41)
    return _both({"a": x1, "b": x2}, y, sg.Lagged(sg.GaussianFilters(2), [0.0]), xs, f(xs - lag), parameters)


def e5(seed: int, parameters: str) -> dict[str, Any]:
    """Two outputs in the plane, one of them not seen in a quarter."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    directions = [rng.standard_normal(2) for _ in range(4)]
    parts = [smooth(rng, 1.0, 4.0) for _ in directions]
    f = lambda X: sum(part(X @ d) for part, d in zip(parts, directions, strict=True))
    lattice = lambda n: np.stack(np.meshgrid(*[np.linspace(-0.9, 0.9, n)] * 2), axis=-1).reshape(-1, 2)
    x1, x2 = lattice(9), lattice(6)
    x2 = x2[~((x2[:, 0] > 0) & (x2[:, 1] > 0))]
    y = {"a": f(x1) + 0.025 * rng.standard_normal(len(x1)), "b": f(x2) + 0.025 * rng.standard_normal(len(x2))}
    xs = np.stack(np.meshgrid(*[np.linspace(0.1, 0.9, 6)] * 2), axis=-1).reshape(-1, 2)
    return _both({"a": x1, "b": x2}, y, sg.GaussianFilters(2), xs, f(xs), parameters)


def e6(seed: int, parameters: str) -> dict[str, Any]:
    """An output that is coupled in part, not seen in one half."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    f, g = smooth(rng), smooth(rng)
    x1, x2 = rng.uniform(-1, 1, 32), rng.uniform(-1, 0, 16)
    h = lambda x: 0.8 * f(x) + 0.35 * g(x)
    y = {"a": f(x1) + 0.025 * rng.standard_normal(32), "b": h(x2) + 0.025 * rng.standard_normal(16)}
    xs = np.linspace(0.05, 1, 41)
    return _both({"a": x1, "b": x2}, y, sg.GaussianFilters(2), xs, h(xs), parameters)


def e7(seed: int, parameters: str) -> dict[str, Any]:
    """Three series with lags: forecasts of the third, which hears the others late."""
    import structgp as sg

    t = 7.8 / 99 * np.arange(110)  # the seed's model has one width for all filters, and two series that share nothing
    X = np.stack([np.tile(t, 3), np.repeat(np.arange(3.0), 110)], axis=1)
    # series 3 hears the others later: with its own lag taken as the origin, they come earlier
    kernel = sg.Lagged(
        sg.GaussianFilters(loadings=[[0.9, 0.0], [0.0, 0.9], [0.5, -0.6]], lengthscale=np.full((3, 2), 0.3), own=False),
        [-0.1, 0.5],
    )
    truth = sg.GP(kernel, sg.Gaussian(0.025**2))
    f = truth.sample(X, 1, seed=seed)[0]
    y = f + 0.025 * np.random.default_rng(seed).standard_normal(len(f))
    seen = (np.arange(330) % 110) < 100
    ahead = ~seen & (X[:, 1] == 2)
    start = sg.Lagged(sg.GaussianFilters(3, 2, own=False), [0.0, 0.0])
    fitted = sg.GP(start, sg.Gaussian([0.01] * 3)).fit(X[seen], y[seen], parameters=parameters)
    alone = sg.GP(sg.SquaredExponential(), sg.Gaussian(0.01)).fit(t[:100], y[220:320], parameters=parameters)
    missed = np.abs(fitted.predict(X[ahead]).mean - f[ahead])
    control = np.abs(alone.predict(t[100:]).mean - f[ahead])
    found = {f"step {k}": float(missed[k - 1]) for k in (1, 2, 4, 6, 8, 10)}
    found |= {f"alone {k}": float(control[k - 1]) for k in (1, 6, 10)}
    return found | {"lag error": float(np.max(np.abs(np.asarray(fitted.kernel.lag)[1:] - [-0.1, 0.5])))}


def e8(seed: int, parameters: str) -> dict[str, Any]:
    """Two finite filters of one noise, the second 16 steps late: the spread of its forecasts."""
    import structgp as sg

    k = np.arange(25)
    h1, h2 = np.exp(-0.5 * ((k - 3) / 2.5) ** 2), -np.exp(-0.5 * ((k - 18) / 1.5) ** 2)
    noise = np.random.default_rng(seed).standard_normal(149)
    y = np.stack([np.convolve(noise, h)[24:149] for h in (h1, h2)])  # 125 steps
    X = np.stack([np.tile(np.arange(125.0), 2), np.repeat([0.0, 1.0], 125)], axis=1)
    seen = X[:, 0] < 100
    rng = np.random.default_rng(seed + 1)
    W = 0.1 * rng.standard_normal((2, 25)) + 0.5 * np.stack([np.exp(-k / 4.0), -np.exp(-(((k - 16) / 4.0) ** 2))])
    gp = sg.GP(sg.FIR(W), sg.Gaussian(sg.fixed(1e-3)))
    fitted = gp.fit(X[seen], y.ravel()[seen], parameters="best", restarts=0)
    sd = fitted.predict(X[~seen & (X[:, 1] == 1)]).sd
    alone = sg.GP(sg.FIR(W[1:]), sg.Gaussian(sg.fixed(1e-3))).fit(
        X[:100] * [1.0, 0.0], y[1, :100], parameters="best", restarts=0
    )
    control = alone.predict(np.stack([np.arange(100.0, 125.0), np.zeros(25)], axis=1)).sd
    return {f"sd {j}": float(sd[j - 1]) for j in (1, 5, 10, 14, 16, 20)} | {
        f"alone {j}": float(control[j - 1]) for j in (1, 5, 14)
    }


def unrelated(seed: int, parameters: str) -> dict[str, Any]:
    """Three series that share nothing: −log p of rows left out, together and apart, and whether sharing is spoken of."""
    import structgp as sg

    rng = np.random.default_rng(seed)
    x, at = rng.uniform(-1, 1, 40), rng.uniform(-1, 1, 60)
    functions = [smooth(rng) for _ in range(3)]
    seen = lambda places: np.stack([f(places) for f in functions], axis=1) + 0.05 * rng.standard_normal((len(places), 3))
    Y, new = seen(x), seen(at)
    model = sg.fit_outputs(x, Y, logs=False, compare=True, parameters=parameters, restarts=0)
    together = -np.mean(model.log_prob(at, new))
    single = [sg.GP(sg.Matern32(), sg.Gaussian(0.01), sg.ConstantMean()).fit(x, y, parameters=parameters) for y in Y.T]
    apart = -np.mean([one.predict(at).log_prob(y) for one, y in zip(single, new.T, strict=True)])
    spoken = float("sharing pays" in " ".join(model.words()))
    return {"nlp together": together, "nlp apart": apart, "together − apart": together - apart, "said to share": spoken}


# rows, signal to noise, and what white noise goes through: one pole, or a Butterworth filter by its order and cutoff
SETTINGS: dict[str, tuple[int, float, float | tuple[int, float]]] = {
    "white, SNR 10": (250, 10.0, 0.0),
    "low-pass, SNR 10": (250, 10.0, 0.6),
    "low-pass, SNR 1": (500, 1.0, 0.6),
    "butter 1, SNR 10": (250, 10.0, (1, 0.4)),
    "butter 1, SNR 1": (500, 1.0, (1, 0.4)),
    "butter 2, SNR 10": (250, 10.0, (2, 0.4)),
    "butter 2, SNR 1": (500, 1.0, (2, 0.4)),
}
WAYS: dict[str, dict[str, Any]] = {
    "ls": {"method": "ls"},
    "ls bic": {"method": "ls", "length": "bic"},
    "ls aicc": {"method": "ls", "length": "aicc"},
    "tc": {"method": "tc"},
    "dc": {"method": "dc"},
    "default": {},
    "poles": {"method": "poles"},
}


def system(rng: np.random.Generator) -> np.ndarray:
    """The impulse response of a random system of order 2 to 12 with poles up to 0.95, of unit energy."""
    from scipy.signal import lfilter

    order, poles = int(rng.integers(2, 13)), []
    while len(poles) < order:
        if order - len(poles) >= 2 and rng.random() < 0.6:
            pole = rng.uniform(0.3, 0.95) * np.exp(1j * rng.uniform(0, np.pi))
            poles += [pole, np.conj(pole)]
        else:
            poles.append(rng.uniform(-0.95, 0.95))
    h = lfilter(np.append(0.0, rng.standard_normal(order)), np.poly(poles).real, np.eye(1, 400)[0])
    return h / np.linalg.norm(h)


class Record(NamedTuple):
    """A system of the bank in one setting: its response, the input from so long before the output on, and the output."""

    response: np.ndarray
    u: np.ndarray
    y: np.ndarray


def record(seed: int, setting: str, n: int = 100) -> Record:
    """The records of a random system."""
    from scipy.signal import butter, lfilter

    N, snr, low = SETTINGS[setting]
    rng = np.random.default_rng(10_000 + seed)
    h = system(rng)
    u = lfilter(*(butter(*low) if isinstance(low, tuple) else ([1 - low], [1, -low])), rng.standard_normal(N + n + 500))[100:]
    u = u / u.std()
    f = lfilter(h, [1.0], u)
    u, f = u[-(N + n - 1) :], f[-N:]
    return Record(h[:n], u, f + f.std() / np.sqrt(snr) * rng.standard_normal(N))


def closeness(response: np.ndarray, found: np.ndarray) -> float:
    """W: 100 for the response itself, 0 for its mean."""
    return float(100 * (1 - np.linalg.norm(response - found) / np.linalg.norm(response - response.mean())))


def bands(seed: int, parameters: str) -> dict[str, Any]:
    """The same of the default alone."""
    return bank(seed, parameters, ("default",))


def bank(seed: int, parameters: str, ways: Sequence[str] = tuple(WAYS)) -> dict[str, Any]:
    """One random system by all ways in all settings: the fit W of its response, and the cover of its band."""
    import structgp as sg

    found: dict[str, Any] = {}
    for setting in SETTINGS:
        g, u, y = record(seed, setting)
        big = np.argsort(-(g**2))
        big = big[: int(np.searchsorted(np.cumsum(g[big] ** 2), 0.99 * np.sum(g**2))) + 1]
        for way, options in ((way, WAYS[way]) for way in ways):
            began = time.process_time()
            r: Any = sg.identify(u, y, lags=len(g), **options)
            took = time.process_time() - began
            inside = np.mean((np.abs(g - r.weights[0]) <= 1.96 * r.impulse.sd)[big])
            found |= {f"{setting} | {way} | W": closeness(g, r.weights[0]), f"{setting} | {way} | cover": float(inside)}
            found[f"{setting} | {way} | s"] = took
    return found


def peer(seed: int, parameters: str) -> dict[str, Any]:
    """The same systems by the package impulseest, which has no bands and sees no input before the first output."""
    import structgp as sg

    try:
        from impulseest import impulseest
    except ImportError:
        raise Unavailable("impulseest is not installed: pip install impulseest") from None
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        g, u, y = record(seed, setting)
        u = u[len(u) - len(y) :]
        for way in ("TC", "DC"):
            began = time.process_time()
            weights = np.ravel(impulseest(u, y, n=len(g), RegularizationKernel=way))
            found[f"{setting} | impulseest {way} | W"] = closeness(g, weights)
            found[f"{setting} | impulseest {way} | s"] = time.process_time() - began
        r: Any = sg.identify(u, y, lags=len(g))
        found[f"{setting} | default | W"] = closeness(g, r.weights[0])
    return found


def jura(seed: int, parameters: str) -> dict[str, Any]:
    """The mean absolute error of cadmium, with logs where they are found to help and without; and alone."""
    import os

    import polars as pl

    import structgp as sg

    folder = Path(os.environ.get("STRUCTGP_DATA", Path(__file__).parents[2] / "shared" / "data")) / "jura"
    if not folder.exists():
        raise Unavailable(f"no data at {folder}: set STRUCTGP_DATA")
    parts = [pl.read_csv(folder / f"{name}.csv.gz") for name in ("train", "test")]
    X = np.concatenate([part.select("Xloc", "Yloc").to_numpy() for part in parts])
    Y = np.concatenate([part.select("Cd", "Ni", "Zn").to_numpy() for part in parts]).astype(float)
    test, truth = slice(259, None), Y[259:, 0].copy()
    Y[test, 0] = np.nan
    found: dict[str, Any] = {}
    for name, logs in (("logs", "auto"), ("raw", False)):
        model = sg.MultiOutputGP(logs=logs, parameters=parameters, restarts=0, random_state=seed).fit(X, Y)
        lower, upper = model.interval(X[test])
        found[f"{name} MAE"] = float(np.mean(np.abs(model.predict(X[test])[:, 0] - truth)))
        found[f"{name} cover"] = float(np.mean((lower[:, 0] <= truth) & (truth <= upper[:, 0])))
        found[f"{name} log Z"] = float(model.fitted_.log_evidence)
        z = np.log(Y[:259, 0]) if name == "logs" else Y[:259, 0]
        alone = sg.GP(sg.Matern12(), sg.Gaussian(0.1), mean=0.0).fit(X[:259], z, parameters=parameters)
        back = np.exp if name == "logs" else (lambda v: v)
        found[f"{name} alone MAE"] = float(np.mean(np.abs(back(alone.predict(X[test]).mean) - truth)))
    return found | _gpytorch(X, Y, truth)


def _gpytorch(X: np.ndarray, Y: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """GPyTorch's model of several tasks on the same rows (Hadamard), rank 3, on logs; nothing where it is not installed."""
    try:
        import gpytorch
        import torch
    except ImportError:
        return {}
    torch.manual_seed(0)
    Z = np.log(Y)
    level, unit = np.nanmean(Z, axis=0), np.nanstd(Z, axis=0)
    rows, tasks = np.nonzero(np.isfinite(Z))
    as_tensor = lambda v: torch.as_tensor(v, dtype=torch.float64)
    x, i, y = as_tensor(X[rows]), torch.as_tensor(tasks), as_tensor(((Z - level) / unit)[rows, tasks])

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__((x, i), y, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.MaternKernel(nu=0.5)
            self.task_covar_module = gpytorch.kernels.IndexKernel(num_tasks=3, rank=3)

        def forward(self, x: Any, i: Any) -> Any:
            covariance = self.covar_module(x).mul(self.task_covar_module(i))
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), covariance)

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Model(likelihood).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(300):
        optimiser.zero_grad()
        loss = -mll(model(x, i), y)
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        mean = model(as_tensor(X[259:]), torch.zeros(100, dtype=torch.long)).mean.numpy()
    return {"GPyTorch multitask, logs MAE": float(np.mean(np.abs(np.exp(level[0] + unit[0] * mean) - truth)))}


def speed(rows: int) -> dict[str, Any]:
    """CPU seconds of evidence and gradient for each value, beside those of one Matérn-3/2 series of as many."""
    import jax

    import structgp as sg
    from structgp.engines.kalman import Kalman
    from structgp.inputs.layouts import as_inputs, as_times_of_outputs
    from structgp.inputs.observations import read_observations
    from structgp.learn.evidence import evidence_objective
    from structgp.parameters.tree import free_vector

    rng = np.random.default_rng(0)

    def seconds(gp: Any, inputs: Any, y: np.ndarray) -> float:
        data = read_observations(gp.likelihood, y, None, "error", inputs)
        objective, theta, best = (
            evidence_objective(gp, inputs, data, Kalman().tuned(gp, inputs, data), 0.0),
            free_vector(gp),
            1e9,
        )
        objective(theta)
        for _ in range(3):
            began = time.process_time()
            objective(theta + 1e-6 * rng.standard_normal(len(theta)))
            best = min(best, time.process_time() - began)
        return best

    found: dict[str, Any] = {}
    with jax.enable_x64(True):
        t = np.cumsum(rng.uniform(0.5, 1.5, rows))
        y = np.sin(t / 9) + 0.3 * rng.standard_normal(rows)
        one = seconds(sg.GP(sg.Matern32(3.0), sg.Gaussian(0.1)), as_inputs(t), y)
        found["single, ns a value"] = 1e9 * one / rows
        cases = {"P=2 D=8": (sg.MaternFilters(2, 1), 2), "P=4 D=8": (sg.MaternFilters(4, 1, False), 4)}
        for name, (kernel, P) in cases.items():
            S = rows // P
            wide = np.stack([np.repeat(np.cumsum(rng.uniform(0.5, 1.5, S)), P), np.tile(np.arange(P), S)], axis=1)
            long = np.stack([t[: S * P], rng.integers(0, P, S * P)], axis=1)
            for how, X in (("wide", wide), ("long", long)):
                took = seconds(sg.GP(kernel, sg.Gaussian([0.1] * P)), as_times_of_outputs(X), np.sin(X[:, 0] / 9 + X[:, 1]))
                found[f"{name} {how}, gradients of one series"] = took / len(X) / (one / rows)
                found[f"{name} {how}, s"] = took
    found["peak memory, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return found


def sensors(seed: int, parameters: str) -> dict[str, Any]:
    """15 sensors every 20 minutes for 10 days, a day missing in one: filled by the command line, alone, and by a line."""
    import polars as pl

    import structgp as sg
    from structgp.tables.reading import read_table
    from structgp.tables.several import fill_columns

    rng = np.random.default_rng(seed)
    t = np.arange(0, 10, 1 / 72)
    field = sg.GP(sg.Matern32(0.15) + sg.Matern32(1.0)).sample(t, 3, seed=seed)
    own = sg.GP(sg.Matern32(0.3, 0.05)).sample(t, 15, seed=seed + 1)
    W = rng.standard_normal((15, 3)) / np.sqrt(3)
    F = 15 + 5 * ((W @ field) + own).T
    Y = F + 0.5 * rng.standard_normal(F.shape)
    gap = (t >= 4) & (t < 5)
    seen = Y.copy()
    seen[gap, 7] = np.nan
    names = [f"s{i}" for i in range(15)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sensors.csv"
        pl.DataFrame({"t": t} | {name: seen[:, i] for i, name in enumerate(names)}).fill_nan(None).write_csv(path)
        began = time.process_time()
        filled = fill_columns(read_table(path), names, "t", parameters="best", compare=False, restarts=0)
        took = time.process_time() - began
    truth = Y[gap, 7]
    log_p = filled.model.log_prob(t, Y)[gap, 7]
    alone = sg.GP(sg.Matern32() + sg.Matern32(0.1), sg.Gaussian(0.1), mean=0.0).fit(t[~gap], Y[~gap, 7], parameters="best")
    p, line = alone.predict(t[gap]), np.interp(t[gap], t[~gap], Y[~gap, 7])
    rmse = lambda v: float(np.sqrt(np.mean((v - truth) ** 2)))
    found = {"together rmse": rmse(filled.median[gap, 7]), "alone rmse": rmse(p.mean), "line rmse": rmse(line)}
    found |= {"together -log p": -float(log_p.mean()), "alone -log p": -float(p.log_prob(truth).mean()), "CPU s": took}
    return found | {"cover": float(np.mean((filled.lower[gap, 7] <= truth) & (truth <= filled.upper[gap, 7])))}


def portfolios(seed: int, parameters: str) -> dict[str, Any]:
    """Daily returns of 15 portfolios over two years, a month missing in three: together, alone, by a line, by the others."""
    import os

    import polars as pl

    import structgp as sg

    folder = Path(os.environ.get("STRUCTGP_DATA", Path(__file__).parents[2] / "shared" / "data")) / "portfolios30_daily"
    if not folder.exists():
        raise Unavailable(f"no data at {folder}: set STRUCTGP_DATA")
    Y = pl.read_csv(folder / "data.csv.gz").to_numpy()[-500:, 1:16].astype(float)
    t, seen = np.arange(500.0), Y.copy()
    gaps = {2: slice(100, 121), 7: slice(220, 241), 12: slice(390, 411)}
    for column, rows in gaps.items():
        seen[rows, column] = np.nan
    began = time.process_time()
    model = sg.fit_outputs(t, seen, logs=False, parameters="best", restarts=0)
    took = time.process_time() - began
    median, _, lower, upper = model.predict(t)
    log_p = model.log_prob(t, Y)
    errors: dict[str, list[np.ndarray]] = {"together": [], "alone": [], "line": [], "others": []}
    inside, together, apart = [], [], []
    for column, rows in gaps.items():
        truth, known = Y[rows, column], np.isfinite(seen[:, column])
        errors["together"].append(median[rows, column] - truth)
        errors["line"].append(np.interp(t[rows], t[known], Y[known, column]) - truth)
        rest = np.column_stack([np.ones(500), np.delete(np.nan_to_num(seen), column, axis=1)])
        errors["others"].append(rest[rows] @ np.linalg.lstsq(rest[known], Y[known, column], rcond=None)[0] - truth)
        alone = sg.GP(sg.Matern32(), sg.Gaussian(1.0), mean=0.0).fit(t[known], Y[known, column], parameters="best")
        p = alone.predict(t[rows])
        errors["alone"].append(p.mean - truth)
        apart.append(p.log_prob(truth))
        together.append(log_p[rows, column])
        inside.append((lower[rows, column] <= truth) & (truth <= upper[rows, column]))
    found = {f"{way} rmse": float(np.sqrt(np.mean(np.concatenate(e) ** 2))) for way, e in errors.items()}
    found |= {f"{way} -log p": -float(np.mean(np.concatenate(e))) for way, e in (("together", together), ("alone", apart))}
    return found | {"cover": float(np.mean(np.concatenate(inside))), "CPU s": took}


def learning(rows: int) -> dict[str, Any]:
    """Four outputs, one white noise through filters of their own, a fifth missing: learned in this process, compiling too."""
    from scipy.signal import lfilter

    import structgp as sg

    rng, S = np.random.default_rng(0), rows // 4
    rates, noise = np.array([0.1, 0.15, 0.2, 0.3]), np.full(4, 0.1)
    w = rng.standard_normal(S + 1000)
    F = np.stack([lfilter([1.0], np.poly([np.exp(-rate)] * 2), w)[1000:] for rate in rates], axis=1)
    Y = F / F.std(axis=0) + np.sqrt(noise) * rng.standard_normal((S, 4))
    Y[rng.random((S, 4)) < 0.2] = np.nan
    gp = sg.GP(sg.MaternFilters(4, 1, False), sg.Gaussian([0.5] * 4), mean=sg.LevelOfOutput(sg.fixed([0.0] * 4)))
    began, wall = time.process_time(), time.perf_counter()
    fitted = gp.fit(np.arange(S, dtype=float), Y, missing="infer", parameters="best", restarts=0)
    took = {"CPU s": time.process_time() - began, "s": time.perf_counter() - wall}
    found = np.sqrt(3) / np.asarray(fitted.kernel.lengthscale)[:, 0]
    took |= {"evaluations": float(fitted.learning.evaluations), "values": float(np.isfinite(Y).sum())}
    took |= {"largest error of a rate": float(np.max(np.abs(found / rates - 1)))}
    return took | {"peak memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}


STUDIES: dict[str, Callable[[int, str], dict[str, Any]]] = {
    "jura": jura,
    "e4": e4,
    "e5": e5,
    "e6": e6,
    "e7": e7,
    "e8": e8,
    "unrelated": unrelated,
    "bank": bank,
    "bands": bands,
    "peer": peer,
    "sensors": sensors,
    "portfolios": portfolios,
}
BY_ROWS: dict[str, Callable[[int], dict[str, Any]]] = {"speed": speed, "learning": learning}
ONCE = ("jura", "sensors", "portfolios")


def _one(task: tuple[str, int, str]) -> dict[str, Any]:
    name, seed, parameters = task
    return STUDIES[name](seed, parameters)


def show(name: str, records: list[dict[str, Any]]) -> None:
    """The median, the mean and the mean of the worst tenth of every figure over the draws."""
    print(f"\n{name}: {len(records)} draw{'s' if len(records) > 1 else ''}")
    for key in records[0]:
        values = np.sort([record[key] for record in records])
        few = max(len(values) // 10, 1)
        worst = values[:few].mean() if key.endswith(("W", "cover")) else values[-few:].mean()
        spread = f"   mean {values.mean():10.4g}   worst tenth {worst:10.4g}" if len(values) > 1 else ""
        print(f"  {key:<44} {np.median(values):10.4g}{spread}", flush=True)


def main(words: Sequence[str]) -> int:
    """Run studies and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outputs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", nargs="+", choices=[*STUDIES, *BY_ROWS, "all"])
    parser.add_argument("--draws", type=int, default=None, help="how many draws of each (12; of the bank 50)")
    parser.add_argument(
        "--first", type=int, default=0, help="the seed of the first draw: others than those that were looked at"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000], help="of the studies of speed and of learning")
    parser.add_argument("--parameters", default="auto")
    options = parser.parse_args(words)
    names = [*STUDIES, *BY_ROWS] if "all" in options.studies else options.studies
    for name in names:
        if name in BY_ROWS:
            for rows in options.rows:
                show(f"{name}, {rows} values", [BY_ROWS[name](rows)])
            continue
        draws = 1 if name in ONCE else options.draws or (50 if name in ("bank", "bands") else 12)
        tasks = [(name, options.first + draw, options.parameters) for draw in range(draws)]
        if options.jobs == 1:
            show(name, [_one(task) for task in tasks])
            continue
        spawn = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(min(options.jobs, draws), spawn) as pool:
            show(name, list(pool.map(_one, tasks)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
