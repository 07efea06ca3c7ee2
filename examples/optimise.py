"""
What to measure next
====================

A reaction has a temperature, a flow and a number of stages, and every run takes a day: twenty runs must do. Each is placed
where most is expected to be gained.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

RUNS = 20

rng = np.random.default_rng(0)


def run(x):
    """A day in the laboratory: the yield, which scatters a little."""
    heat = np.exp(-(((x["temp"] - 62) / 14) ** 2))
    rate = np.exp(-(np.log(x["flow"] / 2.5) ** 2))
    return 80 * heat * rate * (1 - 0.04 * (x["stages"] - 5) ** 2) + 0.5 * rng.standard_normal()


# %%
# The space: a flow varies by factors, stages are whole numbers, and hot and fast at once is not allowed.

space = sg.Space(temp=(20, 80), flow=sg.log(0.1, 10), stages=sg.integer(1, 8))
found = sg.maximise(run, space, evaluations=RUNS, constraints=["temp + 2*flow <= 90"], seed=0)
opt = found.optimiser
print(f"best yield {found.value:.1f} at", {name: round(value, 2) for name, value in found.x.items()})

# %%
# What is believed of the best point, and what the next run would be worth.

mean, sd = opt.predict(found.x)
print(f"believed there: {mean:.1f} ± {sd:.1f}")
suggestion = opt.suggest()[0]
print(f"next: expected gain {suggestion.expected_gain:.2f}, better with probability {suggestion.probability:.2f}")

# %%
# The trace of the best, and a slice through the best point.

temps = np.linspace(20, 80, 41)
slice_ = np.array([opt.predict({**found.x, "temp": temp}) for temp in temps])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), constrained_layout=True)
left.plot(range(1, len(opt.trace) + 1), [e.value for e in opt.history], "o", color="0.6", label="runs")
left.plot(range(1, len(opt.trace) + 1), opt.trace, label="best so far")
left.set(xlabel="run", ylabel="yield")
left.legend()
right.fill_between(temps, slice_[:, 0] - 2 * slice_[:, 1], slice_[:, 0] + 2 * slice_[:, 1], alpha=0.3)
right.plot(temps, slice_[:, 0])
right.plot(found.x["temp"], found.value, "o", color="0.3")
right.set(xlabel="temp, through the best point", ylabel="yield")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1])
    print(f"picture: {sys.argv[1]}")
