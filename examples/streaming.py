"""
Observations one by one
=======================

A sensor is learned from its first days, then followed as its values come, each with constant work and memory: a forecast before
every value, and a word when one is hard to believe.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

HOURS = 24 * 14

rng = np.random.default_rng(0)
t = np.sort(rng.uniform(0, HOURS, 6 * HOURS))  # about every ten minutes, whenever the sensor reports
weather = 1.5 * np.sin(t / 9.7) + np.sin(t / 5.9 + 1)  # changes within days, and never repeats
value = 12 + 6 * np.sin(2 * np.pi * t / 24) + weather + 0.4 * rng.standard_normal(t.size)
value[t.size // 2] += 8.0  # a fault

# %%
# The first three days are learned from; from there on no observation is kept.

known = t < 72
kernel = sg.Cosine(period=sg.fixed(24.0), variance=20.0) + sg.Matern32(lengthscale=20.0, variance=2.0)
fitted = sg.GP(kernel, likelihood=sg.Gaussian(noise=0.2), mean=12.0).fit(t[known], value[known])
print(fitted.summary())

# %%
# A stream is a value too: ``update`` returns the stream that has seen one more.

stream = fitted.stream()
forecasts = []
for time, seen in zip(t[~known], value[~known], strict=True):
    p = stream.predict(time)
    forecasts.append((p.observed.mean[0], p.observed.sd[0], p.log_prob([seen])[0]))
    if abs(seen - p.observed.mean[0]) > 6 * p.observed.sd[0]:
        print(f"hour {time:.1f}: {seen:.1f} was seen, {p.observed.mean[0]:.1f} ± {p.observed.sd[0]:.1f} expected; left out")
        seen = np.nan
    stream = stream.update(time, seen, missing="infer")
mean, sd, log_prob = np.transpose(forecasts)
inside = np.abs(value[~known] - mean) < 1.96 * sd
print(f"{stream}")
print(f"{inside.mean():.1%} of {inside.size} values lay in the 95 % interval that was given before they came")

# %%
# A day ahead from where it stands. ``stream.save(path)`` would put it away until the next value comes.

ahead = np.linspace(stream.time, stream.time + 24, 200)
p = stream.predict(ahead)
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
ax.plot(t, value, ".", color="0.7", ms=2, label="seen")
ax.plot(t[~known], mean, color="#1f5fa8", lw=0.8, label="forecast of the next value")
ax.fill_between(ahead, *p.interval(0.95), color="#9dc1e8", lw=0, label="a day ahead, 95 %")
ax.plot(ahead, p.mean, color="#1f5fa8", lw=1.6)
ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
ax.set(xlabel="hour", ylabel="value")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
