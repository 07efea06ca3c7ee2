"""Several classes, one latent for each: Laplace against brute force with all latents in one matrix, on both engines."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import structgp as sg
import zoo
from reference import slope
from structgp.inference.choose import choose
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.objective import Objective
from structgp.learn.sites import SiteEvidence
from structgp.parameters.tree import free_vector, with_free

N, C, M = 24, 3, 9
RNG = np.random.default_rng(7)
X = np.sort(RNG.uniform(-2.0, 2.0, N))[RNG.permutation(N)]
X[5] = X[6]
XS = np.linspace(-3.0, 3.0, M)
Y = np.argmax(np.stack([np.sin(2 * X), 0.4 * X, np.cos(3 * X)], axis=1) + 0.4 * RNG.standard_normal((N, C)), axis=1).astype(
    float
)
WEIGHTS = RNG.uniform(0.3, 2.5, N)
SHARED = sg.Matern32(0.7, 1.8)
APART = sg.Independent(sg.Matern32(0.7, 1.8), sg.Matern52(1.3, 0.9), sg.Wiener(0.8, start=-2.5))
PRIORS = {"shared": SHARED, "apart": APART}
ONES = np.ones(N)  # weights that change nothing, so that one program serves many tests
MEAN = sg.ConstantMean([0.3, -0.2, 0.1])


def model(kernel, mean=MEAN):
    return sg.GP(kernel, likelihood=sg.Categorical(classes=C), mean=mean)


def kernels(gp):
    return getattr(gp.kernel, "kernels", (gp.kernel,) * C)


def matrix(gp, x, z):
    """The covariance of all latents, (C·N, C·M): class by class."""
    blocks = [np.asarray(jax.jit(sg.covariance)(k, jnp.asarray(x[:, None]), jnp.asarray(z[:, None]))) for k in kernels(gp)]
    out = np.zeros((C * len(x), C * len(z)))
    for c, block in enumerate(blocks):
        out[c * len(x) : (c + 1) * len(x), c * len(z) : (c + 1) * len(z)] = block
    return out


def brute_force(gp, y=Y, weight=None):
    """Mode (N, C), precision Π (C·N, C·N) and Laplace's evidence by Newton in one big matrix; NaN is a missing label."""
    weight = np.ones(N) if weight is None else weight
    weight = np.where(np.isnan(y), 0.0, weight)
    label = np.where(np.isnan(y), 0, y).astype(int)
    K, m = matrix(gp, X, X), np.repeat(np.broadcast_to(gp.mean.value, C), N)
    f, alpha = m.copy(), np.zeros(C * N)
    for step in range(40):
        F = f.reshape(C, N).T
        p = softmax(F, axis=1)
        g = (weight[:, None] * (np.eye(C)[label] - p)).T.ravel()
        Pi = np.zeros((C * N, C * N))
        for c in range(C):
            for d in range(C):
                Pi[c * N + np.arange(N), d * N + np.arange(N)] = weight * (p[:, c] * (c == d) - p[:, c] * p[:, d])
        new = np.linalg.solve(np.eye(C * N) + Pi @ K, Pi @ (f - m) + g)
        alpha = 0.5 * alpha + 0.5 * new if step < 8 else new
        f = m + K @ alpha
    F = f.reshape(C, N).T
    log_likelihood = np.sum(weight * log_softmax(F, axis=1)[np.arange(N), label])
    evidence = log_likelihood - 0.5 * alpha @ (f - m) - 0.5 * np.linalg.slogdet(np.eye(C * N) + K @ Pi)[1]
    return F, Pi, evidence


@pytest.mark.parametrize(
    ("prior", "structure"),
    zoo.mostly_full(itertools.product(PRIORS, ["dense", "markov"]), ("shared", "markov")),
)
def test_mode_evidence_and_predictions_equal_brute_force(prior, structure, x64):
    gp, y, weights = model(PRIORS[prior]), Y.copy(), None
    if prior == "shared":
        weights, y[[2, 11]] = WEIGHTS, np.nan
    F, Pi, evidence = brute_force(gp, y, weights)
    fitted = gp.condition(X, y, structure=structure, missing="infer", weights=weights)
    assert fitted.inference.converged
    assert fitted.plan.engine.structure == structure
    np.testing.assert_allclose(fitted.inference.mean, F, atol=1e-9)
    np.testing.assert_allclose(fitted.log_evidence, evidence, rtol=1e-10)
    K, Ks, Kss = matrix(gp, X, X), matrix(gp, X, XS), matrix(gp, XS, XS)
    G = np.linalg.solve(np.eye(C * N) + Pi @ K, Pi)
    joint = (Kss - Ks.T @ G @ Ks).reshape(C, M, C, M)
    alpha = np.linalg.solve(K + 1e-12 * np.eye(C * N), (F - MEAN.value).T.ravel())
    p = fitted.predict(XS)
    np.testing.assert_allclose(p.mean, MEAN.value + (Ks.T @ alpha).reshape(C, M).T, atol=1e-7)
    np.testing.assert_allclose(p.covariance, np.einsum("cmdm->mcd", joint), atol=1e-9)
    np.testing.assert_allclose(p.variance, np.einsum("cmcm->mc", joint), atol=1e-9)


@pytest.mark.parametrize(
    ("prior", "structure"), zoo.mostly_full([("apart", "dense"), ("shared", "markov")], ("apart", "dense"))
)
def test_gradient_of_the_evidence(prior, structure, x64):
    gp = model(PRIORS[prior])
    inputs = as_inputs(X)
    data = read_observations(gp.likelihood, Y, None, "error", inputs, None, WEIGHTS)
    evidence = SiteEvidence(gp, inputs, data, gp.plan(inputs, structure).engine, choose(gp.likelihood, None))
    objective = Objective(gp, evidence)
    theta = free_vector(gp)
    value, gradient = objective(theta)
    evidence = lambda theta: brute_force(with_free(gp, theta), Y, WEIGHTS)[2]
    np.testing.assert_allclose(value, evidence(theta), rtol=1e-9)
    np.testing.assert_allclose(gradient, slope(evidence, theta, 1e-3), atol=2e-7)


def importance(gp):
    """log p(y) by draws from around Laplace's posterior."""
    F, Pi, _ = brute_force(gp)
    m, K = np.repeat(gp.mean.value, N), matrix(gp, X, X) + 1e-9 * np.eye(C * N)
    L, root = np.linalg.cholesky(1.2 * np.linalg.inv(np.linalg.inv(K) + Pi)), np.linalg.cholesky(K)
    z = np.random.default_rng(0).standard_normal((C * N, 20_000))
    f = F.T.ravel()[:, None] + L @ z
    log_size = lambda root, z: -0.5 * np.sum(z * z, axis=0) - np.sum(np.log(np.diag(root)))
    weight = log_size(root, np.linalg.solve(root, f - m[:, None])) - log_size(L, z)
    seen = log_softmax(f.reshape(C, N, -1), axis=0)[Y.astype(int), np.arange(N)].sum(axis=0)
    return np.logaddexp.reduce(weight + seen) - np.log(z.shape[1])


@pytest.mark.parametrize("inference", zoo.mostly_full(["ep", "variational"], "ep"))
def test_ep_and_the_variational_bound_are_nearer_than_laplace(inference, x64):
    gp, inputs = model(APART), as_inputs(X)
    data = read_observations(gp.likelihood, Y, None, "error", inputs)
    evidence = SiteEvidence(gp, inputs, data, gp.plan(inputs, "dense").engine, choose(gp.likelihood, inference))
    theta, truth = free_vector(gp), importance(gp)
    value, gradient = evidence(theta)
    assert abs(value - truth) < 0.06 < abs(brute_force(gp)[2] - truth)
    for entry in (0, 2):  # integrals over a lattice are not quite those that their derivatives belong to
        shift = 1e-3 * np.eye(len(theta))[entry]
        above, below = (float(evidence.sites(theta + sign * shift).log_evidence) for sign in (1, -1))
        np.testing.assert_allclose(gradient[entry], (above - below) / 2e-3, rtol=3e-3)


@pytest.mark.full
@pytest.mark.parametrize("structure", ["dense", "markov"])
def test_samples_have_the_moments_of_the_prediction(structure):
    fitted = model(SHARED).condition(X, Y, structure=structure, weights=ONES)
    p, n = fitted.predict(XS), 4000
    draws = fitted.sample(XS, n=n, seed=3)
    assert draws.shape == (n, M, C)
    np.testing.assert_allclose(draws.mean(axis=0), p.mean, atol=5 * p.sd.max() / np.sqrt(n))
    centred = draws - draws.mean(axis=0)
    np.testing.assert_allclose(np.einsum("nmc,nmd->mcd", centred, centred) / n, p.covariance, atol=0.15)
    labels = fitted.sample(XS, n=n, seed=4, observed=True)
    shares = np.stack([(labels == c).mean(axis=0) for c in range(C)], axis=1)
    np.testing.assert_allclose(shares, p.probability, atol=0.04)


@pytest.mark.full
def test_draws_of_a_pinned_process_go_through_its_covariance():
    fitted = model(APART).condition(X, Y, structure="markov")
    p, draws = fitted.predict(XS), fitted.sample(XS, n=2000, seed=5)
    np.testing.assert_allclose(draws.var(axis=0), p.variance, rtol=0.2, atol=1e-9)


def averaged_softmax(mean, covariance):
    """E softmax(f) of three classes by brute force, over the two differences that matter."""
    x, w = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(-9.0, 9.0, 61)
    z = np.concatenate([(low + high) / 2 + (high - low) / 2 * x for low, high in itertools.pairwise(edges)])
    w = np.tile(w * 0.15, 60) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    difference = np.array([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    d, L = difference @ mean, np.linalg.cholesky(difference @ covariance @ difference.T)
    u, v = np.meshgrid(z, z, indexing="ij")
    p = softmax(np.stack([0 * u, d[0] + L[0, 0] * u, d[1] + L[1, 0] * u + L[1, 1] * v]), axis=0)
    return np.einsum("cij,i,j->c", p, w, w)


@pytest.mark.full
def test_probabilities_average_over_all_latents_together():
    p = model(SHARED).condition(X, Y, weights=ONES).predict(XS)
    averaged = [averaged_softmax(*place) for place in zip(p.mean, p.covariance, strict=True)]
    np.testing.assert_allclose(p.probability, averaged, atol=1e-10)
    labels = np.arange(M) % C
    np.testing.assert_allclose(np.exp(p.log_prob(labels)), p.probability[np.arange(M), labels], rtol=1e-12)
    np.testing.assert_allclose(p.observed.mean, p.probability)
    assert np.isnan(p.log_prob(np.full(M, np.nan))).all()


def test_probabilities_are_exact_for_narrow_wide_and_dependent_latents(x64):
    rng = np.random.default_rng(1)
    size = np.array([1e-4, 0.1, 1.0, 3.0, 10.0, 10.0])
    G = size[:, None, None] * rng.standard_normal((6, C, C))
    G[4, 1:] = G[4, :1] + 0.1 * G[4, 1:]  # nearly alike
    G[5, 0] *= 1e-4  # nearly known
    mean, covariance = 1.5 * np.maximum(size, 1.0)[:, None] * rng.standard_normal((6, C)), G @ np.swapaxes(G, 1, 2)
    found = np.asarray(jax.jit(sg.Categorical(C).probability)(mean, covariance))
    np.testing.assert_allclose(found, [averaged_softmax(*place) for place in zip(mean, covariance, strict=True)], atol=1e-10)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-11)
    alone = np.asarray(jax.jit(sg.Categorical(C).probability)(mean[:1], size[:1, None] * np.ones((1, C))))
    np.testing.assert_allclose(alone[0], averaged_softmax(mean[0], size[0] * np.eye(C)), atol=1e-10)
    # a class that never occurs makes no difference, except that more classes than three are averaged over a lattice
    more = np.concatenate([mean, np.full((6, 1), -500.0)], axis=1), np.pad(covariance, ((0, 0), (0, 1), (0, 1)))
    more[1][:, -1, -1] = 1e-4
    np.testing.assert_allclose(np.asarray(jax.jit(sg.Categorical(C + 1).probability)(*more))[:, :C], found, atol=3e-3)


@pytest.mark.full
def test_two_classes_are_the_logistic_model():
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    labels = (Y > 0).astype(float)
    two = sg.GP(sg.SquaredExponential(0.8, 1.5), likelihood=sg.Categorical(classes=2)).condition(X, labels)
    one = sg.GP(sg.SquaredExponential(0.8, 3.0), likelihood=sg.Bernoulli("logit")).condition(X, labels, inference="laplace")
    peer = GaussianProcessClassifier(ConstantKernel(3.0) * RBF(0.8), optimizer=None, max_iter_predict=1000)
    peer.fit(X[:, None], labels)
    np.testing.assert_allclose(two.log_evidence, one.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(two.log_evidence, peer.log_marginal_likelihood_value_, rtol=1e-6)
    p, q = two.predict(XS), one.predict(XS)
    np.testing.assert_allclose(p.mean[:, 1] - p.mean[:, 0], q.mean, atol=1e-7)
    contrast = np.array([-1.0, 1.0])
    np.testing.assert_allclose(np.einsum("c,mcd,d->m", contrast, p.covariance, contrast), q.variance, atol=1e-8)
    np.testing.assert_allclose(p.probability[:, 1], q.probability, atol=1e-7)


@pytest.mark.full
def test_iris():
    from sklearn.datasets import load_iris

    table, labels = load_iris(return_X_y=True)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    train = np.random.default_rng(1).permutation(150)[:90]
    test = np.setdiff1d(np.arange(150), train)
    gp = sg.GP(sg.SquaredExponential(1.0, 1.0).with_bounds(variance=(0.1, 100.0)), likelihood=sg.Categorical(classes=3))
    fitted = gp.fit(table[train], labels[train])
    assert fitted.learning.converged
    assert fitted.log_evidence > gp.log_evidence(table[train], labels[train]) + 10
    p = fitted.predict(table[test])
    assert np.mean(p.probability.argmax(axis=1) == labels[test]) >= 0.95
    assert p.log_prob(labels[test]).mean() > -0.35


@pytest.mark.full
def test_learning_climbs_on_a_chain():
    gp = model(SHARED)
    fitted = gp.fit(X, Y, weights=ONES)
    assert fitted.learning.converged
    assert fitted.learning.gradient_norm < 1e-3
    assert fitted.log_evidence > gp.log_evidence(X, Y, weights=ONES)
    assert "inference      laplace, converged" in fitted.summary()
    assert "kernel.lengthscale" in fitted.summary()


def test_update():
    gp = model(SHARED)
    whole = gp.condition(X, Y, structure="dense", weights=ONES)
    part = gp.condition(X[:10], Y[:10], structure="dense", weights=ONES[:10]).update(X[10:], Y[10:])
    np.testing.assert_allclose(part.log_evidence, whole.log_evidence, rtol=1e-9)


@pytest.mark.parametrize("structure", zoo.mostly_full(["dense", "markov"], "dense"))
def test_save_and_load(structure, tmp_path):
    whole = model(APART).condition(X, Y, structure=structure)
    whole.save(tmp_path / "classes.structgp")
    again = sg.load(tmp_path / "classes.structgp")
    assert repr(again) == repr(whole)
    np.testing.assert_allclose(again.predict(XS).mean, whole.predict(XS).mean, rtol=1e-12)
    # its factors are not in the file, and the program that computes them again may round otherwise
    np.testing.assert_allclose(again.predict(XS).covariance, whole.predict(XS).covariance, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("structure", zoo.mostly_full(["dense", "markov"], "markov"))
def test_extreme_labels_and_variances(structure):
    only = model(SHARED).condition(X, np.zeros(N), structure=structure, weights=ONES)
    assert only.inference.converged
    assert np.all(only.predict(XS).probability.argmax(axis=1) == 0)
    apart = np.digitize(X, [-0.6, 0.7]).astype(float)
    huge = model(sg.Matern32(0.7, 1e5)).condition(X, apart, structure=structure, weights=ONES)
    assert huge.inference.converged
    assert np.isfinite(huge.log_evidence)
    assert np.isfinite(huge.predict(XS).probability).all()


def test_prior_draws_and_plan():
    gp = model(SHARED)
    assert gp.sample(X, n=5, seed=0).shape == (5, N, C)
    assert set(np.unique(gp.sample(X, n=5, seed=0, observed=True))) <= {0.0, 1.0, 2.0}
    assert "3 latents, 6 states" in str(model(APART).plan(X))
    assert "Kalman     no" in str(model(sg.SquaredExponential()).plan(X))


def test_independent_is_a_value():
    assert repr(APART).startswith("Independent(Matern32(")
    assert APART.parameters()["kernels[1].lengthscale"] == 1.3
    assert APART.replace({"kernels[1].lengthscale": 2.0}).kernels[1].lengthscale == 2.0
    assert len(free_vector(APART.freeze("kernels[0]"))) == len(free_vector(APART)) - 2
    tied = sg.Independent(sg.Matern32(), sg.Matern32()).tie("kernels[0].lengthscale", "kernels[1].lengthscale")
    assert len(free_vector(tied)) == 3


def test_messages():
    gp = model(SHARED)
    with pytest.raises(TypeError, match="one for each latent, got 3"):
        sg.Independent(sg.Matern32(), 3)
    with pytest.raises(ValueError, match="at least two kernels"):
        sg.Independent(sg.Matern32())
    with pytest.raises(ValueError, match="sees 1 latent function, but Independent has 3 kernels"):
        sg.GP(APART).condition(X, Y)
    with pytest.raises(ValueError, match="sees 2 latent functions, but Independent has 3 kernels"):
        sg.GP(APART, likelihood=sg.Categorical(classes=2)).condition(X, np.minimum(Y, 1))
    with pytest.raises(ValueError, match="basis functions and splines are not available"):
        model(SHARED, sg.polynomial(1)).condition(X, Y)
    with pytest.raises(ValueError, match="basis functions and splines are not available"):
        model(sg.Spline()).condition(X, Y)
    with pytest.raises(ValueError, match="one number for all 3 latents, or one for each, got shape"):
        model(SHARED, sg.ConstantMean([0.1, 0.2])).condition(X, Y)
    with pytest.raises(ValueError, match="cannot be had for several latents"):
        gp.condition(X, Y, approximate="state-space")
    with pytest.raises(ValueError, match="class numbers 0 to 2"):
        gp.condition(X, Y + 1)
    fitted = gp.condition(X, Y, weights=ONES)
    with pytest.raises(ValueError, match=r"y has shape \(2,\), not \(9,\)"):
        fitted.predict(XS).log_prob([0, 1])
    with pytest.raises(ValueError, match="X has 2 columns"):
        fitted.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="n must be a whole number, 1 or more, got 0"):
        fitted.sample(XS, n=0)
    assert fitted.predict(np.zeros((0, 1))).probability.shape == (0, C)
