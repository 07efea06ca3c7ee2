"""Run the tables and figures of the sources again, and print what they say beside ours and beside a modern baseline.

    python -m study --list                                # every table and figure: what, which system, status
    python -m study --list 003 --status cannot            # those of one source, with a word in their status
    python -m study 000.table-3.1 003.figure-3.2          # run, print, keep the results and make the pages
    python -m study 001.table-2.1 --cases heart thyroid   # some of the data sets
    python -m study --longest 0.5 002                     # all that takes at most half a CPU minute
    python -m study 003.figure-9.3 003.figure-9.4 --jobs 8 --rows study-rows   # in parts, which a second start goes on with
    python -m study --pages                               # docs/study again from the results that are kept

Results are kept in docs/study/results, one file for each experiment; --discard only prints. --repeats sets how many splits or
draws are made, --first the number of the first of them. Real data are read from STRUCTGP_DATA (default ../shared/data).
"""

import argparse
import difflib
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from study import pages
from study.calls import Made, make_all
from study.registry import SOURCES, Call, Experiment, How, load_experiments
from study.results import all_found, found_in, keep, record, records
from study.verdicts import duration, status


def main(words: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit status is 1 when something could not be run."""
    parser = make_parser()
    options = parser.parse_args(words)
    experiments = load_experiments()
    chosen = pick(parser, options.names, experiments)
    if options.list:
        print(listing(chosen, options.status))
        return 0
    if options.pages:
        print(*(f"written: {path}" for path in pages.write(experiments.values())), sep="\n")
        return 0
    if not options.names:
        parser.error("name experiments or sources to run, or look at --list")
    failed = run_all(tasks_of(chosen, options), options)
    if not options.discard:
        pages.write(experiments.values())
    if failed:
        print(f"not run: {', '.join(f'{task.experiment.id} {task.name}' for task in failed)}", file=sys.stderr)
    return 1 if failed else 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="ID", help="experiments (000.table-4.1), or whole sources (000)")
    parser.add_argument("--list", action="store_true", help="name the experiments with their status")
    parser.add_argument("--status", default="", metavar="WORD", help="for --list: only those whose status has this word")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="only these cases")
    parser.add_argument("--repeats", type=int, metavar="K", help="splits or draws, in place of the case's own number")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the number of the first split or draw")
    parser.add_argument(
        "--longest", type=float, default=float("inf"), metavar="MIN", help="pass over longer cases (CPU minutes)"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time, one thread each")
    parser.add_argument("--rows", type=Path, metavar="DIR", help="keep there what ends, and take from there what ended before")
    parser.add_argument("--missing", action="store_true", help="pass over cases whose results are kept already")
    parser.add_argument("--discard", action="store_true", help="print only: keep no results, make no pages")
    parser.add_argument("--pages", action="store_true", help="make docs/study from the results that are kept")
    return parser


def pick(parser: argparse.ArgumentParser, names: Sequence[str], known: dict[str, Experiment]) -> list[Experiment]:
    """Those asked for; all when nothing was. A name may be an experiment or a source."""
    chosen = [] if names else list(known.values())
    for name in names:
        if name in SOURCES:
            chosen += [e for e in known.values() if e.source == name]
        elif name in known:
            chosen.append(known[name])
        else:
            close = difflib.get_close_matches(name, known, n=3)
            parser.error(f"no experiment {name!r}: {'did you mean ' + ', '.join(close) + '?' if close else 'see --list'}")
    return chosen


def listing(experiments: Sequence[Experiment], word: str) -> str:
    """A line for each experiment, and how many there are of each kind."""
    told = [(e, status(e, all_found(e.id))) for e in experiments]
    lines = [f"{e.id:<18} {e.system:<34} {e.title}\n{'':<18} {text}" for e, text in told if word in text]
    return "\n".join([*lines, "", f"{len(lines)} tables and figures", *pages.sums(list(experiments))])


class Task(NamedTuple):
    """A case to be run."""

    experiment: Experiment
    name: str
    how: How
    command: str

    @property
    def calls(self) -> list[Call]:
        return self.experiment.calls(self.name, self.how)


def tasks_of(experiments: Sequence[Experiment], options: argparse.Namespace) -> list[Task]:
    """The cases that were asked for; what is only drawn is said."""
    tasks = []
    for e in experiments:
        if e.kind != "runs":
            print(f"{e.id}: {e.title} ({e.place})\n  {status(e, {})}")
        kept = records(e.id)
        for name, case in e.cases.items():
            passed = (options.cases and name not in options.cases) or case.minutes > options.longest
            if not passed and not (options.missing and name in kept):
                tasks.append(Task(e, name, How(options.repeats or case.repeats, options.first), command_of(e, name, options)))
    return tasks


def run_all(tasks: Sequence[Task], options: argparse.Namespace) -> list[Task]:
    """Every case, printed and kept as soon as all that it needs is made; those of which something was in the way."""
    print(*(f"{t.experiment.id} {t.name}: about {duration(t.experiment.cases[t.name].minutes)}" for t in tasks), sep="\n")
    made: dict[Call, Made] = {}
    left, failed = list(tasks), []
    cost = {call: t.experiment.cases[t.name].minutes / len(t.calls) for t in tasks for call in t.calls}
    order = sorted(cost, key=lambda call: -cost[call]) if options.jobs > 1 else cost
    for call, one in make_all(order, options.jobs, options.rows):
        made[call] = one
        for task in [t for t in left if call in t.calls and all(c in made for c in t.calls)]:
            left.remove(task)
            if not told(task, made, options.discard):
                failed.append(task)
    return failed


def told(task: Task, made: Mapping[Call, Made], discard: bool) -> bool:
    """Print and keep a case that is made; whether there was nothing in the way."""
    e, name = task.experiment, task.name
    print(f"\n{e.id}: {e.title} ({e.place})")
    if reasons := dict.fromkeys(made[call].reason for call in task.calls if made[call].reason):
        print(f"  {name}:", *reasons, flush=True)
        return False
    found = record(e, name, task.how, task.command, made)
    case, values = e.cases[name], found_in(found)
    print(*([f"Baseline: {e.baseline}."] if e.baseline else []), pages.HEADER, *pages.rows(name, case, values), sep="\n")
    print(*(f"why not:\n{why}\n" for why in pages.reasons(e, {name: values})), sep="", end="")
    print(pages.how_it_ran(name, case, found), *pages.with_what({name: found}), sep="\n", flush=True)
    if not discard:
        keep(e.id, name, found)
    return True


def command_of(experiment: Experiment, name: str, options: argparse.Namespace) -> str:
    """What to type to run this case alone."""
    words = ["python", "-m", "study", experiment.id]
    words += ["--cases", name] if len(experiment.cases) > 1 else []
    words += ["--repeats", str(options.repeats)] if options.repeats else []
    words += ["--first", str(options.first)] if options.first else []
    return shlex.join(words)


def ended(*_: object) -> None:
    """A run that is told to end takes its processes with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    sys.exit(main())
