"""
Several classes
===============

Irises, and handwritten digits, from scikit-learn: an estimator in its pipelines, and which digits it is least sure of.

`GPClassifier` learns each class against the rest, so that every function sees two labels, for which expectation propagation
gives good probabilities. All classes at once, behind a softmax, are known by Laplace's approximation alone: it finds the same
labels but is far less sure of them.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from structgp import Constant, GPClassifier, SquaredExponential


def report(name, model, X, y, rows):
    """Learn from some rows, score the others, and give their images or measurements with the probabilities."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=rows, random_state=0, stratify=y)
    p = model.fit(X_train, y_train).predict_proba(X_test)
    right, loss = accuracy_score(y_test, np.argmax(p, axis=1)), log_loss(y_test, p)
    print(f"{name}: {rows} rows learned, {right:.1%} of {len(y_test)} others right, {loss:.3f} nats lost a label")
    return X_test, p


irises = load_iris(return_X_y=True)
report("irises, all classes at once", GPClassifier(multi_class="softmax"), *irises, rows=100)
report("irises, each against the rest", GPClassifier(), *irises, rows=100)

# %%
# Twelve directions of the 64 pixels are enough for digits, one lengthscale for all of them, and a few steps of learning.

kernel = SquaredExponential(lengthscale=40.0, variance=100.0) + Constant()
model = make_pipeline(PCA(12), GPClassifier(kernel, max_evaluations=8))
digits, p = report("digits", model, *load_digits(return_X_y=True), rows=300)

# %%
# The ten that it is least sure of, each with its two most probable readings.

figure, axes = plt.subplots(2, 5, figsize=(9, 4.4), layout="constrained")
for ax, row in zip(axes.flat, np.argsort(p.max(axis=1)), strict=False):
    ax.imshow(digits[row].reshape(8, 8), cmap="gray_r")
    second, first = np.argsort(p[row])[-2:]
    ax.set_title(f"{first} ({p[row, first]:.0%}) or {second} ({p[row, second]:.0%})", fontsize=9)
    ax.axis("off")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
