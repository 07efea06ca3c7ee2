"""A noisy picture: learning, cleaning and a standard deviation for every pixel, and the same at twice the size.

The cold time is that of a fresh process: imports and compilation are in it. Beside ours, as a yardstick for the quality, a
Gaussian filter with the best width that can be had by looking at the truth.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, problem

NOISE = 25.0  # standard deviation, in grey levels of 256


class Picture(NamedTuple):
    """Grey levels at twice the size, at the size itself, and there with noise."""

    fine: np.ndarray
    coarse: np.ndarray
    noisy: np.ndarray


def make(N: int) -> Picture:
    """A part of scikit-learn's flower with N pixels, each the mean of four."""
    from sklearn.datasets import load_sample_image

    side = round(N**0.5)
    grey = load_sample_image("flower.jpg").mean(axis=2)
    fine = grey[10 : 10 + 2 * side, 110 : 110 + 2 * side]
    coarse = fine.reshape(side, 2, side, 2).mean(axis=(1, 3))
    return Picture(fine, coarse, coarse + NOISE * np.random.default_rng(0).standard_normal(coarse.shape))


def psnr(truth: np.ndarray, guess: np.ndarray) -> float:
    """Peak signal to noise ratio in decibels."""
    return float(10 * np.log10(255**2 / np.mean((truth - guess) ** 2)))


def score(data: Picture, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    return {name: {"noisy dB": psnr(data.coarse, data.noisy), **result} for name, result in results.items()}


IMAGE = problem(
    name="grid-image",
    about="noisy picture, product of two Matérn-3/2: learning, cleaning and bands, all in a fresh process (see the cold time)",
    make=make,
    sizes=(200**2,),
    quick=(30**2,),
    score=score,
    repeat=2,
    calls=1,
)


def cleaned(data: Picture, times: int) -> Run:
    import structgp as sg

    side = len(data.noisy)
    axis, finer = np.arange(side) + 0.5, (np.arange(times * side) + 0.5) / times
    truth = data.coarse if times == 1 else data.fine

    def call() -> Result:
        kernel = sg.ProductMatern([5.0, 5.0], variance=2000.0, nu=1.5)
        gp = sg.GP(kernel, sg.Gaussian(NOISE**2), sg.ConstantMean(float(data.noisy.mean())))
        p = gp.fit(sg.Grid(axis, axis), data.noisy).predict(sg.Grid(finer, finer))
        covered = np.mean(np.abs(p.mean - truth) < 1.96 * p.sd)
        return {"dB": psnr(truth, p.mean), "covered": float(covered)}

    return Run(call)


IMAGE.method("structgp")(lambda data: cleaned(data, 1))
IMAGE.method("structgp, twice the size")(lambda data: cleaned(data, 2))


@IMAGE.method("best Gaussian filter", requires=("scipy",))
def filtered(data: Picture) -> Run:
    from scipy.ndimage import gaussian_filter

    guesses = lambda: (psnr(data.coarse, gaussian_filter(data.noisy, width)) for width in np.linspace(0.5, 3.0, 11))
    return Run(lambda: {"dB": max(guesses())})
