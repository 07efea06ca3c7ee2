"""What does not fit into memory is refused before anything is allocated, with what to do instead."""

import math

import numpy as np
import pytest

import structgp as sg
from structgp.engines import memory

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(40, 2))
Y = np.sin(5 * X[:, 0])
GP = sg.GP(sg.Matern52(0.5), likelihood=sg.Gaussian(noise=0.01))


@pytest.fixture
def little(monkeypatch):
    """A function that leaves so many bytes."""
    return lambda free: monkeypatch.setattr(memory, "available", lambda: float(free))


@pytest.mark.parametrize("verb", ["condition", "fit"])
def test_a_matrix_that_does_not_fit(little, verb):
    little(8000)
    message = (
        r"the Cholesky engine with 40 rows needs \S+ kB of memory, and 8 kB are available: "
        r"take at most 1\d rows$"  # nothing that would be accepted is smaller
    )
    with pytest.raises(MemoryError, match=message):
        getattr(GP, verb)(X, Y)
    assert "more memory than there is" in str(GP.plan(X))


def test_what_would_be_accepted_is_named(little):
    rows = RNG.uniform(size=(700, 2))
    little(8e6)
    both = r"take at most 5\d\d rows, or structure='neighbours:30'$"  # 500 inducing inputs would not fit
    with pytest.raises(MemoryError, match=both):
        GP.fit(rows, rows[:, 0])
    assert "\n           instead: structure='neighbours:30' learns in about" in str(GP.plan(rows))
    named = r"or structure='neighbours:30'$"
    with pytest.raises(MemoryError, match=named):
        GP.fit(rows, rows[:, 0], structure="dense")


def test_an_update_that_does_not_fit(little):
    """Refused before anything is allocated, with what would take all of the data."""
    fitted, more = GP.condition(X, Y), RNG.uniform(size=(3, 2))
    little(3 * 8 * 48**2)
    message = r"an update to 43 rows needs 67.6 kB of memory, and 55.3 kB are available: condition anew, with fewer rows$"
    with pytest.raises(MemoryError, match=message):
        fitted.update(more, more[:, 0])
    little(1e6)
    assert len(fitted.update(more, more[:, 0]).inputs) == 43
    t = np.arange(200.0)
    line = sg.GP(sg.SquaredExponential(3.0)).condition(t, np.sin(t), structure="dense")
    little(6e5)
    with pytest.raises(MemoryError, match=r"condition anew, with fewer rows, or structure='state-space'$"):
        line.update([200.5], [0.0])


def test_what_fits_is_named_and_goes_first(little):
    """By its work the matrix is cheaper for few times; where it does not fit, transforms go first and are the remedy."""
    t = np.arange(200.0)
    gp = sg.GP(sg.SquaredExponential(3.0))
    usual = gp.plan(t)
    assert usual.engine.name == "Cholesky"
    bytes_of = {offer.engine.name: offer.cost.bytes for offer in usual.offers if offer.cost}
    little((bytes_of["Cholesky"] + bytes_of["Toeplitz"]) / 2)
    assert gp.plan(t).engine.name == "Toeplitz"
    with pytest.raises(
        MemoryError,
        match=r"take structure='toeplitz' \(.* kB\), or at most .* rows, or structure='state-space'$",
    ):
        gp.condition(t, np.sin(t), structure="dense")


def test_joint_answers_and_draws(little):
    fitted = GP.condition(X, Y)
    chain = sg.GP(sg.Matern32(0.5)).condition(X[:, 0], Y)
    places = RNG.uniform(size=(300, 2))
    little(1e6)
    with pytest.raises(MemoryError, match=r"joint covariance at 300 places needs 3.34 MB .*: ask for fewer places at a time"):
        fitted.predict(places, covariance=True)
    with pytest.raises(MemoryError, match=r"drawing 2 times at 300 places .*, or draw on a Grid where the kernel factors"):
        fitted.sample(places, n=2)
    with pytest.raises(MemoryError, match=r"drawing 1 times at 300 places needs .* take a kernel with a finite state"):
        GP.sample(places)
    assert fitted.predict(places).mean.shape == (300,)
    assert chain.sample(places[:, 0], n=2, seed=0).shape == (2, 300)


def test_more_data_and_the_equivalent_kernel(little):
    chain = sg.GP(sg.Matern32(0.5)).condition(X[:, 0], Y)
    little(8000)
    with pytest.raises(MemoryError, match="the Cholesky engine with 40 rows needs"):
        chain.equivalent_kernel(X[:3, 0])


def test_files(little, tmp_path):
    fitted = GP.condition(X, Y)
    little(1000)
    with pytest.raises(MemoryError, match=r"writing .*m.structgp needs .* kB of memory.*: keep fitted.gp, which is small"):
        fitted.save(tmp_path / "m.structgp")
    assert not list(tmp_path.iterdir())


def test_limits_of_groups(tmp_path, monkeypatch):
    """Of both versions of control groups; what they hold of files can be given up."""
    for name, text in {"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 10\ninactive_file 500\n"}.items():
        (tmp_path / name).write_text(text)
    assert list(memory._left(tmp_path)) == [2500.0]
    (tmp_path / "memory.max").write_text("max")
    assert list(memory._left(tmp_path)) == []
    older = tmp_path / "older"
    older.mkdir()
    (older / "memory.limit_in_bytes").write_text("700")
    (older / "memory.usage_in_bytes").write_text("100")
    assert list(memory._left(older)) == [600.0]
    monkeypatch.setattr(memory, "_of_groups", lambda: iter([123.0]))
    assert memory.available() == 123.0


def test_this_machine_has_some():
    assert 0 < memory.available() < math.inf
