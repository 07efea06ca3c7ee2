"""When did the low water of the Nile change its ways? Change points in hindsight, online, and ahead.

    python examples/changepoints.py nile.png

Reads the yearly minimum of the Nile at Roda, 622–1284, from the folder in STRUCTGP_DATA (default ../shared/data beside the
repository). In 715 a new nilometer was built.
"""

import gzip
import os
import sys
from pathlib import Path

import numpy as np

import structgp as sg

DATA = Path(os.environ.get("STRUCTGP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def read() -> tuple[np.ndarray, np.ndarray]:
    """Years and levels."""
    file = DATA / "nile_622_1284" / "data.csv.gz"
    if not file.exists():
        sys.exit(f"{file} is not there: set STRUCTGP_DATA to the folder that holds nile_622_1284/")
    with gzip.open(file, "rt") as lines:
        rows = np.array([line.strip().split(",") for line in lines][1:], dtype=float)
    return rows[:, 0], rows[:, 1]


def main() -> None:
    year, level = read()
    centred = (level - level.mean()) / level.std()
    level_and_drift = sg.GP(sg.Constant(0.5) + sg.Matern32(20.0, 0.3), sg.Gaussian(0.5))
    segments = sg.MarkovSegment(level_and_drift, sg.UnknownScale(2.0, 2.0))
    model, learning = sg.ChangePoints(segments, 0.01, hypotheses=100).learn(centred[:200], year[:200])
    print(f"learned from the first 200 years: {learning}")
    print(f"a segment lasts {1 / float(model.hazard.rate):.0f} years on average")

    found = model.condition(centred, year)
    print(f"{found}; {found.dropped:.2g} of the probability was dropped on the way")
    print("most probable segmentation: changes in", ", ".join(f"{year[n]:.0f}" for n in found.most_probable))
    print("number of changes:", ", ".join(f"{n}: {p:.0%}" for n, p in enumerate(found.number_of_changes) if p > 0.05))
    print("ten alerts by accumulated probability:", ", ".join(f"{year[n]:.0f}" for n in found.top_alerts(10, apart=5)))
    for alert in found.alerts(probability=0.8, window=30, delay=3):
        print(f"in {year[alert.noticed]:.0f}: since {year[alert.start]:.0f} it is different ({alert.probability:.0%} sure)")

    stream = found.stream  # goes on where the record ends
    low, high = stream.predict(1285.0).interval(0.9)
    print(f"the level of 1285 lies between {low:.2f} and {high:.2f} standard deviations, with probability 0.9")
    for value in (2.5, 2.7, 2.4, 2.6):
        stream = stream.update(value, float(stream.belief.time) + 1)
    print(f"after four years of floods a change in the last 5 years has probability {stream.change_probability(5):.0%}")
    if len(sys.argv) > 1:
        found.plot()[0].figure.savefig(sys.argv[1], dpi=110)
        print(f"picture: {sys.argv[1]}")


if __name__ == "__main__":
    main()
