"""Gilboa, Saatçi and Cunningham: additive models, projection pursuit and grids, in one paper."""

import time
from typing import Any

import numpy as np

from study.baselines import cpu_seconds, problem_results, slope, value
from study.registry import Case, Found, How, Rows, above, between, diagram, experiment, larger, less, more, smaller
from study.sources.s000_additive import (
    METHODS,
    PEER,
    additive_part,
    label_part,
    labels,
    of_every_label_model,
    of_every_model,
    one_label_fit,
    one_regression,
)
from study.sources.s000_grids import corners

ADDITIVE, PURSUIT, LABELS, GRIDS = "additive models", "projection pursuit", "additive labels", "grids"

diagram("002.figure-1", "Additive regression with a chain for each column", "§2.1", ADDITIVE)
diagram("002.figure-2", "Projected additive regression", "§2.1.3", PURSUIT)


@experiment(
    "002.figure-3",
    "Time to learn against the number of rows, eight columns",
    "§3.1.1",
    system=f"{ADDITIVE}, {PURSUIT}",
    baseline="gradient boosting",
    note="CPU seconds, compiled; four projections, 100 evaluations at most; 2,000, 8,000 and 32,000 rows.",
    cases=Case(
        (
            less("log–log slope, additive", 1.0, "all but the full process", within=0.1),
            less("log–log slope, projection pursuit", 1.0, "all but the full process", within=0.1),
        ),
        minutes=1.5,
    ),
)
def figure_3(case: str, how: How) -> dict[str, Found]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    import structgp as sg

    sizes, seconds = (2000, 8000, 32_000), ([], [], [])
    for N in sizes:
        part = additive_part(N, 8, how.first)
        ways = (
            lambda p=part: sg.AdditiveGP(sg.Matern72()).fit(p.X_train, p.y_train, progress=False),
            lambda p=part: sg.ProjectionPursuitGP(projections=4).fit(p.X_train, p.y_train, progress=False, max_evaluations=100),
            lambda p=part: HistGradientBoostingRegressor().fit(p.X_train, p.y_train),
        )
        for own, way in zip(seconds, ways, strict=True):
            own.append(cpu_seconds(way))
    peer = slope(sizes, seconds[2])
    return {
        "log–log slope, additive": Found(slope(sizes, seconds[0]), peer),
        "log–log slope, projection pursuit": Found(slope(sizes, seconds[1]), peer),
    }


HALF = (
    "half the rows of the source, which makes the dense process eight times as fast and leaves the additive one as it is: its "
    "matrices have a row for each knot of each column"
)


@experiment(
    "002.figure-4",
    "How much faster than one dense process, 8 and 32 columns",
    "§3.1.1",
    system=f"{ADDITIVE}, {PURSUIT}",
    baseline="(of the claim) one",
    note=(
        "4,000 rows where the source has 8,000; seconds of an evidence with its gradient, of the dense process and of "
        "the additive."
    ),
    cases={
        f"D = {D}": Case(
            (above("dense over additive, for one evaluation", "faster than the full process", 10.0, why=HALF),), minutes=1
        )
        for D in (8, 32)
    },
)
def figure_4(case: str, how: How) -> dict[str, Found]:
    import structgp as sg

    part = additive_part(4000, int(case[4:]), how.first)

    def each(fit) -> float:
        fit()
        began = time.process_time()
        evaluations = fit().learning.evaluations
        return (time.process_time() - began) / evaluations

    dense = sg.GP(sg.SquaredExponential(np.full(part.X_train.shape[1], 5.0)), sg.Gaussian(0.1))
    full = each(
        lambda: dense.fit(part.X_train, part.y_train, structure="dense", parameters="best", restarts=0, max_evaluations=3)
    )
    additive = each(lambda: sg.AdditiveGP(sg.Matern72()).fit(part.X_train, part.y_train, progress=False, max_evaluations=30))
    return {"dense over additive, for one evaluation": Found(full / additive, 1.0)}


SETS = ("synthetic", "pumadyn8fm-1000", "pumadyn8fm", "pumadyn8nm", "pumadyn32nm", "elevators", "kin40k")
ERROR_AND_TIME: dict[str, Any] = {  # NMSE and CPU seconds of three models and of gradient boosting on the first split of sets
    "each": one_regression,
    "over": lambda case, how: [call for name in of_figure(case) for call in of_every_model(name, how)],
}


def of_figure(case: str) -> list[str]:
    """The sets of a figure: one, or all of them."""
    return ["synthetic, eight columns" if name == "synthetic" else name for name in (SETS if case == "all" else [case])]


def models_of(rows: Rows, name: str, with_peer: bool = True) -> dict[str, tuple[float, float]]:
    """Error and seconds of the models of a set."""
    own = {args[2]: (row["error"], row["seconds"]) for args, row in rows.items() if args[0] == name}
    return {method: score for method, score in own.items() if with_peer or method != PEER}


def front(found: dict[str, tuple[float, float]]) -> set[str]:
    """Those that no other beats in both."""
    beaten = lambda own: any(o[0] < own[0] and o[1] < own[1] for o in found.values())
    return {name for name, own in found.items() if not beaten(own)}


@experiment(
    "002.figure-5",
    "Speed and accuracy on seven sets",
    "§3.1.2",
    system=f"{ADDITIVE}, {PURSUIT}",
    baseline="gradient boosting",
    note="The source draws its values and prints none; the numbers of four of the sets are in 000.table-4.2.",
    cases={name: Case(tuple(smaller(f"NMSE, {method}") for method in METHODS), minutes=1) for name in SETS},
    **ERROR_AND_TIME,
)
def figure_5(case: str, rows: Rows) -> dict[str, Found]:
    found = models_of(rows, *of_figure(case))
    return {f"NMSE, {method}": Found(found[method][0], found[PEER][0]) for method in METHODS}


@experiment(
    "002.figure-6",
    "Error against time: which model is on the front",
    "§3.1.3",
    system=f"{ADDITIVE}, {PURSUIT}",
    note="One set here; 002.table-1 counts them all. Without gradient boosting, which the source does not have.",
    cases=Case(
        (
            between(
                "projection pursuit is on the front",
                "always",
                1,
                1,
                why="learned from all rows of this set inducing inputs have the smaller error as well (000.table-4.2)",
            ),
        ),
        minutes=1.5,
    ),
    each=one_regression,
    over=lambda case, how: of_every_model("pumadyn8fm-1000", how),
)
def figure_6(case: str, rows: Rows) -> dict[str, Found]:
    found = models_of(rows, "pumadyn8fm-1000", with_peer=False)
    return {"projection pursuit is on the front": Found(float("projection pursuit" in front(found)))}


@experiment(
    "002.table-1",
    "On how many of seven sets a model is on the front of error against time",
    "§3.1.3",
    system=f"{ADDITIVE}, {PURSUIT}",
    baseline="(none: the last row is gradient boosting, on the front of all four)",
    note="The front of our three models.",
    cases=Case(
        (
            more(
                "projection pursuit",
                7,
                "PPGPR-greedy",
                why="inducing inputs have the smaller error on most sets, and additive models are learned sooner",
            ),
            more("inducing inputs", 4, "SPGP"),
            more("additive", 1, "Additive-VB"),
            smaller("gradient boosting, among all"),
        ),
        minutes=7,
    ),
    **ERROR_AND_TIME,
)
def table_1(case: str, rows: Rows) -> dict[str, Found]:
    sets = of_figure(case)
    alone = [front(models_of(rows, name, with_peer=False)) for name in sets]
    count = lambda name: Found(float(sum(name in own for own in alone)))
    boosted = Found(float(sum(PEER in front(models_of(rows, name)) for name in sets)))
    return {name: count(name) for name in METHODS} | {"gradient boosting, among all": boosted}


@experiment(
    "002.figure-7",
    "Time of classification against the number of rows, eight columns",
    "§3.2.1",
    system=LABELS,
    baseline="a support vector machine, 2,000 and 8,000 rows (the source: 2.16)",
    note="Learning, at most 25 evaluations, compiled; 2,000, 8,000 and 32,000 rows.",
    cases=Case((less("log–log slope", 1.07, "Additive-GP"),), minutes=0.6),
)
def figure_7(case: str, how: How) -> dict[str, Found]:
    from sklearn.svm import SVC

    import structgp as sg

    sizes, ours, peer = (2000, 8000, 32_000), [], []
    model = sg.AdditiveLabels(sg.Matern72(2.0), ranks=False)
    for N in sizes:
        part = label_part(N, 8, how.first, test=1)
        ours.append(cpu_seconds(lambda p=part: model.fit(p.X_train, p.y_train, progress=False, max_evaluations=25)))
        if N <= 8000:
            peer.append(cpu_seconds(lambda p=part: SVC().fit(p.X_train, p.y_train)))
    return {"log–log slope": Found(slope(sizes, ours), slope(sizes[:2], peer))}


TABLE_2 = {
    "synthetic": (0.280, 0.593, 161, 0.284, 0.584),
    "breast cancer": (0.067, 0.122, 89, 0.056, 0.100),
    "magic": (0.139, 0.342, 2346, 0.119, 0.303),
    "ijcnn1": (0.0516, 0.156, 14506, 0.0166, 0.0509),
}


OTHER_ROWS = {
    "breast cancer": "one split of 90 rows in the source; on ours boosting and support vectors are as far from its number",
    "ijcnn1": "the 91,701 test rows are not to be had: a split of the training file",
}


@experiment(
    "002.table-2",
    "Labels: additive models on synthetic and real sets",
    "§3.2.2",
    system=LABELS,
    baseline="gradient boosting; a support vector machine, its width and cost by cross-validation",
    note="Stored splits, not those of the source. Of ijcnn1 a split of the training file: its test file is not to be had.",
    cases={
        name: Case(
            (
                less("error", error, "Additive-LA", why=OTHER_ROWS.get(name, "")),
                less("MNLL", log, "Additive-LA", why=OTHER_ROWS.get(name, "")),
                less("seconds", seconds, "Additive-LA"),
                smaller("beside support vectors: error"),
                smaller("beside support vectors: MNLL"),
            ),
            minutes={"synthetic": 0.5, "breast cancer": 0.3, "magic": 0.3, "ijcnn1": 0.7}[name],
            repeats=10 if name == "breast cancer" else 1,
        )
        for name, (error, log, seconds, _, _) in TABLE_2.items()
    },
    each=one_label_fit,
    over=lambda case, how: of_every_label_model("synthetic, eight columns" if case == "synthetic" else case, how),
)
def table_2(case: str, rows: Rows) -> dict[str, Found]:
    return labels(rows)


@experiment(
    "002.figure-8",
    "Time of an evidence on the corners of a hypercube",
    "§3.3",
    system=GRIDS,
    baseline="one dense matrix, 256 to 4,096 corners (the source: 2.6)",
    note="The task of 000.figure-5.1.",
    cases=Case((less("log–log slope, grid", 1.05, "GP-grid", within=0.1, why="as for 000.figure-5.1"),), minutes=1),
)
def figure_8(case: str, how: How) -> dict[str, Found]:
    sizes, few = [2**14, 2**16, 2**18, 2**20], [256, 1024, 4096]
    ours, dense = [corners("kronecker", N) for N in sizes], [corners("dense", N) for N in few]
    return {"log–log slope, grid": Found(slope(sizes, ours), slope(few, dense))}


@experiment(
    "002.figure-9",
    "A picture of 200 × 200: cleaned, and at twice the size from a quarter of the pixels",
    "§3.3",
    system=GRIDS,
    baseline="the best Gaussian filter, whose width knows the truth (dB)",
    note="`python -m benchmarks grid-image`: another picture with noise of our own; CPU seconds, compiling included.",
    cases=Case(
        (
            less("seconds to learn and clean, and bands", 1533, "42.75 s + 1490 s"),
            less("seconds to learn and enlarge, and bands", 192, "4.57 s + 187 s"),
            larger("dB of the cleaned picture", within=0.01),
            between(
                "part of the pixels in their 95 % bands",
                "(ours)",
                0.9,
                1.0,
                why="a stationary process does not know where a picture has its edges, and is too sure there",
            ),
        ),
        minutes=1.5,
    ),
)
def figure_9(case: str, how: How) -> dict[str, Found]:
    seconds, found = [], {}
    for method in ("structgp", "structgp, twice the size", "best Gaussian filter"):
        began = time.process_time()
        found |= problem_results("grid-image", 200**2, [method])
        seconds.append(time.process_time() - began)
    ours = value(found, "structgp", "dB")
    return {
        "seconds to learn and clean, and bands": Found(seconds[0]),
        "seconds to learn and enlarge, and bands": Found(seconds[1]),
        "dB of the cleaned picture": Found(ours, value(found, "best Gaussian filter", "dB")),
        "part of the pixels in their 95 % bands": Found(value(found, "structgp", "covered")),
    }
