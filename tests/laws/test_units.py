"""Nothing depends on units: data that are scaled or shifted lead to the same model in these units."""

import numpy as np
import pytest
from other_units import in_units, log_volume
from sklearn.datasets import make_friedman1

import structgp as sg
import zoo
from structgp.learn import climb
from structgp.parameters.tree import free_names

UP, DOWN = 2.0**40, 2.0**-40  # about 1e12 and 1e-12; powers of two leave every digit as it is
FAR = 1e6  # standard deviations that data may lie away from zero
QUICK = ("Periodic", "On-Sum")
OPTIONS = {"restarts": 0, "max_evaluations": 300}

full = pytest.mark.full
# Their loadings and the number before them say the same twice: where a climb along that ridge ends is rounding's.
SAID_TWICE = {"Cascade", "Lagged", "LowPassFilters", "MaternFilters", "PoleFilters"}
KERNELS = [pytest.param(name, marks=[] if name in QUICK else full) for name in zoo.KERNELS]


@pytest.mark.parametrize("name", KERNELS)
def test_learning_in_other_units(name):
    """Every kernel, in the units of y and with its numbers in those of x: what is learned is the same in any."""
    given, D = zoo.KERNELS[name]
    X, y = zoo.X[D], zoo.Y[D]
    told = len(y) - given.null_space(X[0]).shape[0]  # each function that is left free uses up one observation

    def learned(s, a):
        kernel = in_units(given, a, D)
        model = sg.GP(s**2 * kernel, sg.Gaussian(0.15 * s**2), mean=0.4 * s)
        fitted = model.fit(a * X, s * y, **OPTIONS)
        inner = {path: v for path, v in fitted.gp.parameters().items() if path.startswith("kernel.kernel")}
        prediction = fitted.predict(a * zoo.XS[D])
        evidence = fitted.log_evidence + told * np.log(s) + log_volume(given, kernel, a, X)
        return evidence, inner, prediction.mean / s, prediction.observed.variance / s**2  # in which white parts are one

    expected = learned(1.0, 1.0)
    for s, a in ((UP, 1.0), (DOWN, 1.0), (1.0, UP), (1.0, DOWN)):
        np.testing.assert_allclose(sg.covariance(in_units(given, a, D), a * X), sg.covariance(given, X), rtol=1e-9, atol=1e-12)
        evidence, inner, mean, variance = learned(s, a)
        assert inner.keys() == expected[1].keys() or a != 1
        if name in SAID_TWICE:
            assert evidence == pytest.approx(expected[0], abs=0.05)
            continue
        assert evidence == pytest.approx(expected[0], abs=1e-5)
        np.testing.assert_allclose(mean, expected[2], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(variance, expected[3], rtol=1e-2, atol=1e-5)


# name: a kernel with numbers that say nothing about the units of y
AS_GIVEN = {
    "Periodic": sg.Periodic(1.08, 0.8) + sg.Matern52(1.0),
    "PeriodicTimes": sg.Periodic(1.08, 0.8) * sg.Matern52(1.0) + sg.Matern32(1.0),
    "Cosine": sg.Cosine(1.08) + sg.Matern32(1.0),
}


@pytest.mark.parametrize("name", zoo.mostly_full(AS_GIVEN, "Periodic"))
def test_where_learning_starts_and_may_go_in_units_that_the_kernel_was_not_given_in(monkeypatch, name):
    """A start that is no use in these units must not move the bounds, nor what restarts find within them."""
    t, found = np.linspace(0, 10, 60), []
    y = np.sin(2 * np.pi * t / 0.83) * np.exp(-t / 10) + 0.5 * np.sin(0.7 * t) + 2 + 0.3 * np.cos(np.arange(60.0) ** 2)
    bounds_of = climb.bounds_of
    monkeypatch.setattr(climb, "bounds_of", lambda *given: found.append(bounds_of(*given)) or found[-1])
    ends = []
    for s in (UP, DOWN):
        fitted = sg.GP(AS_GIVEN[name], sg.Gaussian(0.1)).fit(t, s * y, restarts=1, max_evaluations=300, parameters="best")
        of_y = np.array([path.endswith(("variance", "noise")) and "factors[1]" not in path for path in free_names(fitted.gp)])
        found[-1] = found[-1] - 2 * np.log(s) * of_y[:, None]
        ends.append(fitted.log_evidence + len(y) * np.log(s))
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)
    assert ends[0] == pytest.approx(ends[1], abs=1e-2)


# name: a kernel that says nothing, or nothing right, about the units of the data
SAYS_NOTHING = {
    "Matern52": sg.Matern52(),
    "RationalQuadratic": sg.RationalQuadratic(),
    "Periodic": sg.Periodic() + sg.Matern52(),
    "PeriodicTimes": sg.Periodic() * sg.Matern52() + sg.Matern32(),
    "Cosine": sg.Cosine() + sg.Matern32(),
    "SpectralMixture": sg.SpectralMixture([1.0, 1.0], [0.3, 1.0], [0.2, 0.2]),
}
LENGTHS_TELL = {"PeriodicTimes"}  # the period that it has is near the one in the data: a start that finds another hill


@pytest.mark.parametrize("name", zoo.mostly_full(SAYS_NOTHING, "Matern52", "Periodic"))
def test_a_kernel_that_says_nothing_about_units_ends_on_the_same_hill_in_any(name):
    """A trend with a wave that is as short as the data show: from a start that is too long it looks like noise."""
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0, 12, 70))
    y = 0.3 * t + np.sin(2 * np.pi * t / 0.83) + 0.1 * rng.standard_normal(70)

    def learned(s, a):
        fitted = sg.GP(SAYS_NOTHING[name], sg.Gaussian(0.1)).fit(a * t, s * y, parameters="best")
        return fitted.log_evidence + len(y) * np.log(s)

    expected = learned(1.0, 1.0)
    for s, a in ((2.0**7, 1.0), (UP, 1.0), (DOWN, 1.0), (1.0, 2.0**7), (1.0, DOWN)):
        assert learned(s, a) == pytest.approx(expected, abs=1.5 if a != 1 and name in LENGTHS_TELL else 0.02)


# name: the kernel for inputs in units in which all lengths are `a` times as large, and places `b` further on
ALONG = {
    "Matern52": lambda a, b: sg.Matern52(0.7 * a, 1.2),
    "Periodic": lambda a, b: sg.Periodic(1.3 * a, 0.8, 1.2),
    "Linear": lambda a, b: sg.Matern32(0.7 * a) + sg.Linear(0.5 / a**2, b + 0.3 * a),
    "Wiener": lambda a, b: sg.Wiener(0.8 / a, start=b - 2.5 * a),
    "IntegratedWiener": lambda a, b: sg.IntegratedWiener(0.8 / a**3, start=b - 2.5 * a),
    "Spline": lambda a, b: sg.Spline(0.8 / a**3, start=b),
    "ChangePoint": lambda a, b: sg.ChangePoint(sg.Matern32(0.8 * a), sg.Matern52(1.4 * a, 0.6), b + 0.3 * a, 0.5 * a),
    "SpectralMixture": lambda a, b: sg.SpectralMixture([0.7, 0.4], [0.3 / a, 0.9 / a], [0.2 / a, 0.1 / a]),
    "DampedOscillator": lambda a, b: sg.DampedOscillator(1.3 * a, 0.9 * a, 1.2),
}
MEANS = {"constant": lambda a, b: sg.ConstantMean(0.4), "linear": lambda a, b: sg.LinearMean(0.3 / a, -0.2 - 0.3 / a * b)}


@pytest.mark.parametrize("mean", zoo.mostly_full(MEANS, "linear"))
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "Matern52" else full) for name in ALONG])
def test_learning_in_other_units_of_x(name, mean):
    X, y, new = zoo.X[1][:, 0], zoo.Y[1], zoo.XS[1][:, 0]

    def learned(a, far):
        b = far * a
        model = sg.GP(ALONG[name](a, b), sg.Gaussian(0.15), MEANS[mean](a, b))
        fitted = model.fit(a * X + b, y, restarts=0, max_evaluations=400)
        return fitted.log_evidence, fitted.predict(a * new + b).mean

    expected = learned(1.0, 0.0)
    ends = 0.05 if (name, mean) == ("ChangePoint", "linear") else 0.0  # between two where one side tells next to nothing
    for a, far, tolerance in ((UP, 0.0, 1e-5), (DOWN, 0.0, 1e-5), (1.0, FAR, 1e-2)):
        evidence, mean_there = learned(a, far)
        if name != "Spline":  # whose free line has no density, and so none in other units
            assert evidence == pytest.approx(expected[0], abs=tolerance + ends * bool(far))
        np.testing.assert_allclose(mean_there, expected[1], atol=10 * tolerance)


ROWS, TARGETS = make_friedman1(60, 5, noise=1.0, random_state=0)
LABELS, COUNTS = np.median(TARGETS) < TARGETS, np.round(TARGETS / 3)
CLASSES = np.digitize(TARGETS, np.quantile(TARGETS, [0.3, 0.7]))
BY_COLUMN = np.array([UP, DOWN, 1.0, 2.0**10, 2.0**-10])
# name: the estimator, its targets, whether these have a scale, whether they may be shifted, what it predicts
ESTIMATORS = {
    "GP": (sg.GPRegressor(), TARGETS, True, True),
    "linear": (sg.GPRegressor(mean="linear"), TARGETS, True, True),
    "zero": (sg.GPRegressor(mean="zero"), TARGETS, True, False),
    "student-t": (sg.GPRegressor(noise="student-t", max_evaluations=100), TARGETS, True, True),
    "laplace": (sg.GPRegressor(noise="laplace", max_evaluations=100), TARGETS, True, True),
    "mixture": (sg.GPRegressor(noise="mixture", max_evaluations=100), TARGETS, True, True),
    "counts": (sg.GPCountRegressor(max_evaluations=40), COUNTS, False, False),
    "scattered counts": (sg.GPCountRegressor(family="negative-binomial", max_evaluations=40), COUNTS, False, False),
    "labels": (sg.GPClassifier(max_evaluations=40), LABELS, False, False),
    "classes": (sg.GPClassifier(max_evaluations=40), CLASSES, False, False),
    "softmax": (sg.GPClassifier(multi_class="softmax", max_evaluations=40), CLASSES, False, False),
    "inducing": (sg.GPRegressor(structure="inducing:15"), TARGETS, True, True),
    "inducing labels": (sg.GPClassifier(structure="inducing:15", max_evaluations=40), LABELS, False, False),
    "twinned": (sg.TwinnedGPRegressor(max_evaluations=60), TARGETS, True, True),
    "noise that changes": (sg.HeteroscedasticGPRegressor(max_evaluations=60), TARGETS, True, True),
    "wrong labels": (sg.RobustGPClassifier(max_evaluations=60), LABELS, False, False),
    "additive": (sg.AdditiveGPRegressor(), TARGETS, True, True),
    "additive labels": (sg.AdditiveGPClassifier(), LABELS, False, False),
    "pursuit": (sg.ProjectionPursuitGPRegressor(1, random_state=0), TARGETS, True, True),
    "pursuit labels": (sg.ProjectionPursuitGPClassifier(1, random_state=0), LABELS, False, False),
}


ENDS = {"inducing": 20.0}  # times the tolerance: learning through inducing inputs does not go after what gains less than 0.02


def predicted(estimator, X, y):
    estimator.set_params(**({"random_state": 0} if "random_state" in estimator.get_params() else {})).fit(X, y)
    return estimator.predict_proba(X)[:, 1] if hasattr(estimator, "predict_proba") else estimator.predict(X)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "GP" else full) for name in ESTIMATORS])
def test_estimators_in_other_units(name):
    estimator, y, scaled, shifted = ESTIMATORS[name]
    expected, near = predicted(estimator, ROWS, y), 1e-3 * ENDS.get(name, 1.0)
    evidence, spread = estimator.log_evidence_, np.std(expected)
    columns = predicted(estimator, ROWS * BY_COLUMN, y)
    np.testing.assert_allclose(columns, expected, atol=near * spread)
    assert estimator.log_evidence_ == pytest.approx(evidence, abs=near)
    away = predicted(estimator, ROWS + FAR * ROWS.std(axis=0), y)
    # a million standard deviations away ten digits of a place are left, and a climb ends where it cannot tell any better
    np.testing.assert_allclose(away, expected, atol=5e-2 * spread)
    for s in (UP, DOWN, 1e12, 1e-6) if scaled else ():
        np.testing.assert_allclose(predicted(estimator, ROWS, s * y) / s, expected, atol=near * spread)
        counted = len(y) - (name == "additive")  # one is used up by a constant about which nothing is known
        assert estimator.log_evidence_ + counted * np.log(s) == pytest.approx(evidence, abs=near)
    if shifted:
        offset = FAR * y.std()
        np.testing.assert_allclose(predicted(estimator, ROWS, y + offset) - offset, expected, atol=near * spread)
        assert estimator.log_evidence_ == pytest.approx(evidence, abs=max(near, 1e-2))


def test_change_points_in_other_units():
    y = np.repeat([0.0, 5.0, 1.0], 30) + np.sin(np.arange(90.0) ** 2)
    expected = sg.ChangePointDetector(learn=False).fit(y)
    for s, b in ((UP, 0.0), (DOWN, 0.0), (1.0, FAR)):
        found = sg.ChangePointDetector(learn=False).fit(s * y + b)
        np.testing.assert_array_equal(found.change_points_, expected.change_points_)
        assert found.log_evidence_ + 90 * np.log(s) == pytest.approx(expected.log_evidence_, abs=1e-4)


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=full)])
def test_many_series_in_other_units(shared):
    t, panel = zoo.X[1][:, 0], np.stack([zoo.Y[1], zoo.Y[2]], axis=1)

    def learned(s, offset):
        gp = sg.GP(sg.Matern52(0.7, 1.2 * s**2), sg.Gaussian(0.15 * s**2), mean=0.4 * s + offset)
        return gp.fit_series(t, s * panel + offset, shared=shared)

    expected = learned(1.0, 0.0)
    for s, offset in ((UP, 0.0), (DOWN, 0.0), (1.0, FAR)):
        found = learned(s, offset)
        assert np.sum(found.log_evidence) + panel.size * np.log(s) == pytest.approx(np.sum(expected.log_evidence), abs=1e-3)


def test_series_in_units_of_their_own():
    """What is apart is learned apart, and what begins with one kernel may be in any units."""
    t, y = zoo.X[1][:, 0], zoo.Y[1]
    gp = sg.GP(sg.Matern52(0.7, 1.2), sg.Gaussian(0.15), mean=0.4)
    one = gp.fit_series(t, y[:, None], shared=False)
    found = gp.fit_series(t, np.stack([y, UP * y, y + 1e3], axis=1), shared=False)
    evidence = np.sum(found.log_evidence) + len(y) * np.log(UP)
    assert evidence == pytest.approx(3 * np.sum(one.log_evidence), abs=1e-3)


@pytest.mark.full
def test_em_in_other_units():
    """Levels are climbed in the units of y, so that steps are the same in any; leaps make more of rounding as they go on."""
    t, y = zoo.X[1], zoo.Y[1]

    def learned(s, u):
        model = sg.GP(sg.Matern32(0.5 * u, s**2), sg.Gaussian(0.15 * s**2), sg.ConstantMean(0.4 * s))
        fitted = model.fit(u * t, s * y, method="em", restarts=0, max_evaluations=60)
        return np.asarray(fitted.learning.trace) + len(y) * np.log(s), fitted.gp.mean.value / s

    trace, level = learned(1.0, 1.0)
    for s, u in ((UP, 1.0), (DOWN, 1.0), (1.0, DOWN)):
        other, found = learned(s, u)
        np.testing.assert_allclose(other[:3], trace[:3], rtol=1e-7)
        assert other[-1] == pytest.approx(trace[-1], abs=0.02)  # where leaps end is rounding's,
        assert found == pytest.approx(level, abs=0.1)  # and within so much of the evidence a level may be a fifth of an sd off
