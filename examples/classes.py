"""Several classes: irises, and handwritten digits, from scikit-learn.

python examples/classes.py
"""

import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from structgp import GPClassifier


def report(name, model, X, y, rows):
    """Learn from some rows and score the others."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=rows, random_state=0, stratify=y)
    p = model.fit(X_train, y_train).predict_proba(X_test)
    right, loss = accuracy_score(y_test, np.argmax(p, axis=1)), log_loss(y_test, p)
    print(f"{name}: {rows} rows learned, {right:.1%} of {len(y_test)} others right, {loss:.3f} nats lost a label")


report("irises", GPClassifier(), *load_iris(return_X_y=True), rows=100)
report("digits", make_pipeline(PCA(12), GPClassifier(max_evaluations=15)), *load_digits(return_X_y=True), rows=300)
