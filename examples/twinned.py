"""
Outliers in groups, and noise that changes
==========================================

Outliers that come together vouch for each other, and noise with heavy tails may believe them. A second process, the gate, says
where observations are not to be believed; or a second process is the noise itself.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import structgp as sg

rng = np.random.default_rng(2)
x = np.concatenate([rng.uniform(-12, 12, 90), 1.0 + 0.15 * rng.standard_normal(7)])
truth = np.sinc(x / np.pi)
y = truth + 0.05 * rng.standard_normal(97)
scattered = np.abs(x + 10) < 1.2
y[scattered] += 0.7 * rng.standard_normal(scattered.sum())
group = np.arange(97) >= 90
y[group] -= 1.2

# %%
# Twinned noise names the group and the bad stretch at the left, and says where new observations are not to be trusted; its
# evidence is far higher than that of Student-t noise, which has one width for all places.

student = sg.GPRegressor(noise="student-t", parameters="best").fit(x[:, None], y)
twinned = sg.TwinnedGPRegressor().fit(x[:, None], y)
wrong = scattered | group
for name, model in (("Student-t", student), ("twinned", twinned)):
    error = np.sqrt(np.mean((model.predict(x[:, None]) - truth) ** 2))
    print(f"{name} noise: log evidence {model.log_evidence_:.1f}, error {error:.3f}")
p = twinned.outlier_probability_
print(
    f"P(outlier) is {p[group].mean():.2f} in the group, {p[scattered].mean():.2f} at the left, {p[~wrong].mean():.3f} elsewhere"
)

# %%
# Where noise grows and shrinks smoothly its logarithm is a process of its own.

t = np.sort(rng.uniform(-15, 15, 150))
width = 0.05 + 0.45 * np.sin(0.2 * t) ** 2
z = np.cos(t) + width * rng.standard_normal(150)
changing = sg.HeteroscedasticGPRegressor().fit(t[:, None], z)
alone = changing.predict(t[:, None], return_std=True, latent=True)[1]
noise = np.sqrt(changing.predict(t[:, None], return_std=True)[1] ** 2 - alone**2)
factor = np.exp(np.abs(np.log(noise / width)).mean())
print(f"noise between {width.min():.2f} and {width.max():.2f} is found within a factor {factor:.2f}")

figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
at = np.linspace(-12.5, 12.5, 400)[:, None]
panels[0].plot(at, student.predict(at), color="C1", lw=1, label="Student-t")
panels[0].plot(at, twinned.predict(at), color="C0", label="twinned")
panels[0].scatter(x, y, c=p, cmap="coolwarm", s=12)
panels[0].legend(frameon=False)
mean, sd = changing.predict(t[:, None], return_std=True)
panels[1].plot(t, z, "k.", markersize=3)
panels[1].plot(t, mean, color="C0")
panels[1].fill_between(t, mean - 2 * sd, mean + 2 * sd, color="C0", alpha=0.3)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
    print(f"picture: {sys.argv[1]}")
