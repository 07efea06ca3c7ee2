"""Saatçi, chapter 5: grids."""

from study.baselines import cpu_seconds, problem_results, slope, value
from study.registry import Case, Found, How, below, cannot, experiment, less, smaller

SYSTEM = "grids"


def corners(structure: str, N: int) -> float:
    """CPU seconds of one evidence with its gradient on the corners of a hypercube, compiled."""
    from benchmarks.problems.grids import cells, on_grid
    from benchmarks.problems.grids import corners as axes

    run = on_grid(cells(axes, 1.0)(N), structure)
    return cpu_seconds(run.call, 3)


@experiment(
    "000.figure-5.1",
    "Time of an evidence on the corners of a hypercube against their number",
    "§5.3.1",
    system=SYSTEM,
    baseline="one dense matrix, 256 to 4,096 corners (the source: slope 2.6)",
    note="Evidence with its gradient, CPU seconds, compiled; 2¹⁴ to 2²⁰ corners.",
    cases=Case(
        (
            less(
                "log–log slope, grid",
                0.97,
                "Algorithm 16",
                within=0.15,
                why=(
                    "each doubling of the corners is one axis more, so the work is N log N, and it was measured where "
                    "arrays outgrow "
                    "the caches, from 2¹⁴ corners on: below, an evaluation is over in a millisecond"
                ),
            ),
            below("seconds for 2²⁰ corners", "less than a dense matrix of 4,096"),
        ),
        minutes=1,
    ),
)
def figure_5_1(case: str, how: How) -> dict[str, Found]:
    sizes, few = [2**14, 2**16, 2**18, 2**20], [256, 1024, 4096]
    ours, dense = [corners("kronecker", N) for N in sizes], [corners("dense", N) for N in few]
    return {
        "log–log slope, grid": Found(slope(sizes, ours), slope(few, dense)),
        "seconds for 2²⁰ corners": Found(ours[-1], dense[-1]),
    }


cannot(
    "000.table-5.1",
    "Record linkage: 5.7 million pairs in 174,528 cells",
    "§5.3.2",
    SYSTEM,
    "the file of record pairs is not to be had here (000.table-5.1b does the same task with other data)",
)


@experiment(
    "000.table-5.1b",
    "Skin or not, from a colour: 245,057 labels on a grid, in place of record linkage",
    "§5.3.2",
    system=SYSTEM,
    baseline="logistic regression",
    note=(
        "`python -m benchmarks grid-skin`: 32³ cells, 80 % to learn from. Order of the methods, not the numbers, is "
        "what can be compared."
    ),
    cases=Case(
        (
            below("errors", "fewer than logistic regression"),
            below("errors, beside the histogram", "fewer than the histogram of the cells"),
            below(
                "errors, beside the nearest neighbour",
                "fewer than the nearest neighbour",
                why=("the nearest neighbour sees the 256 levels of each colour, the grid 32"),
            ),
            smaller("mean −log p"),
            below("mean −log p, beside the histogram", "better than the histogram"),
        ),
        minutes=1,
    ),
)
def table_5_1(case: str, how: How) -> dict[str, Found]:
    methods = ["structgp", "histogram", "logistic regression", "nearest neighbour"]
    found = problem_results("grid-skin", 32**3, methods)
    errors, logs = ({method: value(found, method, name) for method in methods} for name in ("errors", "MNLL"))
    return {
        "errors": Found(errors["structgp"], errors["logistic regression"]),
        "errors, beside the histogram": Found(errors["structgp"], errors["histogram"]),
        "errors, beside the nearest neighbour": Found(errors["structgp"], errors["nearest neighbour"]),
        "mean −log p": Found(logs["structgp"], logs["logistic regression"]),
        "mean −log p, beside the histogram": Found(logs["structgp"], logs["histogram"]),
    }
