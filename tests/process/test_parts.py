"""A series in parts gives the numbers of the whole, whoever works on the parts and wherever they are read from."""

import concurrent.futures
import itertools
import pickle
import tracemalloc

import jax
import numpy as np
import polars as pl
import pytest

import structgp as sg
import zoo
from structgp import crew
from structgp.crew import Here
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.learn.parts import SeriesEvidence
from structgp.parameters.tree import free_vector
from structgp.process.parts import _engine, condition_parts, in_time, read_parts

RNG = np.random.default_rng(5)
N = 40
T = np.sort(RNG.uniform(0.0, 6.0, N))
T[8] = T[9]  # the same place twice, on both sides of a boundary
Y = np.stack([np.sin(2 * T) + 0.3 * RNG.normal(size=N), np.cos(T)], axis=1)
Y[[3, 15, 16, 17, 18, 19, 20, 21]] = np.nan  # one part saw nothing
NOISE = np.linspace(0.0, 0.3, N)
CUTS = (0, 1, 8, 9, 15, 22, 29, 34, N)  # a part of one row; each fits into eight places
NEW = np.array([-0.5, 0.0, T[8], 1.1, 2.0, T[21], 2.9, 3.3, 4.5, T[-1], 6.2, 7.5])
GAUSSIAN = sg.Gaussian(0.2)
CASES = {
    "Matern12": sg.GP(sg.Matern12(0.8, 1.3), GAUSSIAN),
    "Matern32": sg.GP(sg.Matern32(0.8, 1.3), GAUSSIAN, mean=0.4),
    "Matern52": sg.GP(sg.Matern52(0.8, 1.3), GAUSSIAN),
    "Matern72": sg.GP(sg.Matern72(0.8, 1.3), GAUSSIAN),
    "sum": sg.GP(sg.Matern52(0.7, 1.2) + sg.Linear(0.3) + sg.White(0.2), GAUSSIAN),
    "product": sg.GP(sg.Matern32(1.5) * sg.Cosine(1.1, 0.7), GAUSSIAN),
    "periodic": sg.GP(sg.Periodic(1.3, 0.8, 1.2), GAUSSIAN),
    "Wiener": sg.GP(sg.Wiener(0.8, start=-0.5), GAUSSIAN),
    "spline": sg.GP(sg.Spline(0.8), GAUSSIAN),
    "change point": sg.GP(sg.ChangePoint(sg.Matern32(0.8), sg.Matern52(1.4, 0.6), 2.5), GAUSSIAN),
    "diffuse basis": sg.GP(sg.Matern32(0.8, 1.3), GAUSSIAN, mean=zoo.MEANS["diffuse basis"]),
}


def in_parts(gp, t, y, noise=None, cuts=CUTS, over=None, order=None):
    """A series in parts that are in memory, in any order."""
    parts = [slice(*ends) for ends in itertools.pairwise(cuts)]
    parts = parts if order is None else [parts[i] for i in order]
    sources = tuple([None if x is None else x[part] for part in parts] for x in (t, y, noise))
    return read_parts(sources, gp, "infer", over or Here(1e9), {})


def gradient(gp, looked):
    cuts, known = in_time(looked, gp)
    evidence = SeriesEvidence(gp, *known, _engine(gp, cuts, None)[0], cuts.series)
    return evidence(free_vector(gp))


@pytest.mark.parametrize("name", zoo.mostly_full(CASES, "Matern32", "change point", "diffuse basis"))
def test_parts_are_the_whole(x64, name):
    gp = CASES[name]
    known = in_parts(gp, T, Y, NOISE, order=[3, 0, 1, 2, 7, 6, 5, 4])
    parts, whole = condition_parts(gp, known), gp.condition(T, Y, noise=NOISE, missing="infer", structure="markov")
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)
    value, slope = gradient(gp, known)
    inputs = as_inputs(T)
    data = read_observations(gp.likelihood, Y, NOISE, "infer", inputs)
    exact = evidence_objective(gp, inputs, data, whole.plan.engine)
    assert np.isclose(value, whole.log_evidence, rtol=1e-12)
    assert np.allclose(slope, exact(free_vector(gp))[1], rtol=1e-9, atol=1e-9)  # sums of slopes that nearly cancel
    ours, theirs = parts.predict(NEW), whole.predict(NEW)
    assert np.allclose(ours.mean, theirs.mean, atol=1e-11)
    assert np.allclose(ours.variance, theirs.variance, atol=1e-11)
    assert np.allclose(ours.interval(0.9)[0], theirs.interval(0.9)[0], atol=1e-11)
    back = np.concatenate([np.arange(CUTS[i], CUTS[i + 1]) for i in [3, 0, 1, 2, 7, 6, 5, 4]])
    for question in ("smoothed", "leave_one_out"):
        found = [np.concatenate(part) for part in zip(*getattr(parts, question)(), strict=True)]
        known_ = getattr(whole, question)()
        assert np.allclose(found[0], known_.mean[back], atol=1e-10, equal_nan=True)
        assert np.allclose(found[1], known_.variance[:, 0][back], atol=1e-10, equal_nan=True)


class Counted(Here):
    """One call after the other, counting rounds."""

    rounds = 0

    def map(self, function, *arguments):
        self.rounds += 1
        return super().map(function, *arguments)


@pytest.mark.parametrize(("name", "rounds"), [("Matern32", 2), ("diffuse basis", 3)])
def test_an_evaluation_takes_two_rounds_or_three(x64, name, rounds):
    gp, counted = CASES[name], Counted(1e9)
    cuts, known = in_time(in_parts(gp, T, Y, NOISE, over=counted), gp)
    evidence, before = SeriesEvidence(gp, *known, _engine(gp, cuts, None)[0], cuts.series), counted.rounds
    evidence(free_vector(gp))
    assert counted.rounds - before == rounds


@pytest.mark.parametrize("cuts", [(0, N), (0, 13, N)])
def test_one_part_and_two_are_the_whole(x64, cuts):
    gp = CASES["Matern52"]
    parts, whole = condition_parts(gp, in_parts(gp, T, Y, NOISE, cuts)), gp.condition(T, Y, noise=NOISE, missing="infer")
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)
    assert np.allclose(parts.predict(NEW).mean, whole.predict(NEW).mean, atol=1e-11)


@pytest.mark.parametrize("name", zoo.mostly_full({"Matern32": 0, "diffuse basis": 0}, "Matern32"))
def test_parts_on_machines_with_many_lanes(x64, monkeypatch, name):
    """A part of several segments, whose places are joined in parallel."""
    monkeypatch.setattr("structgp.engines.chain_parts.joined", lambda chain: True)
    gp, cuts = CASES[name].replace(mean=0.5) if name == "Matern32" else CASES[name], (0, 21, N)
    looked = in_parts(gp, T, Y, NOISE, cuts)
    parts, whole = condition_parts(gp, looked), gp.condition(T, Y, noise=NOISE, missing="infer", structure="markov")
    value, slope = gradient(gp, looked)
    inputs = as_inputs(T)
    exact = evidence_objective(gp, inputs, read_observations(gp.likelihood, Y, NOISE, "infer", inputs), whole.plan.engine)
    assert np.isclose(value, whole.log_evidence, rtol=1e-12)
    assert np.allclose(slope, exact(free_vector(gp))[1], rtol=1e-9, atol=1e-9)
    ours, theirs = parts.predict(NEW), whole.predict(NEW)
    assert np.allclose(ours.mean, theirs.mean, atol=1e-11)
    assert np.allclose(ours.variance, theirs.variance, atol=1e-11)


def test_ends_of_a_long_part_are_all_of_its_message(x64, monkeypatch):

    monkeypatch.setattr("structgp.engines.chain_parts.EDGE", 8)
    gp = sg.GP(sg.Matern32(0.05, 1.3), GAUSSIAN)
    t = np.cumsum(RNG.uniform(0.2, 0.4, 120))
    y = np.sin(t)
    whole = gp.condition(t, y, structure="markov")
    looked = []
    monkeypatch.setattr("structgp.engines.chain_parts._whole", lambda *args: looked.append(args))
    parts = condition_parts(gp, in_parts(gp, t, y, cuts=(0, 40, 80, 120)))
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-13)
    assert not looked


def test_what_does_not_forget_is_looked_at_whole(x64, monkeypatch):
    monkeypatch.setattr("structgp.engines.chain_parts.EDGE", 8)
    gp = sg.GP(sg.Matern32(5.0, 1.3), GAUSSIAN)
    t = np.cumsum(RNG.uniform(0.2, 0.4, 120))
    parts = condition_parts(gp, in_parts(gp, t, np.sin(t), cuts=(0, 40, 80, 120)))
    assert np.isclose(parts.log_evidence, gp.condition(t, np.sin(t), structure="markov").log_evidence, rtol=1e-13)


@pytest.fixture
def file(tmp_path):
    """Two files of rows along time, in pieces that are not sorted inside."""
    t = np.sort(RNG.uniform(0, 20, 300))
    y = np.sin(t) + 0.2 * RNG.normal(size=300)
    for i, rows in enumerate((RNG.permutation(150), 150 + RNG.permutation(150))):
        pl.DataFrame({"t": t[rows], "y": y[rows]}).write_parquet(tmp_path / f"{i}.parquet")
    return tmp_path, t, y


def test_files_are_fitted_in_parts_as_their_rows_are_in_memory(x64, file):
    folder, t, y = file
    gp = sg.GP(sg.Matern32(1.0, 1.0), GAUSSIAN)
    parts = gp.fit(sg.ParquetBatches(str(folder / "*.parquet"), "y", rows=150))
    whole = gp.fit(t, y, structure="markov", parameters="best")
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-9)
    assert np.allclose(free_vector(parts.gp), free_vector(whole.gp), atol=1e-4)  # where two climbs stop
    names = gp.condition([folder / "0.parquet", folder / "1.parquet"], "y")
    assert np.isclose(names.log_evidence, gp.condition(t, y).log_evidence, rtol=1e-12)
    assert "2 parts one after the other, 2 states" in str(parts.plan)
    assert "2 parts" in str(gp.plan(sg.ParquetBatches(str(folder / "*.parquet"), "y", rows=150)))
    assert "log evidence" in parts.summary()


def test_a_file_says_where_the_rows_are(x64, file):
    folder, t, _ = file
    parts = sg.GP(sg.Matern32(1.0, 1.0), GAUSSIAN).condition(str(folder / "*.parquet"), "y")
    parts.save(folder / "model")
    again = sg.load(folder / "model")
    assert np.array_equal(again.predict(NEW).mean, parts.predict(NEW).mean)
    assert np.array_equal(next(again.smoothed()).variance, next(parts.smoothed()).variance)
    assert (again.kernel, str(again.plan), again.log_evidence) == (parts.kernel, str(parts.plan), parts.log_evidence)
    with pytest.raises(ValueError, match="X has 2 columns, but a series has one: its times"):
        parts.predict(np.zeros((3, 2)))
    pl.DataFrame({"t": t[:20], "y": t[:20]}).write_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match=r"the rows of .*parquet have changed since they were fitted: there were 300 from"):
        sg.load(folder / "model").predict(NEW)


def test_threads_give_the_same_bits(x64, file):
    folder, _, _ = file
    gp, rows = sg.GP(sg.Matern32(1.0, 1.0), GAUSSIAN), sg.ParquetBatches(str(folder / "*.parquet"), "y", rows=150)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        by_threads = gp.condition(rows, over=pool)
        assert "by ThreadPoolExecutor" in str(by_threads.plan)
        assert by_threads.log_evidence == gp.condition(rows, over=Here(0)).log_evidence  # where every part is read again
        assert np.array_equal(by_threads.predict(NEW).mean, gp.condition(rows).predict(NEW).mean)
        assert by_threads.predict(NEW[:0]).mean.shape == (0,)  # no part is asked


def test_what_parts_cannot_do_is_refused(file):
    folder, _, y = file
    rows = sg.ParquetBatches(str(folder / "*.parquet"), "y", rows=100)
    gp = sg.GP(sg.Matern32(1.0, 1.0), GAUSSIAN)
    with pytest.raises(ValueError, match=r"the partitions overlap in t: one ends at .*set_index"):
        gp.condition(rows)
    rows = sg.ParquetBatches(str(folder / "*.parquet"), "y", rows=150)
    with pytest.raises(ValueError, match="structure='dense' has no parts: its matrix couples all rows"):
        gp.condition(rows, structure="dense")
    with pytest.raises(ValueError, match=r"SquaredExponential has no finite state.*its matrix couples all rows"):
        sg.GP(sg.SquaredExponential()).condition(rows)
    with pytest.raises(ValueError, match="parameters='nuts' is not for data in parts: leave it out, or take 'best'"):
        gp.fit(rows, parameters="nuts")
    with pytest.raises(ValueError, match=r"must have Gaussian noise, not Bernoulli, .* fit on some of the rows in memory"):
        sg.GP(sg.Matern32(), sg.Bernoulli()).fit(rows)
    with pytest.raises(TypeError, match="y is the name of the column that is foretold"):
        gp.fit(str(folder / "0.parquet"), y)
    with pytest.raises(TypeError, match="over must be a Dask client, the address of a scheduler"):
        gp.fit(rows, over=3)
    with pytest.raises(TypeError, match="leave out y and noise"):
        gp.fit(rows, y)


def test_files_have_the_columns_of_the_first(x64, file):
    folder, t, y = file
    gp, first, second = sg.GP(sg.Matern32(1.0, 1.0), GAUSSIAN), folder / "0.parquet", folder / "1.parquet"
    rows = pl.read_parquet(second)
    rows.with_columns(pl.col("y").cast(pl.Float32), more=pl.lit("x")).select("more", "y", "t").write_parquet(second)
    single = np.where(np.arange(300) < 150, y, y.astype(np.float32))
    assert np.isclose(gp.condition([first, second], "y").log_evidence, gp.condition(t, single).log_evidence, rtol=1e-12)
    rows.rename({"y": "z"}).write_parquet(second)
    with pytest.raises(ValueError, match=r"do not have the same columns \(.*y.*\): the first says which there are"):
        gp.condition([first, second], "y")
    rows.with_columns(pl.col("t").cast(pl.String)).write_parquet(second)
    with pytest.raises(ValueError, match=r"do not have the same columns \(.* type .*t"):
        gp.condition([first, second], "y")
    rows[:0].write_parquet(second)
    with pytest.raises(ValueError, match=r"1.parquet has no rows"):
        gp.condition(second, "y")


def test_a_series_is_asked_at_one_column_of_times(x64):
    parts = condition_parts(CASES["Matern32"], in_parts(CASES["Matern32"], T, Y[:, 1]))
    with pytest.raises(ValueError, match="X has 2 columns, but a series has one: its times"):
        parts.predict(np.zeros((3, 2)))


def test_dates_are_counted_by_one_clock(x64, tmp_path):
    days = np.datetime64("2026-01-01T12:00", "us") + np.arange(60) * np.timedelta64(1, "D")
    y = np.sin(np.arange(60) / 5)
    pl.DataFrame({"day": days, "y": y}).write_parquet(tmp_path / "days.parquet")
    gp = sg.GP(sg.Matern32(8.0, 1.0), sg.Gaussian(0.01))
    parts = gp.condition(sg.ParquetBatches(tmp_path / "days.parquet", "y", rows=25))
    whole = gp.condition(days, y)
    later = days[[3, 30, 59]] + np.timedelta64(7, "h")
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)
    assert np.allclose(parts.predict(later).mean, whole.predict(later).mean, atol=1e-11)


@pytest.mark.full
def test_a_file_ten_times_as_large_as_what_may_be_kept(x64, tmp_path, monkeypatch):
    """What is allocated at once stays below three parts, and what is kept below a tenth of the file."""
    t = np.sort(RNG.uniform(0, 30_000, 300_000))
    y = np.sin(t) + 0.2 * RNG.normal(size=len(t))
    pl.DataFrame({"t": t, "y": y}).write_parquet(tmp_path / "rows.parquet", row_group_size=30_000)
    room, rows = (t.nbytes + y.nbytes) // 10, sg.ParquetBatches(tmp_path / "rows.parquet", "y", rows=30_000)
    gp, kept = sg.GP(sg.Matern32(1.0, 1.0), GAUSSIAN), []
    keep = crew._STORE.keep

    def watched(*arguments):
        keep(*arguments)
        kept.append(sum(map(crew.size, crew._STORE._values.values())))

    monkeypatch.setattr(crew._STORE, "keep", watched)
    options = {"over": Here(room), "max_evaluations": 3}
    parts = gp.fit(rows, **options)  # which compiles
    assert max(kept) <= room
    assert len(kept) > 10 * 2 * parts.learning.evaluations  # parts were read again and again
    tracemalloc.start()
    gp.fit(rows, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    telling = 4 * 8 * 2**15  # rows that tell where learning begins, and their values
    assert peak < 3 * room + telling + 3e6  # and what Python itself takes
    assert np.isclose(parts.log_evidence, parts.gp.condition(t, y).log_evidence, rtol=1e-12)


def test_climbs_are_done_elsewhere(x64):
    t, y, gp = T[:30], Y[:30, 1], sg.GP(sg.Matern32(0.8, 1.3), GAUSSIAN)
    t, y = t[np.isfinite(y)], y[np.isfinite(y)]
    options = {"restarts": 2, "parameters": "best", "structure": "dense"}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        elsewhere = gp.fit(t, y, over=pool, **options)
        models = {"rough": sg.GP(sg.Matern12(), GAUSSIAN), "smooth": sg.GP(sg.Matern52(), GAUSSIAN)}
        compared = sg.compare(models, t, y, parameters="best", over=pool)
    here = gp.fit(t, y, **options)
    assert np.array_equal(free_vector(elsewhere.gp), free_vector(here.gp))
    assert elsewhere.learning.restarts == 2
    assert compared.evidences["rough"].log == sg.compare(models, t, y, parameters="best").evidences["rough"].log
    with pytest.raises(ValueError, match="over= has the climbs of an evidence done elsewhere, and method='em' makes none"):
        gp.fit(t, y, over=pool, method="em")
    with pytest.raises(ValueError, match="the sites of StudentT depend on those that were found before"):
        sg.GP(sg.Matern32(), sg.StudentT()).fit(t, y, over=pool)


class Sent(Here):
    """One call after the other, with arguments and answers that went the way to another process."""

    def map(self, function, *arguments):
        rows = (pickle.loads(pickle.dumps(row)) for row in zip(*arguments, strict=False))
        return [pickle.loads(pickle.dumps(crew.call(function, *row))) for row in rows]


@pytest.mark.parametrize("how", zoo.mostly_full({"hmc": 3, "nuts": 2, "slice": 3, "metropolis": 3, "ais": None}, "hmc", "ais"))
def test_chains_are_moved_elsewhere(x64, how):
    t, gp = T[:12], sg.GP(sg.Matern32(0.8, 1.3), GAUSSIAN)
    steps = {"hmc": 3, "nuts": 2, "slice": 3, "metropolis": 3}.get(how)
    options = {"parameters": sg.Averaging(how, members=6, steps=steps), "restarts": 0, "structure": "dense"}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        elsewhere = gp.fit(t, np.sin(t), over=pool, **options)
    sent = gp.fit(t, np.sin(t), over=Sent(0), **options)
    assert np.array_equal(elsewhere.draws.thetas, sent.draws.thetas)
    here = gp.fit(t, np.sin(t), **options).draws
    assert elsewhere.draws.thetas.shape == here.thetas.shape
    assert np.isclose(elsewhere.draws.evidence.log, here.evidence.log, atol=0.2)  # of AIS by other random numbers


def test_climbs_of_labels_are_done_elsewhere(x64):
    t, gp = T[:14], sg.GP(sg.Matern32(0.8, 1.3), sg.Bernoulli())
    options = {"restarts": 1, "parameters": "best", "max_evaluations": 8}
    sent = gp.fit(t, np.sin(2 * t) > 0, over=Sent(0), **options)
    assert np.isclose(sent.log_evidence, gp.fit(t, np.sin(2 * t) > 0, **options).log_evidence, rtol=1e-5)


def _doubled(x):
    return str(x.dtype), 2 * np.asarray(x)


def test_what_is_sent_keeps_its_precision(x64):
    class Elsewhere:
        """An executor that reads what it is given where JAX is as the caller may have it."""

        def map(self, function, *arguments):
            with jax.enable_x64(False):
                rows = [pickle.loads(pickle.dumps(row)) for row in zip(*arguments, strict=False)]
            return [function(*row) for row in rows]

    third = jax.device_put(np.array([1 / 3]))
    found = crew.Pool(Elsewhere(), 0.0).map(_doubled, [third, third])
    assert found == [("float64", 2 / 3)] * 2


def test_an_objective_survives_the_way_to_another_process(x64):
    gp = sg.GP(sg.Matern32(0.8, 1.3), GAUSSIAN)
    inputs = as_inputs(T[:12])
    data = read_observations(gp.likelihood, np.sin(T[:12]), None, "error", inputs)
    objective = evidence_objective(gp, inputs, data, gp.plan(T[:12], "dense").engine)
    with jax.enable_x64(False):  # as the caller may have it
        sent = pickle.loads(pickle.dumps(objective))
    value, gradient = objective(free_vector(gp))
    assert sent(free_vector(gp))[0] == value
    assert np.array_equal(sent(free_vector(gp))[1], gradient)
