"""`python -m benchmarks chooser-study`: every structure by itself on real tables, and what `structure="auto"` makes of them.

    python -m benchmarks chooser-study --jobs 8 --json study.jsonl            # 36 sets, first split, 60 s for each fit
    python -m benchmarks chooser-study --sets uci_boston raetsch_heart --splits 3 --seconds 30
    python -m benchmarks chooser-study --first 1                              # the second split of every set
    python -m benchmarks chooser-study --json study.jsonl --table             # only the table of what is in the file

Each (set, split, structure) is learned in a process of its own with two cores, and is a line of the file as soon as it is done;
those that are in the file are not run again. `--wall S` ends the study after so many seconds, so that a longer one can be run
in parts. Programs are compiled afresh in each process, and count. Inputs and targets are as they are stored.

For numbers: NMSE, the squared error over the variance of the test targets, and the mean −log density of targets in units of
their standard deviation; for labels: the part that is wrong, and the mean −log probability. The first table has, for each
structure, NMSE or −log p and the seconds on the clock that fitting took; "/ best" is auto's over that of the best single one,
"≈" follows where it is behind by more than 5 % but by less than two standard errors of the difference, row by row. "× time" is
over the time of the best single structure.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine, one_line
from benchmarks.run import ROOT, environment, last_line
from benchmarks.sets import LABELS, REGRESSION, part_of

AUTO = "auto"
SINGLE = ("dense", "additive", "projection-pursuit", "inducing", "neighbours")
MOST_DENSE = {"regression": 7500, "labels": 5000}  # rows beyond which one evaluation does not pay in a minute
KEPT = 5000  # test rows, at most: the exact process of 10,000 rows takes seconds for a thousand
CLOSE = 1.05  # how far auto may be behind
CORES = 2  # of each process
SLOWER = 1.5  # how much longer than the best single structure alone auto may take, if not within the limit

PEERS = ("SVC", "SVC by grid", "boosting")
PATIENCE, STARTING = 1.75, 20.0  # times the limit, and seconds for reading data, after which a fit is given up
LEFT_OUT = (  # unless they are asked for: like others, or long
    *("raetsch_thyroid", "raetsch_titanic", "raetsch_breast-cancer", "raetsch_twonorm", "raetsch_flare-solar"),
    *("uci_glass", "oil_flow", "magic", "image_all", "splice_all", "banana_all", "waveform_all", "magic_4000"),
)

Record = dict[str, Any]


def main(words: Sequence[str]) -> int:
    """Run what is not yet in the file, and print tables."""
    options = make_parser().parse_args(words)
    options.sets = list(REGRESSION | LABELS) if "all" in options.sets else options.sets
    if options.worker:
        name, split, structure = options.worker
        print(json.dumps(measured(name, int(split), structure, options.seconds)))
        return 0
    done = read(options.json)
    if not options.table:
        print(one_line(machine()), flush=True)
        for record in run(options, done):
            done.append(record)
            print(line(record), flush=True)
    print(*tables(last([record for record in done if record["seconds"] == options.seconds]), options.seconds), sep="\n")
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks chooser-study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(REGRESSION | LABELS)
    usual = [name for name in known if name not in LEFT_OUT]
    parser.add_argument("--sets", nargs="+", choices=[*known, "all"], default=usual, metavar="SET", help=", ".join(known))
    parser.add_argument("--structures", nargs="+", choices=(AUTO, *SINGLE, *PEERS), default=(AUTO, *SINGLE))
    parser.add_argument(
        "--again", nargs="+", default=[], metavar="STRUCTURE", help="run though it is in the file; the last counts"
    )
    parser.add_argument("--splits", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the split to begin with")
    parser.add_argument("--seconds", type=float, default=60.0, help="that a fit may take (default 60)")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or CORES) // CORES, 1), help="processes at a time")
    parser.add_argument("--wall", type=float, help="seconds after which the study ends, and what runs is given up")
    parser.add_argument("--json", type=Path, default=Path("chooser-study.jsonl"), help="lines are added to it")
    parser.add_argument("--table", action="store_true", help="only print the table of what is in the file")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    return parser


def read(path: Path) -> list[Record]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def last(records: Sequence[Record]) -> list[Record]:
    """The last of each case."""
    return list({(record["set"], record["split"], record["structure"]): record for record in records}.values())


def run(options: argparse.Namespace, done: Sequence[Record]) -> Iterator[Record]:
    """What each process found, as it comes; the longest are begun first."""
    key = lambda record: (record["set"], record["split"], record["structure"], record["seconds"])
    known = {key(record) for record in done if record["structure"] not in options.again}
    cases = [
        (name, split, structure, options.seconds)
        for name in reversed(options.sets)
        for split in range(options.first, options.first + options.splits)
        for structure in options.structures
    ]
    ends = np.inf if options.wall is None else time.monotonic() + options.wall
    cores = queue.SimpleQueue[list[int]]()
    for slot in slots(options.jobs):
        cores.put(slot)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, options.json.open("a") as file:
        waiting = [pool.submit(one, case, cores, ends) for case in cases if case not in known]
        for future in concurrent.futures.as_completed(waiting):
            if (record := future.result()) is not None:
                file.write(json.dumps(record) + "\n")
                file.flush()
                yield record


def slots(jobs: int) -> list[list[int]]:
    """The cores of each process, in turn."""
    every = sorted(os.sched_getaffinity(0))
    return [[every[(CORES * job + c) % len(every)] for c in range(CORES)] for job in range(jobs)]


def one(case: tuple[str, int, str, float], cores: "queue.SimpleQueue[list[int]]", ends: float) -> Record | None:
    """One fit in a fresh process; None where it does not apply or the study has ended."""
    name, split, structure, seconds = case
    own = cores.get()
    try:
        most = min(PATIENCE * seconds + STARTING, ends - time.monotonic())
        if most < seconds / 2:
            return None
        words = [sys.executable, "-m", "benchmarks.chooser_study", "--seconds", str(seconds), "--worker", name, str(split)]
        words = [*bound_to(own), *words, structure]
        head = {"set": name, "split": split, "structure": structure, "seconds": seconds}
        clock = time.monotonic()
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=most, env=surroundings(), cwd=ROOT)
        except subprocess.TimeoutExpired:
            return head | {"failed": f"no end in {most:.0f} s"} if most > PATIENCE * seconds else None
        if ended.returncode:
            return head | {"failed": f"ended with {ended.returncode}{last_line(ended.stderr)}"}
        return head | json.loads(ended.stdout.splitlines()[-1]) | {"process": time.monotonic() - clock}
    finally:
        cores.put(own)


def bound_to(cores: Sequence[int]) -> list[str]:
    """What a command begins with that is to keep to some cores."""
    return ["taskset", "-c", ",".join(map(str, cores))] if shutil.which("taskset") else []


def surroundings() -> dict[str, str]:
    """No accelerator, no programs compiled before, and no more threads than cores."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(CORES))
    env = {key: value for key, value in environment().items() if not key.startswith(("XLA_", "JAX_"))}
    return env | threads | {"JAX_PLATFORMS": "cpu"}


def measured(name: str, split: int, structure: str, seconds: float) -> Record:
    """Fit, predict and score, or why not."""
    part = part_of(name, split)
    part = part._replace(X_test=part.X_test[:KEPT], y_test=part.y_test[:KEPT])
    task = "regression" if name in REGRESSION else "labels"
    N, D = part.X_train.shape
    head = {"task": task, "N": N, "D": D}
    if structure == "neighbours" and (task == "labels" or D > 4):
        return head | {"no": "numbers of up to four columns only"}
    if structure == "dense" and MOST_DENSE[task] < N:
        return head | {"no": f"more than {MOST_DENSE[task]} rows"}
    model = peer(structure) if structure in PEERS else ours(task, structure, seconds)
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        model.fit(part.X_train, part.y_train)
    except ValueError as met:
        return head | {"failed": str(met).splitlines()[0]}
    head |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    wall = time.perf_counter()
    found = scores_of_numbers(model, part) if task == "regression" else scores_of_labels(model, part)
    head |= {"predict": time.perf_counter() - wall}
    plan = getattr(model, "plan_", None)
    head |= {"chosen": structure} if plan is None else {"plan": str(plan), "chosen": chosen(plan)}
    if getattr(getattr(model, "fitted_", None), "learning", None) is not None:
        head |= {"learning": str(model.fitted_.learning)}
    losses = [float(f"{loss:.5g}") for loss in found.pop("losses")]
    return head | found | {"losses": losses}


def ours(task: str, structure: str, seconds: float) -> Any:
    import structgp as sg

    door = sg.GPRegressor if task == "regression" else sg.GPClassifier
    return door(structure=structure, seconds=seconds, random_state=0)


def peer(name: str) -> Any:
    """A classifier of scikit-learn: a support vector machine whose two numbers are found by cross-validation, or boosting."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if name == "boosting":
        return HistGradientBoostingClassifier(random_state=0)
    machine = CalibratedClassifierCV(make_pipeline(StandardScaler(), SVC()), ensemble=False)
    if name == "SVC":
        return machine
    prefix = "estimator__svc__"
    return GridSearchCV(
        machine, {f"{prefix}C": [1, 10, 100], f"{prefix}gamma": ["scale", 0.01, 0.1]}, scoring="neg_log_loss", cv=3
    )


def scores_of_numbers(model: Any, part: Any) -> Record:
    mean = model.predict(part.X_test)
    squares = (mean - part.y_test) ** 2 / np.var(part.y_test)
    surprise = -model.log_prob(part.X_test, part.y_test) - np.log(np.std(part.y_train))
    return {"nmse": float(np.mean(squares)), "nlp": float(np.mean(surprise)), "losses": squares}


def scores_of_labels(model: Any, part: Any) -> Record:
    p = model.predict_proba(part.X_test)
    seen = np.searchsorted(model.classes_, part.y_test)
    losses = -np.log(np.maximum(p[np.arange(len(seen)), seen], 1e-15))
    return {"error": float(np.mean(np.argmax(p, axis=1) != seen)), "nlp": float(np.mean(losses)), "losses": losses}


def chosen(plan: Any) -> str:
    """The structure that a plan ended with."""
    engine = type(plan.chosen.engine).__name__
    names = {"Cholesky": "dense", "InducingEngine": "inducing", "NeighbourEngine": "neighbours", "AdditiveEngine": "additive"}
    return "projection-pursuit" if "projection pursuit" in (plan.chosen.note or "") else names.get(engine, engine)


def line(record: Record) -> str:
    head = f"{record['set']:<24} {record['split']} {record['structure']:<19}"
    if "wall" not in record:
        return f"{head} {record.get('no') or record['failed']}"
    first, second = (record[key] for key in (("nmse" if "nmse" in record else "error"), "nlp"))
    return f"{head} {first:8.4f} {second:8.4f} {record['wall']:7.1f} s {record['cpu']:7.1f} CPU s  {record['chosen']}"


def tables(records: Sequence[Record], seconds: float) -> list[str]:
    """Both tasks, in markdown, and what was missed."""
    ended = [record for record in records if "wall" in record]
    lines: list[str] = []
    for task, measure in (("regression", "NMSE"), ("labels", "−log p")):
        own = [record for record in ended if record["task"] == task]
        lines += (
            ["", f"| set | N | D | {' | '.join(SINGLE)} | auto | took | / best | × time |", "|---" * 12 + "|"] if own else []
        )
        verdicts = [
            verdict(name, [r for r in own if r["set"] == name], seconds) for name in dict.fromkeys(r["set"] for r in own)
        ]
        lines += [row for row, _, _ in verdicts]
        count = len(verdicts)
        good, quick = (sum(which[k] for which in verdicts) for k in (1, 2))
        lines += (
            ["", f"{measure}: within 5 % of the best on {good} of {count} sets, in time on {quick} of {count}."] if own else []
        )
    over = [f"{r['set']} {r['structure']} {r['wall']:.0f} s" for r in ended if r["wall"] > 1.2 * seconds]
    failed = [f"{r['set']} {r['structure']}: {r['failed']}" for r in records if "failed" in r]
    return [*lines, "", f"beyond the limit of {seconds:g} s by more than 20 %: {'; '.join(over) or 'none'}", *failed]


def verdict(name: str, records: Sequence[Record], seconds: float) -> tuple[str, bool, bool]:
    """The row of a set, whether auto is good enough, and whether it is quick enough; means over splits."""
    key = "nmse" if records[0]["task"] == "regression" else "nlp"
    by = {s: [r for r in records if r["structure"] == s] for s in (*SINGLE, AUTO)}
    mean = {s: (np.mean([r[key] for r in own]), np.mean([r["wall"] for r in own])) for s, own in by.items() if own}
    cells = [f"{mean[s][0]:.4f}, {mean[s][1]:.0f} s" if s in mean else "" for s in (*SINGLE, AUTO)]
    single = [s for s in SINGLE if s in mean]
    head = f"| {name} | {records[0]['N']} | {records[0]['D']} | {' | '.join(cells)} |"
    if AUTO not in mean or not single:
        return f"{head} | | |", False, False
    first = min(single, key=lambda s: mean[s][0])
    ratio, times = mean[AUTO][0] / mean[first][0], mean[AUTO][1] / mean[first][1]
    good, quick = bool(ratio <= CLOSE), bool(times <= SLOWER or mean[AUTO][1] <= seconds)
    chance = "" if good or not within_chance(by[AUTO], by[first]) else " ≈"
    took = ", ".join(dict.fromkeys(r["chosen"] for r in by[AUTO]))
    marks = f"{ratio:.3f}{chance}" if good else f"**{ratio:.3f}**{chance}"
    return f"{head} {took} | {marks} | {times:.2f}{'' if quick else ' !'} |", good, quick


def within_chance(auto: Sequence[Record], first: Sequence[Record]) -> bool:
    """Whether the rows tested on leave it open which of two is better."""
    other = {r["split"]: r["losses"] for r in first}
    pairs = [np.subtract(r["losses"], other[r["split"]]) for r in auto if r["split"] in other]
    behind = np.concatenate(pairs)
    return bool(np.mean(behind) <= 2 * np.std(behind, ddof=1) / np.sqrt(len(behind)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
