"""What else is made of few functions and of inducing inputs, each against its formula with whole matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines.pitc import grouped

N = 40
RNG = np.random.default_rng(11)
X = RNG.uniform(-2, 2, (N, 2))
F = np.sin(2 * X[:, 0]) * X[:, 1]
Y = F + 0.1 * RNG.normal(size=N)
Z = X[::8] + 0.05
NEW = np.concatenate([RNG.uniform(-2, 2, (5, 2)), [[9.0, 9.0]]])
INNER = sg.SquaredExponential([1.0, 1.4], 1.3)
NOISE, S2 = sg.Gaussian(0.05), 0.05


def matrix(left, right, kernel=INNER):
    return np.asarray(sg.covariance(kernel, left, right))


def through(left, right, inputs=Z):
    """Q between rows."""
    among = matrix(inputs, inputs) + 1e-12 * 1.3 * np.eye(len(inputs))
    return matrix(left, inputs) @ np.linalg.solve(among, matrix(inputs, right))


def gaussian(C, cross, own, y=Y):
    """Mean and variance at new places."""
    solved = np.linalg.solve(C, cross)
    return solved.T @ y, own - np.sum(cross * solved, axis=0)


def test_new_places_of_a_group_have_its_covariances(x64, tmp_path):
    asked = lambda method: sg.GP(INNER, NOISE).condition(X, Y, approximate=sg.Inducing(Z, method))
    fitted, apart = asked("pic"), asked("pitc")
    conditional = fitted.conditional
    groups = np.asarray(jax.jit(grouped, static_argnums=2)(conditional.whole.X, conditional.whole.sites, len(Z)).rows)
    C, cross = through(X, X) + S2 * np.eye(N), through(X, NEW)
    theirs = np.asarray(jax.jit(lambda conditional, new: conditional._group(new))(conditional, jnp.asarray(NEW)))
    for group in (group[group < N] for group in groups):
        C[np.ix_(group, group)] += (matrix(X, X) - through(X, X))[np.ix_(group, group)]
    for i, group in enumerate(theirs):
        rows = groups[group][groups[group] < N]
        cross[rows, i] = matrix(X[rows], NEW[i : i + 1])[:, 0]
    mean, variance = gaussian(C, cross, np.full(len(NEW), 1.3))
    found = fitted.predict(NEW, covariance=True)
    assert np.allclose(found.mean, mean, atol=1e-7)
    assert np.allclose(found.variance, variance, atol=1e-7)
    prior = np.where(theirs[:, None] == theirs, matrix(NEW, NEW), through(NEW, NEW))
    assert np.allclose(found.covariance, prior - cross.T @ np.linalg.solve(C, cross), atol=1e-7)
    assert fitted.log_evidence == apart.log_evidence
    assert np.array_equal(fitted.leave_one_out().mean, apart.leave_one_out().mean)
    assert "pic; covariance error" in str(fitted.plan)
    fitted.save(tmp_path / "model")
    assert np.array_equal(sg.load(tmp_path / "model").predict(NEW).mean, fitted.predict(NEW).mean)
    assert np.mean((found.mean[:5] - np.sin(2 * NEW[:5, 0]) * NEW[:5, 1]) ** 2) < 0.05


def test_reduced_rank_predictions_have_right_covariances_with_each_new_place(x64):
    fitted = sg.GP(INNER, NOISE).condition(X, Y, approximate=sg.Inducing(Z, "sor"))
    found = sg.augmented(fitted, NEW)
    for i, x in enumerate(NEW):
        k, q = matrix(X, x[None])[:, 0], through(X, x[None])[:, 0]
        d = 1.3 - through(x[None], x[None])[0, 0]
        C = through(X, X) + S2 * np.eye(N) + np.outer(k - q, k - q) / d
        mean, variance = gaussian(C, k[:, None], 1.3)
        assert np.isclose(found.mean[i], mean[0], atol=1e-7)
        assert np.isclose(found.variance[i], variance[0], atol=1e-7)
    assert fitted.predict(NEW).variance[-1] < 1e-6  # which the last place is not known with
    whole = sg.augmented(sg.GP(INNER, NOISE).condition(X, Y, approximate=sg.Inducing(X, "sor")), NEW)
    exact = sg.GP(INNER, NOISE).condition(X, Y, structure="dense").predict(NEW)
    assert np.allclose(whole.mean, exact.mean, atol=1e-5)
    assert np.allclose(whole.variance, exact.variance, atol=1e-5)
    at_inputs = sg.augmented(fitted, Z)
    assert np.allclose(at_inputs.mean, fitted.predict(Z).mean, atol=1e-5)


BUMP = sg.SquaredExponential(0.9)
FINITE = {
    "one variance": sg.DiscreteConvolution(BUMP, Z, 0.7),
    "one each": sg.DiscreteConvolution(BUMP, Z, np.linspace(0.2, 1.5, len(Z))),
    "waves": sg.FourierFeatures.of(sg.Matern32([0.8, 1.2], 1.4), 7, columns=2),
    "and a line": sg.FourierFeatures.of(BUMP, 5, columns=2) + sg.Linear(0.3),
}


@pytest.mark.parametrize("name", zoo.mostly_full(FINITE, "one each", "and a line"))
def test_few_functions_are_exact_in_their_number(name):
    gp = sg.GP(FINITE[name], NOISE)
    ours, theirs = gp.condition(X, Y), gp.condition(X, Y, structure="dense")
    assert ours.plan.engine.name == "Woodbury"
    assert str(ours.plan).startswith("Woodbury   exact")
    assert np.isclose(ours.log_evidence, theirs.log_evidence, atol=1e-8)
    assert np.allclose(ours.predict(NEW).mean, theirs.predict(NEW).mean, atol=1e-7)
    assert np.allclose(ours.predict(NEW).variance, theirs.predict(NEW).variance, atol=1e-7)


@pytest.mark.full
def test_a_bump_of_its_own_heals_each_new_place():
    kernel = FINITE["one each"]
    fitted = sg.GP(kernel, NOISE).condition(X, Y)
    found, v = sg.augmented(fitted, NEW), float(np.mean(kernel.variance))
    for i, x in enumerate(NEW):
        a = matrix(X, x[None], BUMP)[:, 0]
        C = matrix(X, X, kernel) + S2 * np.eye(N) + v * np.outer(a, a)
        mean, variance = gaussian(C, matrix(X, x[None], kernel) + v * a[:, None], matrix(x[None], x[None], kernel)[0] + v)
        assert np.isclose(found.mean[i], mean[0], atol=1e-7)
        assert np.isclose(found.variance[i], variance[0], atol=1e-7)
    assert np.isclose(found.variance[-1], v, atol=1e-6)
    assert fitted.predict(NEW).variance[-1] < 1e-12


def test_waves_stand_for_the_kernel_whose_spectrum_they_are_from():
    kernel = sg.Matern52([0.7, 1.5], 1.4)
    many = sg.FourierFeatures.of(kernel, 20_000, columns=2)
    assert np.allclose(matrix(X, X, many), matrix(X, X, kernel), atol=0.06)


def test_relevance_vectors_are_few_and_their_evidence_is_at_its_top():
    x = RNG.uniform(-6, 6, (60, 1))
    y = 0.4 + np.sinc(x[:, 0] / np.pi) + 0.1 * RNG.normal(size=60)
    fitted = sg.RelevanceVectors(sg.SquaredExponential(1.6)).fit(x, y)
    kernel, noise = fitted.kernel, float(fitted.likelihood.noise)
    assert 2 <= len(kernel.centres) <= 10
    assert {tuple(row) for row in kernel.centres} <= {tuple(row) for row in x}
    assert abs(noise / 0.01 - 1) < 0.5

    def evidence(variance, centres=kernel.centres, noise=noise):
        Phi = matrix(x, centres, kernel.kernel)
        C = (Phi * variance) @ Phi.T + noise * np.eye(60)
        left = y - y.mean()
        return -0.5 * (np.linalg.slogdet(C)[1] + left @ np.linalg.solve(C, left) + 60 * np.log(2 * np.pi))

    top = evidence(kernel.variance)
    assert np.isclose(fitted.log_evidence, top, atol=1e-6)
    for j in range(len(kernel.centres)):
        for factor in (0.8, 1.25):
            assert evidence(kernel.variance * np.where(np.arange(len(kernel.centres)) == j, factor, 1.0)) < top + 1e-3
    for one in x[:10]:  # and no other bump gains
        more = np.append(kernel.centres, one[None], axis=0)
        assert evidence(np.append(kernel.variance, 0.02), more) < top + 1e-3
    assert evidence(kernel.variance, noise=1.1 * noise) < top + 1e-3


@pytest.mark.full
def test_relevance_vectors_of_labels_and_of_noise(tmp_path):
    labels = (F > 0) * 1.0
    fitted = sg.RelevanceVectors(sg.SquaredExponential(0.6), sg.Bernoulli()).fit(X, labels)
    assert len(fitted.kernel.centres) < N / 3
    assert np.mean((fitted.predict(X).mean > 0) == labels) > 0.85
    fitted.save(tmp_path / "model")
    assert np.array_equal(sg.load(tmp_path / "model").predict(NEW).mean, fitted.predict(NEW).mean)
    nothing = sg.RelevanceVectors(sg.SquaredExponential(1.2)).fit(X, np.full(N, 3.0))
    assert np.allclose(nothing.predict(NEW).mean, 3.0)
    with pytest.raises(ValueError, match="RelevanceVectors are for one latent and one target"):
        sg.RelevanceVectors(BUMP).fit(X, np.stack([Y, Y], axis=1))


@pytest.mark.full
def test_informative_rows_alone_are_the_informative_vector_machine():
    gp = sg.GP(sg.SquaredExponential(1.0, 4.0), sg.Bernoulli())
    labels = (F > 0) * 1.0
    asked = lambda **how: gp.condition(X, labels, approximate=sg.Inducing(16, "subset", **how))
    chosen, drawn = asked(place="ivm"), asked(place="random")
    assert len(chosen.inputs) == len(drawn.inputs) == 16
    assert {tuple(row) for row in np.asarray(chosen.inputs.points)} <= {tuple(row) for row in X}
    closer = lambda fitted: np.mean(np.abs(np.asarray(fitted.inputs.points)[:, 1]))
    assert closer(chosen) != closer(drawn)
    hybrid = gp.condition(X, labels, approximate=sg.Inducing(16, "fitc", place="ivm"))
    assert hybrid.inference.converged
    assert len(hybrid.inputs) == N
    log_prob = lambda fitted: fitted.predict(X).log_prob(labels).mean()
    assert log_prob(hybrid) > log_prob(drawn) - 0.02


@pytest.mark.full
def test_directions_are_learned_with_the_inputs_that_lie_in_their_plane():
    rows = RNG.normal(size=(160, 5))
    direction = np.array([0.6, -0.5, 0.4, 0.3, 0.0]) / np.sqrt(0.86)
    along = rows @ direction
    kernel = sg.Project(sg.Induced(sg.SquaredExponential(1.0), np.linspace(-2, 2, 10)[:, None]), np.eye(5)[:, :1])
    gp = sg.GP(kernel, sg.Gaussian(0.1))
    fitted = gp.fit(rows, np.sin(2 * along) + 0.1 * RNG.normal(size=160), approximate=sg.Inducing(10), parameters="best")
    assert fitted.plan.engine.name == "Inducing"
    assert fitted.kernel.kernel.inputs.shape == (10, 1)
    assert abs(np.asarray(fitted.kernel.direction)[:, 0] @ direction) > 0.99


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sg.DiscreteConvolution(BUMP, Z, [1.0, 2.0]), "has 5 centres: give one variance, or one for each"),
        (lambda: sg.DiscreteConvolution(BUMP, Z[:, 0]), r"needs rows of finite numbers, an array \(M, D\)"),
        (
            lambda: sg.GP(sg.DiscreteConvolution(BUMP, Z[:, :1])).condition(X, Y),
            "has places of 1 column, but the inputs have 2",
        ),
        (lambda: sg.FourierFeatures.of(sg.RationalQuadratic(), 5, 2), "the spectrum of RationalQuadratic is not known"),
        (lambda: sg.augmented(sg.GP(INNER, NOISE).condition(X, Y), NEW), "augmented predictions are for Inducing"),
    ],
)
def test_what_cannot_be_had_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()
