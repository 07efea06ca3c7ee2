"""What a report shows of several columns together."""

from __future__ import annotations

import re

import numpy as np

from ...inputs.reading import few
from ...likelihoods.base import Likelihood
from ...likelihoods.robust import StudentT
from ...parameters.tree import learned_leaves
from ..several import Filled
from .figures import Figure, Trace
from .words import round_number


def filled_figures(filled: Filled) -> list[Figure]:
    """Every series with its band and what was seen of it, along its only input."""
    if filled.x.shape[1] > 1:
        return []
    order = np.argsort(filled.x[:, 0], kind="stable")
    x, found = filled.x[order, 0], []
    for p, name in enumerate(filled.names):
        middle, lower, upper = (part[order, p] for part in (filled.median, filled.lower, filled.upper))
        seen = np.isfinite(filled.seen[order, p])
        traces = (
            Trace("band", x, lower, "95 % of new values", upper),
            Trace("line", x, middle, "median"),
            Trace("points", x[seen], filled.seen[order, p][seen], "seen"),
        )
        found.append(Figure(name, filled.x_name, name, traces, filled.written))
    return found


def filled_headline(filled: Filled) -> str:
    """How many gaps were filled, and from whom most was learned, in sentences."""
    gaps = {name: int(count) for name, count in zip(filled.names, filled.gaps, strict=True) if count}
    total = sum(gaps.values())
    if not total:
        said = "No value is missing."
    elif len(gaps) == 1:
        said = (
            f"{total} missing value{'' if total == 1 else 's'} of {next(iter(gaps))} {'is' if total == 1 else 'are'} filled in."
        )
    else:
        said = f"{total} missing values are filled in: {few([f'{count} of {name}' for name, count in gaps.items()])}."
    together = np.abs(np.asarray(filled.model.correlations().correlation) - np.eye(len(filled.names)))
    a, b = np.unravel_index(np.argmax(together), together.shape)
    share = (
        f"{filled.names[min(a, b)]} and {filled.names[max(a, b)]} tell most of each other (correlation {together[a, b]:.2f})."
    )
    return f"{said} {share}"


def together_rows(filled: Filled) -> list[list[str]]:
    """How the columns hang together, in their own units, its header first: sizes, noise, lags, correlations."""
    model = filled.model
    found = model.correlations()
    late = bool(np.any(np.asarray(found.lag) != 0))
    unit = f" ({filled.unit})" if filled.unit else ""
    head = ["column", "moves by", "noise", *([f"lag{unit}"] if late else []), *(f"with {name}" for name in filled.names)]
    rows = []
    noise = _scatter(model.fitted.likelihood) * np.broadcast_to(model.scales.unit, len(filled.names))
    for i, name in enumerate(filled.names):
        half = 0.5 * float(np.ptp(filled.median[:, i]))
        lag = [", ".join(round_number(float(value)) for value in np.atleast_1d(found.lag[i]))] if late else []
        around = f"a factor of {np.exp(noise[i]):.3g}" if model.scales.logs[i] else f"±{noise[i]:.3g}"
        together = ["" if i == j else f"{value:.2f}" for j, value in enumerate(found.correlation[i])]
        rows.append([name, f"±{half:.3g}", around, *lag, *together])
    return [head, *rows]


def _scatter(likelihood: Likelihood) -> np.ndarray:
    """How far observations lie from each function, on the scale of the model; most of them, where some lie far off."""
    return np.asarray(likelihood.scale if isinstance(likelihood, StudentT) else np.sqrt(np.asarray(likelihood.noise)))  # type: ignore[attr-defined]


def length_rows(filled: Filled) -> list[list[str]]:
    """Over what lengths the functions change that the columns share, its header first."""
    found = [leaf for leaf in learned_leaves(filled.model.fitted.gp.kernel) if leaf.path.endswith("lengthscale")]
    unit = f" {filled.unit}" if filled.unit else f" ({filled.x_name})"
    called = (
        (lambda number: "the function that they share") if len(found) == 1 else (lambda number: f"shared function {number}")
    )
    said = [", ".join(round_number(float(value)) for value in np.ravel(leaf.value)) for leaf in found]
    return [["part", "it changes within about"], *([called(k), f"{text}{unit}"] for k, text in enumerate(said, 1))]


def how_learned_together(filled: Filled) -> str:
    """How the parameters were found, in a few lines, with what ended at a bound in words."""
    mode = getattr(filled.model.fitted, "mode", filled.model.fitted)
    text = "\n".join([f"log evidence   {mode.log_evidence:.6g}", *mode.account()])
    names = {f"likelihood.noise[{i}]": f"the noise of {name}" for i, name in enumerate(filled.names)}
    lengths = [leaf.path for leaf in learned_leaves(mode.gp) if leaf.path.endswith("lengthscale")]
    names |= {path: f"the length of shared function {k}" for k, path in enumerate(lengths, 1)}
    return re.sub(r"kernel\S*loadings\[(\d+)\]", "a loading", _replaced(text, names))


def _replaced(text: str, names: dict[str, str]) -> str:
    for path, name in names.items():
        text = text.replace(path, name)
    return text
