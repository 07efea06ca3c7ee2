"""
A map of a table
================

Two hundred rows of six columns that were made from two numbers nobody sees. A tenth of the cells is missing. The rows are laid
out in two coordinates, and the missing cells are filled.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

import structgp as sg

rng = np.random.default_rng(0)
ROWS = 200
group = rng.integers(0, 3, ROWS)
angle = 2.1 * group + rng.uniform(-0.8, 0.8, ROWS)
radius = 1 + 0.25 * rng.standard_normal(ROWS)
truth = np.column_stack(
    [
        radius * np.cos(angle),
        radius * np.sin(angle),
        np.sin(2 * angle),
        np.cos(3 * angle),
        radius**2,
        np.tanh(2 * radius * np.cos(angle)),
    ]
)
X = truth + 0.05 * rng.standard_normal(truth.shape)
holes = np.where(rng.uniform(size=X.shape) < 0.1, np.nan, X)

# %%
# The map, and what fills the cells. Columns are brought to unit spread, so that their units do not matter.

model = sg.GPLVM(2, inducing=40).fit(holes)
print(model.summary())
filled, std = model.impute(holes, return_std=True)
gone = np.isnan(holes)
by_mean = np.where(gone, np.nanmean(holes, axis=0), X)
error = lambda values: np.sqrt(np.mean((values - X)[gone] ** 2))
print(f"error of the missing cells: {error(filled):.2f}, by the means of their columns {error(by_mean):.2f}")

# %%
# Beside the plane of principal components, which is given the whole table.

figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plane = PCA(2).fit_transform(X)
panels[0].scatter(*plane.T, c=[f"C{label}" for label in group], s=9)
panels[0].set_title("principal components", loc="left")
model.plot(group, ax=panels[1])
panels[1].set_title("GPLVM", loc="left")

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
