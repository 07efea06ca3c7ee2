"""
Noise with outliers
===================

The same data under Gaussian and under Student-t noise: the first bends to every outlier, the second does not believe them.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

rng = np.random.default_rng(1)
x = np.linspace(-10, 10, 100)
truth = np.sinc(x / np.pi)
y = truth + 0.05 * rng.standard_normal(100)
outliers = rng.choice(100, 12, replace=False)
y[outliers] += rng.uniform(0.5, 2.0, 12)

# %%
# Only the likelihood differs. The evidence prefers the one that fits the noise.

models = {"Gaussian noise": sg.Gaussian(0.1), "Student-t noise": sg.StudentT(4.0, 0.1)}
fits = {name: sg.GP(sg.Matern52(2.0), likelihood).fit(x, y) for name, likelihood in models.items()}
for name, fitted in fits.items():
    error = np.sqrt(np.mean((fitted.predict(x).mean - truth) ** 2))
    print(f"{name}: log evidence {fitted.log_evidence:.1f}, error {error:.3f}, {fitted.likelihood}")

figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axes, (name, fitted) in zip(panels, fits.items(), strict=True):
    f = fitted.predict(x)
    axes.plot(x, y, "k.", markersize=3)
    axes.plot(x, truth, color="C1", label="truth")
    axes.plot(x, f.mean, color="C0", label="mean of f")
    axes.fill_between(x, f.mean - 2 * f.sd, f.mean + 2 * f.sd, color="C0", alpha=0.3)
    axes.set(title=name, xlabel="x")
panels[0].legend(frameon=False)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
