"""What the sources print, and how it is run again: one `Experiment` for every table and numbered figure.

An experiment has cases (data sets, say), a case has quantities, and a quantity knows what the source prints of it and when that
is met. A function of an experiment gets the name of a case and a `How`, and returns what was found for each quantity:

    @experiment(
        "000.table-3.1",
        "One step ahead of the Nile",
        "§3.6.3",
        system="change points",
        baseline="one process for the whole series",
        cases={"nile": Case((less("MSE", 0.743, "NSGP-grid"),), minutes=0.5)},
    )
    def table_3_1(case, how):
        return {"MSE": Found(ours, baseline)}

A case that is repeated for several seeds or splits says `mean=True`: then the function is called with the number of one repeat,
and means are taken. Where it takes models as well, `each` names the function of one call, `over` gives the arguments of all (by
default the case and the number of the repeat), and the function below puts the rows together:

    @experiment("003.figure-9.3", ..., each=bounded, over=lambda case, how: product(("small", "large"), how.numbers))
    def figure_9_3(case, rows):
        return {"samples": mean_of(rows.column("samples", "small"), rows.column("samples", "large"))}

Then they can be made in several processes, and two experiments that ask for the same call share it.

What is only drawn (`diagram`) and what cannot be run (`cannot`) is entered as well, with the reason. Whether a number was
reached is decided in `verdicts`, never here.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SOURCES = {
    "000": "Y. Saatçi, Scalable Inference for Structured Gaussian Process Models (Cambridge 2011)",
    "001": "A. Naish-Guzman, Sparse and Robust Kernel Methods (Cambridge 2007)",
    "002": "E. Gilboa, Y. Saatçi, J. Cunningham, Scaling Multidimensional Inference for Structured Gaussian Processes (2013)",
    "003": "P. Boyle, Gaussian Processes for Regression and Optimisation (Wellington 2007)",
    "004": "K. Murphy, Machine Learning: A Probabilistic Perspective, chapter 15 (2012)",
}
NUMBERS = ("less", "more", "near")
WORDS = ("below", "above", "between", "smaller", "larger")


@dataclass(frozen=True)
class Quantity:
    """A number of the source, or what it says in words, and when that is met.

    `less` and `more`: the smaller, or the larger, the better; `near`: a number to be found again. `within` is the part of the
    published number that makes no difference (of `near`: how far off it may be). What has no number is met when ours lies
    `below` or `above` so many times (`factor`) what it is compared with, or `between` two numbers. Of a quantity that is only
    to be seen beside the baseline it is known whether it should be `smaller` or `larger`.
    """

    name: str
    published: float | str
    sense: str
    by: str = ""
    within: float = 0.05
    factor: float = 1.0
    limits: tuple[float, float] = (0.0, 0.0)
    why: str = ""  # not met: the reason that is known

    def __post_init__(self) -> None:
        if self.sense not in NUMBERS + WORDS:
            raise ValueError(f"{self.name}: no sense {self.sense!r}; there are {', '.join(NUMBERS + WORDS)}.")
        if (self.sense in NUMBERS) != isinstance(self.published, int | float):
            raise ValueError(f"{self.name}: {self.sense!r} goes with a {'number' if self.sense in NUMBERS else 'text'}.")


def less(name: str, published: float, by: str = "", within: float = 0.05, why: str = "") -> Quantity:
    """The smaller the better."""
    return Quantity(name, published, "less", by, within, why=why)


def more(name: str, published: float, by: str = "", within: float = 0.05, why: str = "") -> Quantity:
    """The larger the better."""
    return Quantity(name, published, "more", by, within, why=why)


def near(name: str, published: float, within: float, by: str = "", why: str = "") -> Quantity:
    """A number to be found again, give or take `within`."""
    return Quantity(name, published, "near", by, within, why=why)


def below(name: str, says: str, factor: float = 1.0, why: str = "") -> Quantity:
    """A claim: ours lies below `factor` times what it is compared with."""
    return Quantity(name, says, "below", factor=factor, why=why)


def above(name: str, says: str, factor: float = 1.0, why: str = "") -> Quantity:
    """A claim: ours lies above `factor` times what it is compared with."""
    return Quantity(name, says, "above", factor=factor, why=why)


def between(name: str, says: str, low: float, high: float, why: str = "") -> Quantity:
    """A claim: ours lies in an interval."""
    return Quantity(name, says, "between", limits=(low, high), why=why)


def smaller(name: str, within: float = 0.05) -> Quantity:
    """Of which the source prints nothing: the smaller the better, to be seen beside the baseline."""
    return Quantity(name, "", "smaller", within=within)


def larger(name: str, within: float = 0.05) -> Quantity:
    """Of which the source prints nothing: the larger the better, to be seen beside the baseline."""
    return Quantity(name, "", "larger", within=within)


class Found(NamedTuple):
    """What was found for a quantity; the baseline may be a reason why there is none. The error is that of the mean of ours."""

    ours: float
    baseline: float | str | None = None
    error: float | None = None


@dataclass(frozen=True)
class Case:
    """A part of an experiment that runs by itself, and about how many CPU minutes it takes with its own repeats."""

    quantities: tuple[Quantity, ...]
    minutes: float = 0.2
    repeats: int = 1


@dataclass(frozen=True)
class How:
    """How many repeats (splits, draws) to make, by default as many as a case has of its own, and the number of the first."""

    repeats: int
    first: int = 0

    @property
    def numbers(self) -> range:
        """Of the splits, or the seeds."""
        return range(self.first, self.first + self.repeats)


class Call(NamedTuple):
    """A function and what it is called with: what can be made by itself, in any process."""

    work: Callable[..., Any]
    args: tuple


class Rows(dict[tuple, Any]):
    """What came of the calls of a case, by their arguments, in order."""

    def column(self, name: str, *words: str) -> list[Any]:
        """A number of each call, or of those that have these words among their arguments."""
        return [value[name] for args, value in self.items() if set(words) <= {a for a in args if isinstance(a, str)}]


Work = Callable[[str, Any], Mapping[str, Found]]
Over = Callable[[str, How], Iterable[tuple]]


@dataclass
class Experiment:
    """A table or a numbered figure of a source."""

    id: str
    title: str
    place: str
    system: str
    baseline: str = ""
    cases: dict[str, Case] = field(default_factory=dict)
    work: Work | None = None
    each: Callable[..., Any] | None = None  # of one of the calls that the work puts together
    over: Over | None = None  # the arguments of these calls
    mean: bool = False  # the work makes one repeat, and its numbers are averaged
    note: str = ""  # what was decided where the source is silent
    reason: str = ""  # why it is not run
    kind: str = "runs"  # or "diagram", "cannot"

    @property
    def source(self) -> str:
        """The number of the source."""
        return self.id.split(".")[0]

    def calls(self, name: str, how: How) -> list[Call]:
        """What has to be made for a case."""
        assert self.work is not None
        if self.mean:
            return [Call(self.work, (name, number)) for number in how.numbers]
        if self.each is None:
            return [Call(self.work, (name, how))]
        over = self.over(name, how) if self.over else [(name, number) for number in how.numbers]
        return [Call(self.each, args) for args in over]


EXPERIMENTS: dict[str, Experiment] = {}


def enter(made: Experiment) -> None:
    """Into the list that the command line knows."""
    if made.id in EXPERIMENTS:
        raise ValueError(f"{made.id} is entered twice.")
    EXPERIMENTS[made.id] = made


def experiment(
    id: str,
    title: str,
    place: str,
    *,
    system: str,
    cases: Mapping[str, Case] | Case,
    baseline: str = "",
    note: str = "",
    each: Callable[..., Any] | None = None,
    over: Over | None = None,
    mean: bool = False,
) -> Callable[[Work], Work]:
    """Decorator: the function below runs a table or figure; a single case is called "all"."""

    def register(work: Work) -> Work:
        own = {"all": cases} if isinstance(cases, Case) else dict(cases)
        enter(Experiment(id, title, place, system, baseline, own, work, each, over, mean, note))
        return work

    return register


def diagram(id: str, title: str, place: str, system: str) -> None:
    """A drawing of a model or an idea, without data or numbers."""
    enter(Experiment(id, title, place, system, kind="diagram", reason="a drawing of an idea: there is nothing to run"))


def cannot(id: str, title: str, place: str, system: str, reason: str) -> None:
    """An experiment that cannot be run here, and why."""
    enter(Experiment(id, title, place, system, kind="cannot", reason=reason))


def load_experiments() -> dict[str, Experiment]:
    """All of `study.sources`, in the order of the sources."""
    from study import sources

    for found in pkgutil.iter_modules(sources.__path__):
        importlib.import_module(f"study.sources.{found.name}")
    return dict(sorted(EXPERIMENTS.items(), key=lambda item: _order(item[0])))


def _order(id: str) -> tuple:
    """Source, chapter, number; tables and figures of a chapter together."""
    source, rest = id.split(".", 1)
    kind, _, number = rest.rpartition("-")
    places = [int(part) if part.isdigit() else 99 for part in number.split(".")]
    return source, places[0], kind, places
