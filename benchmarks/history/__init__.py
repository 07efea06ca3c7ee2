"""How fast releases are: a short list of problems, kept for each release as JSON, and a run beside the last of them.

    python -m benchmarks history                                       # measure, and compare with the last release
    python -m benchmarks history --json benchmarks/history/0.2.0.json  # measure, compare, and keep it as that of a release
    python -m benchmarks history --of new.json --against old.json      # compare two files

Machines differ and are busy, so seconds of two runs say little. Before and after every problem the yardstick is measured, plain
NumPy and LAPACK, and processor seconds are compared as multiples of it: the least of all calls, which a neighbour disturbs
least. A file is what `python -m benchmarks --json` writes, with the yardsticks among its problems. The exit status is 1 where
something takes more than LIMIT times what it took.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import machine, one_line
from benchmarks.registry import load_problems
from benchmarks.report import summarise, table
from benchmarks.run import Limits, run_problem

FOLDER = Path(__file__).parent
YARDSTICK = "yardstick"
LIMIT = 1.5  # times as long as before: more than two runs on one busy machine differ
SMALL = 0.02  # of the yardstick: what takes less is as much noise as work
MEASURED = ("cold", "warm")  # with import and compilation, and once that is done
ROUNDS = 2

# problem, number of data, method: one of each way to compute, each some seconds with its compilation
KEPT = (
    ("cold-start", 200, "structgp"),
    ("dense-evidence", 1000, "structgp"),
    ("dense-fit", 500, "structgp"),
    ("markov-52", 100_000, "structgp"),
    ("ep-chain", 100_000, "structgp"),
    ("grid-picture", 65_536, "structgp"),
    ("additive-learn", 2000, "structgp"),
    ("inducing-evidence", 10_000, "structgp power"),
)


class Case(NamedTuple):
    """One row of one problem."""

    problem: str
    N: int
    method: str


def main(words: Sequence[str]) -> int:
    """Measure, compare with the last release, print; 1 where something became slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks history", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured, as benchmarks/history/VERSION.json")
    parser.add_argument("--of", type=Path, metavar="FILE", help="compare this file in place of a new run")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with this file (default: the last release)")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does everything work?")
    options = parser.parse_args(words)
    before = options.against or last_release(leave_out=options.json)
    new = json.loads(options.of.read_text()) if options.of else measure(options.quick)
    if options.json:
        options.json.write_text(json.dumps(new, indent=1) + "\n")
        print(f"written: {options.json}", file=sys.stderr)
    if before is None:
        print("there is no earlier release to compare with")
        return 0
    old = json.loads(before.read_text())
    rows = compared(old, new)
    for name, content in ((before.name, old), ("this run", new)):
        if note := busy(content):
            print(f"{name} was measured {note}: its multiples are rough, measure again before a release\n")
    print(f"beside {before.name}, as multiples of the yardstick of each run:\n\n{table(rows)}")
    slower = [row for row in rows if row["note"].startswith("slower")]
    print(f"\n{len(slower)} of {len(rows)} take more than {LIMIT:g} times as long" if slower else "\nnothing became slower")
    return 1 if slower else 0


def last_release(leave_out: Path | None = None, folder: Path = FOLDER) -> Path | None:
    """The file of the newest release that is kept, by its number."""
    there = [path for path in folder.glob("*.json") if leave_out is None or path.resolve() != leave_out.resolve()]
    return max(there, key=lambda path: [int(part) for part in path.stem.split(".")], default=None)


def measure(quick: bool = False) -> dict[str, Any]:
    """All that is kept of a release, with a yardstick before and after each problem."""
    load_problems()
    info = machine()
    print(one_line(info), flush=True)
    blocks = [block(YARDSTICK, None, "numpy", quick)]
    for name, size, method in KEPT:
        blocks += [block(name, size, method, quick), block(YARDSTICK, None, "numpy", quick)]
    return {"format": 1, "command": ["benchmarks", "history"], "machine": info, "problems": blocks}


def block(name: str, size: int | None, method: str, quick: bool) -> dict[str, Any]:
    """One problem at one size, as `python -m benchmarks --json` has it."""
    problem = load_problems()[name]
    sizes = problem.quick if quick else problem.sizes if size is None else (size,)
    records = run_problem(
        problem, sizes, [method], 1 if quick else ROUNDS, Limits(), tell=lambda line: print(line, file=sys.stderr)
    )
    rows = summarise(problem, records, ())
    return {"problem": name, "about": problem.about, "rows": rows, "records": records}


def busy(content: Mapping[str, Any]) -> str:
    """How busy the machine of a run was, where others wanted its cores too."""
    info = content.get("machine", {})
    load, cores = info.get("load_average", [0.0])[0], info.get("cores", 1)
    return f"at a load of {load:.1f} on {cores} cores" if load > cores else ""


def multiples(content: Mapping[str, Any]) -> Iterator[tuple[Case, dict[str, float]]]:
    """Each case of a run, with processor seconds as multiples of the yardsticks beside it; nothing where it failed."""
    blocks = content["problems"]
    yards = {i: used(one["records"])["warm"] for i, one in enumerate(blocks) if one["problem"] == YARDSTICK}
    if not yards:
        raise SystemExit(f"a run without the {YARDSTICK} tells nothing of another machine: measure it by `benchmarks history`")
    for i, one in enumerate(blocks):
        near = [yards[j] for j in (i - 1, i + 1) if j in yards] or list(yards.values())
        unit = sum(near) / len(near)
        cases = dict.fromkeys(Case(one["problem"], r["size"], r["method"]) for r in one["records"]) if i not in yards else {}
        for case in cases:
            records = [r for r in one["records"] if (r["size"], r["method"]) == case[1:]]
            yield case, {name: seconds / unit for name, seconds in used(records).items()}


def used(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The least processor seconds of all rounds that went well."""
    good = [record["cpu"] for record in records if record["status"] == "ok"]
    return {"cold": min(r["cold"] for r in good), "warm": min(t for r in good for t in r["warm"])} if good else {}


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each case of either run: how many times as long it takes, and a word where that is much."""
    old, new = dict(multiples(before)), dict(multiples(after))
    return [compared_case(case, old.get(case), new.get(case)) for case in dict.fromkeys([*old, *new])]


def compared_case(case: Case, old: Mapping[str, float] | None, new: Mapping[str, float] | None) -> dict[str, Any]:
    """One case of two runs; what is missing in one of them, or failed there, says so."""
    row: dict[str, Any] = case._asdict()
    if not new:
        return row | {"note": "gone" if new is None else "failed"}
    if not old:
        return row | {"note": "not measured before"}
    row |= {name: new[name] / old[name] for name in MEASURED if name in old and name in new}
    slower = [name for name in MEASURED if row.get(name, 0.0) > LIMIT and new[name] > SMALL]
    return row | {"note": f"slower: {' and '.join(slower)}" if slower else ""}
