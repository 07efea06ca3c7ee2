"""Error and mean negative log probability on the classification sets of 001's Table 2.1, all stored splits.

    python -m benchmarks.classification --model isotropic            # dense EP, probit, one lengthscale, as in the table
    python -m benchmarks.classification --model default --sets heart thyroid --splits 3

`isotropic` is GP(SquaredExponential + Constant, Bernoulli) fitted by EP to standardised columns; `default` is `GPClassifier()`.
Splits run in parallel processes (`--jobs`), one LAPACK thread each. `--json FILE` keeps every split's numbers.
"""

import argparse
import concurrent.futures
import json
import os
import time
from typing import NamedTuple

import numpy as np

from benchmarks.data import Part, load

# error and mean negative log probability of the full GP in 001, Table 2.1
TABLE = {
    "synth": (0.097, 0.227),
    "crabs": (0.039, 0.096),
    "banana": (0.105, 0.237),
    "breast-cancer": (0.288, 0.558),
    "diabetis": (0.231, 0.475),
    "flare-solar": (0.346, 0.570),
    "german": (0.230, 0.482),
    "heart": (0.178, 0.423),
    "image": (0.027, 0.078),
    "ringnorm": (0.016, 0.071),
    "splice": (0.115, 0.281),
    "thyroid": (0.043, 0.093),
    "titanic": (0.221, 0.514),
    "twonorm": (0.031, 0.085),
    "waveform": (0.100, 0.229),
}
FOLDERS = {"synth": "ripley_synth", "crabs": "crabs"}
CRABS = ["FL", "RW", "CL", "CW", "BD"]


class Score(NamedTuple):
    """One split."""

    error: float
    nlp: float
    evaluations: int
    seconds: float


def parts(name: str) -> list[Part]:
    """Training and test data of every stored split, labels as 0 and 1."""
    table = load(FOLDERS.get(name, f"raetsch_{name}"))
    chosen = ("sex", CRABS) if name == "crabs" else (None, None)
    if chosen[0] is None:
        divided = list(table.parts())
    else:
        X = np.column_stack([table.columns[column] for column in CRABS])
        y = table.columns["sex"]
        divided = [Part(X[train], y[train], X[test], y[test]) for train, test in table.splits]
    positive = np.unique(divided[0].y_train)[-1]
    as_labels = lambda y: (y == positive).astype(float)
    return [Part(p.X_train, as_labels(p.y_train), p.X_test, as_labels(p.y_test)) for p in divided]


def probabilities(part: Part, model: str) -> tuple[np.ndarray, int]:
    """P(y = 1) on the test rows, and how many evaluations learning took."""
    import structgp as sg

    if model == "default":
        classifier = sg.GPClassifier().fit(part.X_train, part.y_train)
        return classifier.predict_proba(part.X_test)[:, 1], classifier.fitted_.learning.evaluations
    center, spread = part.X_train.mean(axis=0), part.X_train.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    D = part.X_train.shape[1]
    gp = sg.GP(sg.SquaredExponential(np.sqrt(D), 4.0) + sg.Constant(), sg.Bernoulli())
    fitted = gp.fit((part.X_train - center) / spread, part.y_train, inference="ep", structure="dense", parameters="best")
    return fitted.predict((part.X_test - center) / spread).probability, fitted.learning.evaluations


def score(name: str, split: int, model: str) -> Score:
    """Learn on one split and score the rest."""
    part = parts(name)[split]
    began = time.perf_counter()
    p, evaluations = probabilities(part, model)
    seconds = time.perf_counter() - began
    of_truth = np.clip(np.where(part.y_test == 1, p, 1 - p), 1e-15, 1.0)
    return Score(float(np.mean((p > 0.5) != part.y_test)), float(-np.mean(np.log(of_truth))), evaluations, seconds)


def main() -> None:
    """Print a row for each set as it is done, and the means."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", choices=("isotropic", "default"), default="isotropic")
    options.add_argument("--sets", nargs="*", choices=list(TABLE), default=list(TABLE))
    options.add_argument("--splits", type=int, default=10)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--json")
    chosen = options.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    rows: dict[str, list[Score]] = {}
    print(f"{'set':<14} {'splits':>6} {'error':>8} {'nlp':>8} {'table':>15} {'evals':>6} {'s / fit':>8}")
    with concurrent.futures.ProcessPoolExecutor(chosen.jobs) as pool:
        jobs = {
            name: [pool.submit(score, name, split, chosen.model) for split in range(min(chosen.splits, len(parts(name))))]
            for name in chosen.sets
        }
        for name, futures in jobs.items():
            rows[name] = [future.result() for future in futures]
            means = np.mean(rows[name], axis=0)
            known = "{:.3f} / {:.3f}".format(*TABLE[name])
            print(
                f"{name:<14} {len(futures):>6} {means[0]:>8.4f} {means[1]:>8.4f} {known:>15} {means[2]:>6.0f} {means[3]:>8.1f}"
            )
    error, nlp = (
        np.mean([np.mean([getattr(s, field) for s in scores]) for scores in rows.values()]) for field in Score._fields[:2]
    )
    known = "{:.4f} / {:.4f}".format(*np.mean([TABLE[name] for name in rows], axis=0))
    print(f"{'mean':<14} {'':>6} {error:>8.4f} {nlp:>8.4f} {known:>15}")
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump({name: [s._asdict() for s in scores] for name, scores in rows.items()}, file, indent=1)


if __name__ == "__main__":
    main()
