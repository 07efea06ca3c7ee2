"""What is faster on the host of an accelerator goes to the host, with all that is asked of it later."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
from structgp import where
from structgp.engines.machine import REFERENCE


@pytest.fixture
def accelerator(monkeypatch):
    """As if computations ran on an accelerator, unless the host was chosen."""
    monkeypatch.setattr(where, "accelerated", lambda: True)
    monkeypatch.setattr("structgp.process.planned.at_hand", lambda: REFERENCE["cpu"])
    monkeypatch.setattr(where, "backend", lambda: "gpu" if jax.config.jax_default_device is None else "cpu")


def test_few_rows_go_to_the_host_with_all_that_follows(accelerator):
    places = []

    def mean(x):
        places.append(jax.config.jax_default_device)
        return 0.0 * x[0]

    t = np.linspace(0, 10, 30)
    fitted = sg.GP(sg.Matern32(), sg.Gaussian(0.1), mean=mean).condition(t, np.sin(t))
    assert fitted.plan.on_host
    assert "runs on the host" in str(fitted.plan)
    places.clear()  # the plan was made on both
    fitted.predict([3.3])
    fitted.sample([3.3], seed=0)
    assert places
    assert all(place == jax.devices("cpu")[0] for place in places)
    assert jax.config.jax_default_device is None


def test_a_large_matrix_stays_on_the_accelerator(accelerator):
    X = np.random.default_rng(0).uniform(size=(4000, 5))
    assert not sg.GP(sg.SquaredExponential(np.ones(5))).plan(X, structure="dense").on_host


def test_many_places_go_back_to_the_accelerator(accelerator, monkeypatch):
    X = np.random.default_rng(0).uniform(size=(100, 3))
    plan = sg.GP(sg.SquaredExponential(np.ones(3))).plan(X)
    moved = []
    monkeypatch.setattr(where, "move", moved.append)
    plan.predicts(1000)
    assert plan.on_host
    assert not moved
    plan.predicts(10**9)
    assert moved == [where.on_accelerator]


def test_threads_compute_where_they_were_begun():
    found = []
    with jax.default_device(jax.devices("cpu")[0]):
        look = where.carried(lambda: found.append((jax.config.jax_default_device, jnp.zeros(1).dtype)))
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [(jax.devices("cpu")[0], np.float64)]


def test_without_an_accelerator_nothing_is_said():
    plan = sg.GP(sg.Matern32()).plan(np.arange(5.0))
    assert not plan.on_host
    assert "host" not in str(plan)
