"""The run-length filter, its segment models and what follows from them, beside sums over all segmentations written out."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import structgp as sg
import zoo
from reference import log_normal, predict, slope
from structgp.models.changepoints.model import _value_and_gradient
from structgp.models.changepoints.reading import read_series
from structgp.parameters.tree import free_names, free_vector, with_free

T = 8
RNG = np.random.default_rng(3)
TIMES = np.cumsum(RNG.uniform(0.3, 1.5, T))
Y = np.concatenate([RNG.normal(0, 0.7, 5), RNG.normal(2.5, 0.7, 3)])
GAPPY = np.where(np.arange(T) == 3, np.nan, Y)
COUNTS = np.array([1.0, 0.0, 2.0, 1.0, 6.0, 9.0, 7.0, 8.0])
ROWS = RNG.normal(size=(T, 2)) + np.outer(np.arange(T) > 4, [2.0, -1.0])

GP = sg.GP(sg.Constant(2.0) + sg.Matern12(1.5, 0.6), sg.Gaussian(0.3), mean=0.2)
SMOOTH = sg.GP(sg.SquaredExponential(1.5, 0.8), sg.Gaussian(0.3))
SCALE = sg.UnknownScale(1.5, 0.8)
HAZARDS = {
    "constant": sg.ConstantHazard(0.2),
    "logistic": sg.LogisticHazard(0.5, 0.4, -1.0),
    "tabulated": sg.TabulatedHazard([0.05, 0.1, 0.3]),
    "function": sg.FunctionHazard(lambda run: 0.4 * (run >= 2)),  # no segment shorter than three
}


def observed_part(gp):
    """From times and values: the values that were seen, less the mean, and their covariance."""
    with jax.enable_x64(True):
        C = np.asarray(jax.jit(sg.covariance)(gp.kernel, TIMES[:, None], TIMES[:, None])) + float(gp.likelihood.noise) * np.eye(
            T
        )
    mean = float(getattr(gp.mean, "value", 0.0))

    def part(t, y):
        seen = ~np.isnan(y)
        rows = np.searchsorted(TIMES, t)[seen]
        return y[seen] - mean, C[np.ix_(rows, rows)]

    return part


def joint_normal(gp):
    part = observed_part(gp)
    return lambda t, y: log_normal(*part(t, y)) if np.isfinite(y).any() else 0.0


def joint_student(gp, scale):
    part = observed_part(gp)

    def density(t, y):
        if not np.isfinite(y).any():
            return 0.0
        errors, C = part(t, y)
        return float(stats.multivariate_t(shape=scale.beta / scale.alpha * C, df=2 * scale.alpha).logpdf(errors))

    return density


def joint_conjugate(m, kappa, alpha, beta):
    """Normal values with unknown level and variance are jointly Student's t."""

    def density(t, y):
        n = len(y)
        return float(stats.multivariate_t(np.full(n, m), beta / alpha * (np.eye(n) + 1 / kappa), df=2 * alpha).logpdf(y))

    return density


def joint_rows(mean, kappa, dof, scale):
    """Rows of normal values with unknown level and covariance: the ratio of two normalisers."""

    def multigamma(a, d):
        return d * (d - 1) / 4 * np.log(np.pi) + sum(gammaln(a - 0.5 * j) for j in range(d))

    def density(t, y):
        n, d = y.shape
        psi = scale * np.eye(d)
        middle = y.mean(axis=0)
        after = psi + (y - middle).T @ (y - middle) + kappa * n / (kappa + n) * np.outer(middle - mean, middle - mean)
        log_det = lambda M: np.linalg.slogdet(M)[1]
        return (
            multigamma(0.5 * (dof + n), d)
            - multigamma(0.5 * dof, d)
            + 0.5 * dof * log_det(psi)
            - 0.5 * (dof + n) * log_det(after)
            + 0.5 * d * np.log(kappa / (kappa + n))
            - 0.5 * n * d * np.log(np.pi)
        )

    return density


def joint_poisson(alpha, beta):
    def density(t, y):
        total, n = y.sum(), len(y)
        rates = gammaln(alpha + total) - gammaln(alpha) + alpha * np.log(beta) - (alpha + total) * np.log(beta + n)
        return rates - gammaln(y + 1).sum()

    return density


def averaged(densities):
    return lambda t, y: logsumexp([density(t, y) for density in densities]) - np.log(len(densities))


OU = sg.GP(sg.Matern12(1.5, 0.6), sg.Gaussian(0.3))
GRID = sg.AveragedSegment.over(
    sg.MarkovSegment(OU, SCALE), {"gp.kernel.lengthscale": [0.5, 3.0], "gp.likelihood.noise": [0.1, 0.6]}
)
MEMBERS = [
    joint_student(OU.replace({"kernel.lengthscale": length, "likelihood.noise": noise}), SCALE)
    for length in (0.5, 3.0)
    for noise in (0.1, 0.6)
]
side_by_side = lambda density: lambda t, y: sum(density(t, column) for column in y.T)
ROWS_WITH_A_GAP = np.where((np.arange(T)[:, None] == 2) & (np.arange(2) == 1), np.nan, ROWS)

SEGMENTS = {
    "normal": (sg.NormalSegment(0.3, 0.5, 1.5, 0.7), joint_conjugate(0.3, 0.5, 1.5, 0.7), Y),
    "rows": (sg.MultivariateNormalSegment(2, 0.3, 0.5, 2.0, 0.7), joint_rows(0.3, 0.5, 3.0, 0.7), ROWS),
    "poisson": (sg.PoissonSegment(1.5, 0.7), joint_poisson(1.5, 0.7), COUNTS),
    "markov": (sg.MarkovSegment(GP), joint_normal(GP), GAPPY),
    "markov-t": (sg.MarkovSegment(GP, SCALE), joint_student(GP, SCALE), GAPPY),
    "cholesky": (sg.CholeskySegment(SMOOTH), joint_normal(SMOOTH), GAPPY),
    "cholesky-t": (sg.CholeskySegment(SMOOTH, SCALE), joint_student(SMOOTH, SCALE), GAPPY),
    "grid": (GRID, averaged(MEMBERS), GAPPY),
    "side-by-side": (sg.SideBySide(sg.MarkovSegment(GP), 2), side_by_side(joint_normal(GP)), ROWS_WITH_A_GAP),
}


def every_segmentation(count):
    """The starts of the segments, the first included, of every segmentation of so many points."""
    for size in range(count):
        for changes in itertools.combinations(range(1, count), size):
            yield (0, *changes)


def log_joint(starts, ends, density, t, y):
    """log p(segmentation, y), where `ends` are the probabilities to end after each run: the last segment has not ended."""
    total = 0.0
    for begin, end in itertools.pairwise((*starts, len(y))):
        h = ends[: end - begin]
        with np.errstate(divide="ignore"):
            total += np.log(1 - h[:-1]).sum() + (np.log(h[-1]) if end < len(y) else 0.0)
        total += density(t[begin:end], y[begin:end])
    return total


def written_out(hazard, density, t, y):
    """All segmentations with their log joint densities."""
    ends = np.broadcast_to(np.asarray(hazard.probability(np.arange(len(y)))), len(y))
    found = {starts: log_joint(starts, ends, density, t, y) for starts in every_segmentation(len(y))}
    return {starts: value for starts, value in found.items() if value > -np.inf}


class Aging(sg.Parametrised):
    """A hazard of the user's own, with a parameter."""

    pace: float = sg.parameter(0.1)

    def __call__(self, run):
        return 1 - np.exp(-self.pace) ** (1 + run)


CASES = [*((name, "logistic") for name in SEGMENTS), ("normal", "function")]
KEPT = ("rows", "logistic"), ("cholesky-t", "logistic"), ("grid", "logistic"), ("normal", "function")


def test_hazards(x64):
    runs = np.arange(5)
    expected = {
        "constant": np.full(5, 0.2),
        "logistic": 0.5 / (1 + np.exp(1.0 - 0.4 * runs)),
        "tabulated": [0.05, 0.1, 0.3, 0.3, 0.3],
        "function": [0.0, 0.0, 0.4, 0.4, 0.4],
    }
    for name, hazard in HAZARDS.items():
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(hazard.logs(runs), (np.log(expected[name]), np.log1p(-np.array(expected[name]))))
    own = sg.FunctionHazard(Aging(0.2))
    np.testing.assert_allclose(own.logs(runs)[1], -0.2 * (1 + runs))
    assert free_names(own) == ["function.pace"]


@pytest.mark.parametrize(("segments", "hazard"), zoo.mostly_full(CASES, *KEPT))
def test_equals_the_sum_over_all_segmentations(segments, hazard, x64):
    segments, density, y = SEGMENTS[segments]
    hazard = HAZARDS[hazard]
    found = sg.ChangePoints(segments, hazard).condition(y, TIMES)
    for n in range(T):  # the filter
        joint = written_out(hazard, density, TIMES[: n + 1], y[: n + 1])
        total = logsumexp(list(joint.values()))
        assert found.log_density[: n + 1].sum() == pytest.approx(total, abs=1e-9)
        expected = np.zeros(n + 2)
        for starts, value in joint.items():
            expected[n + 1 - starts[-1]] += np.exp(value - total)
        runs, probability = found.run_length(n)
        np.testing.assert_allclose(probability, expected[runs], atol=1e-10)
    assert found.log_evidence == pytest.approx(total, abs=1e-9)
    assert found.dropped == 0
    # in hindsight
    weight = {starts: np.exp(value - total) for starts, value in joint.items()}
    changes, number = np.zeros(T), np.zeros(T)
    for starts, p in weight.items():
        changes[list(starts[1:])] += p
        number[len(starts) - 1] += p
    np.testing.assert_allclose(found.change_probability, changes, atol=1e-10)
    np.testing.assert_allclose(found.number_of_changes, number[: len(found.number_of_changes)], atol=1e-10)
    assert (0, *found.most_probable) == max(weight, key=weight.get)
    drawn = [(0, *changes) for changes in found.sample(400, seed=0)]
    likely = max(weight, key=weight.get)
    assert drawn.count(likely) / 400 == pytest.approx(weight[likely], abs=5 * np.sqrt(0.25 / 400))
    assert all(starts in weight for starts in drawn)


@pytest.mark.parametrize("name", zoo.mostly_full(["poisson", "cholesky-t", "grid"], "grid"))
def test_the_gradient_equals_finite_differences(name, x64):
    segments, _, y = SEGMENTS[name]
    model = sg.ChangePoints(segments, HAZARDS["logistic"])
    layout = model._layout(*read_series(segments, y, TIMES))
    evaluate = lambda theta: _value_and_gradient(theta, model, *layout)
    theta = free_vector(model)
    value, gradient = evaluate(theta)
    assert float(value) == pytest.approx(model.condition(y, TIMES).log_evidence, abs=1e-9)
    np.testing.assert_allclose(gradient, slope(lambda theta: float(evaluate(theta)[0]), theta), rtol=1e-6, atol=1e-7)
    assert np.abs(gradient).min() > 1e-6


# Markov, Cholesky and dense

MARKOV = {
    "product": sg.Matern32(5.0) * sg.Cosine(3.0),
    "Wiener": sg.Wiener(0.5, start=-1.0),
    "Linear": sg.Linear(0.3, center=1.0) + sg.Constant(0.5),
    "Periodic": sg.Periodic(4.0, 2.0, 0.7),
}
LONG = 40
LONG_TIMES = np.cumsum(RNG.uniform(0.05, 1.5, LONG))
LONG_Y = np.where(np.arange(LONG) == 7, np.nan, np.sin(LONG_TIMES) + (LONG_TIMES > 15) * 2 + 0.2 * RNG.normal(size=LONG))


@pytest.mark.parametrize("name", zoo.mostly_full(MARKOV, "product"))
def test_the_forms_of_a_process_agree(name):
    gp = sg.GP(MARKOV[name], sg.Gaussian(0.05))
    by_state = sg.ChangePoints(sg.MarkovSegment(gp), 0.05).condition(LONG_Y, LONG_TIMES)
    by_factor = sg.ChangePoints(sg.CholeskySegment(gp), 0.05).condition(LONG_Y, LONG_TIMES)
    np.testing.assert_allclose(by_state.log_density, by_factor.log_density, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_state.mean, by_factor.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(by_state.variance, by_factor.variance, rtol=1e-8)
    end = 20  # the segment that began with the series, beside the textbook
    X, seen = LONG_TIMES[: end + 1, None], np.r_[0:7, 8:end]
    with jax.enable_x64(True):
        K = np.asarray(jax.jit(sg.covariance)(gp.kernel, X, X))
    mean, variance = predict(K[np.ix_(seen, seen)], K[seen, end:], K[end:, end:], LONG_Y[seen], 0.05)
    law = stats.norm(mean[0], np.sqrt(variance[0, 0] + 0.05))
    column = np.flatnonzero(by_state.traces.start[end] == 0)[0]
    assert by_state.traces.log_density[end, column] == pytest.approx(law.logpdf(LONG_Y[end]), abs=1e-8)


def test_a_window_forgets_the_oldest_points():
    gp = sg.GP(sg.SquaredExponential(1.0, 1.0), sg.Gaussian(0.05))
    whole = sg.ChangePoints(sg.CholeskySegment(gp), 0.05).condition(LONG_Y, LONG_TIMES)
    recent = sg.ChangePoints(sg.CholeskySegment(gp, window=8), 0.05).condition(LONG_Y, LONG_TIMES)
    np.testing.assert_allclose(recent.log_density[:8], whole.log_density[:8], atol=1e-12)
    assert 1e-6 < np.abs(recent.log_density - whole.log_density).max() < 0.1


# learning

STEPS = np.concatenate([RNG.normal(m, 0.5, n) for m, n in [(0, 30), (3, 25), (-1, 40), (2, 25)]])


def test_learning_climbs_to_a_flat_place():
    model = sg.ChangePoints(sg.NormalSegment(), 0.1, hypotheses=32)
    found = model.fit(STEPS)
    assert found.learning.converged
    assert found.log_evidence > model.log_evidence(STEPS) + 5
    assert found.log_evidence == pytest.approx(found.learning.objective, abs=1e-9)
    assert 0.005 < float(found.model.hazard.rate) < 0.1
    assert found.most_probable.tolist() == [30, 55, 95]


@pytest.mark.full
def test_harmonics_follow_what_is_learned():
    kernel = sg.Periodic(sg.fixed(4.0), lengthscale=2.0)
    model = sg.ChangePoints(sg.MarkovSegment(sg.GP(kernel, sg.Gaussian(0.1))), 0.02, hypotheses=8)
    sharper = with_free(model, free_vector(model) - 2.0)
    assert sharper._ready().segments.harmonics > model._ready().segments.harmonics
    grid = sg.AveragedSegment.over(model.segments, {"gp.kernel.lengthscale": [0.3, 2.0]})
    assert grid.detail > model.segments.detail


# pruning


def test_dropped_hypotheses_are_accounted_for():
    segments = sg.NormalSegment()
    exact = sg.ChangePoints(segments, 0.02, hypotheses=128).condition(STEPS)  # more than there are
    assert exact.dropped == 0
    errors, losses = [], []
    for kept in (32, 5):
        pruned = sg.ChangePoints(segments, 0.02, hypotheses=kept).condition(STEPS)
        errors.append(abs(pruned.log_evidence - exact.log_evidence))
        losses.append(pruned.dropped)
        assert pruned.most_probable.tolist() == exact.most_probable.tolist()
    assert errors[0] < 1e-2 < errors[1] < 1
    assert 0 < losses[0] < losses[1]
    sparse = sg.ChangePoints(segments, 0.02, hypotheses=128, threshold=1e-4).condition(STEPS)
    assert 0 < sparse.dropped < 0.05
    assert sparse.log_evidence == pytest.approx(exact.log_evidence, abs=2 * sparse.dropped)
    assert (sparse.traces.log_joint[-1] > -np.inf).sum() < 60


def test_long_series_do_not_underflow():
    y = np.tile(STEPS, 25)  # levels 0, 3, −1, 2, and again
    found = sg.ChangePoints(sg.NormalSegment(0.0, 0.1, 2.0, 0.5), 0.02, hypotheses=32).condition(y)
    assert -6000 < found.log_evidence < -2000
    assert np.isfinite(found.change_probability).all()
    assert found.number_of_changes.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_array_equal(found.most_probable % 120, np.tile([30, 55, 95, 0], 25)[:-1])


def test_the_floor_bounds_the_density_of_repeated_values():
    y = np.zeros(60)
    sharp = sg.ChangePoints(sg.NormalSegment(alpha=0.5, beta=0.01), 0.02).condition(y)
    floored = sg.ChangePoints(sg.NormalSegment(alpha=0.5, beta=0.01, floor=0.1), 0.02).condition(y)
    highest = -0.5 * np.log(2 * np.pi * 0.1)
    assert floored.log_density.max() <= highest + 1e-12
    assert sharp.log_density.max() > highest + 1
    process = sg.ChangePoints(sg.MarkovSegment(GP, SCALE, floor=2.0), 0.02).condition(y)
    assert process.log_density.max() <= -0.5 * np.log(2 * np.pi * 2.0)


# samples of parameters


@pytest.mark.full
def test_samples_follow_the_parameters_of_a_segment():
    center = np.log(0.5)
    gp = sg.GP(sg.Matern12(sg.fixed(2.0), sg.fixed(0.5)), sg.Gaussian(0.5))
    y = 0.05 * RNG.normal(size=30)  # far less noise than expected
    options = {"samples": 12, "trajectories": 2, "leaps": 5, "window": 30, "step": 0.3}
    sampled = sg.SampledSegment(sg.MarkovSegment(gp), 1.0, **options)
    found = sg.ChangePoints(sampled, 0.01, hypotheses=4).condition(y)
    nodes = center + np.linspace(-4, 4, 41)
    grid = sg.AveragedSegment.over(sg.MarkovSegment(gp), {"gp.likelihood.noise": np.exp(nodes)})
    weight = -0.5 * (nodes - center) ** 2
    weighed = sg.AveragedSegment(grid.model, grid.paths, grid.values, weight - logsumexp(weight))
    exact = sg.ChangePoints(weighed, 0.01, hypotheses=4).condition(y)
    np.testing.assert_allclose(found.variance[10:], exact.variance[10:], rtol=0.5)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=4)
    again = sg.ChangePoints(sampled, 0.01, hypotheses=4).condition(y)
    np.testing.assert_array_equal(found.log_density, again.log_density)
    with pytest.raises(ValueError, match="the evidence of a SampledSegment is itself random"):
        sg.ChangePoints(sampled).fit(y)


# what is refused


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: sg.ChangePoints(3.0), "segments need a GP or a segment model"),
        (lambda: sg.ChangePoints(GP, hypotheses=1), "hypotheses must be a whole number, at least 2"),
        (lambda: sg.ChangePoints(GP, threshold=1.0), "threshold must be a probability below 1"),
        (lambda: sg.ChangePoints(GP, 1.5), "rate must lie between 0 and 1"),
        (lambda: sg.NormalSegment(floor=0.0), "floor must be a positive variance"),
        (lambda: sg.PoissonSegment(floor=1.0), "counts have no density"),
        (lambda: sg.MarkovSegment(SMOOTH), "SquaredExponential has no finite state.*CholeskySegment takes any kernel"),
        (lambda: sg.MarkovSegment(sg.GP(sg.Spline(1.0))), "leaves functions free, so segments have no density"),
        (lambda: sg.MarkovSegment(sg.GP(sg.Matern12(), sg.Gaussian(0.0))), "segments need noise"),
        (lambda: sg.CholeskySegment(GP, window=0), "window must be at least 1 point"),
        (lambda: sg.AveragedSegment.over(sg.MarkovSegment(GP), {}), "a grid needs at least one parameter"),
        (lambda: sg.AveragedSegment.over(sg.MarkovSegment(GP), {"noise": [1]}), "has no parameter 'noise'"),
        (lambda: sg.SampledSegment(sg.CholeskySegment(GP)), "SampledSegment needs a model with a state"),
        (lambda: sg.ChangePoints(GP).condition(ROWS), r"y must have shape \(N,\); SideBySide models several series"),
        (lambda: sg.ChangePoints(sg.SideBySide(sg.NormalSegment(), 3)).condition(ROWS), r"y must have shape \(N, 3\)"),
        (lambda: sg.ChangePoints(GP).condition([]), "y is empty"),
        (lambda: sg.ChangePoints(GP).condition([1.0, np.inf]), "y is infinite in 1 place"),
        (lambda: sg.ChangePoints(GP).condition(Y, TIMES[::-1]), "t must not go back"),
        (lambda: sg.ChangePoints(GP).condition(Y, TIMES[1:]), "t must have one time for each of the 8 points"),
        (lambda: sg.ChangePoints(sg.PoissonSegment()).condition([1.0, 0.5]), "needs counts 0, 1, 2, …, got 0.5"),
        (lambda: sg.ChangePoints(GP).stream(), "a stream has no end, so it needs a bound"),
        (lambda: sg.ChangePoints(sg.CholeskySegment(GP), hypotheses=9).stream(), "CholeskySegment needs a window"),
    ],
)
def test_refusals_say_what_to_do(act, message):
    with pytest.raises((TypeError, ValueError), match=message):
        act()


def test_a_kernel_decides_the_form():
    assert isinstance(sg.ChangePoints(GP).segments, sg.MarkovSegment)
    assert isinstance(sg.ChangePoints(SMOOTH).segments, sg.CholeskySegment)
    assert isinstance(sg.ChangePoints(GP, [0.1, 0.2]).hazard, sg.TabulatedHazard)
    assert isinstance(sg.ChangePoints(GP, lambda run: 0.1).hazard, sg.FunctionHazard)
    assert "ConstantHazard(rate=0.2)" in repr(sg.ChangePoints(GP, 0.2))
