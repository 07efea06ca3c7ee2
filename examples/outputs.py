"""
Sensors that tell of each other
===============================

Three sensors follow the same weather: one upside down, one a little later. A day is missing in the last. Learned together, the
others fill the gap; learned alone, it stays open.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

rng = np.random.default_rng(2)
t = np.arange(0.0, 6.0, 0.1)
weather = lambda t: np.sin(2 * np.pi * t) + 0.8 * np.sin(2.1 * t) + 0.5 * np.sin(4.3 * t + 1)
truth = np.column_stack([weather(t), -0.7 * weather(t), weather(t - 0.25)])
Y = truth + 0.1 * rng.standard_normal(truth.shape)
Y[(t > 2.5) & (t < 3.5), 2] = np.nan

# %%
# One source that all hear, with a lag for each sensor behind the first. Along time this is one Kalman filter.

kernel = sg.Lagged(sg.MaternFilters(3, nu=2.5), [0.0, 0.0])
together = sg.GP(kernel, sg.Gaussian([0.1, 0.1, 0.1])).fit(
    t, Y, missing="infer", structure="markov", parameters="best", restarts=0
)
print("lags", np.round(together.kernel.lag, 2), "by the", together.plan.engine.name, "engine")
for row in sg.correlations(together.kernel).table(["first", "second", "third"]):
    print("  ".join(f"{cell:>7}" for cell in row))

# %%
# The last sensor alone, for comparison.

seen = np.isfinite(Y[:, 2])
alone = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).fit(t[seen], Y[seen, 2], parameters="best", restarts=0)
figure, panels = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True, layout="constrained")
for axes, (name, p) in zip(panels, {"alone": alone.predict(t), "together": together.predict(t, output=2)}.items(), strict=True):
    gap = ~seen
    print(f"{name}: error in the gap {np.sqrt(np.mean((p.mean - truth[:, 2])[gap] ** 2)):.2f}")
    axes.fill_between(t, p.mean - 2 * p.sd, p.mean + 2 * p.sd, alpha=0.3)
    axes.plot(t, p.mean, label="mean")
    axes.plot(t, truth[:, 2], color="C1", label="truth")
    axes.plot(t, Y[:, 2], "k.", markersize=3)
    axes.set(title=name, xlabel="days")
panels[0].legend(frameon=False)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
