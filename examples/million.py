"""
A million points
================

A long record with uneven gaps, learned exactly: along one input, a kernel with a finite state takes time and memory that grow
with the number of points, not with its cube.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

POINTS = 1_000_000

rng = np.random.default_rng(0)
t = np.cumsum(rng.exponential(1000 / POINTS, POINTS))
f = np.sin(2 * np.pi * t / 250) + 0.5 * np.sin(2 * np.pi * t / 7.3) * np.exp(-(((t - 500) / 200) ** 2))
y = f + 0.5 * rng.standard_normal(POINTS)

# %%
# The whole covariance matrix would take terabytes; the plan says so and takes the filter.

gp = sg.GP(sg.Matern32(lengthscale=5.0, variance=1.0), likelihood=sg.Gaussian(noise=0.3))
print(gp.plan(t))

# %%
# Learning, the posterior at every point, and what each point would have been predicted to be from all the others.

began = time.perf_counter()
fitted = gp.fit(t, y)
print(fitted.summary())
p = fitted.predict(t)
left_out = fitted.leave_one_out()
print(f"learned, predicted and left out one by one in {time.perf_counter() - began:.1f} s")
print(f"error of the mean {np.sqrt(np.mean((p.mean - f) ** 2)):.3f}, noise {0.5}")
inside = np.abs(y - left_out.mean) < 1.96 * left_out.sd
print(f"{inside.mean():.1%} of the points lie in the 95 % intervals that the other points give them")

# %%
# All of the record, and a small part of it.

figure, (whole, part) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained")
thin = slice(None, None, max(1, POINTS // 20_000))
whole.plot(t[thin], y[thin], ",", color="0.6")
whole.plot(t[thin], p.mean[thin], color="#1f5fa8", lw=0.8)
near = np.flatnonzero((t > 500) & (t < 515))
part.plot(t[near], y[near], ".", color="0.7", ms=1)
part.fill_between(t[near], *(p.mean + 2 * p.sd * np.array([[-1], [1]]))[:, near], color="#9dc1e8", lw=0)
part.plot(t[near], p.mean[near], color="#1f5fa8", label="mean, ± 2 sd")
part.plot(t[near], f[near], color="C1", ls="--", label="truth")
part.legend(frameon=False)
part.set_xlabel("t")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
