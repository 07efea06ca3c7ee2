"""
Additive functions
==================

Two thousand rows, seven columns: which functions of single columns make up y, and does a projection say more?
"""

import sys

import numpy as np

import structgp as sg

rng = np.random.default_rng(0)
X = rng.uniform(size=(2500, 7))
f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
y = f + rng.standard_normal(len(X))
train, test = slice(0, 2000), slice(2000, None)

additive = sg.AdditiveGP().fit(X[train], y[train])
print(additive.summary())
for part in additive.components():
    print(f"{part.name}: moves y by {part.effect:.2f}{'  (switched off)' if part.switched_off else ''}")

pursuit = sg.ProjectionPursuitGP(most=10).fit(X[train], y[train])
print(pursuit.summary())
for name, fitted in (("additive", additive), ("projection pursuit", pursuit)):
    error = np.mean((fitted.predict(X[test]).mean - y[test]) ** 2) / np.var(y[test])
    print(f"{name:<20} normalised squared error {error:.4f} (the noise alone: {1 / np.var(y[test]):.4f})")

figure = additive.plot_components().ravel()[0].figure
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
