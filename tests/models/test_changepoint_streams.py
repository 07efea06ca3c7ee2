"""Change points as the data come, in files, in pictures, and behind the scikit-learn door."""

import pickle

import matplotlib as mpl
import numpy as np
import pytest
from scipy import stats
from sklearn.utils.estimator_checks import check_estimator

import structgp as sg
from structgp.models.changepoints.predictive import (
    Forecast,
    Joint,
    Mixed,
    MultivariateTs,
    NegativeBinomials,
    Normals,
    StudentTs,
)

mpl.use("Agg")

RNG = np.random.default_rng(11)
LEVELS = np.concatenate([RNG.normal(m, 0.5, n) for m, n in [(0, 30), (3, 20), (-1, 14)]])
TIMES = np.cumsum(RNG.uniform(0.5, 1.5, 64))
GP = sg.GP(sg.Constant(4.0) + sg.Matern12(3.0, 0.2), sg.Gaussian(0.2))
MODEL = sg.ChangePoints(GP, 0.05, hypotheses=40)
TRENDS = sg.ChangePoints(sg.CholeskySegment(GP, sg.UnknownScale(), window=32), 0.05, hypotheses=40)


@pytest.fixture(scope="module")
def whole():
    return MODEL.condition(LEVELS, TIMES)


def test_a_stream_says_what_the_whole_series_says(whole):
    stream = MODEL.stream().update(LEVELS[:40], TIMES[:40])
    for y, t in zip(LEVELS[40:44], TIMES[40:44], strict=True):
        stream = stream.update(y, t)
    stream = stream.update(LEVELS[44:], TIMES[44:])
    assert stream.count == 64
    assert stream.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    assert stream.dropped == pytest.approx(whole.dropped, rel=1e-6)
    runs, probability = stream.run_length
    runs_after, probability_after = whole.run_length(63)
    np.testing.assert_allclose(probability, probability_after[np.isin(runs_after, runs)], atol=1e-12)
    assert probability.sum() == pytest.approx(1, abs=1e-4)  # less the one that gave way to a new one
    assert runs[np.argmax(probability)] == 14
    assert stream.change_probability(20) > 0.95 > 0.2 > stream.change_probability(10)
    assert stream.change_probability(20, delay=15) < 0.1


def test_predictions_ahead_know_of_changes_on_the_way():
    exact = sg.ChangePoints(GP, sg.LogisticHazard(0.4, 0.1, -2.0), hypotheses=80).stream().update(LEVELS[:50])
    following = exact.predict()
    assert following.log_prob(LEVELS[50]) == pytest.approx(exact.update(LEVELS[50]).log_evidence - exact.log_evidence, abs=1e-9)
    unseen = exact.update(np.full(5, np.nan))  # five points that nobody saw
    assert unseen.log_evidence == pytest.approx(exact.log_evidence, abs=1e-12)
    later, plain = exact.predict(steps=6), unseen.predict()
    for moment in ("mean", "variance"):
        assert getattr(later, moment) == pytest.approx(getattr(plain, moment), abs=1e-9)
    assert later.log_prob(1.0) == pytest.approx(plain.log_prob(1.0), abs=1e-9)
    low, high = later.interval(0.9)
    assert later.cdf(high) - later.cdf(low) == pytest.approx(0.9, abs=1e-9)
    before = MODEL.stream().predict()
    assert before.mean == 0
    assert before.variance == pytest.approx(4.4)


@pytest.mark.parametrize("model", [MODEL, pytest.param(TRENDS, marks=pytest.mark.full)], ids=["Markov", "Cholesky"])
def test_a_stream_goes_on_from_a_file(model, tmp_path):
    stream = model.stream().update(LEVELS[:40], TIMES[:40])
    stream.save(tmp_path / "detector.structgp")
    for copy in (sg.load(tmp_path / "detector.structgp"), pickle.loads(pickle.dumps(stream))):
        assert repr(copy) == repr(stream)
        on, copy = stream.update(LEVELS[40:42], TIMES[40:42]), copy.update(LEVELS[40:42], TIMES[40:42])
        assert on.log_evidence == copy.log_evidence
        assert on.predict(TIMES[42]).mean == copy.predict(TIMES[42]).mean


def test_a_file_that_was_changed_is_refused(tmp_path):
    import dataclasses

    stream = MODEL.stream()
    smaller = dataclasses.replace(stream, model=sg.ChangePoints(GP, 0.05, hypotheses=9))
    smaller.save(tmp_path / "bad.structgp")
    with pytest.raises(ValueError, match="its belief has another size than its model"):
        sg.load(tmp_path / "bad.structgp")


def test_streams_refuse_what_does_not_fit():
    stream = MODEL.stream().update(LEVELS[:2], TIMES[:2])
    with pytest.raises(ValueError, match="came with times, these without"):
        stream.update(1.0)
    with pytest.raises(ValueError, match="a stream goes forwards: time 0 is before its last time"):
        stream.update(1.0, 0.0)
    with pytest.raises(ValueError, match="predict needs the time of the point"):
        stream.predict()
    with pytest.raises(ValueError, match="a stream looks ahead only"):
        stream.predict(0.0)
    with pytest.raises(ValueError, match="steps must be a whole number, at least 1"):
        stream.predict(9.0, steps=0)
    with pytest.raises(ValueError, match="delay must lie between 1 and the window"):
        stream.change_probability(3, delay=5)


@pytest.mark.full
def test_several_series_change_together():
    both = np.column_stack([LEVELS, -LEVELS[::-1]])
    both[10, 1] = np.nan
    stream = sg.ChangePoints(sg.SideBySide(sg.NormalSegment(), 2), 0.05, hypotheses=20).stream()
    stream = stream.update(both[0]).update(both[1:])
    ahead = stream.predict()
    assert ahead.mean.shape == ahead.variance.shape == (2,)
    low, high = ahead.interval(0.5)
    assert np.all(low < ahead.mean)
    assert np.all(ahead.mean < high)
    assert np.isfinite(ahead.log_prob(both[0]))


# alerts and pictures


def test_alerts(whole):
    assert whole.most_probable.tolist() == [30, 50]
    found = whole.alerts(probability=0.9, window=20)
    assert [alert.start for alert in found] == [30, 50]
    assert all(0 <= alert.noticed - alert.start <= 8 and alert.probability > 0.9 for alert in found)
    late = whole.alerts(probability=0.9, window=20, delay=6)
    assert [alert.start for alert in late] == [30, 50]
    assert all(alert.noticed - alert.start >= 5 for alert in late)
    assert whole.top_alerts(2, apart=3).tolist() == [30, 50]
    assert whole.accumulated[30] > 15
    with pytest.raises(ValueError, match="an alert needs a probability between 0 and 1"):
        whole.alerts(2.0)
    with pytest.raises(ValueError, match="n must be at least 1 sample"):
        whole.sample(0)


def test_pictures(whole):
    import matplotlib.pyplot as plt

    series, probability, runs = whole.plot()
    assert len(series.lines) == 2 + 2  # mean, data, and one line for each change
    assert probability.get_ylim() == (0, 1)
    assert runs.get_ylim()[1] >= 30
    assert "64 points, 2 changes" in repr(whole)
    plt.close(series.figure)


# the door


def test_the_detector():
    detector = sg.ChangePointDetector(hypotheses=40).fit(LEVELS)
    assert detector.change_points_.tolist() == [30, 50]
    assert np.bincount(detector.labels_).tolist() == [30, 20, 14]
    np.testing.assert_array_equal(detector.predict(LEVELS), detector.labels_)
    assert detector.score_samples(LEVELS).sum() == pytest.approx(detector.log_evidence_)
    assert np.argmin(detector.score_samples(LEVELS)) in (30, 50)
    assert detector.score(LEVELS) == pytest.approx(detector.log_evidence_ / 64)
    quiet = detector.update(-1.0).change_probability(5)
    for _ in range(4):
        after = detector.update(8.0)
    assert after.change_probability(5) > 0.9 > 0.1 > quiet
    assert after is detector.stream_
    assert after.count == 64 + 5
    np.testing.assert_array_equal(sg.ChangePointDetector(hypotheses=40).fit_predict(LEVELS), detector.labels_)


@pytest.mark.full
def test_a_detector_from_nothing_and_with_a_resolution():
    detector = sg.ChangePointDetector(MODEL.segments, hazard=0.05, hypotheses=40)
    for y in LEVELS[:3]:
        believed = detector.update(y)
    assert believed.count == 3
    with pytest.raises(ValueError, match=r"a detector that was not fitted needs segments"):
        sg.ChangePointDetector().update(1.0)
    rounded = sg.ChangePointDetector(hypotheses=40, learn=False, resolution=0.6).fit(np.repeat([0.0, 6.0], 20))
    assert rounded.change_points_.tolist() == [20]
    assert rounded.score_samples(np.zeros(40)).max() <= -0.5 * np.log(2 * np.pi * 0.6**2 / 12)


def test_several_columns_are_rows():
    rows = np.column_stack([LEVELS, 100 * LEVELS + 40 * RNG.normal(size=64)])
    detector = sg.ChangePointDetector(hypotheses=40, learn=False).fit(rows)
    assert detector.change_points_.tolist() == [30, 50]


ORDER = "a series has an order, and each row is seen in the light of those before it"
NOT_FOR_SERIES = {
    "check_fit1d": "a vector is a series",
    "check_methods_subset_invariance": ORDER,
    "check_methods_sample_order_invariance": ORDER,
}


@pytest.mark.full
def test_it_follows_the_habits_of_scikit_learn():
    detector = sg.ChangePointDetector(learn=False, hypotheses=8)
    check_estimator(detector, expected_failed_checks=NOT_FOR_SERIES, on_skip=None)


# distributions

FAMILIES = {
    "normal": (Normals(np.array([0.0, 2.0]), np.array([1.0, 0.3])), [stats.norm(0, 1), stats.norm(2, np.sqrt(0.3))]),
    "student": (
        StudentTs(np.array([3.0, 8.0]), np.array([0.0, 2.0]), np.array([1.0, 0.3])),
        [stats.t(3, 0, 1), stats.t(8, 2, np.sqrt(0.3))],
    ),
    "counts": (
        NegativeBinomials(np.array([2.0, 5.0]), np.array([1.0, 0.5])),
        [stats.nbinom(2, 0.5), stats.nbinom(5, 1 / 3)],
    ),
}


@pytest.mark.parametrize("name", list(FAMILIES))
def test_distributions_are_those_of_scipy(name, x64):
    family, laws = FAMILIES[name]
    log_prob = (lambda law, y: law.logpmf(y)) if name == "counts" else (lambda law, y: law.logpdf(y))
    for y in (0.0, 1.0, 3.0):
        np.testing.assert_allclose(family.log_prob(y), [log_prob(law, y) for law in laws], rtol=1e-9)
        np.testing.assert_allclose(family.cdf(y), [law.cdf(y) for law in laws], rtol=1e-9)
    np.testing.assert_allclose(family.mean, [law.mean() for law in laws], rtol=1e-9)
    np.testing.assert_allclose(family.variance, [law.var() for law in laws], rtol=1e-9)
    np.testing.assert_allclose(family.quantile(0.8), [law.ppf(0.8) for law in laws], rtol=1e-9)
    mixture = Mixed(np.log([0.3, 0.7]), family)
    assert mixture.log_prob(1.0) == pytest.approx(
        np.log(0.3 * np.exp(log_prob(laws[0], 1.0)) + 0.7 * np.exp(log_prob(laws[1], 1.0)))
    )
    middle = mixture.quantile(0.5)
    assert 0.3 * laws[0].cdf(middle) + 0.7 * laws[1].cdf(middle) >= 0.5 - 1e-9
    if name == "counts":
        assert 0.3 * laws[0].cdf(middle - 1) + 0.7 * laws[1].cdf(middle - 1) < 0.5
    total = 0.3 * laws[0].mean() + 0.7 * laws[1].mean()
    second = 0.3 * (laws[0].var() + laws[0].mean() ** 2) + 0.7 * (laws[1].var() + laws[1].mean() ** 2)
    assert mixture.variance == pytest.approx(second - total**2)
    np.testing.assert_array_equal(family.score(np.nan), [0.0, 0.0])


def test_distributions_of_rows(x64):
    scale = np.array([[2.0, 0.5], [0.5, 1.0]])
    rows = MultivariateTs(np.array([5.0]), np.array([[1.0, -1.0]]), np.linalg.cholesky(scale)[None])
    law = stats.multivariate_t([1.0, -1.0], scale, df=5)
    assert rows.log_prob(np.array([0.5, 0.3]))[0] == pytest.approx(law.logpdf([0.5, 0.3]))
    np.testing.assert_allclose(rows.quantile(0.9)[0], stats.t(5, [1, -1], np.sqrt([2, 1])).ppf(0.9))
    np.testing.assert_allclose(rows.cdf(np.array([0.5, 0.3]))[0], stats.t(5, [1, -1], np.sqrt([2, 1])).cdf([0.5, 0.3]))
    pair = Joint(Normals(np.array([[0.0], [3.0]]), np.array([[1.0], [4.0]])))
    assert pair.log_prob(np.array([1.0, 2.0]))[0] == pytest.approx(stats.norm(0, 1).logpdf(1) + stats.norm(3, 2).logpdf(2))
    assert pair.score(np.array([1.0, np.nan]))[0] == pytest.approx(stats.norm(0, 1).logpdf(1))
    np.testing.assert_allclose(pair.cdf(np.array([1.0, 2.0]))[0], [stats.norm(0, 1).cdf(1), stats.norm(3, 2).cdf(2)])
    with pytest.raises(ValueError, match="interval needs a level between 0 and 1"):
        Forecast(Mixed(np.zeros(1), pair)).interval(1.0)
