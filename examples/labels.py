"""
Labels along a line
===================

Did it rain that day? Labels 0 and 1 over many years, with a probability that follows the season and drifts. Expectation
propagation turns the labels into Gaussian sites, and the filter takes those in linear time.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

YEARS = 40

rng = np.random.default_rng(0)
day = np.arange(365.25 * YEARS) / 365.25
truth = 1 / (1 + np.exp(-(0.3 * np.cos(2 * np.pi * day) * (1 + day / 20) + 0.8 * np.sin(day / 6) - 0.4)))
rain = (rng.uniform(size=day.size) < truth).astype(int)

# %%
# A wave of one year whose height changes, and something slow; the likelihood says how labels arise from their sum.

season = sg.Cosine(period=sg.fixed(1.0), variance=0.5) * sg.Matern32(20.0, variance=sg.fixed(1.0))
gp = sg.GP(season + sg.Matern32(lengthscale=5.0, variance=0.5), likelihood=sg.Bernoulli(link="logit"), mean=0.0)
print(gp.plan(day))

# %%

fitted = gp.fit(day, rain, inference="ep")
print(fitted.summary())

# %%
# Probabilities are averaged over what is believed of f. Beside them: how often it rained in every month.

probability = fitted.predict(day).probability
print(f"error of the probability {np.sqrt(np.mean((probability - truth) ** 2)):.3f}")
loss = -np.mean(np.log(np.where(rain == 1, probability, 1 - probability)))
always = -np.mean(np.log(np.where(rain == 1, rain.mean(), 1 - rain.mean())))
print(f"{loss:.4f} nats a day, {always:.4f} when the same is said every day")

month = np.floor(day * 12)
shares = np.bincount(month.astype(int), rain) / np.bincount(month.astype(int))
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
ax.plot((np.unique(month) + 0.5) / 12, shares, ".", color="0.7", ms=3, label="share of rainy days, by month")
ax.plot(day, truth, color="C1", lw=1, label="truth")
ax.plot(day, probability, color="#1f5fa8", lw=1, label="probability of rain")
ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
ax.set(xlabel="year", ylim=(0, 1))
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
