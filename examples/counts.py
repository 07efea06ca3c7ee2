"""
Counts over time
================

Coal-mining disasters in Britain, 1851–1962, by year, with a rate that changes. The yearly counts are those of Jarrett (1979).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

YEARS = np.arange(1851, 1963)
DIGITS = "4540143406334026335453144155342522342132211113001011003103220111010100021000110233112111124200014000100000100101"
DISASTERS = np.array([int(digit) for digit in DIGITS])

# %%
# The logarithm of the rate is a Gaussian process.

gp = sg.GP(sg.Matern32(lengthscale=20.0, variance=1.0), likelihood=sg.Poisson(), mean=0.0)
print(gp.plan(YEARS))
fitted = gp.fit(YEARS, DISASTERS)
print(fitted.summary())

# %%
# Intervals of counts are counts.

rate = fitted.predict(YEARS)
low, high = rate.interval(0.9)
inside = np.mean((low <= DISASTERS) & (high >= DISASTERS))
for year in (1860, 1890, 1930, 1960):
    at = year - 1851
    print(f"{year}: {rate.observed.mean[at]:.2f} disasters a year, 90 % of counts from {low[at]:.0f} to {high[at]:.0f}")
print(f"{inside:.0%} of the counts lie in their 90 % intervals")

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.bar(YEARS, DISASTERS, color="0.8", label="disasters")
axes.fill_between(YEARS, *np.exp(rate.mean + rate.sd * np.array([[-2], [2]])), color="C0", alpha=0.3, label="rate, 95 %")
axes.plot(YEARS, np.exp(rate.mean + rate.variance / 2), color="C0")
axes.legend(frameon=False)
axes.set(xlabel="year", ylabel="a year", title="Coal-mining disasters")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
