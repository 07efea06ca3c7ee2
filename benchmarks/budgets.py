"""How long does `structgp fit --budget` take? Every fit has a fresh process on two cores of its own, and compiles all anew.

    python -m benchmarks budgets                                    # sixteen tables, 30 s, 60 s and 120 s, two cores each
    python -m benchmarks budgets --tables nile pima --budgets 30s   # some of them
    python -m benchmarks budgets --jobs 24                          # busy: on 16 cores three processes share two cores

For each fit: the budget, seconds by the clock from the start of the process to its end, their ratio, how many of
the candidates were tried, and which was taken. A machine that is used for nothing else, and as many jobs as it has pairs of
cores (the default), is an idle one. Below stand the longest ratio and how many fits took more than 1.2 times their budget.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.chooser_study import CORES, bound_to, slots, surroundings
from benchmarks.data import find
from benchmarks.run import ROOT, last_line

TABLES = {  # the file and the target, and perhaps the time
    "co2-weekly": ("mauna_loa_co2/weekly_1958_2001", "co2_ppm"),
    "sunspots": ("sunspots_monthly/data", "sunspot_number", "time"),
    "nile": ("nile_622_1284/data", "min_level", "year"),
    "food": ("portfolios30_daily/data", "Food", "date"),
    "motorcycle": ("motorcycle/data", "accel"),
    "jura": ("jura/train", "Cd"),
    "meuse": ("meuse/data", "zinc"),
    "heart-deaths": ("finland_heart/data_20km", "deaths"),
    "concrete": ("uci_concrete/data", "strength"),
    "airfoil": ("uci_airfoil/data", "sound_db"),
    "abalone": ("uci_abalone/data", "rings"),
    "pumadyn": ("pumadyn32nm/train", "y"),
    "kin40k": ("kin40k/train", "y"),
    "pima": ("pima_ripley/train", "type"),
    "crabs": ("crabs/data", "sp"),
    "magic": ("magic/data", "class"),
}
LATE = 1.2  # times the budget
PATIENCE = 10  # times the budget after which a fit is given up

Record = dict[str, Any]


def main(words: Sequence[str]) -> int:
    """Run all fits, print a line for each as it ends, and what is worst."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks budgets", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--budgets", nargs="+", default=["30s", "60s", "120s"], metavar="TIME")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or CORES) // CORES, 1), help="processes at a time")
    parser.add_argument("--json", type=Path, help="the file to which a line is added for each fit")
    options = parser.parse_args(words)
    cores = queue.SimpleQueue[list[int]]()
    for slot in slots(options.jobs):
        cores.put(slot)
    cases = [(name, budget) for budget in reversed(options.budgets) for name in options.tables]
    found = []
    print(f"{'table':<14} budget    wall s  ratio  tried  chosen", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, *case, cores) for case in cases]):
            found.append(future.result())
            print(line(found[-1]), flush=True)
            if options.json is not None:
                with options.json.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    ran = [record for record in found if "failed" not in record]
    late = [record for record in ran if record["ratio"] > LATE]
    print(f"{len(late)} of {len(found)} took more than {LATE} times their budget; {len(found) - len(ran)} failed")
    if ran:
        print(f"longest: {max(record['ratio'] for record in ran):.2f} times the budget")
    return 0


def one(name: str, budget: str, cores: "queue.SimpleQueue[list[int]]") -> Record:
    """One fit in a fresh process."""
    own, (file, target, *order) = cores.get(), TABLES[name]
    folder, _, stem = file.partition("/")
    head = {"table": name, "budget": budget}
    try:
        with tempfile.TemporaryDirectory() as out:
            words = [sys.executable, "-m", "structgp", "fit", str(find(folder) / f"{stem}.csv.gz"), "--target", target]
            words += [*(["--time", *order] if order else []), "--budget", budget, "--out", out, "--json"]
            clock = time.monotonic()
            try:
                most = PATIENCE * seconds(budget)
                run = [*bound_to(own), *words]
                ended = subprocess.run(run, capture_output=True, text=True, env=surroundings(), cwd=ROOT, timeout=most)
            except subprocess.TimeoutExpired:
                return head | {"failed": f"no end in {most:.0f} s"}
            wall = time.monotonic() - clock
        if ended.returncode:
            return head | {"failed": f"ended with {ended.returncode}: {ended.stdout[-200:]}{last_line(ended.stderr)}"}
        answer = json.loads(ended.stdout.splitlines()[-1])
        trials = answer["candidates"]
        chosen = next(trial["name"] for trial in trials if trial["chosen"])
        tried = sum(trial["log_evidence"] is not None for trial in trials)
        return head | {
            "wall": wall,
            "ratio": wall / seconds(budget),
            "tried": f"{tried}/{len(trials)}",
            "chosen": chosen,
            "scores": answer["scores"].get("this model", {}),
        }
    finally:
        cores.put(own)


def seconds(budget: str) -> float:
    from structgp.tables.cli import seconds_of

    return seconds_of(budget)


def line(record: Record) -> str:
    head = f"{record['table']:<14} {record['budget']:>6} "
    if "failed" in record:
        return head + record["failed"]
    return head + f"{record['wall']:>9.1f} {record['ratio']:>6.2f} {record['tried']:>6}  {record['chosen']}"
