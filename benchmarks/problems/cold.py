"""Cold start: a fresh process imports the library, fits 200 points in two dimensions and predicts them: see `cold s`."""

import numpy as np

from benchmarks.registry import Run, problem


def make(N: int):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(N)


COLD = problem(
    name="cold-start",
    about="import, fit and predict 200 points in two dimensions, Matérn-5/2 with two lengthscales: see `cold s`",
    make=make,
    sizes=(200,),
    quick=(200,),
)


@COLD.method("structgp")
def structgp(data):
    import structgp as sg

    gp = sg.GP(sg.Matern52(lengthscale=[1.0, 1.0]), likelihood=sg.Gaussian(0.1), mean=0.0)

    def call():
        fitted = gp.fit(*data)
        return {"evidence": fitted.log_evidence, "first": float(fitted.predict(data[0]).mean[0])}

    return Run(call)


@COLD.method("scikit-learn", requires=("sklearn",))
def scikit_learn(data):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel() * Matern([1.0, 1.0], nu=2.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True)

    def call():
        model.fit(*data)
        return {"evidence": float(model.log_marginal_likelihood_value_), "first": float(model.predict(data[0])[0])}

    return Run(call)


FOLDS = problem(
    name="cross-validation",
    about="10 folds of 200 rows of two columns: fit and predict each in turn, Matérn-5/2 with two lengthscales",
    make=make,
    sizes=(200,),
    quick=(60,),
    calls=1,
)


def cross_validated(data, **options):
    import structgp as sg

    gp = sg.GP(sg.Matern52(lengthscale=[1.0, 1.0]), likelihood=sg.Gaussian(0.1), mean=0.0)
    X, y = data

    def call():
        told = np.empty(len(y))
        for fold in range(10):
            left = np.arange(len(y)) % 10 == fold
            told[left] = gp.fit(X[~left], y[~left], **options).predict(X[left]).mean
        return {"rmse": float(np.sqrt(np.mean((told - y) ** 2)))}

    return Run(call)


@FOLDS.method("structgp")
def by_default(data):
    return cross_validated(data)


@FOLDS.method("structgp best")
def with_the_best_parameters(data):
    return cross_validated(data, parameters="best")


UPDATES = problem(
    name="updates",
    about="50 rows of two columns one after the other: each updates what 150 rows and those before it left",
    make=make,
    sizes=(200,),
    quick=(60,),
    calls=1,
)


@UPDATES.method("structgp")
def one_by_one(data):
    import structgp as sg

    gp, (X, y) = sg.GP(sg.Matern52(lengthscale=[1.0, 1.0]), likelihood=sg.Gaussian(0.1), mean=0.0), data

    def call():
        fitted = gp.condition(X[:-50], y[:-50])
        for row in range(len(y) - 50, len(y)):
            fitted = fitted.update(X[row : row + 1], y[row : row + 1])
        return {"evidence": fitted.log_evidence}

    return Run(call)
