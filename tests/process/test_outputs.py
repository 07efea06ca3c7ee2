"""Several outputs at the door: rows, wide tables with gaps, dictionaries, and predictions of all of them or of one."""

import functools

import numpy as np
import polars as pl
import pytest

import structgp as sg
from structgp.models.outputs import Scales

RNG = np.random.default_rng(0)
T = np.sort(RNG.uniform(0, 6, 12))
F = np.stack([np.sin(T), 10 + 5 * np.sin(T - 0.3)], axis=1)
Y = F + np.array([0.1, 0.5]) * RNG.standard_normal(F.shape)
Y[4:7, 1] = np.nan
SEEN = ~np.isnan(Y)
ROWS = np.array([[T[n], p] for n, p in zip(*np.nonzero(SEEN), strict=True)])
GP = sg.GP(sg.LMC(2, sg.Matern32(1.0)), sg.Gaussian([0.01, 0.2]), mean=sg.LevelOfOutput([0.0, 10.0]))
NAMES = ("a", "b")


@functools.cache
def given(how):
    if how == "rows":
        return GP.condition(ROWS, Y[SEEN])
    if how == "wide":
        return GP.condition(T, Y, missing="infer")
    by_name = {name: T[SEEN[:, p]] for p, name in enumerate(NAMES)}
    return GP.condition(sg.Outputs(by_name), {name: Y[SEEN[:, p], p] for p, name in enumerate(NAMES)})


@pytest.mark.parametrize("how", ["wide", "names"])
def test_tables_and_dictionaries_are_rows(how):
    rows, other = given("rows"), given(how)
    np.testing.assert_allclose(other.log_evidence, rows.log_evidence, rtol=1e-12)
    p, q = rows.predict(T[:5]), other.predict(T[:5])
    np.testing.assert_allclose(q.mean, p.mean, rtol=1e-10)
    assert q.names == (NAMES if how == "names" else ("0", "1"))


def test_all_outputs_one_of_them_and_their_covariance():
    fitted = given("names")
    p = fitted.predict(T[:5], covariance="outputs")
    assert p.mean.shape == (5, 2)
    assert p.covariance.shape == (5, 2, 2)
    one = fitted.predict(T[:5], output="b")
    np.testing.assert_allclose(one.mean, p["b"].mean, rtol=1e-12)
    np.testing.assert_allclose(one.observed.variance - one.variance, 0.2, rtol=1e-10)
    np.testing.assert_allclose(p.observed.variance - p.variance, np.tile([0.01, 0.2], (5, 1)), rtol=1e-8)
    np.testing.assert_allclose(p[1].interval()[1], one.interval()[1], rtol=1e-10)
    rows = np.column_stack([np.repeat(T[:5], 2), np.tile([0.0, 1.0], 5)])
    joint = fitted.predict(rows, covariance=True).covariance
    np.testing.assert_allclose(p.covariance[3], joint[6:8, 6:8], rtol=1e-9)
    assert fitted.sample(T[:5], 3, seed=0).shape == (3, 5, 2)
    log = p.log_prob(F[:5])
    np.testing.assert_allclose(log[:, 1], one.log_prob(F[:5, 1]), rtol=1e-10)


@pytest.mark.full
def test_learning_finds_correlation_level_and_noise_of_each():
    fitted = GP.fit(T, Y, missing="infer", restarts=0)
    found = sg.correlations(fitted.kernel)
    assert found.correlation[0, 1] > 0.7
    assert fitted.gp.mean.levels[1] > 5
    assert found.table(NAMES)[1][0] == "a"
    assert len(found.table()) == 3
    again = fitted.update(np.array([6.5]), np.array([[0.2, np.nan]]), missing="infer")
    assert len(again.inputs) == len(ROWS) + 1


def test_more_of_some_outputs_by_name():
    """In any order, and of as many as there are: the number of an output goes by its name."""
    fitted = given("names")
    more = fitted.update(sg.Outputs({"b": [6.5, 7.0], "a": []}), {"b": [10.2, 9.7], "a": []})
    rows = given("rows").update(np.array([[6.5, 1.0], [7.0, 1.0]]), [10.2, 9.7])
    assert more.log_evidence == pytest.approx(rows.log_evidence, rel=1e-12)
    same = fitted.update(sg.Outputs({"b": [6.5, 7.0]}), {"b": [10.2, 9.7]})
    assert same.log_evidence == pytest.approx(rows.log_evidence, rel=1e-12)
    with pytest.raises(ValueError, match="there is no output 'c': there are 'a', 'b'"):
        fitted.update(sg.Outputs({"c": [6.5]}), {"c": [1.0]})
    with pytest.raises(ValueError, match="no output has a place: at least one row is needed"):
        fitted.update(sg.Outputs({"b": []}), {"b": []})
    with pytest.raises(TypeError, match=r"ask for one of them at a time, as in predict\(x, output='a'\)"):
        fitted.predict(sg.Outputs({"b": [6.5]}))


def test_outputs_of_different_dimension():
    """One lives in the plane, one on a line: zeros stand in for the column that it has not, and each kernel has its columns."""
    rng = np.random.default_rng(1)
    plane, line = rng.uniform(0, 3, (6, 2)), rng.uniform(0, 3, 6)
    y = {"field": np.sin(plane[:, 0]) + plane[:, 1], "track": np.sin(line)}
    shared, own = sg.Coregion([[1.0], [0.8]], [0.1, 0.1]).on(2) * sg.Matern32().on(0), sg.Coregion.diagonal([1.0, 0.0]).on(2)
    gp = sg.GP(shared + own * sg.Matern52().on(1), sg.Gaussian([0.01, 0.02]))
    fitted = gp.condition(sg.Outputs({"field": plane, "track": line}), y)
    rows = np.vstack([np.column_stack([plane, np.zeros(6)]), np.column_stack([line, np.zeros(6), np.ones(6)])])
    same = gp.condition(rows, np.concatenate(list(y.values())))
    assert fitted.log_evidence == pytest.approx(same.log_evidence, rel=1e-12)
    at = fitted.predict([0.4, 1.9], output="track")
    np.testing.assert_allclose(at.mean, same.predict([[0.4, 0.0, 1.0], [1.9, 0.0, 1.0]]).mean, rtol=1e-10)
    assert fitted.predict([[0.4, 1.9]], output="field").mean.shape == (1,)
    grown = fitted.update(sg.Outputs({"track": [2.2]}), {"track": [0.8]})
    np.testing.assert_allclose(np.asarray(grown.inputs.points)[-1], [2.2, 0.0, 1.0])


@pytest.mark.full
def test_a_zero_beside_other_numbers_is_learned_from_small_ones():
    kernel = sg.Coregion([[1.0], [0.8]], [0.1, 0.0]).on(1) * sg.Matern32(1.0, sg.fixed(1.0)).on(0)
    gp = sg.GP(kernel, sg.Gaussian([0.01, 0.2]), mean=sg.LevelOfOutput(sg.fixed([0.0, 10.0])))
    before = gp.condition(T, Y, missing="infer").log_evidence
    fitted = gp.fit(T, Y, missing="infer", restarts=0, max_evaluations=20)
    assert fitted.log_evidence > before + 1
    assert np.all(fitted.kernel.factors[0].kernel.variance > 0)


@pytest.mark.full
def test_a_picture_of_every_output():
    pytest.importorskip("matplotlib").use("Agg")
    drawn = given("names").plot()
    assert [ax.get_ylabel() for ax in drawn] == ["a", "b"]
    assert len(drawn[1].get_lines()[-1].get_xdata()) == SEEN[:, 1].sum()
    with pytest.raises(ValueError, match="there are 2 outputs, so ax must hold as many axes, got 1"):
        given("names").plot(ax=drawn[0])


def test_messages():
    with pytest.raises(ValueError, match=r"y has 3 NaN .* pass missing='infer'"):
        GP.condition(T, Y)
    with pytest.raises(ValueError, match="there is no output 'c': there are 'a', 'b', or their numbers"):
        given("names").predict(T[:5], output="c")
    with pytest.raises(ValueError, match="3 outputs were given, but the kernel has 2 outputs"):
        GP.condition(sg.Outputs(dict.fromkeys("abc", T)), dict.fromkeys("abc", T))
    with pytest.raises(ValueError, match="y has outputs a, but X has a, b: both need the same names"):
        GP.condition(sg.Outputs(dict.fromkeys("ab", T)), {"a": T})
    with pytest.raises(TypeError, match="y is a dictionary of outputs, but X is not"):
        GP.condition(T, {"a": T, "b": T})
    with pytest.raises(ValueError, match="or together by a kernel that knows of outputs"):
        sg.GP(sg.Matern32()).condition(T, Y, missing="infer")
    with pytest.raises(ValueError, match="MaternFilters of 3 outputs and 1 source needs lengthscale of shape"):
        sg.MaternFilters(3, lengthscale=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"Lagged needs a kernel of several outputs and a lag for each of them but the first"):
        sg.Lagged(sg.MaternFilters(3), [0.1])
    with pytest.raises(ValueError, match="MaternFilters has outputs 0 to 1, but the inputs hold 2 in their column"):
        sg.GP(sg.MaternFilters(2)).condition(np.array([[0.0, 2.0]]), [1.0])
    shared = sg.LMC(2, sg.Matern32())
    for wrong in (T, np.tile(Y[:, :1], 3)):
        with pytest.raises(ValueError, match=r"2 outputs with their numbers in column 1, but X has 1 column and y the shape"):
            sg.GP(shared).condition(T, wrong)
    with pytest.raises(ValueError, match=r"y has 1 infinity \(row 3\)"):
        sg.GP(shared).condition(T, np.where((np.arange(len(T)) == 3)[:, None] & [False, True], np.inf, Y), missing="infer")
    with pytest.raises(ValueError, match="Gaussian noise has 3 numbers, but the kernel has 2 outputs: give one for each"):
        sg.GP(shared, sg.Gaussian([0.1] * 3)).condition(T, np.nan_to_num(Y))
    with pytest.raises(ValueError, match="LevelOfOutput has 2 numbers, but the kernel has 3 outputs: give one for each"):
        sg.GP(sg.LMC(3, sg.Matern32()), mean=sg.LevelOfOutput()).condition(T, np.zeros((len(T), 3)))


def test_sharing_must_pay_for_its_numbers():
    """One number is shared by: a gain that chance would have is not called sharing."""
    fitted = given("wide")
    told = lambda gain: sg.FittedOutputs(fitted, Scales.of(Y, False), NAMES, fitted.log_evidence - gain).words()[-1]
    assert told(3.5) == "nothing is shared, as far as the data tell"
    assert told(12.0) == "sharing pays by 12.0 nats"


def test_outputs_that_share_nothing_are_kept_apart():
    """By evidence, on one scale unless several are worth their numbers; a kernel that was asked for stays."""
    rng, x = np.random.default_rng(4), np.linspace(0, 6, 24)
    quick = {"parameters": "best", "restarts": 0, "logs": False}
    two = np.stack([np.sin(3 * x), np.cos(1.7 * x + 1)], axis=1) + 0.1 * rng.standard_normal((24, 2))
    apart = sg.fit_outputs(x, two, **quick)
    assert apart.summary().splitlines() == apart.words()
    assert (apart.log_evidence, apart.plan) == (apart.fitted.log_evidence, apart.fitted.plan)
    assert apart.correlations().correlation[0, 1] == 0.0
    assert apart.words()[-1] == "nothing is shared, as far as the data tell"
    single = sg.GP(sg.Matern32(), sg.Gaussian(0.1), mean=0.0)
    alone = [single.fit(x, y, parameters="best", restarts=0) for y in apart.scales.into(two).T]
    assert abs(apart.fitted.log_evidence - sum(one.log_evidence for one in alone)) < 2.0
    asked = sg.fit_outputs(x, two, kernel=sg.LMC(2, sg.Matern32(), sg.Matern32()), **quick)
    assert asked.correlations().correlation[0, 1] != 0.0
    two[:, 1] = -two[:, 0] + 0.1 * rng.standard_normal(24)
    assert sg.fit_outputs(x, two, **quick).correlations().correlation[0, 1] < -0.9


def test_a_table_of_outputs_may_be_a_frame():
    """Its columns give the names; what has no values yet, or no columns, is refused in a line."""
    quick = {"parameters": "best", "restarts": 0, "max_evaluations": 2, "logs": False, "kernel": sg.LMC(2, sg.Matern32())}
    frame = pl.DataFrame({"low": F[:, 0], "high": F[:, 1]})
    found, same = sg.fit_outputs(T, frame, **quick), sg.fit_outputs(T, F, **quick)
    assert found.names == ("low", "high")
    assert found.log_evidence == pytest.approx(same.log_evidence, rel=1e-12)
    days = np.datetime64("2024-01-01") + np.round(24 * T).astype("timedelta64[h]")
    assert sg.fit_outputs(days, F, **quick).predict(days[:3])[0].shape == (3, 2)
    with pytest.raises(TypeError, match="Y is a lazy frame: collect it first"):
        sg.fit_outputs(T, frame.lazy(), **quick)
    with pytest.raises(
        ValueError, match=r"Y needs a column for each output, got shape \(12,\): one column alone is for GP.fit"
    ):
        sg.fit_outputs(T, F[:, 0], **quick)
