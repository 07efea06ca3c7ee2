"""Run the tables and figures of the sources again, and print what they say beside ours and beside a modern baseline.

    python -m study --list                                # every table and figure: what, which system, status
    python -m study --list 003 --status cannot            # those of one source, with a word in their status
    python -m study 000.table-3.1 003.figure-3.2          # run, print, keep the results and make the pages
    python -m study 001.table-2.1 --cases heart thyroid   # some of the data sets
    python -m study --longest 0.5 002                     # all that takes at most half a CPU minute
    python -m study --pages                               # docs/study again from the results that are kept

Results are kept in docs/study/results, one file for each experiment; --discard only prints. --repeats sets how many splits or
draws are made, --first the number of the first of them. Real data are read from STRUCTGP_DATA (default ../shared/data).
"""

import argparse
import difflib
import shlex
import sys
import traceback
from collections.abc import Sequence

from benchmarks.registry import Unavailable

from study import pages
from study.registry import SOURCES, Experiment, How, load_experiments
from study.results import all_found, found_in, keep, run
from study.verdicts import duration, status, unmet


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
    failed = [e.id for e in chosen if not run_one(e, options)]
    if not options.discard:
        pages.write(experiments.values())
    if failed:
        print(f"not run: {', '.join(failed)}", file=sys.stderr)
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


def run_one(experiment: Experiment, options: argparse.Namespace) -> bool:
    """Its cases one after the other, printed as they end; whether there was nothing in the way."""
    print(f"\n{experiment.id}: {experiment.title} ({experiment.place})")
    if experiment.kind != "runs":
        print(f"  {status(experiment, {})}")
        return True
    kept, fine = all_found(experiment.id), True
    for name, case in experiment.cases.items():
        if options.cases and name not in options.cases:
            continue
        if case.minutes > options.longest or (options.missing and name in kept):
            continue
        how = How(options.repeats or case.repeats, options.first)
        print(f"  {name}: about {duration(case.minutes)}", flush=True)
        try:
            record = run(experiment, name, how, command_of(experiment, name, options))
        except Unavailable as reason:
            print(f"  {name}: {reason}")
            fine = False
            continue
        except Exception:  # the others run all the same
            traceback.print_exc()
            fine = False
            continue
        found = found_in(record)
        print(pages.HEADER, *pages.rows(name, case, found), sep="\n")
        print(*(f"  why not, {q.name}: {q.why or 'no reason is known'}" for q in unmet(case, found)), sep="\n")
        print(pages.how_it_ran(name, record), flush=True)
        if not options.discard:
            keep(experiment.id, name, record)
    return fine


def command_of(experiment: Experiment, name: str, options: argparse.Namespace) -> str:
    """What to type to run this case alone."""
    words = ["python", "-m", "study", experiment.id]
    words += ["--cases", name] if len(experiment.cases) > 1 else []
    words += ["--repeats", str(options.repeats)] if options.repeats else []
    words += ["--first", str(options.first)] if options.first else []
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
