"""
A first fit
===========

Fit a noisy function of one input, see how sure the model is, and draw it.
"""

import sys

import numpy as np

import structgp as sg

rng = np.random.default_rng(0)
x = np.sort(np.concatenate([rng.uniform(0, 4, 60), rng.uniform(6, 10, 60)]))  # nothing was measured between 4 and 6
y = np.sin(2 * x) + 0.3 * x + 0.3 * rng.standard_normal(x.size)

# %%
# The model is a value: a kernel says what functions are believed in, a likelihood how they are seen. The plan says what will
# run, what it costs, and why not the others.

gp = sg.GP(sg.Matern52(lengthscale=1.0, variance=1.0), likelihood=sg.Gaussian(noise=0.1), mean=0.0)
print(gp.plan(x))

# %%
# Learning maximises the evidence.

fitted = gp.fit(x, y)
print(fitted.summary())

# %%
# An interval is wide where nothing was measured.

at = np.array([3.0, 5.0, 7.0])
lower, upper = fitted.predict(at).interval(0.95)
for place, low, high in zip(at, lower, upper, strict=True):
    print(f"a new observation at {place:g} lies between {low:.2f} and {high:.2f} with probability 0.95")

figure = fitted.plot().figure
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
