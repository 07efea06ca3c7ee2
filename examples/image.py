"""
Cleaning a picture
==================

Clean a noisy picture and draw it at twice its size, with a standard deviation for every pixel.

A flower from scikit-learn's sample pictures, in grey, 200 × 200 pixels, with added noise. The covariance of 40,000 pixels is
the product of two matrices of 200 × 200, so that learning, cleaning and the bands take a few seconds.
"""

import sys
import time

import numpy as np

import structgp as sg

SIZE, NOISE = 200, 25.0  # pixels of a side; standard deviation of the noise, in grey levels of 256


def picture() -> np.ndarray:
    """A part of the flower at half its resolution, grey levels from 0 to 255, twice SIZE a side."""
    from sklearn.datasets import load_sample_image

    grey = load_sample_image("flower.jpg").mean(axis=2)
    return grey[10 : 10 + 2 * SIZE, 110 : 110 + 2 * SIZE]


def psnr(truth: np.ndarray, guess: np.ndarray) -> float:
    """Peak signal to noise ratio in decibels."""
    return float(10 * np.log10(255**2 / np.mean((truth - guess) ** 2)))


def main() -> None:
    fine = picture()
    coarse = fine.reshape(SIZE, 2, SIZE, 2).mean(axis=(1, 3))
    noisy = coarse + NOISE * np.random.default_rng(0).standard_normal(coarse.shape)

    began = time.perf_counter()
    axis = np.arange(SIZE) + 0.5
    grid = sg.Grid(axis, axis)
    kernel = sg.ProductMatern([5.0, 5.0], variance=2000.0, nu=1.5)
    gp = sg.GP(kernel, likelihood=sg.Gaussian(noise=NOISE**2), mean=sg.ConstantMean(float(noisy.mean())))
    print(gp.plan(grid))
    fitted = gp.fit(grid, noisy)
    print(fitted.summary())
    clean = fitted.predict(grid)
    twice = sg.Grid(np.arange(2 * SIZE) / 2 + 0.25, np.arange(2 * SIZE) / 2 + 0.25)
    large = fitted.predict(twice)
    print(f"learned, cleaned and enlarged in {time.perf_counter() - began:.1f} s")
    print(f"PSNR {psnr(coarse, noisy):.1f} dB with noise, {psnr(coarse, clean.mean):.1f} dB cleaned")
    doubled = np.kron(noisy, np.ones((2, 2)))
    print(f"PSNR {psnr(fine, doubled):.1f} dB noisy pixels doubled, {psnr(fine, large.mean):.1f} dB enlarged")
    figure = draw(noisy, clean, large)
    if len(sys.argv) > 1:
        figure.savefig(sys.argv[1], dpi=110)
        print(f"picture: {sys.argv[1]}")


def draw(noisy: np.ndarray, clean, large):
    """The noisy picture, the clean one, its uncertainty, and the enlarged one."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 8), layout="constrained")
    pictures = {"noisy": noisy, "cleaned": clean.mean, "standard deviation": clean.sd, "twice the size": large.mean}
    for ax, (title, values) in zip(axes.flat, pictures.items(), strict=True):
        grey = {"vmin": 0, "vmax": 255} if title != "standard deviation" else {}
        ax.imshow(values, cmap="gray", **grey)
        ax.set_title(title)
        ax.axis("off")
    return figure


if __name__ == "__main__":
    main()
