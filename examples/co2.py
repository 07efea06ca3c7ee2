"""Decompose the carbon dioxide record of Mauna Loa: trend, season, short-term changes and noise, each with its own band.

    python examples/co2.py co2.png

Reads the weekly record from the folder in STRUCTGP_DATA (default ../shared/data beside the repository).
"""

import gzip
import os
import sys
from pathlib import Path

import numpy as np

import structgp as sg

DATA = Path(os.environ.get("STRUCTGP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def read() -> tuple[np.ndarray, np.ndarray]:
    """Time in years and CO2 in parts per million, one row a week; missing weeks are NaN."""
    file = DATA / "mauna_loa_co2" / "weekly_1958_2001.csv.gz"
    if not file.exists():
        sys.exit(f"{file} is not there: set STRUCTGP_DATA to the folder that holds mauna_loa_co2/")
    with gzip.open(file, "rt") as lines:
        rows = [line.strip().split(",") for line in lines][1:]
    dates = np.array([row[0] for row in rows], dtype="datetime64[D]")
    value = np.array([float(row[1]) if row[1] else np.nan for row in rows])
    return 1970 + dates.astype(float) / 365.25, value


def main() -> None:
    t, y = read()
    trend = sg.Spline(variance=0.01, order=2, start=1980.0)  # straight lines are free, so forecasts go on as they went
    season = sg.Periodic(period=sg.fixed(1.0), lengthscale=1.5, variance=5.0) * sg.Matern32(50.0, variance=sg.fixed(1.0))
    short = sg.Matern32(lengthscale=0.5, variance=0.5)
    gp = sg.GP(trend + season + short, likelihood=sg.Gaussian(noise=0.1))
    print(gp.plan(t))
    fitted = gp.fit(t, y, missing="infer")
    print(fitted.summary())

    ahead = np.linspace(t[0], t[-1] + 10, 2000)
    last = fitted.predict(ahead).interval(0.95)
    print(f"in {ahead[-1]:.1f} between {last[0][-1]:.1f} and {last[1][-1]:.1f} ppm, with probability 0.95")
    if len(sys.argv) > 1:
        draw(fitted, ahead, t, y, sys.argv[1])


def draw(fitted: sg.Fitted, ahead: np.ndarray, t: np.ndarray, y: np.ndarray, path: str) -> None:
    """The record with its forecast, and the three parts below it."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(4, 1, figsize=(9, 9), sharex=True, layout="constrained", height_ratios=[2, 1, 1, 1])
    fitted.plot(ahead, ax=axes[0])
    axes[0].set_ylabel("CO₂ / ppm")
    for part, (name, ax) in enumerate(zip(("trend", "season", "short term"), axes[1:], strict=True)):
        p = fitted.predict(ahead, part=part)
        ax.fill_between(ahead, p.mean - 2 * p.sd, p.mean + 2 * p.sd, color="#9dc1e8", lw=0)
        ax.plot(ahead, p.mean, color="#1f5fa8", lw=0.8)
        ax.set_ylabel(name)
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("year")
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
