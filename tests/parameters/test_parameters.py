import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgp as sg
from structgp.parameters.tree import Note, free_bounds, free_names, free_vector, learned_leaves, leaves, log_prior, with_free

numbers = st.lists(st.floats(-8, 8), min_size=1, max_size=5).map(np.array)
SCALAR = {"real": sg.real, "positive": sg.positive, "unit_interval": sg.unit_interval, "interval": sg.interval(-3.0, 5.0)}


@pytest.mark.parametrize("name", SCALAR)
@given(free=numbers)
def test_supports_round_trip(name, free):
    support = SCALAR[name]
    value = support.constrain(free)
    support.check("x", value)
    np.testing.assert_allclose(support.free(value), free, rtol=1e-9, atol=1e-9)  # near an edge a digit is lost for each e²


@given(free=numbers)
def test_simplex_round_trip(free):
    value = sg.simplex.constrain(free)
    assert value.shape == (len(free) + 1,)
    assert sg.simplex.free_shape(value.shape) == free.shape
    sg.simplex.check("w", value)
    np.testing.assert_allclose(sg.simplex.free(value), free, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 1000), rows=st.integers(1, 4))
def test_orthonormal_matrices_come_back_as_they_are(seed, rows):
    Q = sg.random_rotation(rows, seed)[:, : max(1, rows - 1)]
    sg.orthonormal.check("W", Q)
    np.testing.assert_allclose(sg.orthonormal.constrain(sg.orthonormal.free(Q)), Q, atol=1e-13)
    W = sg.orthonormal.constrain(np.random.default_rng(seed).standard_normal(rows) + 0.1)
    assert np.linalg.norm(W) == pytest.approx(1.0)


def test_supports_are_the_same_in_jax(x64):
    free = np.array([-1.5, 0.3, 2.0])
    for support in [*SCALAR.values(), sg.simplex]:
        np.testing.assert_allclose(support.constrain(jax.numpy.asarray(free)), support.constrain(free), rtol=1e-14)
    matrix = np.random.default_rng(0).standard_normal((3, 2))
    np.testing.assert_allclose(
        sg.orthonormal.constrain(jax.numpy.asarray(matrix)), sg.orthonormal.constrain(matrix), rtol=1e-12
    )


def test_interval_does_not_overflow():
    np.testing.assert_array_equal(sg.unit_interval.constrain(np.array([-1e6, 1e6])), [0.0, 1.0])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sg.Matern32(-1.0), "Matern32: lengthscale must be positive and finite, got -1"),
        (lambda: sg.Matern32(0.0), "lengthscale must be positive"),
        (lambda: sg.Matern32(np.inf), "positive and finite"),
        (lambda: sg.Matern32([1.0, np.nan]), "lengthscale must not contain NaN"),
        (lambda: sg.Matern32("long"), "lengthscale must be a number or an array of numbers, got 'long'"),
        (lambda: sg.Gaussian(-0.1), "noise must be zero or positive"),
        (lambda: sg.GammaExponential(gamma=2.5), "gamma must lie between 0 and 2"),
        (lambda: sg.Project(sg.Matern32(), [1.0, 1.0]), "orthonormal columns.*orthonormalise"),
        (lambda: sg.HypothesisClass(lambda x: x, [0.5, 0.6]), "positive numbers that sum to one"),
        (lambda: sg.LinearMean(np.inf), "slope must be finite"),
        (lambda: sg.interval(2.0, 1.0), "two finite numbers in order"),
        (lambda: sg.Matern(nu=1.0), r"half an odd number.*got 1.0"),
        (lambda: sg.Matern(nu=1e300), r"half an odd number.*got 1e\+300"),
        (lambda: sg.Matern(nu=1e6 + 0.5), r"nu must be at most 100\.5, got 1000000\.5; SquaredExponential is the limit"),
        (lambda: sg.ProductMatern(nu=101.5), r"nu must be at most 100\.5, got 101\.5"),
        (lambda: sg.Spline(order=0), "whole number, 1 or more, got 0"),
        (lambda: sg.Polynomial(degree=1.5), "whole number, 1 or more, got 1.5"),
        (lambda: sg.CholeskyMetric([1.0, 1.0, 1.0], [0.0]), "3 dimensions needs 3 entries above the diagonal, got 1"),
        (lambda: sg.GivensMetric([1.0, 1.0, 1.0], [0.0]), "3 dimensions needs 3 angles, got 1"),
        (lambda: sg.FactorMetric([[0.1]], [1.0, 1.0]), r"loadings of shape \(D, k\)"),
        (lambda: sg.SpectralMixture([1.0], [1.0, 2.0], [0.1]), "as many frequencies and bandwidths as weights"),
        (lambda: sg.HalfSpace(support="disc"), "support must be 'ball' or 'box', got 'disc'"),
        (lambda: sg.Matern32().on(1, 1), "distinct columns by their numbers, counted from 0"),
        (lambda: sg.Sum((sg.Matern32(), 3.0)), "Sum needs kernels, got 3.0"),
        (lambda: sg.Warp(sg.Matern32(), 3.0), "a function is needed, got 3.0"),
        (lambda: sg.orthonormalise([0.0, 0.0]), "zero length"),
        (lambda: sg.Matern32().with_bounds(lengthscale=(2.0, 1.0)), "a lower and an upper bound, in this order"),
        (lambda: sg.Matern32(sg.learned(1.0, bounds=(-1.0, 1.0))), "a lower and an upper bound.*positive, got -1 and 1"),
        (lambda: sg.Project(sg.Matern32(), [0.6, 0.8]).with_bounds(direction=(0.0, 1.0)), "direction cannot have bounds"),
        (lambda: sg.Matern32().freeze("lenghtscale"), "Matern32 has no parameter 'lenghtscale'; it has: lengthscale, variance"),
        (lambda: sg.Matern32().replace({"period": 1.0}), "no parameter 'period'"),
        (lambda: sg.Matern32().replace({"variance": -1.0}), "variance must be positive"),
        (lambda: sg.Matern32().tie("lengthscale"), "at least two parameters"),
        (lambda: sg.Matern32([1.0, 2.0]).tie("lengthscale", "variance"), r"one shape, got lengthscale: \(2,\), variance: \(\)"),
    ],
)  # fmt: skip
def test_what_is_refused(make, text):
    with pytest.raises((ValueError, TypeError), match=text):
        make()


def test_fixed_and_learned_and_frozen():
    kernel = sg.Matern32(sg.fixed(2.0), sg.learned(3.0, prior=sg.Gamma(2.0, 1.0), bounds=(0.5, 9.0)))
    assert (float(kernel.lengthscale), float(kernel.variance)) == (2.0, 3.0)
    assert free_names(kernel) == ["variance"]
    (leaf,) = learned_leaves(kernel)
    assert (leaf.prior, leaf.bounds) == (sg.Gamma(2.0, 1.0), (0.5, 9.0))
    np.testing.assert_allclose(free_bounds(leaf), np.log([0.5, 9.0]))
    assert free_names(kernel.thaw("lengthscale")) == ["lengthscale", "variance"]
    assert free_names(kernel.freeze("variance")) == []
    assert free_names(kernel.replace(variance=4.0)) == ["variance"]
    both = sg.Matern32() + sg.Periodic()
    assert free_names(both.freeze("terms[1]")) == ["terms[0].lengthscale", "terms[0].variance"]
    assert free_names(sg.GP(both).freeze("kernel", "likelihood")) == []
    assert free_names(sg.Matern32([1.0, 2.0])) == ["lengthscale[0]", "lengthscale[1]", "variance"]


def test_a_fixed_list_is_an_array():
    kernel = sg.Matern32(sg.fixed([1, 2]))
    assert kernel.lengthscale.dtype == np.float64
    assert free_names(kernel) == ["variance"]


def test_a_fixed_metric_is_fixed_in_all_its_numbers():
    assert free_names(sg.Matern32(sg.fixed(sg.GivensMetric()))) == ["variance"]
    assert len(free_names(sg.Matern32(sg.GivensMetric()))) == 4


def test_numbers_written_in_front_are_not_learned():
    assert free_names(2.0 * sg.Matern32(sg.fixed(1.0))) == ["kernel.variance"]
    assert free_names(sg.Scaled(sg.Matern32(), 2.0).freeze("kernel")) == ["scale"]


def test_zero_means_switched_off():
    assert free_names(sg.Gaussian(0.0)) == []
    assert free_names(sg.Gaussian(0.0).thaw()) == []
    gp = sg.GP(sg.Matern32()).replace({"likelihood.noise": 0.0})
    assert free_names(gp) == ["kernel.lengthscale", "kernel.variance"]
    assert np.isfinite(free_vector(gp)).all()


def test_paths_lead_through_the_whole_model():
    gp = sg.GP(sg.Matern32() + 2.0 * sg.Periodic().on(0), sg.Gaussian(0.1), mean=0.5)
    assert list(gp.parameters()) == [
        "kernel.terms[0].lengthscale",
        "kernel.terms[0].variance",
        "kernel.terms[1].kernel.kernel.period",
        "kernel.terms[1].kernel.kernel.lengthscale",
        "kernel.terms[1].kernel.kernel.variance",
        "kernel.terms[1].scale",
        "likelihood.noise",
        "mean.value",
    ]
    changed = gp.replace({"kernel.terms[0].lengthscale": 3, "mean.value": -1.0})
    assert float(changed.kernel.terms[0].lengthscale) == 3.0
    assert float(gp.kernel.terms[0].lengthscale) == 1.0
    assert float(changed.mean.value) == -1.0


def test_tied_parameters_are_one():
    kernel = (sg.Matern32(0.5) + sg.Matern52(2.0)).tie("terms[1].lengthscale", "terms[0].lengthscale")
    assert [float(term.lengthscale) for term in kernel.terms] == [2.0, 2.0]
    assert free_names(kernel) == ["terms[0].variance", "terms[1].lengthscale", "terms[1].variance"]
    moved = with_free(kernel, np.log([1.0, 7.0, 1.0]))
    assert [float(term.lengthscale) for term in moved.terms] == pytest.approx([7.0, 7.0])
    for path in ("terms[0].lengthscale", "terms[1].lengthscale"):
        assert [float(term.lengthscale) for term in kernel.replace({path: 3.0}).terms] == [3.0, 3.0]
    assert free_names(kernel + sg.Matern12()) == free_names(sg.Sum((kernel, sg.Matern12()))), "a sum keeps its ties"


@pytest.mark.parametrize("second", [(1, 2), (2, 1), (2, 0), (0, 2)])
def test_ties_that_share_a_parameter_are_one_tie(second):
    path = lambda i: f"terms[{i}].lengthscale"
    kernel = sg.Matern12(0.5) + sg.Matern32(1.0) + sg.Matern52(2.0)
    kernel = kernel.tie(path(0), path(1)).tie(*map(path, second))
    lengths = {float(term.lengthscale) for term in kernel.terms}
    assert len(lengths) == 1
    assert sum("lengthscale" in name for name in free_names(kernel)) == 1
    moved = with_free(kernel, free_vector(kernel) + 1.0)
    assert [float(term.lengthscale) for term in moved.terms] == pytest.approx([math.e * lengths.pop()] * 3)


def test_ties_across_levels():
    inner = (sg.Matern12(0.5) + sg.Matern32(1.0)).tie("terms[0].lengthscale", "terms[1].lengthscale")
    outer = sg.Product((inner, sg.Matern52(2.0))).tie("factors[1].lengthscale", "factors[0].terms[1].lengthscale")
    assert [float(v) for p, v in outer.parameters().items() if "lengthscale" in p] == [2.0, 2.0, 2.0]
    assert sum("lengthscale" in name for name in free_names(outer)) == 1


def test_log_prior_counts_each_belief_once(x64):
    kernel = (sg.Matern32(2.0) + sg.Matern52(2.0)).tie("terms[0].lengthscale", "terms[1].lengthscale")
    kernel = kernel.with_prior({"terms[0].lengthscale": sg.Normal(0.0, 1.0)})
    assert float(log_prior(kernel)) == pytest.approx(-0.5 * 4 - 0.5 * math.log(2 * math.pi))
    assert float(log_prior(sg.Matern32())) == 0.0


def test_a_class_may_come_with_a_belief(x64):
    class Careful(sg.Parametrised):
        size: float = sg.parameter(1.0, sg.positive, sg.LogNormal(0.0, 1.0))

    assert leaves(Careful())[0].prior == sg.LogNormal(0.0, 1.0)
    assert float(log_prior(Careful(size=1.0))) == pytest.approx(-0.5 * math.log(2 * math.pi))
    assert dict(Careful(sg.fixed(2.0)).notes) == {"size": Note(fixed=True)}


def test_values_in_float32_are_learned_in_float64():
    kernel = sg.Matern32(np.float32(0.5), np.int64(2))
    assert kernel.lengthscale.dtype == kernel.variance.dtype == np.float64
    assert free_vector(sg.Matern32(jax.numpy.asarray(0.5), 2)).dtype == np.float64


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (sg.Matern32(0.5), "Matern32(lengthscale=0.5, variance=1)"),
        (sg.Matern52([0.5, 1.25]) + sg.White(1e-3), "Matern52(lengthscale=[0.5, 1.25], variance=1) + White(variance=0.001)"),
        (2.5 * (sg.Constant() + sg.Linear()), "2.5 * (Constant(variance=1) + Linear(variance=1, center=0))"),
        ((sg.Constant() + sg.White()) * sg.Constant(2.0), "(Constant(variance=1) + White(variance=1)) * Constant(variance=2)"),
        ((sg.Constant() * sg.Constant(2.0)).on(0, 2), "(Constant(variance=1) * Constant(variance=2)).on(0, 2)"),
        (sg.Matern(nu=4.5), "Matern(lengthscale=1, variance=1, nu=4.5)"),
        (sg.Project(sg.Matern32(), [0.6, 0.8]), "Project(Matern32(lengthscale=1, variance=1), direction=[0.6, 0.8])"),
        (
            sg.ChangePoint(sg.Constant(), sg.White(), 0.3),
            "ChangePoint(before=Constant(variance=1), after=White(variance=1), location=0.3, dim=0)",
        ),
    ],
)  # fmt: skip
def test_reprs(kernel, text):
    assert repr(kernel) == text
