"""
Taking a record apart
=====================

Carbon dioxide over Mauna Loa: trend, season, short-term changes and noise, each with its own band, and ten years ahead.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

record = sg.datasets.co2()
t, y = record.X[:, 0], record.y
print(f"{record.about}: {len(y)} months, {t[0]:.1f} to {t[-1]:.1f}")

# %%
# A sum of kernels is a sum of functions. Straight lines are free in a spline, so that forecasts go on as they went; the season
# repeats every year and changes its shape slowly. Such a sum has a finite state. The plan weighs the filter against the whole
# matrix: with so many states, and only some hundred months, the matrix is cheaper.

trend = sg.Spline(variance=0.01, order=2, start=1980.0)
season = sg.Periodic(period=sg.fixed(1.0), lengthscale=1.5, variance=5.0) * sg.Matern32(50.0, variance=sg.fixed(1.0))
short = sg.Matern32(lengthscale=0.5, variance=0.5)
gp = sg.GP(trend + season + short, likelihood=sg.Gaussian(noise=0.1))
print(gp.plan(t))

# %%

fitted = gp.fit(t, y)
print(fitted.summary())

# %%
# Each term of the sum is predicted by itself with ``part=``. The bands of trend and season are wide because the data cannot
# tell to which of the two the level belongs; that of their sum is narrow.

ahead = np.linspace(t[0], t[-1] + 10, 1500)
lower, upper = fitted.predict(ahead).interval(0.95)
print(f"in {ahead[-1]:.1f} between {lower[-1]:.1f} and {upper[-1]:.1f} ppm, with probability 0.95")

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
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
