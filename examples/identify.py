"""
The system between two records
==============================

A heater is switched at random, and the temperature of the room follows. What does one unit of heat do, how long does it last,
and how sure is that?
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

rng = np.random.default_rng(0)
heat = np.repeat(rng.integers(0, 2, 60), 5).astype(float)
lag = np.arange(40)
true = 0.25 * (0.88**lag - 0.6**lag)
room = np.convolve(heat, true)[:300] + 0.05 * rng.standard_normal(300)

# %%
# The impulse response is a Gaussian process that fades; its band holds what 300 noisy values leave open.

system = sg.identify(heat, room, lags=40)
print(system.summary())

# %%
# A lasting change, and which frequencies come through.

figure, panels = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
for axes, title, part in ((panels[0], "one unit of heat", system.impulse), (panels[1], "heat that stays on", system.step)):
    axes.fill_between(part.t, part.lower, part.upper, alpha=0.3, label="95 %")
    axes.plot(part.t, part.mean, label="found")
    axes.set(title=title, xlabel="steps after it")
panels[0].plot(lag, true, "k:", label="true")
panels[1].plot(lag, np.cumsum(true), "k:", label="true")
panels[0].legend(frameon=False)
at = system.frequency()
panels[2].fill_between(at.frequency, at.lower, at.upper, alpha=0.3)
panels[2].plot(at.frequency, at.gain)
panels[2].set(title="gain", xlabel="radians for each step", yscale="log")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
