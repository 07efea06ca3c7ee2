"""Costly climbs begin with a look at some of the rows."""

import numpy as np
import pytest

import structgp as sg
from structgp.learn import initialise, maximise

RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, (120, 2))
Y = (np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.4 * RNG.standard_normal(120) > 0).astype(float)
GP = sg.GP(sg.SquaredExponential([1.0, 1.0]), likelihood=sg.Bernoulli())


@pytest.mark.full
def test_a_start_from_some_rows_ends_where_the_others_do(monkeypatch):
    whole = GP.fit(X, Y)
    monkeypatch.setattr(maximise, "MANY_ROWS", 100)
    monkeypatch.setattr(initialise, "SOME", 60)
    taken = []
    some_rows = maximise.some_rows
    monkeypatch.setattr(maximise, "some_rows", lambda *given: taken.append(some_rows(*given)) or taken[-1])
    ours = GP.fit(X, Y)
    ((places, data),) = taken
    assert len(places) == len(data.y) == 60
    assert ours.learning.converged
    assert ours.learning.evaluations < whole.learning.evaluations
    np.testing.assert_allclose(ours.log_evidence, whole.log_evidence, atol=0.05)  # a climb ends where a step gains 0.02
