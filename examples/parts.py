"""
A series in parts
=================

A series comes in three files, and a gap lies on each seam between two of them. Each file alone knows nothing beyond its end. In
parts the files exchange messages of some hundred bytes, and what is said of every place is what one filter over all rows would
say.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import structgp as sg

rng = np.random.default_rng(3)
truth = lambda t: np.sin(t) + 0.6 * np.sin(2.3 * t + 1)
ROWS, SEAMS = 90, (10.0, 20.0)  # of each file, and where one ends; nothing was seen around there
t = np.concatenate([np.sort(rng.uniform(low, high, ROWS)) for low, high in ((0, 9.1), (10.9, 19.1), (20.9, 30))])
y = truth(t) + 0.2 * rng.standard_normal(len(t))
part = np.searchsorted(SEAMS, t)

# %%
# Three files, which stay where they are. The parameters are learned from all of them, in rounds of messages.

gp = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
new = np.linspace(0, 30, 601)
with tempfile.TemporaryDirectory() as folder:
    for number in range(3):
        pl.DataFrame({"t": t[part == number], "y": y[part == number]}).write_parquet(Path(folder) / f"{number}.parquet")
    fitted = gp.fit(sg.ParquetBatches(f"{folder}/*.parquet", "y", ("t",), rows=ROWS))
    print(fitted.plan)
    together = fitted.predict(new)

# %%
# With the same parameters: one filter over all rows, and each file by itself.

whole = fitted.gp.condition(t, y)
print(f"log evidence in parts less that of the whole: {abs(fitted.log_evidence - whole.log_evidence):.0e}")
print(f"largest difference of two means: {np.abs(together.mean - whole.predict(new).mean).max():.0e}")
alone = [fitted.gp.condition(t[part == number], y[part == number]) for number in range(3)]
figure, panels = plt.subplots(2, 1, figsize=(10, 5), sharex=True, sharey=True, layout="constrained")
of_part = np.searchsorted(SEAMS, new)
for number, one in enumerate(alone):
    x = new[of_part == number]
    p = one.predict(x)
    panels[0].fill_between(x, p.mean - 2 * p.sd, p.mean + 2 * p.sd, alpha=0.3, color="C0")
    panels[0].plot(x, p.mean, color="C0", label="mean" if number == 0 else None)
panels[1].fill_between(new, together.mean - 2 * together.sd, together.mean + 2 * together.sd, alpha=0.3, color="C0")
panels[1].plot(new, together.mean, color="C0")
for axes, title in zip(panels, ("each file by itself", "in parts: the files have told each other"), strict=True):
    axes.plot(new, truth(new), color="C1", linewidth=1, label="truth")
    axes.plot(t, y, "k.", markersize=2)
    axes.vlines(SEAMS, *axes.get_ylim(), colors="0.5", linestyles=":")
    axes.set(title=title)
panels[0].legend(frameon=False, loc="lower left")

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
