"""
Projection pursuit
==================

Functions of weighted sums of the columns: which weights, and which functions?
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

ROWS = 1000

rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 6))
weights = np.array([[3.0, 2, 0, 0, 1, 0], [0, 1, -2, 2, 0, 0]])
weights /= np.linalg.norm(weights, axis=1, keepdims=True)
f = np.sin(2 * X @ weights[0]) + 0.5 * (X @ weights[1]) ** 2
y = f + 0.2 * rng.standard_normal(ROWS)
train, test = slice(0, 3 * ROWS // 4), slice(3 * ROWS // 4, None)

# %%
# No single column tells much, so a sum of functions of single columns fails. The number of projections is chosen by the
# evidence.

additive = sg.AdditiveGP().fit(X[train], y[train])
pursuit = sg.ProjectionPursuitGP(most=3, seconds=30).fit(X[train], y[train])
print(pursuit.summary())
for name, fitted in (("additive", additive), ("projection pursuit", pursuit)):
    p = fitted.predict(X[test])
    error = np.mean((p.mean - f[test]) ** 2) / np.var(f[test])
    inside = np.mean(np.abs(y[test] - p.observed.mean) < 1.96 * p.observed.sd)
    print(f"{name:<20} normalised squared error {error:.4f}, {inside:.0%} of new values in their 95 % intervals")

# %%
# The weights that were found beside the true ones (their sign is free).

for found in pursuit.directions:
    true = weights[np.argmax(np.abs(weights @ found))]
    print("found", np.round(found * np.sign(found @ true), 2), " true", np.round(true, 2))

figure, axes = plt.subplots(1, len(pursuit.directions), figsize=(9, 3.5), layout="constrained", squeeze=False)
for ax, part in zip(axes.flat, pursuit.additive.components(), strict=False):
    ax.fill_between(part.x, part.mean - 2 * part.sd, part.mean + 2 * part.sd, color="#9dc1e8", lw=0)
    ax.plot(part.x, part.mean, color="#1f5fa8")
    ax.set_xlabel("projection, in standard units")
axes[0, 0].set_ylabel("what it adds to y, in standard units")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
