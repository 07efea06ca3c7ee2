"""`python -m benchmarks [NAME …]`: measure named problems side by side with the installed peers, print tables, write JSON."""

import argparse
import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import budgets, chooser_study, forecasts, history, house, labels_table, plan_honesty
from benchmarks.machine import machine, one_line
from benchmarks.registry import Problem, load_problems
from benchmarks.report import slope_lines, slopes, summarise, table
from benchmarks.run import Limits, run_problem

FOOT = (
    "cold: import, set-up and first call in a fresh process, compilation included, interpreter start not; "
    "warm: best of all further calls; added: peak memory above that of the process holding only the data."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure, print; the exit status is 0 unless the request itself makes no sense."""
    words = list(sys.argv[1:] if argv is None else argv)
    studies = {
        "plan-honesty": plan_honesty.main,
        "chooser-study": chooser_study.main,
        "forecast-study": forecasts.main,
        "budgets": budgets.main,
        "labels-table": labels_table.main,
        "labels-dense": labels_table.dense,
        "history": history.main,
        "house": house.main,
    }
    if words[:1] and words[0] in studies:
        return studies[words[0]](words[1:])
    parser = make_parser()
    options = parser.parse_args(words)
    problems = load_problems(*options.modules)
    if options.list:
        print(listing(problems))
        return 0
    chosen = pick(parser, "problem", options.names, problems)
    pick(parser, "method", split(options.peers), dict.fromkeys(m for name in chosen for m in problems[name].methods))
    info = machine()
    print(one_line(info), flush=True)
    blocks = [measure(problems[name], options) for name in chosen]
    if options.json:
        write_json(options, info, blocks)
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="problems to run, before the options (default: all; see --list)"
    )
    parser.add_argument("--sizes", nargs="+", metavar="N", help="numbers of data, in place of the problem's own")
    parser.add_argument("--peers", nargs="+", metavar="METHOD", help="only these methods beside structgp (default: all)")
    parser.add_argument("--reference", nargs="+", metavar="METHOD", help="print ratios of warm time against these methods")
    parser.add_argument("--repeat", type=int, metavar="K", help="rounds over all methods, each in fresh processes")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds allowed to one process (default 600)"
    )
    parser.add_argument(
        "--wait-idle", type=float, default=0.0, metavar="S", help="wait up to S s for an idle machine each time"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, two warm calls: does everything work?")
    parser.add_argument("--markdown", action="store_true", help="tables as markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, every raw timing and the tables")
    parser.add_argument("--list", action="store_true", help="name the problems and their methods")
    parser.add_argument(
        "--from", nargs="+", default=[], dest="modules", metavar="MODULE", help="also load problems from these modules"
    )
    return parser


def listing(problems: dict[str, Problem]) -> str:
    return "\n".join(
        f"{p.name}: {p.about}\n    N = {', '.join(map(str, p.sizes))}; methods: {', '.join(p.methods)}"
        for p in problems.values()
    )


def measure(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """Run one problem and print its table."""
    sizes = [int(n) for n in split(options.sizes)] or (problem.quick if options.quick else problem.sizes)
    peers = split(options.peers) or list(problem.methods)
    methods = [m for m in problem.methods if m in peers or m == "structgp"]
    repeat = options.repeat or (1 if options.quick else problem.repeat)
    limits = Limits(options.timeout, 2 if options.quick else problem.calls, options.wait_idle)
    records = run_problem(problem, sizes, methods, repeat, limits, tell=lambda line: print(line, file=sys.stderr))
    rows = summarise(problem, records, split(options.reference) or None)
    print(f"\n{problem.name}: {problem.about}\n", table(rows, options.markdown), slope_lines(rows), FOOT, sep="\n", flush=True)
    return {"problem": problem.name, "about": problem.about, "rows": rows, "slopes": slopes(rows), "records": records}


def split(words: Sequence[str] | None) -> list[str]:
    """Words given apart or with commas between them."""
    return [part for word in words or [] for part in word.split(",") if part]


def pick(parser: argparse.ArgumentParser, kind: str, names: Sequence[str], known: Any) -> list[str]:
    """The names asked for, all of them when none was; an unknown one ends the run with what is known."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            parser.error(f"unknown {kind} {name!r}: {hint}")
    return list(names) or list(known)


def write_json(options: argparse.Namespace, info: dict[str, Any], blocks: list[dict[str, Any]]) -> None:
    content = {"format": 1, "command": sys.argv, "machine": info, "problems": blocks}
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written: {options.json}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
