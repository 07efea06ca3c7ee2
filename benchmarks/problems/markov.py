"""Time series: the log evidence, alone or with its gradient in all parameters, of Markov kernels beside celerite2 and tinygp.

All methods see the same times, observations and parameters θ (for each Matérn term lengthscale and variance, then the noise
variance), float64. Values are compared with structgp's, which the test suite compares with a dense solution. celerite2's
Matérn-3/2 is itself an approximation, which shows in its row.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, problem

NOISE = 0.1
ORDERS = {1.5: "Matern32", 2.5: "Matern52"}


class Series(NamedTuple):
    """Times, observations, and the Matérn terms (order ν, lengthscale, variance) of the model."""

    t: np.ndarray
    y: np.ndarray
    terms: tuple[tuple[float, float, float], ...]


def series(terms: tuple[tuple[float, float, float], ...], regular: bool = False) -> Callable[[int], Series]:
    """A maker of a noisy wave, at exponential gaps or evenly spaced."""

    def make(N: int) -> Series:
        rng = np.random.default_rng(7)
        t = 0.1 * np.arange(N) if regular else np.cumsum(rng.exponential(0.1, N))
        return Series(t, np.sin(t) + np.sqrt(NOISE) * rng.standard_normal(N), terms)

    return make


def score(data: Series, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    """Nanoseconds for each point are warm time; here only how far the value lies from structgp's."""
    own = results.get("structgp")
    differ = lambda r: abs(r["evidence"] / own["evidence"] - 1) if own else float("nan")
    return {name: {"evidence": r["evidence"], "differs by": differ(r)} for name, r in results.items() if "evidence" in r}


def gp_of(data: Series):
    """The model in structgp's words."""
    import structgp as sg

    terms = [getattr(sg, ORDERS[nu])(lengthscale, variance) for nu, lengthscale, variance in data.terms]
    kernel = terms[0]
    for term in terms[1:]:
        kernel = kernel + term
    return sg.GP(kernel, sg.Gaussian(NOISE))


def structgp_objective(data: Series):
    """What `fit` calls: value and gradient as a function of θ."""
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import Data
    from structgp.learn.evidence import evidence_objective
    from structgp.parameters.tree import free_vector

    gp, N = gp_of(data), len(data.y)
    inputs = as_inputs(data.t)
    observed = Data(data.y[:, None], np.zeros(N), np.ones(N, dtype=bool))
    return evidence_objective(gp, inputs, observed, gp.plan(inputs, "markov").engine), free_vector(gp)


def structgp_both(data: Series) -> Run:
    objective, theta = structgp_objective(data)
    return Run(lambda: {"evidence": objective(theta)[0]})


def structgp_value(data: Series) -> Run:
    import functools

    import jax

    from structgp.learn.evidence import log_evidence

    objective, _ = structgp_objective(data)
    with jax.enable_x64(True):
        engine = objective.engine.tuned(objective.model, objective.inputs, objective.data)
        evaluate = jax.jit(functools.partial(log_evidence, engine=engine))
        on_device = jax.device_put((objective.inputs, objective.data))

    def call() -> Result:
        with jax.enable_x64(True):
            return {"evidence": float(evaluate(objective.model, *on_device))}

    return Run(call)


def celerite2_value(data: Series) -> Run:
    import celerite2

    _, lengthscale, variance = data.terms[0]
    gp = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=np.sqrt(variance), rho=lengthscale), mean=0.0)

    def call() -> Result:
        gp.compute(data.t, diag=np.full(len(data.t), NOISE), check_sorted=False)
        return {"evidence": float(gp.log_likelihood(data.y))}

    return Run(call)


def celerite2_both(data: Series) -> Run:
    import jax

    jax.config.update("jax_enable_x64", True)
    import celerite2.jax
    import jax.numpy as jnp
    from celerite2.jax import terms

    def log_evidence(theta, t, y):
        gp = celerite2.jax.GaussianProcess(terms.Matern32Term(sigma=jnp.sqrt(theta[1]), rho=theta[0]), mean=0.0)
        gp.compute(t, diag=jnp.full(len(t), theta[2]), check_sorted=False)
        return gp.log_likelihood(y)

    theta = jnp.asarray([*data.terms[0][1:], NOISE])
    return _jax_run(jax.jit(jax.value_and_grad(log_evidence)), theta, data)


def tinygp_evidence():
    """tinygp's log evidence of a sum of Matérn terms, as a function of (θ, t, y, orders)."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import tinygp
    from tinygp.kernels import quasisep

    def log_evidence(theta, t, y, orders):
        kinds = [getattr(quasisep, ORDERS[nu]) for nu in orders]
        terms = [kind(scale=theta[2 * i], sigma=jnp.sqrt(theta[2 * i + 1])) for i, kind in enumerate(kinds)]
        kernel = terms[0]
        for term in terms[1:]:
            kernel = kernel + term
        return tinygp.GaussianProcess(kernel, t, diag=jnp.full(len(t), theta[-1])).log_probability(y)

    return log_evidence


def tinygp_run(data: Series, gradient: bool) -> Run:
    log_evidence = tinygp_evidence()
    import jax
    import jax.numpy as jnp

    orders = tuple(nu for nu, _, _ in data.terms)
    theta = jnp.asarray([number for _, *numbers in data.terms for number in numbers] + [NOISE])
    function = jax.value_and_grad(log_evidence) if gradient else lambda *a: (log_evidence(*a),)
    return _jax_run(jax.jit(function, static_argnums=3), theta, data, orders)


def _jax_run(function, theta, data: Series, *static) -> Run:
    import jax
    import jax.numpy as jnp

    t, y = jnp.asarray(data.t), jnp.asarray(data.y)
    return Run(lambda: {"evidence": float(jax.block_until_ready(function(theta, t, y, *static))[0])})


def declare(
    name: str, about: str, make: Callable[[int], Series], gradient: bool, sizes: tuple[int, ...], celerite2: bool
) -> None:
    """One problem with its methods."""
    made = problem(
        name=name,
        about=f"time series, {about}: log evidence{' and its gradient' if gradient else ''}, float64",
        make=make,
        sizes=sizes,
        quick=(2000,),
        references=("structgp",),
        score=score,
        repeat=2,
    )
    made.method("structgp")(structgp_both if gradient else structgp_value)
    if celerite2:
        method = celerite2_both if gradient else celerite2_value
        made.method("celerite2.jax" if gradient else "celerite2", requires=("celerite2",))(method)
    made.method("tinygp", requires=("tinygp",))(lambda data: tinygp_run(data, gradient))


LONG = (10**4, 10**5, 10**6)
M32, M52 = ((1.5, 1.0, 1.0),), ((2.5, 1.0, 1.0),)
SUMS = {
    4: ((1.5, 1.0, 1.0), (1.5, 3.0, 1.0)),
    6: ((2.5, 1.0, 1.0), (2.5, 3.0, 1.0)),
    9: tuple((2.5, 3.0**i, 1.0) for i in range(3)),
    12: tuple((2.5, 3.0**i, 1.0) for i in range(4)),
    30: tuple((2.5, 2.0**i, 1.0) for i in range(10)),
}

declare("markov-32-value", "Matérn-3/2 at irregular times", series(M32), False, LONG, True)
declare("markov-32", "Matérn-3/2 at irregular times", series(M32), True, LONG, True)
declare("markov-52", "Matérn-5/2 at irregular times", series(M52), True, LONG, False)
declare("markov-regular", "Matérn-3/2 at evenly spaced times", series(M32, regular=True), True, LONG, True)
for states, terms in SUMS.items():
    size = (5000,) if states > 12 else (20000,)
    declare(f"markov-{states}", f"a sum of Matérns with {states} states", series(terms), True, size, False)

FIT = problem(
    name="markov-fit",
    about="time series, Matérn-5/2 at irregular times: three parameters learned from a data-driven start, float64",
    make=series(M52),
    sizes=(10**5, 10**6),
    quick=(2000,),
    score=lambda data, results: {name: dict(result) for name, result in results.items()},
    repeat=1,
    calls=1,
)


@FIT.method("structgp")
def structgp_fit(data: Series) -> Run:
    gp = gp_of(data)

    def call() -> Result:
        fitted = gp.fit(data.t, data.y, restarts=0, parameters="best")
        return {"evaluations": fitted.learning.evaluations, "evidence": fitted.log_evidence}

    return Run(call)


FIRST_STATES = {2: M32, 3: M52, **{states: terms for states, terms in SUMS.items() if states <= 12}}

FIRST = problem(
    name="markov-first-fit",
    about="2000 points in time: how much longer the first fit takes than the second, which is compilation; N counts the states",
    make=lambda states: series(FIRST_STATES[states])(2000),
    sizes=tuple(FIRST_STATES),
    quick=(2,),
    score=lambda data, results: {name: dict(result) for name, result in results.items()},
    repeat=1,
    calls=1,
)


@FIRST.method("structgp")
def structgp_first_fit(data: Series) -> Run:
    import scipy.optimize  # noqa: F401  # loading it is not compilation

    gp, seconds = gp_of(data), []

    def call() -> Result:
        began = time.perf_counter()
        gp.fit(data.t, data.y, restarts=0, parameters="best")
        seconds.append(time.perf_counter() - began)
        return {"first": seconds[0], "second": seconds[-1], "compilation": seconds[0] - seconds[-1]}

    return Run(call)


SMOOTH = problem(
    name="markov-smooth",
    about="time series, Matérn-3/2 at irregular times: evidence and every smoothed state, and predictions from them, float64",
    make=series(M32),
    sizes=(10**5, 10**6, 10**7),
    quick=(2000,),
    score=lambda data, results: {name: dict(result) for name, result in results.items()},
    repeat=1,
    calls=1,
)


@SMOOTH.method("structgp")
def structgp_smooth(data: Series) -> Run:
    gp, between = gp_of(data), 0.5 * (data.t[1:] + data.t[:-1])[:: max(1, len(data.t) // 1000)]

    def call() -> Result:
        fitted = gp.condition(data.t, data.y)
        return {"evidence": fitted.log_evidence, "mean sd": float(np.mean(fitted.predict(between).sd))}

    return Run(call)
