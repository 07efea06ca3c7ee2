"""`python -m benchmarks plan-honesty`: what the plan says an operation takes, beside what it took.

Every engine × situation × size runs in a process of its own. After a first call, which compiles, an operation is timed for
half a second, and the best counts; learning is timed once. On a CPU a long call counts no more than the processor time
that it took, so that neighbours on a busy machine count little. What a first call takes longer is compilation: where that is
asked for, no cache of programs on disk is used. A case that does not end keeps what it had measured, and what the plan said.

The plan speaks of all of them; compilation is that of learning, conditioning and predicting. All operations are held against
`Cholesky` with as many rows, where that was measured as well or follows by how a matrix grows: what is slower is a cliff.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import machine, one_line

SITUATIONS = ("easy", "low noise", "smooth", "few holes", "holes", "unequal noise", "non-Gaussian")
OPERATIONS = (
    "learn",
    "evaluate",
    "condition",
    "predict 1,000",
    "everywhere",
    "sample",
    "leave-one-out",
    "update",
    "save + load",
    "compile",
)
PLANNED = ("learn", "condition", "predict 1,000")  # what is compiled for as the plan says
PLACES = 1000
DRAWN = 200  # places of a joint draw
MARGIN = 3.0  # how far the plan may be off, either way
CALLS, SECONDS = 50, 0.5  # of each operation, after the first
DENSE = "Cholesky"
LEAST = 0.05  # seconds below which nothing is a cliff
GROWTH = dict.fromkeys(OPERATIONS[:-1], 2) | dict.fromkeys(("learn", "evaluate", "condition", "everywhere", "leave-one-out"), 3)
TICKS = 0.05  # seconds from which on the clock of the processor can be relied on


class Data(NamedTuple):
    """What one case is given: a model, its inputs, and the options of `condition`."""

    gp: Any
    X: Any
    y: Any
    options: dict[str, Any]
    new: Any  # 1,000 places


class Family(NamedTuple):
    """One engine: how to make data of a size, what asks for it, and the situations that it is for."""

    make: Callable[[int, str], Data]
    structure: str | Callable[[], Any]  # a name, or what makes an approximation
    engine: str  # the class
    sizes: tuple[int, int, int]
    situations: tuple[str, ...] = SITUATIONS


def likelihood(sg: Any, situation: str) -> Any:
    return sg.Bernoulli() if situation == "non-Gaussian" else sg.Gaussian(1e-4 if situation == "low noise" else 0.1)


def scale(situation: str) -> float:
    """How far values are alike, where all inputs lie between 0 and 1."""
    return 0.5 if situation == "smooth" else 0.1


def observed(X: np.ndarray, situation: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Values of a smooth function at the rows of X, as they are seen in a situation, and the options that say so."""
    rng = np.random.default_rng(0)
    f = np.sin(X @ (2.0 / scale(situation) / (1 + np.arange(X.shape[1]))))
    if situation == "non-Gaussian":
        return rng.random(len(f)) < 1 / (1 + np.exp(-3 * f)), {}
    y = f + math.sqrt(1e-4 if situation == "low noise" else 0.1) * rng.standard_normal(len(f))
    if situation in ("few holes", "holes"):
        gone = rng.random(len(f)) < (10 / len(f) if situation == "few holes" else 0.2)
        return np.where(gone, np.nan, y), {"missing": "infer"}
    return y, {"noise": rng.uniform(0.0, 0.3, len(f))} if situation == "unequal noise" else {}


def on_points(N: int, situation: str) -> Data:
    import structgp as sg

    rng = np.random.default_rng(1)
    X = rng.random((N, 2))
    gp = sg.GP(sg.Matern52([2 * scale(situation)] * 2), likelihood(sg, situation))
    return Data(gp, X, *observed(X, situation), rng.random((PLACES, 2)))


def with_outliers(N: int, situation: str) -> Data:
    import structgp as sg

    made = on_points(N, "easy")
    return made._replace(gp=made.gp.replace(likelihood=sg.StudentT(4.0, 0.3)))


def along_time(N: int, situation: str) -> Data:
    import structgp as sg

    rng = np.random.default_rng(1)
    t = np.sort(rng.random(N))
    gp = sg.GP(sg.Matern52(scale(situation)), likelihood(sg, situation))
    return Data(gp, t, *observed(t[:, None], situation), rng.random(PLACES))


def regular(N: int, situation: str) -> Data:
    made = along_time(N, situation)
    t = np.arange(N) / N
    return Data(made.gp, t, *observed(t[:, None], situation), made.new)


def smooth_series(N: int, situation: str) -> Data:
    import structgp as sg

    made = regular(N, situation)  # as long as it has places: one more year of the same
    length = 300.0 if situation == "smooth" else 30.0
    kernel = sg.SquaredExponential(length)
    t = np.arange(float(N))
    y, options = observed(t[:, None] / length * scale(situation), situation)
    return Data(made.gp.replace(kernel=kernel), t, y, options, N * made.new)


def on_grid(sizes: tuple[int, ...], situation: str, kernel: Any) -> Data:
    import structgp as sg

    X = sg.Grid(*(np.linspace(0.0, 1.0, size) for size in sizes))
    y, options = observed(X.points, situation)
    rng = np.random.default_rng(1)
    return Data(sg.GP(kernel, likelihood(sg, situation)), X, y, options, rng.random((PLACES, len(sizes))))


def square(N: int, situation: str) -> Data:
    import structgp as sg

    side = round(math.sqrt(N))
    return on_grid((side, side), situation, sg.SquaredExponential([scale(situation)] * 2))


def few_seen(N: int, situation: str) -> Data:
    made = square(10_000, "easy")
    seen = np.random.default_rng(2).permutation(10_000) < N
    return made._replace(y=np.where(seen, made.y, np.nan), options={"missing": "infer"})


def space_time(N: int, situation: str) -> Data:
    import structgp as sg

    places = round((N / 10) ** 0.5)  # ten times as many times as places
    kernel = sg.SquaredExponential(scale(situation)).on(0) * sg.Matern32(scale(situation)).on(1)
    return on_grid((places, N // places), situation, kernel)


def long_lines(N: int, situation: str) -> Data:
    import structgp as sg

    kernel = sg.SquaredExponential(scale(situation)).on(0) * sg.SquaredExponential(10 * scale(situation) / (N // 10)).on(1)
    return on_grid((10, N // 10), situation, kernel)


def polynomials(N: int, situation: str) -> Data:
    import structgp as sg

    rng = np.random.default_rng(1)
    X = rng.random((N, 4))
    gp = sg.GP(sg.Constant() + sg.Linear() + sg.Polynomial(degree=2), likelihood(sg, situation))
    return Data(gp, X, *observed(X, situation), rng.random((PLACES, 4)))


def sums(N: int, situation: str) -> Data:
    import structgp as sg

    rng = np.random.default_rng(1)
    X = rng.random((N, 4))
    kernel = sum((sg.Matern52(scale(situation)).on(d) for d in range(1, 4)), sg.Matern52(scale(situation)).on(0))
    return Data(sg.GP(kernel, likelihood(sg, situation)), X, *observed(X, situation), rng.random((PLACES, 4)))


def classes(made: Data) -> Data:
    import structgp as sg

    X = np.asarray(made.X).reshape(len(made.y), -1)
    y = np.digitize(observed(X, "easy")[0], [-0.5, 0.5])
    return made._replace(gp=made.gp.replace(likelihood=sg.Categorical(3)), y=y, options={})


def several_outputs(N: int, situation: str) -> Data:
    import structgp as sg

    made = smooth_series(N // 3, situation)
    t, y = np.asarray(made.X), np.asarray(made.y)
    X, numbers = np.stack([np.repeat(t, 3), np.tile(np.arange(3.0), len(t))], axis=1), np.arange(PLACES) % 3
    kernel = sg.Coregion([[0.7], [-0.4], [1.1]], [0.3, 0.5, 0.2]).on(1) * made.gp.kernel.on(0)
    noise = [float(np.reshape(made.gp.likelihood.noise, -1)[0])] * 3
    values = np.stack([y, 0.5 * y, np.roll(y, 1)], axis=1).ravel()
    return Data(sg.GP(kernel, sg.Gaussian(noise)), X, values, {}, np.stack([made.new, numbers], axis=1))


def scattered_times(N: int, situation: str) -> Data:
    import structgp as sg

    made = along_time(N, situation)
    return made._replace(gp=made.gp.replace(kernel=sg.SquaredExponential(scale(situation))))


def in_groups() -> Any:
    import structgp as sg

    return sg.Inducing(100, "pitc")


GAPS = ("holes", "unequal noise")
ALIKE = ("easy", "low noise", "smooth")
FAMILIES = {
    "Cholesky": Family(on_points, "dense", "Cholesky", (300, 1000, 3000)),
    "Cholesky, any sign": Family(with_outliers, "dense", "SignedCholesky", (200, 500, 1000), ("non-Gaussian",)),
    "Kalman": Family(along_time, "markov", "Kalman", (1000, 10_000, 100_000)),
    "Kalman, regular": Family(regular, "markov", "Kalman", (1000, 20_000, 200_000), (*ALIKE, *GAPS)),
    "Eigen": Family(square, "kronecker", "Eigen", (900, 10_000, 90_000), (*ALIKE, "few holes")),
    "Cholesky, seen cells": Family(few_seen, "kronecker", "SeenCells", (300, 1000, 1900), ("holes",)),
    "Krylov": Family(square, "kronecker", "Krylov", (900, 3600, 14_400), ("unequal noise", "holes", "non-Gaussian")),
    "Chains": Family(space_time, "space-time", "SpaceTimeChains", (1000, 10_000, 40_000), ALIKE),
    "JointChain": Family(space_time, "space-time", "JointChain", (500, 2000, 5000), GAPS),
    "Lines": Family(long_lines, "toeplitz-grid", "ToeplitzLines", (2000, 10_000, 50_000), ALIKE),
    "Toeplitz": Family(smooth_series, "toeplitz", "FourierToeplitz", (1000, 5000, 20_000), (*ALIKE, "few holes")),
    "Fourier": Family(smooth_series, "toeplitz", "FourierHoles", (4500, 10_000, 30_000), GAPS),
    "Woodbury": Family(polynomials, "features", "Woodbury", (1000, 10_000, 100_000)),
    "Neighbours": Family(on_points, "neighbours", "NeighbourEngine", (1000, 10_000, 50_000), (*ALIKE, *GAPS)),
    "Inducing": Family(on_points, "inducing:100", "InducingEngine", (1000, 5000, 20_000), (*ALIKE, *GAPS, "non-Gaussian")),
    "Inducing, groups": Family(on_points, in_groups, "InducingEngine", (1000, 5000, 20_000), ALIKE),
    "Levinson": Family(several_outputs, "toeplitz", "BlockLevinson", (300, 900, 3000), (*ALIKE, "few holes")),
    "State-space": Family(scattered_times, "state-space", "Kalman", (1000, 10_000, 100_000), (*ALIKE, *GAPS)),
    "Inducing, classes": Family(
        lambda N, _: classes(on_points(N, "easy")), "inducing:50", "IndependentInducing", (300, 1000, 3000), ("non-Gaussian",)
    ),
    "Additive": Family(sums, "additive", "AdditiveEngine", (500, 3000, 20_000), ("easy", "low noise", "smooth", *GAPS)),
    "Cholesky, classes": Family(
        lambda N, _: classes(on_points(N, "easy")), "dense", "IndependentCholesky", (100, 300, 800), ("non-Gaussian",)
    ),
    "Kalman, classes": Family(
        lambda N, _: classes(along_time(N, "easy")), "markov", "IndependentKalman", (300, 2000, 10_000), ("non-Gaussian",)
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for, print the table and the worst ratios."""
    options = make_parser().parse_args(argv)
    if options.case:
        for found in measure(*options.case[:2], int(options.case[2]), options.operations):
            print(json.dumps(found), flush=True)
        return 0
    if options.read:
        rows = [row for file in options.read for row in json.loads(file.read_text())["rows"]]
        print(*as_table(rows), "", *worst(rows), *growing(rows), *cliffs(rows), sep="\n")
        return 0
    info = machine()
    print(one_line(info), flush=True)
    sizes = {"small": [0], "middle": [1], "large": [2], "all": [0, 1, 2]}["small" if options.quick else options.sizes]
    rows = []
    for name, situation, size in cases(options.engines, ["easy"] if options.quick else options.situations, sizes):
        rows += told(name, situation, size, in_a_process(name, situation, size, options))
        if options.json:  # after every case: a run may take long
            options.json.write_text(json.dumps({"machine": info, "rows": rows}, indent=1) + "\n")
    print("", *worst(rows), *growing(rows), *cliffs(rows), sep="\n")
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks plan-honesty", description=__doc__)
    parser.add_argument("--engines", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="ENGINE")
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS), metavar="SITUATION")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="OPERATION")
    parser.add_argument("--sizes", choices=("small", "middle", "large", "all"), default="all")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds allowed to one case (default 600)")
    parser.add_argument("--quick", action="store_true", help="the smallest size and the first situation of each engine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="measure nothing: a table of what was written")
    parser.add_argument("--case", nargs=3, metavar=("ENGINE", "SITUATION", "N"), help=argparse.SUPPRESS)
    return parser


def cases(engines: Sequence[str], situations: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[str, str, int]]:
    """Engine, situation and size of what is measured; an engine that is not for any of the situations has its first."""
    for name in engines:
        family = FAMILIES[name]
        for situation in [own for own in family.situations if own in situations] or family.situations[:1]:
            yield from ((name, situation, family.sizes[i]) for i in sizes)


def in_a_process(name: str, situation: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a case of its own process says, or why it says nothing."""
    command = [sys.executable, "-m", "benchmarks", "plan-honesty", "--case", name, situation, str(size)]
    command += ["--operations", *options.operations]
    cache = {"JAX_ENABLE_COMPILATION_CACHE": "false"} if "compile" in options.operations else {}
    with tempfile.TemporaryFile("w+") as told:
        try:
            ended = subprocess.run(
                command, stdout=told, stderr=subprocess.PIPE, text=True, timeout=options.timeout, env=os.environ | cache
            )
            failed = (ended.stderr.strip().splitlines() or [f"exit {ended.returncode}"])[-1][:200] if ended.returncode else ""
        except subprocess.TimeoutExpired:
            failed = f"no end in {options.timeout:.0f} s"
        told.seek(0)
        found: dict[str, Any] = {"operations": {}}
        for line in told:
            part = json.loads(line)
            found["operations"] |= part.pop("operations", {})
            found |= part
    return found | ({"no": failed} if failed else {})


def measure(name: str, situation: str, size: int, operations: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Predicted and measured seconds of each operation, as they come."""
    family = FAMILIES[name]
    gp, X, y, options, new = family.make(size, situation)
    known = {key: value for key, value in options.items() if key != "missing"}
    structure = family.structure if isinstance(family.structure, str) else family.structure()
    plan = gp.plan(X, structure, y=y, parameters="best", **known)  # `condition` averages over nothing
    if type(plan.engine).__name__ != family.engine:
        yield {"no": f"the plan takes {plan.engine.name}"}
        return
    estimate = plan.estimate()
    said = {
        "learn": estimate.learn + estimate.condition,  # as `fit` does
        "evaluate": (estimate.learn + estimate.condition) / estimate.evaluations,
        "condition": estimate.condition,
        "predict 1,000": estimate.predict,
        "everywhere": estimate.everywhere,
        "sample": estimate.sample,
        "leave-one-out": estimate.leave_one_out,
        "update": estimate.update,
        "save + load": estimate.save,
        "compile": estimate.compile,
    }
    yield {"bytes": estimate.bytes, "said": said}
    options = options | {"structure": structure}
    ended: list[Any] = []
    fit = lambda: ended.append(gp.fit(X, y, parameters="best", **options).learning)

    def row(operation: str, seconds: float, count: int = 1) -> dict[str, Any]:
        more = {"said evaluations": estimate.evaluations} if operation == "learn" else {}
        return {"operations": {operation: {"said": said.get(operation), "seconds": seconds, "count": count} | more}}

    compiling = 0.0
    if {"learn", "evaluate"} & set(operations):
        first, _ = timed(fit, calls=1)
        seconds, _ = timed(fit, calls=1)
        compiling += first - seconds
        yield row("learn", seconds, ended[-1].evaluations)
        yield row("evaluate", seconds / ended[-1].evaluations)
    for operation, call in calls(gp, X, y, options, new, operations):
        first, _ = timed(call, calls=1)
        seconds, count = timed(call)
        yield row(operation, seconds, count)
        compiling += (first - seconds) * (operation in PLANNED)
    if {"compile", *PLANNED} <= set(operations):
        yield row("compile", compiling)


def calls(
    gp: Any, X: Any, y: Any, options: dict[str, Any], new: Any, operations: Sequence[str]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is timed by calling it, by name."""
    import structgp as sg
    from structgp.kernels.outputs import outputs_of

    fitted = gp.condition(X, y, **options)
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "model.sgp"
    rows = np.asarray(new)
    at_end = rows[:1] if rows.ndim > 1 else np.asarray([np.max(X) + np.median(np.diff(X))])

    def saved() -> Any:
        fitted.save(path)
        return sg.load(path)

    found = {
        "condition": lambda: gp.condition(X, y, **options),
        "predict 1,000": lambda: fitted.predict(new),
        "everywhere": lambda: fitted.predict(X),
        "sample": lambda: fitted.sample(rows[:DRAWN], seed=0),
        "leave-one-out": fitted.leave_one_out,
        "update": lambda: fitted.update(at_end, np.asarray(y)[:1]),
        "save + load": saved,
    }
    if isinstance(X, sg.Grid) or outputs_of(gp.kernel):
        del found["update"]  # one place more is no grid, and one output more not all of them at the next time
    yield from ((name, call) for name, call in found.items() if name in operations)


def timed(call: Callable[[], Any], calls: int = CALLS) -> tuple[float, int]:
    """Seconds of a call, the best of some, and how many there were.

    On a CPU no more than the mean of the processor time, if all together were long enough for its clock.
    """
    import jax

    walls: list[float] = []
    began = time.process_time()
    while not walls or (len(walls) < calls and sum(walls) < SECONDS):
        start = time.perf_counter()
        jax.block_until_ready(call())
        walls.append(time.perf_counter() - start)
    cpu = (time.process_time() - began) / len(walls)
    return min(*walls, cpu) if jax.default_backend() == "cpu" and sum(walls) > TICKS else min(walls), len(walls)


def told(name: str, situation: str, size: int, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a case, printed as they come."""
    case = {"engine": name, "situation": situation, "size": size}
    head = f"{name:<20} {situation:<13} {size:>7}"
    rows = [case | {"operation": operation} | row for operation, row in found.get("operations", {}).items()]
    for row in rows:
        count = f"  {row['said evaluations']} evaluations, were {row['count']}" if row["operation"] == "learn" else ""
        said = "" if row["said"] is None else f"{row['said']:10.3g} {ratio(row):7.2f}"
        print(f"{head}  {row['operation']:<14} {row['seconds']:10.3g} {said}{count}", flush=True)
    if "no" in found:
        learn = found.get("said", {}).get("learn")
        said = "" if learn is None or "learn" in found.get("operations", {}) else f"; the plan says {learn:.3g} s to learn"
        print(f"{head}  no: {found['no']}{said}", flush=True)
        rows.append(case | {"no": f"{found['no']}{said}"})
    return rows


def ratio(row: dict[str, Any]) -> float:
    """What was said over what was measured."""
    return row["said"] / row["seconds"]


def as_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """In Markdown, for each engine and size: the ratios of said and measured, the lowest and the highest of all situations."""
    columns = [operation for operation in OPERATIONS if any(row.get("operation") == operation for row in rows)]
    lines = [f"| engine | rows | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}"]
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        if row.get("said") is not None and row["seconds"] > 0:
            found.setdefault((row["engine"], row["size"]), {}).setdefault(row["operation"], []).append(ratio(row))
    for (engine, size), ratios in found.items():
        ends = [[f"{end(ratios[column]):.2g}" for end in (min, max)] if column in ratios else [] for column in columns]
        lines.append(f"| {engine} | {size:,} | {' | '.join(' – '.join(dict.fromkeys(both)) for both in ends)} |")
    return lines


def worst(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For each engine and operation the ratio that is farthest from one, and how many are outside of the margin."""
    said = [row for row in rows if row.get("said") is not None and row["seconds"] > 0]
    engines, operations = (list(dict.fromkeys(row[key] for row in said)) for key in ("engine", "operation"))
    lines = [f"worst of said / measured  {''.join(f'{operation:>15}' for operation in operations)}"]
    for engine in engines:
        cells = []
        for operation in operations:
            own = [ratio(row) for row in said if (row["engine"], row["operation"]) == (engine, operation)]
            cells.append(f"{max(own, key=lambda r: abs(math.log(r))):15.2f}" if own else f"{'':15}")
        lines.append(f"{engine:<25} {''.join(cells)}")
    outside = [row for row in said if not 1 / MARGIN <= ratio(row) <= MARGIN]
    lines.append(f"{len(outside)} of {len(said)} are off by more than a factor of {MARGIN:g}:")
    lines += [f"  {row['engine']}, {row['situation']}, {row['size']}: {row['operation']} {ratio(row):.2f}" for row in outside]
    return lines


def growing(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What took more than a factor of three longer at the largest size than growth from the smallest makes of it."""
    said: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("said") is not None and row["seconds"] >= LEAST:
            said.setdefault((row["engine"], row["situation"], row["operation"]), []).append(row)
    ends = {what: (own[0], own[-1]) for what, own in said.items()}
    faster = [", ".join(what) for what, (few, many) in ends.items() if ratio(few) > MARGIN * ratio(many)]
    return [f"grow faster than was said: {'; '.join(faster) or 'none'}"]


def cliffs(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What took longer than a dense matrix of as many rows would take, by its largest measurement and its growth."""
    dense = {(row["operation"], row["size"]): row["seconds"] for row in rows if row["engine"] == DENSE and "seconds" in row}
    if not dense:
        return []
    lines = [f"slower than {DENSE} with as many rows:"]
    for row in rows:
        known = [size for operation, size in dense if operation == row.get("operation") and operation in GROWTH]
        if not known or row["engine"] == DENSE or row["seconds"] < LEAST:
            continue
        nearest = min(known, key=lambda size: abs(math.log(size / row["size"])))
        grown = dense[row["operation"], nearest] * (row["size"] / nearest) ** GROWTH[row["operation"]]
        if row["seconds"] > grown and row["situation"] != "non-Gaussian":
            what = f"{row['engine']}, {row['situation']}, {row['size']}: {row['operation']}"
            lines.append(f"  {what} {row['seconds']:.3g} s, dense about {grown:.3g} s")
    return lines if len(lines) > 1 else [f"nothing is slower than {DENSE} with as many rows"]
