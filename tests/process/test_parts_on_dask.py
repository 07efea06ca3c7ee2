"""Parts of Dask collections, on this machine and on the workers of a cluster, one of which is killed."""

import os
import signal
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import structgp as sg
from structgp.parameters.tree import free_vector

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


def test_collections_cannot_be_found_again_by_a_file(x64, table, tmp_path):
    with pytest.raises(ValueError, match=r"the rows of this FittedParts are Dask's, .* fit from the paths of Parquet files"):
        GP.condition(table["t"], table["y"]).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_collections_have_the_same_partitions(table):
    with pytest.raises(ValueError, match="X has 4 partitions, y has 2"):
        GP.condition(table["t"], da.from_array(Y, chunks=200))
    with pytest.raises(TypeError, match="X and y must both be collections of Dask's"):
        GP.condition(table["t"], Y)


def killing(client, when):
    """A reporter of progress that kills a worker at an evaluation."""

    def tell(evaluations, best):
        if evaluations == when:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    return tell


def test_a_worker_that_is_killed_changes_no_bit(x64, table):
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
            calm = GP.fit(table["t"], table["y"])
            assert "on 2 workers" in str(calm.plan)
            before = set(client.run(os.getpid).values())
            hit = GP.fit(table["t"], table["y"], progress=killing(client, 4))
            assert before != set(client.run(os.getpid).values())
            assert np.array_equal(free_vector(calm.gp), free_vector(hit.gp))
            assert calm.log_evidence == hit.log_evidence
            assert np.array_equal(calm.predict(NEW).mean, hit.predict(NEW).mean)
            few = {"restarts": 2, "parameters": "best", "structure": "dense"}
            apart = GP.fit(T[:60], Y[:60], over=client, **few)
    assert np.allclose(free_vector(apart.gp), free_vector(GP.fit(T[:60], Y[:60], **few).gp), rtol=1e-9)  # other threads there
    alone = GP.fit(table["t"], table["y"])
    assert np.isclose(alone.log_evidence, calm.log_evidence, rtol=1e-12)
    assert np.allclose(
        alone.predict(NEW).mean, GP.fit(T, Y, structure="markov", parameters="best").predict(NEW).mean, atol=1e-4
    )
