"""Several outputs of one table together, with nothing said: the kernel, logs or not, lags or not, what sharing is worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._types import double_precision
from ..inputs.layouts import as_inputs
from ..inputs.reading import few, read_numbers
from ..kernels.algebra import Kernel
from ..kernels.outputs import LMC, Coregion, Correlations, Lagged, correlations, outputs_of
from ..kernels.stationary import Matern12, Matern32
from ..learn.clock import Deadline
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..means import LevelOfOutput
from ..parameters.tree import fixed, learned_leaves, with_values
from ..posterior import Result
from ..process.gp import GP

FEW = 4  # outputs up to which any covariance among them is learned
SKEWED = 0.05  # nats for each value, from which on logs are taken
FOLLOWING = 0.25  # part of the time that is kept for what follows learning
SHARING_PAYS = 3.0  # nats beyond one for each number that sharing takes, which chance alone would gain half of
LAGS_PAY = 3.0  # nats for each lag, from which on lags are taken


@dataclasses.dataclass(frozen=True)
class Scales:
    """How outputs are brought to one scale: logs where they are positive and skewed, then a level and a unit for each."""

    logs: np.ndarray
    level: np.ndarray
    unit: np.ndarray

    @classmethod
    def of(cls, Y: np.ndarray, logs: Any = "auto") -> Scales:
        """The scales of a table (N, P), which may have gaps."""
        taken = np.array([_skewed(column) for column in Y.T]) if isinstance(logs, str) else np.broadcast_to(logs, Y.shape[1:])
        Z = _with_logs(Y, taken)
        level, unit = np.nanmean(Z, axis=0), np.nanstd(Z, axis=0)
        return cls(taken.copy(), level, np.where(unit > 1e-12 * np.maximum(np.abs(level), 1e-300), unit, 1.0))

    def into(self, Y: np.ndarray) -> np.ndarray:
        """Values on the scale of the model."""
        return (_with_logs(Y, self.logs) - self.level) / self.unit

    def back(self, Z: np.ndarray) -> np.ndarray:
        """Values on the scale of the model, on that of the data."""
        values = self.level + self.unit * Z
        return np.where(self.logs, np.exp(np.where(self.logs, values, 0.0)), values)

    def log_slope(self, Y: np.ndarray) -> np.ndarray:
        """The logarithm of by how much a density on the scale of the data is larger."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return -np.log(self.unit) - np.where(self.logs, np.log(np.where(self.logs, Y, 1.0)), 0.0)


@dataclasses.dataclass(frozen=True)
class FittedOutputs(Result):
    """Several outputs together, given a table: predictions of all of them in the units of the data."""

    fitted: Any
    scales: Scales
    names: tuple[str, ...]
    alone: float | None  # the log evidence of the same outputs, where nothing is shared
    notes: tuple[str, ...] = ()  # what there was no time for

    @property
    def log_evidence(self) -> float:
        """That of all outputs together, on the scale of the model."""
        return float(self.fitted.log_evidence)

    @property
    def plan(self) -> Any:
        """What ran, and why not the others."""
        return self.fitted.plan

    def summary(self) -> str:
        """What was found, in sentences, a line each."""
        return "\n".join(self.words())

    @property
    def gain(self) -> float | None:
        """By how many nats sharing pays."""
        return None if self.alone is None else self.fitted.log_evidence - self.alone

    @double_precision
    def predict(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Median, standard deviation and interval of new observations of each output, all (M, P)."""
        found = self.fitted.predict(X)
        observed = found.observed
        lower, upper = (self.scales.back(end) for end in found.interval(level))
        median, sd = self.scales.back(observed.mean), self.scales.unit * np.sqrt(observed.variance)
        with np.errstate(over="ignore"):  # of a log-normal the standard deviation itself
            skewed = median * np.exp(0.5 * sd**2) * np.sqrt(np.expm1(sd**2))
        return median, np.where(self.scales.logs, skewed, sd), lower, upper

    @double_precision
    def log_prob(self, X: Any, Y: np.ndarray) -> np.ndarray:
        """log p(y) of each value of a table, NaN where there is none."""
        Z = self.scales.into(Y)
        known = np.where(np.isfinite(Z), Z, 0.0)
        found = self.fitted.predict(X).log_prob(known) + self.scales.log_slope(Y)
        return np.where(np.isfinite(Z), found, np.nan)

    def correlations(self) -> Correlations:
        """How the outputs hang together, on the scale of the model."""
        return correlations(self.fitted.kernel, self.fitted.inputs.dimension)

    def words(self) -> list[str]:
        """What was found, in sentences."""
        seen, engine = int(np.sum(self.fitted.data.seen)), self.fitted.plan.engine.name
        lines = [f"{len(self.names)} outputs, {seen} values by the {engine} engine"]
        if self.scales.logs.any():
            logged = ", ".join(name for name, log in zip(self.names, self.scales.logs, strict=True) if log)
            lines.append(f"logarithms were taken of {logged}")
        if self.gain is not None:
            pays = self.gain > must_pay(self.fitted.kernel)
            lines.append(f"sharing pays by {self.gain:.1f} nats" if pays else "nothing is shared, as far as the data tell")
        return [*lines, *self.notes]

    def __repr__(self) -> str:
        return f"FittedOutputs({', '.join(self.names)}, log evidence {self.fitted.log_evidence:.6g})"


def default_kernel(outputs: int, columns: int) -> Kernel:
    """The kernel that is taken where nothing is said: shared functions on two scales, on one where outputs are many."""
    base = Matern32 if columns == 1 else Matern12
    if outputs > FEW:
        return LMC(outputs, base(), columns=columns)
    return LMC(outputs, base(), base(), columns=columns)


def fit_outputs(
    X: Any,
    Y: Any,
    *,
    names: Any = None,
    kernel: Kernel | None = None,
    likelihood: Likelihood | None = None,
    logs: Any = "auto",
    lags: Any = False,
    compare: bool = False,
    **options: Any,
) -> FittedOutputs:
    """Learn several outputs together from a table Y (N, P) whose gaps are NaN; `options` are those of `GP.fit`.

    The `likelihood` is of outputs in units of their own spread: Gaussian with a noise for each, unless another is given.
    ``lags="auto"`` tries whether outputs come later than others, and ``compare=True`` what they would be worth alone. Where
    nothing is said of kernel and lags, outputs that share nothing, as far as the evidence tells, are kept apart.
    """
    (Y, known), X = read_numbers(Y, "Y"), as_inputs(X, clocks=())
    if Y.ndim != 2:
        raise ValueError(f"Y needs a column for each output, got shape {Y.shape}: one column alone is for GP.fit")
    P, columns = Y.shape[1], X.dimension
    names = tuple(names or known or map(str, range(P)))
    _check(Y, names, logs, lags, kernel, columns)
    scales = Scales.of(Y, logs)
    Z = scales.into(Y)
    given = default_kernel(P, columns) if kernel is None else kernel
    scatter = Gaussian(np.full(P, 0.1)) if likelihood is None else likelihood
    model = lambda k: GP(k, scatter, LevelOfOutput(fixed(np.zeros(P))))
    deadline, notes = Deadline.after(options.pop("seconds", None)), list[str]()
    earlier = deadline.earlier(FOLLOWING)
    fit = lambda k: model(k).fit(X, Z, missing="infer", seconds=earlier, **options)
    begun = deadline.clock()
    fitted = fit(given)
    took = deadline.clock() - begun
    if lags == "auto" and columns == 1 and not earlier.allows(took):
        notes.append("there was no time to see whether some come later than others")
    elif lags == "auto" and columns == 1:
        late = fit(Lagged(_one_term(given), np.zeros(P - 1)))
        fitted = late if late.log_evidence - fitted.log_evidence > LAGS_PAY * (P - 1) else fitted
    elif lags:
        fitted = fit(Lagged(given, np.zeros(P - 1)))
    if compare and not earlier.allows(took):
        notes, compare = [*notes, "there was no time to see what sharing is worth"], False
    quick = {**options, "parameters": "best"}
    apart = model(_apart(given)).fit(X, Z, missing="infer", seconds=earlier, **quick) if compare else None
    alone = apart.log_evidence if apart is not None and _ended(apart) else None
    asked_for = kernel is not None or lags not in (False, "auto")
    if not asked_for and _ended(fitted) and earlier.allows(took):  # else it is not known what sharing would gain
        how = {name: value for name, value in options.items() if name in ("structure", "approximate", "inference")}
        least = _log_evidence_unshared(fitted, X, Z, how) if alone is None else alone
        if fitted.log_evidence - least <= must_pay(fitted.kernel):
            fitted = _most_likely_apart(fit, given, least)
            alone = fitted.log_evidence
    return FittedOutputs(fitted, scales, names, alone, tuple(notes))


def _ended(fitted: Any) -> bool:
    """Whether learning ended by itself."""
    return fitted.learning is not None and bool(fitted.learning.converged)


def must_pay(kernel: Kernel) -> float:
    """From how many nats on the outputs of a kernel count as sharing: one for each number that they share by, and some more."""
    return SHARING_PAYS + _numbers_of_sharing(kernel)


def _log_evidence_unshared(fitted: Any, X: Any, Z: np.ndarray, how: dict[str, Any]) -> float:
    """The log evidence where each output keeps what it has and shares nothing of it: what they are worth alone, or less."""
    kernel = fitted.kernel.kernel if isinstance(fitted.kernel, Lagged) else fitted.kernel
    model = fitted.gp.replace(kernel=_by_nodes(kernel, _unshared))
    value: float = model.condition(X, Z, missing="infer", **how).log_evidence
    return value


def _most_likely_apart(fit: Any, kernel: Kernel, least: float) -> Any:
    """Outputs that share nothing, on one scale, or on several where these are worth their numbers; which have this evidence."""
    one = fit(_apart(_one_term(kernel)))
    more = len(learned_leaves(_apart(kernel))) > len(learned_leaves(_apart(_one_term(kernel))))
    P = outputs_of(kernel).count  # type: ignore[union-attr]
    if not more or least - one.log_evidence <= P + 1:
        return one
    several = fit(_apart(kernel))
    return several if several.log_evidence - one.log_evidence > P + 1 else one


def _check(Y: np.ndarray, names: tuple[str, ...], logs: Any, lags: Any, kernel: Kernel | None, columns: int) -> None:
    """Refuse what cannot be learned, by name."""
    never = [name for name, column in zip(names, Y.T, strict=True) if not np.isfinite(column).any()]
    if never:
        raise ValueError(f"nothing was seen of {few(never)}: each output needs a value")
    if isinstance(logs, str) and logs != "auto":
        raise ValueError(f"logs must be 'auto', True, False or one of these for each output, got {logs!r}")
    taken = np.zeros(len(names), bool) if isinstance(logs, str) else np.broadcast_to(np.asarray(logs, dtype=bool), len(names))
    low = [name for name, column, log in zip(names, Y.T, taken, strict=True) if log and np.nanmin(column) <= 0]
    if low:
        raise ValueError(f"logs were asked for, but {few(low)} holds values that are not positive: leave them out of logs=")
    if lags and lags != "auto" and columns > 1:
        raise ValueError(f"lags are along time, one column, but X has {columns}: leave out lags=, or give a Lagged kernel")
    found = None if kernel is None else outputs_of(kernel)
    if kernel is not None and (found is None or found.count != len(names)):
        has = "knows of no outputs" if found is None else f"has {found.count}"
        raise ValueError(
            f"there are {len(names)} outputs, but the kernel {has}: give one such as LMC({len(names)}, Matern32())"
        )


def _numbers_of_sharing(kernel: Kernel) -> int:
    """How many numbers the outputs share by, of those that are learned."""
    count = 0
    for leaf in learned_leaves(kernel):
        if leaf.path.endswith("loadings"):
            P, rank = np.shape(leaf.value)
            count += min(P * rank - rank * (rank - 1) // 2, P * (P - 1) // 2)
        elif leaf.path.endswith("lags"):
            count += np.size(leaf.value)
    return count


def _one_term(kernel: Kernel) -> Kernel:
    return getattr(kernel, "terms", (kernel,))[0]


def _by_nodes(kernel: Kernel, of: Callable[[Coregion], Coregion]) -> Kernel:
    """The same kernel with other covariances between outputs."""
    import jax

    is_shared = lambda node: isinstance(node, Coregion)
    changed: Kernel = jax.tree.map(lambda node: of(node) if is_shared(node) else node, kernel, is_leaf=is_shared)
    return changed


def _unshared(between: Coregion) -> Coregion:
    """The same variances without correlations, in arrays of the same shapes, so that no other program is needed."""
    own, (P, rank) = np.diagonal(np.asarray(between.matrix())), np.shape(between.loadings)
    if rank >= P:
        return between.replace(loadings=np.eye(P, rank) * np.sqrt(own - np.asarray(between.variance)))
    return between.replace(loadings=np.zeros((P, rank)), variance=own)


def _apart(kernel: Kernel) -> Kernel:
    """The same kernel of outputs that share nothing."""
    found = _by_nodes(kernel, lambda node: Coregion.diagonal(np.ones(len(node.loadings))))
    loads = {leaf.path: np.zeros(np.shape(leaf.value)) for leaf in learned_leaves(found) if leaf.path.endswith("loadings")}
    return with_values(found, loads).freeze(*loads) if loads else found


def _with_logs(Y: np.ndarray, logs: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(logs, np.log(np.where(logs, Y, 1.0)), Y)


def _skewed(column: np.ndarray) -> bool:
    """Whether values are all positive, and their logs so much more like a normal variable that this pays."""
    y = column[np.isfinite(column)]
    if len(y) < 20 or y.min() <= 0 or np.ptp(y) == 0:
        return False
    gain = np.log(np.std(y)) - np.log(np.std(np.log(y))) - np.mean(np.log(y))
    return bool(gain > SKEWED)
