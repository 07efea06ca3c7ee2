"""Dense regression by the peers: the same θ, the same start, float64, each in the way its documentation recommends."""

import warnings

import numpy as np

from benchmarks.problems.dense import EVIDENCE, FIT, START, THETA, D, Regression, answer, learned
from benchmarks.registry import Result, Run


def lbfgs(objective, start):
    """SciPy's L-BFGS-B as scikit-learn calls it, for libraries that bring no optimiser of their own."""
    from scipy.optimize import minimize

    return minimize(objective, start, jac=True, method="L-BFGS-B")


# scikit-learn: θ there is (log variance, log lengthscales, log noise)


def sklearn_model(data: Regression, theta: np.ndarray, optimizer):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(theta[D]) * RBF(theta[:D]) + WhiteKernel(theta[-1])
    return GaussianProcessRegressor(kernel, alpha=0.0, optimizer=optimizer, n_restarts_optimizer=0)


def sklearn_order(vector: np.ndarray) -> np.ndarray:
    return np.concatenate([vector[1 : D + 1], vector[:1], vector[-1:]])


@EVIDENCE.method("scikit-learn", requires=("sklearn",))
def sklearn_evidence(data: Regression) -> Run:
    model = sklearn_model(data, THETA, optimizer=None)
    small = model.fit(data.X[:2], data.y[:2])  # brings the kernel and the checks into being; the data follow
    small.X_train_, small.y_train_ = data.X, data.y

    def call() -> Result:
        value, gradient = small.log_marginal_likelihood(small.kernel_.theta, eval_gradient=True, clone_kernel=False)
        return answer(value, sklearn_order(gradient))

    return Run(call)


@FIT.method("scikit-learn", requires=("sklearn",))
def sklearn_fit(data: Regression) -> Run:
    def call() -> Result:
        count = 0

        def optimizer(objective, start, bounds):
            nonlocal count
            from scipy.optimize import minimize

            done = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
            count = done.nfev
            return done.x, done.fun

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = sklearn_model(data, START, optimizer).fit(data.X, data.y)
        return learned(np.exp(sklearn_order(fitted.kernel_.theta)), count)

    return Run(call)


# GPyTorch, exact Cholesky; its raw parameters go through softplus, and it divides the evidence by N


class GPyTorch:
    """A model whose parameters are set and read as θ, and whose objective can be called on the raw parameters."""

    def __init__(self, data: Regression, theta: np.ndarray):
        import gpytorch
        import torch

        self.torch, self.gpytorch = torch, gpytorch
        X, y = torch.as_tensor(data.X), torch.as_tensor(data.y)

        class Exact(gpytorch.models.ExactGP):
            def __init__(self, likelihood):
                super().__init__(X, y, likelihood)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D))

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        self.model = Exact(gpytorch.likelihoods.GaussianLikelihood()).double().train()
        self.model.covar_module.base_kernel.lengthscale = torch.as_tensor(theta[:D])
        self.model.covar_module.outputscale = theta[D]
        self.model.likelihood.noise = theta[-1]
        self.mll = gpytorch.mlls.ExactMarginalLogLikelihood(self.model.likelihood, self.model)
        self.X, self.y, self.N = X, y, len(data.y)
        kernel = self.model.covar_module
        self.raw = [kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale, self.model.likelihood.noise_covar.raw_noise]

    def flat(self, tensors) -> np.ndarray:
        return np.concatenate([t.detach().numpy().ravel() for t in tensors])

    def theta(self) -> np.ndarray:
        kernel = self.model.covar_module
        return self.flat([kernel.base_kernel.lengthscale, kernel.outputscale, self.model.likelihood.noise])

    def value_and_gradient(self) -> tuple[float, np.ndarray]:
        """Log evidence and its gradient in the raw parameters."""
        self.model.zero_grad(set_to_none=True)
        with self.gpytorch.settings.fast_computations(False, False, False):
            value = self.mll(self.model(self.X), self.y) * self.N
        value.backward()
        return value.item(), self.flat([t.grad for t in self.raw])

    def negative(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        with self.torch.no_grad():
            for tensor, part in zip(self.raw, np.split(flat, [D, D + 1]), strict=True):
                tensor.copy_(self.torch.as_tensor(part).reshape(tensor.shape))
        value, gradient = self.value_and_gradient()
        return -value, -gradient


@EVIDENCE.method("gpytorch", requires=("torch", "gpytorch"))
def gpytorch_evidence(data: Regression) -> Run:
    model = GPyTorch(data, THETA)
    slope = 1 / (1 + np.exp(-model.flat(model.raw)))  # d softplus(raw) / d raw

    def call() -> Result:
        value, gradient = model.value_and_gradient()
        return answer(value, gradient / slope * model.theta())

    return Run(call)


@FIT.method("gpytorch", requires=("torch", "gpytorch"))
def gpytorch_fit(data: Regression) -> Run:
    def call() -> Result:
        model = GPyTorch(data, START)
        done = lbfgs(model.negative, model.flat(model.raw))
        model.negative(done.x)
        return learned(model.theta(), done.nfev)

    import gpytorch  # noqa: F401 (the import belongs to the start, not to the first fit)

    return Run(call)


# tinygp, its dense (direct) solver, in log θ


def tinygp_objective(data: Regression):
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import tinygp

    @jax.jit
    @jax.value_and_grad
    def log_evidence(log_theta, X, y):
        theta = jnp.exp(log_theta)
        kernel = theta[D] * tinygp.transforms.Linear(1 / theta[:D], tinygp.kernels.ExpSquared())
        return tinygp.GaussianProcess(kernel, X, diag=theta[-1]).log_probability(y)

    X, y = jnp.asarray(data.X), jnp.asarray(data.y)
    return lambda log_theta: jax.block_until_ready(log_evidence(jnp.asarray(log_theta), X, y))


@EVIDENCE.method("tinygp", requires=("jax", "tinygp"))
def tinygp_evidence(data: Regression) -> Run:
    objective = tinygp_objective(data)
    return Run(lambda: answer(*objective(np.log(THETA))))


@FIT.method("tinygp", requires=("jax", "tinygp"))
def tinygp_fit(data: Regression) -> Run:
    objective = tinygp_objective(data)

    def negative(log_theta):
        value, gradient = objective(log_theta)
        return -float(value), -np.asarray(gradient)

    def call() -> Result:
        done = lbfgs(negative, np.log(START))
        return learned(np.exp(done.x), done.nfev)

    return Run(call)


# GPJax, in log θ for the evidence and with its own SciPy loop for the fit


def gpjax_model(theta):
    import gpjax as gpx

    kernel = gpx.kernels.RBF(lengthscale=theta[:D], variance=theta[D])
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=0.0)
    return prior * gpx.likelihoods.Gaussian(obs_stddev=theta[-1] ** 0.5)


def gpjax_data(data: Regression):
    import jax

    jax.config.update("jax_enable_x64", True)
    import gpjax as gpx
    import jax.numpy as jnp

    return gpx.Dataset(X=jnp.asarray(data.X), y=jnp.asarray(data.y)[:, None])


@EVIDENCE.method("gpjax", requires=("jax", "gpjax"))
def gpjax_evidence(data: Regression) -> Run:
    dataset = gpjax_data(data)
    import gpjax as gpx
    import jax

    @jax.jit
    @jax.value_and_grad
    def log_evidence(log_theta, dataset):
        return gpx.objectives.conjugate_mll(gpjax_model(jax.numpy.exp(log_theta)), dataset)

    return Run(lambda: answer(*jax.block_until_ready(log_evidence(np.log(THETA), dataset))))


@FIT.method("gpjax", requires=("jax", "gpjax"))
def gpjax_fit(data: Regression) -> Run:
    dataset = gpjax_data(data)
    import gpjax as gpx
    import jax.numpy as jnp

    def negative(model, dataset):
        return -gpx.objectives.conjugate_mll(model, dataset)

    def call() -> Result:
        start = gpjax_model(jnp.asarray(START))
        model, history = gpx.fit_scipy(model=start, objective=negative, train_data=dataset, verbose=False)
        kernel, val = model.prior.kernel, gpx.parameters.val
        noise = val(model.likelihood.obs_stddev) ** 2
        return learned([*val(kernel.lengthscale), val(kernel.variance), noise], len(history))

    return Run(call)


# GPflow, its exact GPR


def gpflow_model(data: Regression, theta: np.ndarray):
    import gpflow

    kernel = gpflow.kernels.SquaredExponential(variance=theta[D], lengthscales=theta[:D])
    model = gpflow.models.GPR((data.X, data.y[:, None]), kernel=kernel, noise_variance=theta[-1])
    return model, [kernel.lengthscales, kernel.variance, model.likelihood.variance]


@EVIDENCE.method("gpflow", requires=("tensorflow", "gpflow"))
def gpflow_evidence(data: Regression) -> Run:
    model, parameters = gpflow_model(data, THETA)
    import tensorflow as tf

    raw = [p.unconstrained_variable for p in parameters]
    with tf.GradientTape() as tape:
        values = [tf.reduce_sum(tf.math.log(tf.convert_to_tensor(p))) for p in parameters]
    slopes = np.concatenate([np.ravel(g) for g in tape.gradient(values, raw)])  # d log θ / d raw

    @tf.function
    def value_and_gradient():
        with tf.GradientTape() as tape:
            value = model.log_marginal_likelihood()
        return value, tape.gradient(value, raw)

    def call() -> Result:
        value, gradient = value_and_gradient()
        return answer(value.numpy(), np.concatenate([np.ravel(g) for g in gradient]) / slopes)

    return Run(call)


@FIT.method("gpflow", requires=("tensorflow", "gpflow"))
def gpflow_fit(data: Regression) -> Run:
    import gpflow

    def call() -> Result:
        model, parameters = gpflow_model(data, START)
        done = gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        return learned(np.concatenate([np.ravel(p.numpy()) for p in parameters]), done.nfev)

    return Run(call)
