"""
How sure is it about its parameters?
====================================

Twelve rows leave a lengthscale unsure. The most probable one gives intervals that are too narrow where nothing was seen; an
average over what the rows leave possible does not.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

rng = np.random.default_rng(5)
x = np.sort(rng.uniform(0, 6, 12))
y = np.sin(1.5 * x) + 0.1 * rng.standard_normal(12)
gp = sg.GP(sg.Matern52(), likelihood=sg.Gaussian(0.05), mean=0.0)
best = gp.fit(x, y, parameters="best")
averaged = gp.fit(x, y)  # the default for so few rows
print(averaged.summary())

# %%
# Beyond the data the average is wider, because another lengthscale would go elsewhere.

at = np.linspace(-1, 8, 200)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
for fitted, name, colour in ((best, "most probable parameters", "C1"), (averaged, "averaged", "C0")):
    low, high = fitted.predict(at).interval(0.95)
    left.fill_between(at, low, high, color=colour, alpha=0.25, label=name)
    left.plot(at, fitted.predict(at).mean, color=colour)
left.plot(x, y, "k.")
left.plot(at, np.sin(1.5 * at), "k:", lw=1, label="true")
left.legend(frameon=False)
for member, weight in zip(averaged.members, averaged.weights, strict=True):
    p = member.predict(at)
    right.plot(at, p.mean, color="C0", alpha=0.3 + 0.7 * float(weight))
right.plot(x, y, "k.")
right.set(title="the members of the average")
alone, together = (2 * fitted.predict([8.0]).sd[0] for fitted in (best, averaged))
print(f"at x = 8: ± {alone:.2f} with the best parameters, ± {together:.2f} averaged")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
