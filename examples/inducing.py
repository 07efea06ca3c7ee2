"""
Many rows through a few
=======================

An exact fit of N rows takes N³ operations. Where f changes slowly beside the distance of the rows, its values at a few inducing
inputs say nearly all; near in space, a row is told by its nearest neighbours.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

N = 400
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, N))
y = np.sin(2 * x) + 0.3 * np.cos(7 * x) + 0.3 * rng.standard_normal(N)
gp = sg.GP(sg.Matern52(lengthscale=0.6, variance=0.7), likelihood=sg.Gaussian(0.09))
at = np.linspace(0, 10, 200)
exact = gp.condition(x, y)
print(f"all {N} rows: log evidence {exact.log_evidence:.2f}")

# %%
# Too few inducing inputs smear the fine waves over, and the interval of the evidence says so; with enough nothing is lost.

figure, panels = plt.subplots(1, 3, figsize=(11, 3.3), sharey=True, layout="constrained")
for axes, count in zip(panels, (8, 16, 40), strict=True):
    few = gp.condition(x, y, approximate=sg.Inducing(count))
    p, low_high = few.predict(at), few.evidence_bounds
    axes.plot(x, y, ".", color="0.8", markersize=2)
    axes.fill_between(at, p.mean - 2 * p.sd, p.mean + 2 * p.sd, alpha=0.3)
    axes.plot(at, p.mean, label="through few")
    axes.plot(at, exact.predict(at).mean, "k:", lw=1, label="exact")
    axes.plot(np.asarray(few.kernel.inputs)[:, 0], np.full(count, -2.1), "|", color="C3", label="inducing inputs")
    axes.set(title=f"{count} inducing inputs", ylim=(-2.4, 2.4), xlabel="x")
    print(f"{count} inducing inputs: log evidence {few.log_evidence:.2f}, between {low_high[0]:.1f} and {low_high[1]:.1f}")
panels[0].legend(frameon=False, fontsize=8, loc="upper right")

# %%
# Places in two to four columns: each row given its nearest earlier ones.

X = rng.uniform(0, 4, (N, 2))
z = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.standard_normal(N)
field = sg.GP(sg.Matern32(lengthscale=0.5), likelihood=sg.Gaussian(0.01))
for near in (5, 10, 20):
    told = field.condition(X, z, approximate=sg.Neighbours(near))
    print(f"{near} neighbours: log evidence {told.log_evidence:.2f} (exact {field.condition(X, z).log_evidence:.2f})")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
