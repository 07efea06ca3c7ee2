"""How probable data are under a model, whatever its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._types import double_precision
from ..inputs.outputs import read_rows
from ..learn.believe import believe
from ..learn.density import Density
from ..learn.evidence import objective_at
from ..learn.integrate import integrate
from ..learn.modes import modes_of
from ..learn.objective import Objective
from ..learn.peak import Averaging, Evidence, Peak
from ..learn.sites import SiteEvidence
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import free_vector, leaves
from .conditioning import rule_for
from .planned import planned

SEARCHED = ("ais", "smc")  # methods that begin around all modes that are found
LEARNING = ("restarts", "max_evaluations", "seconds", "progress")  # options of `GP.fit` that are not about the data


@double_precision
def evidence(gp: Any, X: Any, y: Any, method: str = "laplace", **options: Any) -> Evidence:
    """log p(y) of a model with its parameters integrated out, and its standard error where the method has one.

    What is not said of the parameters is believed weakly, in the units of the data. Methods:

    - ``"laplace"``, a normal approximation at the mode; ``"ccd"`` and ``"grid"`` look at more of it;
    - ``"importance"``, draws from a wide proposal;
    - ``"ais"``, annealed importance sampling with `chains` from ``start="laplace"``, around all modes that are found, or
      ``"prior"``, which takes ten times as long. `schedule` is "ratio" (of weights: `ratio`) or "even" (by the conditional
      effective sample size), with so many `moves` at each step, by "hmc", "metropolis" or "slice";
    - ``"smc"``, the same with resampling, and an error from groups of chains;
    - ``"quadrature"``, for three parameters at most.

    `seed` makes it repeatable. All other options are those of `GP.fit`.
    """
    own = ("chains", "start", "schedule", "ratio", "even", "moves", "move", "seed")
    how = {name: options.pop(name) for name in own if name in options}
    if "parameters" in options:
        raise ValueError("evidence integrates over the parameters: leave out parameters=")
    density, theta = posterior_of_parameters(gp, X, y, **options)
    with lapack_threads(0):
        peak, *others = modes_of(density, theta, how.get("seed", 0)) if method in SEARCHED else [Peak(density, theta)]
        return integrate(peak, method, others=others, **how)


def posterior_of_parameters(gp: Any, X: Any, y: Any, **options: Any) -> tuple[Density, np.ndarray]:
    """The density of θ given data, and its mode."""
    fitted = gp.fit(X, y, parameters=Averaging(members=2), **options)
    mode = getattr(fitted, "mode", fitted)
    given = {name: value for name, value in options.items() if name not in LEARNING}
    return density_of(gp, X, y, at=mode.gp, **given), free_vector(mode.gp)


def density_of(
    gp: Any,
    X: Any,
    y: Any,
    *,
    at: Any = None,
    noise: Any = None,
    missing: str = "error",
    structure: str = "auto",
    approximate: Any = None,
    inference: str | None = None,
    extra: Any = None,
    weights: Any = None,
) -> Density:
    """The density of θ given data, up to the evidence; approximations are those that suit the values `at`."""
    inputs, data = read_rows(gp, X, y, noise, missing, extra, weights)
    task = planned(gp, inputs, structure, approximate, data, rule_for(gp, inference, data), learns=False)
    gp, inputs, data, chosen, rule = task
    if at is not None and any(leaf.path.endswith(".inputs") for leaf in leaves(at)):
        gp = at  # with the inducing inputs that were found, and are held
    if rule is None:
        objective = objective_at(gp if at is None else at, gp, inputs, data, chosen.chosen)
    else:
        objective = Objective(gp, SiteEvidence(gp, inputs, data, chosen.engine, rule))
    return Density(objective, believe(gp, np.asarray(inputs.points), data))
