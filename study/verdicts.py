"""Whether what a source prints was reached, by rule: nothing here is typed in by hand."""

from collections.abc import Mapping

from study.registry import Case, Experiment, Found, Quantity

GOOD = ("better", "reached", "shown")
UNDECIDED = "undecided"
UNTOLD = ("smaller", "larger")  # of which a source says nothing


def verdict(quantity: Quantity, found: Found | None) -> str:
    """Against the source: better, reached or not reached; shown or not shown; not run; empty where it says nothing.

    Undecided is what lies behind by more than makes a difference, but by less than two standard errors of its mean.
    """
    if found is None:
        return "not run"
    ours, published = found.ours, quantity.published
    if quantity.sense in UNTOLD:
        return ""
    if ours != ours:
        return "not reached"
    if isinstance(published, str):
        return "shown" if _claimed(quantity, found) else "not shown"
    if quantity.sense == "near":
        return _sided(quantity.within - abs(ours - published), 0.0, found, ("reached", "reached", "not reached"))
    gain = published - ours if quantity.sense == "less" else ours - published
    return _sided(gain, quantity.within * abs(published), found, ("better", "reached", "not reached"))


def _sided(gain: float, margin: float, found: Found, words: tuple[str, str, str]) -> str:
    """A gain beyond the margin and beyond chance, none, or a loss; undecided where only chance stands before a loss."""
    above, level, below = words
    if gain >= -margin:
        return above if gain > max(margin, 2 * (found.error or 0.0)) else level
    return UNDECIDED if gain >= -2 * (found.error or 0.0) else below


def _claimed(quantity: Quantity, found: Found) -> bool:
    if quantity.sense == "between":
        low, high = quantity.limits
        return low <= found.ours <= high
    if not isinstance(found.baseline, int | float):
        return False
    bound = quantity.factor * found.baseline
    return found.ours < bound if quantity.sense == "below" else found.ours > bound


def beside(quantity: Quantity, found: Found | None) -> str:
    """Against the baseline: ahead, level, behind or undecided; empty where there is none or nothing is better than another."""
    if found is None or quantity.sense not in ("less", "more", *UNTOLD) or not isinstance(found.baseline, int | float):
        return ""
    if found.ours != found.ours or found.baseline != found.baseline:
        return ""
    gain = found.baseline - found.ours if quantity.sense in ("less", "smaller") else found.ours - found.baseline
    return _sided(gain, quantity.within * abs(found.baseline), found, ("ahead", "level", "behind"))


def counts(experiment: Experiment, results: dict[str, dict[str, Found]]) -> tuple[int, int, int]:
    """How many quantities there are, how many were found, and how many of these are good."""
    told = [
        verdict(quantity, results.get(name, {}).get(quantity.name))
        for name, case in experiment.cases.items()
        for quantity in case.quantities
        if quantity.sense not in UNTOLD
    ]
    return len(told), sum(word != "not run" for word in told), sum(word in GOOD for word in told)


def status(experiment: Experiment, results: dict[str, dict[str, Found]]) -> str:
    """One line for the list."""
    if experiment.kind != "runs":
        return f"{experiment.kind}: {experiment.reason}"
    _, ran, good = counts(experiment, results)
    left = [name for name in experiment.cases if name not in results]
    minutes = sum(experiment.cases[name].minutes for name in left)
    if not results:
        return f"runs, not run here: about {duration(minutes)}"
    said = f"{good} of {ran} reached" if ran else "beside the baseline only"
    rest = f"; not run here: {', '.join(left)} (about {duration(minutes)})" if left else ""
    return f"ran: {said}{rest}"


def duration(minutes: float) -> str:
    """Of CPU time, in words."""
    if minutes < 1:
        return f"{60 * minutes:.0f} CPU s"
    return f"{minutes:.0f} CPU min" if minutes < 120 else f"{minutes / 60:.0f} CPU h"


def unmet(case: Case, found: Mapping[str, Found]) -> list[Quantity]:
    """Quantities that were found and fall short."""
    return [q for q in case.quantities if q.name in found and verdict(q, found[q.name]) not in (*GOOD, UNDECIDED, "")]
