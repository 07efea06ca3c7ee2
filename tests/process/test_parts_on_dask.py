"""Parts of Dask collections, on this machine and on the workers of a cluster, one of which is killed."""

import os
import signal
import sys
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import structgp as sg
from structgp.crew import Here
from structgp.engines.inducing import InducingEngine
from structgp.inputs.parts import sources_of
from structgp.models.pursuit.parts import PartsEvidence, hold_standard, units_of_parts
from structgp.models.pursuit.sine_model import SineModel
from structgp.parameters.tree import free_vector
from structgp.process.parts import read_parts
from structgp.process.parts_of_rows import _evidence

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what Dask asks of pandas

RNG = np.random.default_rng(11)
T = np.sort(RNG.uniform(0, 20, 400))
Y = np.sin(T) + 0.2 * RNG.normal(size=400)
GP = sg.GP(sg.Matern32(1.0, 1.0), sg.Gaussian(0.1))
NEW = np.array([-1.0, 3.3, 12.2, 19.0, 25.0])
FRAME = pd.DataFrame({"t": T, "y": Y})


@pytest.fixture
def table(tmp_path):
    """A table of four partitions in a folder of Parquet files."""
    with dask.config.set(scheduler="synchronous"):
        dd.from_pandas(FRAME, npartitions=4).to_parquet(tmp_path / "meter", write_index=False)
    return dd.read_parquet(tmp_path / "meter")


def test_collections_in_and_lazy_answers_out(x64, table):
    parts, whole = GP.condition(table["t"], table["y"]), GP.condition(T, Y)
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)
    assert "4 parts one after the other" in str(parts.plan)
    new = da.from_array(NEW, chunks=3)
    with dask.config.set(scheduler="synchronous"):
        lazy, known = parts.predict(new), whole.predict(NEW)
        assert isinstance(lazy.mean, da.Array)
        assert np.allclose(lazy.mean.compute(), known.mean, atol=1e-11)
        assert np.allclose(lazy.variance.compute(), known.variance, atol=1e-11)
        assert np.allclose(parts.smoothed().mean.compute(), whole.smoothed().mean, atol=1e-11)
        assert parts.smoothed().mean.numblocks == (4,)
    arrays = GP.condition(da.from_array(T, chunks=100)[:, None], da.from_array(Y, chunks=100))
    assert np.isclose(arrays.log_evidence, whole.log_evidence, rtol=1e-12)


def test_rows_of_collections_are_answered_lazily(x64):
    X = RNG.uniform(-1, 1, (60, 2))
    y, new = X[:, 0] + 0.1 * RNG.normal(size=60), RNG.uniform(-1, 1, (9, 2))
    with dask.config.set(scheduler="synchronous"):
        gp = sg.GP(sg.Matern32([1.0, 1.0]), sg.Gaussian(0.05))
        streamed = gp.condition(da.from_array(X, chunks=(30, 2)), da.from_array(y, chunks=30), approximate=sg.Inducing(X[:8]))
        added = sg.AdditiveGP().condition(da.from_array(X, chunks=(30, 2)), da.from_array(y, chunks=30))
        for fitted in (streamed, added):
            lazy, known = fitted.predict(da.from_array(new, chunks=(5, 2))), fitted.predict(new)
            assert lazy.mean.numblocks == (2,)
            assert np.allclose(lazy.mean.compute(), known.mean, atol=1e-12)
            assert np.allclose(lazy.variance.compute(), known.variance, atol=1e-12)


def test_collections_cannot_be_found_again_by_a_file(x64, table, tmp_path):
    with pytest.raises(ValueError, match=r"the rows of this FittedParts are Dask's, .* fit from the paths of Parquet files"):
        GP.condition(table["t"], table["y"]).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_partitions_may_have_no_rows_and_begin_with_dates(x64):
    days = pd.Timestamp("2026-01-01 12:00") + pd.to_timedelta(np.arange(60), "D")
    frame = pd.DataFrame({"day": days, "y": np.sin(np.arange(60) / 5)})
    late = frame["day"] > "2026-01-25"
    with dask.config.set(scheduler="synchronous"):
        table = dd.from_pandas(frame, npartitions=4)
        table = table[table["day"] > "2026-01-25"]  # the first partition is empty, and so cannot say how days are counted
        parts, whole = GP.condition(table["day"], table["y"]), GP.condition(frame["day"][late], frame["y"][late])
        assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)
        new = frame["day"][30:33] + pd.Timedelta("7h")
        assert np.allclose(parts.predict(new).mean, whole.predict(new).mean, atol=1e-11)


def test_an_address_without_a_scheduler_is_said(table):
    with pytest.raises(ConnectionError, match="no Dask scheduler answers at over='dask'"):
        GP.fit(table["t"], table["y"], over="dask")
    with pytest.raises(ValueError, match="No clients found"):  # nothing waits for one that never connected
        distributed.default_client()


def test_collections_have_the_same_partitions(table):
    with pytest.raises(TypeError, match="the noise of each row is in memory: pass it as a column of the same table"):
        GP.condition(table["t"], table["y"], noise=np.ones(400))
    with pytest.raises(ValueError, match="X has 4 partitions, y has 2"):
        GP.condition(table["t"], da.from_array(Y, chunks=200))
    with pytest.raises(TypeError, match="X and y must both be collections of Dask's"):
        GP.condition(table["t"], Y)


@pytest.fixture(scope="module")
def client():
    """A client of two workers of their own processes, which do not mind that one of them dies."""
    from distributed import Client, LocalCluster

    quiet = {
        "distributed.admin.tick.limit": "1h",
        "distributed.comm.timeouts.connect": "60s",
        "logging": {"distributed": "critical"},
    }
    with warnings.catch_warnings(), dask.config.set(quiet):
        warnings.simplefilter("ignore")  # of sockets and threads that die with the worker
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            yield client


def killing(client, when):
    """A reporter of progress that kills a worker after an evaluation."""

    def tell(evaluations, best):
        if evaluations == when:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    return tell


class Dying:
    """A plugin of workers that kills one of them while it works on its nth share, in the midst of a round."""

    idempotent, name = True, "dying"

    def __init__(self, process, nth):
        self.process, self.left = process, nth

    def setup(self, worker):
        pass

    def transition(self, key, start, finish, **_):
        if finish == "executing" and os.getpid() == self.process and str(key).startswith("structgp-contribute"):
            self.left -= 1
            if not self.left:
                os.kill(self.process, signal.SIGKILL)


def test_a_worker_that_is_killed_changes_no_bit(x64, table, client):
    import cloudpickle
    from distributed.diagnostics.plugin import WorkerPlugin

    calm = GP.fit(table["t"], table["y"])
    assert "on 2 workers" in str(calm.plan)
    before = set(client.run(os.getpid).values())
    between = GP.fit(table["t"], table["y"], progress=killing(client, 4))
    after = set(client.run(os.getpid).values())
    assert before != after
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    client.register_plugin(type("Dying", (Dying, WorkerPlugin), {})(min(after), 7))
    midst = GP.fit(table["t"], table["y"])
    assert min(after) not in client.run(os.getpid).values()
    for hit in (between, midst):
        assert np.array_equal(free_vector(calm.gp), free_vector(hit.gp))
        assert calm.log_evidence == hit.log_evidence
        assert calm.learning.evaluations == hit.learning.evaluations
        assert np.array_equal(calm.predict(NEW).mean, hit.predict(NEW).mean)
    few = {"restarts": 2, "parameters": "best", "structure": "dense"}
    apart = GP.fit(T[:60], Y[:60], over=client, **few)
    assert np.allclose(free_vector(apart.gp), free_vector(GP.fit(T[:60], Y[:60], **few).gp), rtol=1e-9)  # other threads there
    alone = GP.fit(table["t"], table["y"], over=Here(1e9))
    assert np.isclose(alone.log_evidence, calm.log_evidence, rtol=1e-12)
    assert np.allclose(
        alone.predict(NEW).mean, GP.fit(T, Y, structure="markov", parameters="best").predict(NEW).mean, atol=1e-4
    )


@pytest.mark.full
def test_workers_say_of_rows_what_this_process_says(x64, tmp_path, client):
    """The same parts here and there: sums of an additive model, projection pursuit, inducing inputs, many series, chains."""
    X = RNG.uniform(-1, 1, (240, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=240)
    meter = np.repeat(["a", "b", "c", "d"], 60)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.assign(meter=meter)[["a", "meter", "y"]].to_parquet(tmp_path / "series.parquet")
    rows, series = (sg.ParquetBatches(tmp_path / f"{name}.parquet", "y", rows=120) for name in ("rows", "series"))
    gp = sg.GP(sg.Matern32([1.0, 1.0]), sg.Gaussian(0.05))
    functions = SineModel(RNG.normal(size=(2, 2)), [0.8, 1.1], [0.5, 0.7], 0.3, 0.1, sines=4)
    chains = {"parameters": sg.Averaging("hmc", members=4, steps=2), "restarts": 0, "structure": "dense"}

    def pursuit(over):
        looked = read_parts(sources_of(rows, None), GP, "error", over, {})
        handles = looked.crew.made(hold_standard, looked.rows, [units_of_parts(looked)] * 2)
        return np.append(*PartsEvidence(functions, handles, looked.crew)(free_vector(functions)))

    def inducing(over):
        looked = read_parts(sources_of(rows, None), gp, "error", over, {})
        through = gp.replace(kernel=sg.Induced(gp.kernel, X[:12]))
        return np.append(*_evidence(through, looked, InducingEngine("vfe"))(free_vector(through)))

    def folds(over):
        how = {"backend": "dask", "client": over} if over is client else {"backend": "sequential"}
        with joblib.parallel_config(**how):
            return cross_val_score(sg.GPRegressor(sg.Matern32(), learn=False), T[:60, None], Y[:60], cv=3)

    questions = {
        "folds": folds,
        "inducing": inducing,
        "pursuit": pursuit,
        "additive": lambda over: sg.AdditiveGP().condition(rows, over=over).log_evidence,
        "series": lambda over: GP.condition_series(series, by="meter", over=over).log_evidence,
        "chains": lambda over: GP.fit(T[:20], Y[:20], over=over, **chains).predict(NEW).mean,
        "models": lambda over: sg.compare({"a": GP, "b": GP}, T[:20], Y[:20], parameters="best", over=over).evidences["b"].log,
    }
    for name, question in questions.items():
        there, here = question(client), question(Here(1e9))
        digits = 1e-6 if name in ("chains", "models") else 1e-11  # where climbs stop and chains go, rounding decides
        assert np.allclose(there, here, rtol=digits, atol=digits * np.max(np.abs(here))), name
