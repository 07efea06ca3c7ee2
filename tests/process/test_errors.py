"""Bad input: each case gets one message that says what was met, what is needed and what to do, or a right answer."""

import os

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import structgp as sg
import zoo
from structgp.inference.base import Inferred

X, Y = zoo.X[2], zoo.Y[2]
GP = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
LINE = sg.GP(sg.Matern52(), sg.Gaussian(0.1))


def with_bad(array, *places, value=np.nan):
    spoiled = np.array(array, dtype=float)
    for place in places:
        spoiled[place] = value
    return spoiled


class NoNumber(sg.Likelihood):
    """A likelihood that is nowhere defined."""

    def log_prob(self, y, f):
        return jnp.log(-1.0 - (y - f) ** 2)


SUM = sg.GP(sg.Matern52() + sg.Linear(), sg.Gaussian(0.1))
FRAME = pd.DataFrame({"size": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]})
Y3 = np.arange(3.0)

CASES = {
    "empty X": (lambda: GP.condition(np.zeros((0, 2)), []), "X is empty: at least one row is needed"),
    "no columns": (lambda: GP.condition(np.zeros((3, 0)), Y3), "X has no columns: at least one input is needed"),
    "X with three axes": (
        lambda: GP.condition(np.zeros((3, 2, 2)), Y3),
        r"one row for each observation.*got shape \(3, 2, 2\)",
    ),
    "X a number": (lambda: GP.condition(3.0, 1.0), "X must be an array, got the single value 3.0; reshape your data"),
    "X nothing": (lambda: GP.condition(None, Y3), "X must be an array, got the single value None"),
    "ragged X": (lambda: GP.condition([[1.0, 2.0], [3.0]], [1, 2]), "X is ragged: every row needs the same number of columns"),
    "NaN in X": (
        lambda: GP.condition(with_bad(X, (4, 0), (17, 1)), Y),
        r"X has 2 NaN \(rows 4, 17; columns 0, 1\): inputs must be known; drop these rows or fill them in",
    ),
    "infinity in X": (lambda: GP.condition(with_bad(X, (4, 0), value=np.inf), Y), r"X has 1 infinity \(row 4; column 0\)"),
    "many NaN in X": (lambda: GP.condition(with_bad(X, slice(0, 9)), Y), r"X has 18 NaN \(rows 0, 1, 2, 3, 4, … 4 more"),
    "NaN in a named column": (
        lambda: GP.condition(pd.DataFrame({"a": Y3, "b": [1.0, np.nan, 2.0]}), Y3),
        r"X has 1 NaN \(row 1; column b\)",
    ),
    "text column": (
        lambda: GP.condition(FRAME, Y3),
        r"X has columns that are not numeric: 'colour' \(String\); encode them as numbers or leave them out",
    ),
    "text column in polars": (
        lambda: GP.condition(pl.DataFrame(FRAME.to_dict("list")), Y3),
        r"not numeric: 'colour' \(String\); encode them",
    ),
    "mixed column": (
        lambda: GP.condition(pd.DataFrame({"a": Y3, "b": np.array([1, "x", 2.0], dtype=object)}), Y3),
        "X must be numeric, but row 1 of column 'b' holds 'x': encode text as numbers, or leave the column out",
    ),
    "durations": (
        lambda: GP.condition(np.arange(3).astype("m8[D]"), Y3),
        r"X holds dates or durations.*\(X - X.min\(\)\) / np.timedelta64\(1, 'D'\)",
    ),
    "no parts": (lambda: GP.fit("nowhere-*.parquet", "y"), r"there are no Parquet files to be read at nowhere-\*\.parquet"),
    "dates as text": (
        lambda: GP.condition(["2024-01-01", "2024-01-02", "2024-01-03"], Y3),
        r"row 0 holds '2024-01-01', a date: make it one by np.array\(X, dtype='datetime64\[s\]'\)",
    ),
    "text": (
        lambda: GP.condition([["a", "b"]], [1.0]),
        "X must be numeric, but row 0 holds 'a': encode text as numbers, or leave the column out",
    ),
    "complex numbers": (
        lambda: GP.condition(X.astype(complex), Y),
        "X: Complex data not supported; pass real and imaginary parts",
    ),
    "sparse matrix": (lambda: GP.condition(scipy.sparse.csr_matrix(X), Y), r"X is a sparse matrix.*pass X.toarray\(\)"),
    "lazy frame": (lambda: GP.condition(pl.LazyFrame({"a": [1.0]}), [1.0]), "X is a lazy frame: collect it first"),
    "X and y of different lengths": (
        lambda: GP.condition(X, Y[:5]),
        r"y must have one value \(or one row of targets\) for each of the 24 rows of X, got shape \(5,\)",
    ),
    "y with three axes": (
        lambda: GP.condition(X, np.zeros((24, 1, 1))),
        r"for each of the 24 rows of X, got shape \(24, 1, 1\)",
    ),
    "y without columns": (lambda: GP.condition(X, np.zeros((24, 0))), "y has no columns: at least one target is needed"),
    "y of text": (lambda: GP.condition(X, ["a"] * 24), "y must be numeric, but row 0 holds 'a': encode text as numbers"),
    "NaN in y": (
        lambda: GP.condition(X, with_bad(Y, 4, 17)),
        r"y has 2 NaN \(rows 4, 17\): drop them, or pass missing='infer' to treat them as unobserved",
    ),
    "infinity in y": (lambda: GP.condition(X, with_bad(Y, 4, value=-np.inf)), r"y has 1 infinity \(row 4\): drop or replace"),
    "infinity in y beside gaps": (
        lambda: GP.condition(X, with_bad(with_bad(Y, 3), 4, value=np.inf), missing="infer"),
        r"y has 1 infinity \(row 4\)",
    ),
    "gaps in different rows": (
        lambda: GP.condition(X, with_bad(np.stack([Y, Y], 1), (3, 0)), missing="infer"),
        "the targets are missing in different rows: fit them one at a time",
    ),
    "unknown missing": (lambda: GP.condition(X, Y, missing="drop"), "missing must be 'error' or 'infer', got 'drop'"),
    "unknown structure": (lambda: GP.fit(X, Y, structure="fast"), "structure must be 'auto' or one of .*'dense'.*, got 'fast'"),
    "unknown option": (lambda: GP.fit(X, Y, restart=3), "unexpected keyword argument 'restart'"),
    "negative restarts": (lambda: GP.fit(X, Y, restarts=-1), "restarts must be a whole number, 0 or more, got -1"),
    "negative noise": (lambda: GP.condition(X, Y, noise=-0.1), "noise must hold variances: finite and not negative"),
    "NaN in noise": (lambda: GP.condition(X, Y, noise=with_bad(Y**2, 0)), "noise must hold variances: finite and not negative"),
    "noise of another length": (
        lambda: GP.condition(X, Y, noise=[0.1, 0.2]),
        r"noise must be one variance, or one for each of the 24 observations, got shape \(2,\)",
    ),
    "new X of another width": (
        lambda: GP.condition(X, Y).predict(zoo.XS[1]),
        "X has 1 column, but the model was given 2: pass the same inputs in the same order",
    ),
    "NaN in new X": (lambda: GP.condition(X, Y).predict(with_bad(zoo.XS[2], (3, 1))), r"X has 1 NaN \(row 3; column 1\)"),
    "update with another width": (lambda: GP.condition(X, Y).update(zoo.XS[1], np.zeros(7)), "X has 1 column.*given 2"),
    "update with more targets": (
        lambda: GP.condition(X, Y).update(X, np.stack([Y, Y], 1)),
        "update: y has 2 targets, but the model was given 1",
    ),
    "no samples": (lambda: GP.condition(X, Y).sample(X, n=0), "n must be a whole number, 1 or more, got 0"),
    "no samples of the prior": (lambda: GP.sample(X, n=0), "n must be a whole number, 1 or more, got 0"),
    "probability beyond 1": (lambda: GP.condition(X, Y).predict(X).quantile(1.5), "probabilities between 0 and 1, got 1.5"),
    "level beyond 1": (lambda: GP.condition(X, Y).predict(X).interval(95), "level between 0 and 1, got 95"),
    "log_prob of another length": (
        lambda: GP.condition(X, Y).predict(X).log_prob([1.0]),
        r"one observation for each prediction: y has shape \(1,\), not \(24,\)",
    ),
    "a class for a kernel": (lambda: sg.GP(sg.Matern52), r"GP needs a kernel, got the class Matern52: call it, Matern52\(\)"),
    "a word for a kernel": (lambda: sg.GP("matern"), r"GP needs a kernel such as Matern52\(\), got 'matern'"),
    "a likelihood for a kernel": (lambda: sg.GP(sg.Gaussian()), r"GP needs a kernel such as Matern52\(\), got Gaussian"),
    "a number for a likelihood": (
        lambda: sg.GP(sg.Matern52(), 0.1),
        r"needs a likelihood such as Gaussian\(noise=0.1\), got 0.1",
    ),
    "lengthscales for other columns": (
        lambda: sg.GP(sg.Matern52([1.0, 1.0, 1.0])).plan(X),
        "Matern52 has lengthscales for 3 columns but the inputs have 2: give one for each column, or a single number for all",
    ),
    "metric for other columns": (
        lambda: sg.GP(sg.Matern52(sg.GivensMetric())).condition(zoo.X[1], zoo.Y[1]),
        "Matern52 has lengthscales for 2 columns but the inputs have 1",
    ),
    "periods for other columns": (
        lambda: sg.GP(sg.Periodic([1.0, 2.0])).condition(zoo.X[1], zoo.Y[1]),
        "Periodic has period for 2 columns but the inputs have 1: give one for each column",
    ),
    "slopes for other columns": (
        lambda: sg.GP(sg.Linear([1.0, 2.0])).condition(zoo.X[1], zoo.Y[1]),
        "Linear has variance for 2 columns but the inputs have 1",
    ),
    "frequencies for other columns": (
        lambda: sg.GP(sg.SpectralMixture([1.0], [[1.0, 2.0]], [[0.1, 0.1]])).condition(zoo.X[1], zoo.Y[1]),
        "SpectralMixture has frequencies for 2 columns but the inputs have 1",
    ),
    "one-dimensional kernel on two columns": (
        lambda: sg.GP(sg.Wiener()).condition(X, Y),
        r"Wiener acts on one input, but the inputs have 2 columns: choose one with Wiener\(...\).on\(0\)",
    ),
    "a column that is not there": (
        lambda: sg.GP(sg.Matern52().on(2)).condition(X, Y),
        "needs column 2, but the inputs have 2, counted from 0",
    ),
    "a direction in another space": (
        lambda: sg.GP(sg.Project(sg.Matern52(), [0.6, 0.8])).condition(zoo.X[1], zoo.Y[1]),
        "direction in 2 dimensions but the inputs have 1 column",
    ),
    "a thin plate in four dimensions": (
        lambda: sg.GP(sg.ThinPlate()).condition(np.zeros((3, 4)), Y3),
        "ThinPlate is defined for one to three inputs, but the inputs have 4 columns",
    ),
    "a product with a free part": (
        lambda: sg.GP(sg.Spline() * sg.Matern52()).condition(zoo.X[1], zoo.Y[1]),
        "Spline leaves some functions free, so a product with it is not defined; add it instead, or use IntegratedWiener",
    ),
    "sampling a diffuse prior": (
        lambda: sg.GP(sg.Spline()).sample(zoo.X[1]),
        "leaves some functions free, so it cannot be sampled: give the basis weights a covariance",
    ),
    "weights of no basis": (lambda: GP.condition(X, Y).basis_weights(), r"no basis functions: give GP a mean=Basis\(...\)"),
    "y too large to square": (
        lambda: GP.condition(X, 1e200 * Y),
        r"y reaches from -.*e\+200 to .*e\+200, beyond what can be squared in double precision: measure it in other units",
    ),
    "y too small to square": (lambda: GP.condition(X, 1e-200 * Y), "y reaches from .*measure it in other units"),
    "X too large to square": (
        lambda: GP.condition(1e200 * X, Y),
        "X reaches .* in column 0, beyond.*measure it in other units",
    ),
    "X too small to square": (
        lambda: GP.condition(1e-200 * X, Y),
        "X reaches .* in column 0, beyond.*measure it in other units",
    ),
    "noise of single rows as that of outputs": (
        lambda: sg.GP(sg.Matern52(), sg.Gaussian(np.full(24, 0.1))).condition(X, Y),
        "24 numbers, one for each output, so that the last column of X must be the number of the output, but it reaches from",
    ),
    "a part of no sum": (lambda: GP.condition(X, Y).predict(X, part=0), "part=0 cannot be predicted.*is not a sum"),
    "a part by its name": (lambda: SUM.condition(X, Y).predict(X, part="0"), "part='0' cannot be.*has 2 terms, counted from 0"),
    "masked y": (
        lambda: GP.condition(X, np.ma.array(Y, mask=np.arange(24) == 3)),
        r"y is masked in 1 place \(row 3\): drop them, or pass missing='infer' to treat them as unobserved",
    ),
    "masked X": (
        lambda: GP.condition(np.ma.array(X, mask=np.arange(48).reshape(24, 2) == 6), Y),
        "X is masked in row 3: inputs must be known; drop these rows or fill them in",
    ),
    "a choice in a mean": (
        lambda: sg.GP(sg.Matern52(), mean=lambda x: x[0] if x[0] > 0 else 0.0).condition(X, Y),
        r"cannot be compiled: it decides by the value of its input.*choices as jnp.where\(x\[0\] > 0",
    ),
    "a mean of two numbers": (
        lambda: sg.GP(sg.Matern52(), mean=lambda x: x).condition(X, Y),
        r"must return one number for a point, but <lambda> returned shape \(2,\): combine its parts into one, or let Basis",
    ),
    "a word for a mean": (lambda: sg.GP(sg.Matern52(), mean="constant"), r"a Mean such as ConstantMean\(\), got 'constant'"),
    "a mean without a value": (
        lambda: sg.GP(sg.Matern52(), mean=lambda x: jnp.log(x[0])).condition(X, Y),
        "the mean .* is not finite in rows .* of X, as at .*: define it for all inputs, or leave these rows out",
    ),
    "learning with a mean without a value": (
        lambda: sg.GP(sg.Matern52(), mean=lambda x: jnp.log(x[0])).fit(X, Y),
        "the mean .* is not finite in rows .* of X",
    ),
    "a likelihood without a value": (
        lambda: sg.GP(sg.Matern52(), NoNumber()).condition(X, Y),
        r"NoNumber.log_prob\(y, f\) is nan for y = .* \(row 0\) and f = 0: give it a finite value for every f",
    ),
    "a prior without density": (
        lambda: sg.GP(sg.Matern52(sg.learned(1.0, prior=sg.Uniform(5, 6)))).fit(X, Y),
        r"prior Uniform\(low=5, high=6\) of kernel.lengthscale has no density at 1, where learning starts: start inside of it",
    ),
    "a number for a prior": (
        lambda: sg.Matern52().with_prior(lengthscale=3.0),
        r"such as LogNormal\(0, 1\), got 3.0; a value goes",
    ),
    "three bounds": (
        lambda: sg.learned(1.0, bounds=(1, 2, 3)),
        r"bounds are two numbers, .* as in \(0.1, 10\), got \(1, 2, 3\)",
    ),
    "one bound": (lambda: sg.Matern52().with_bounds(lengthscale=3), "bounds are two numbers.*got 3"),
    "nothing for a lengthscale": (lambda: sg.Matern52(None), "Matern52: lengthscale must be a number or an array.*got None"),
    "an order for a lengthscale": (lambda: sg.Matern(1.5), r"needs its order by name, as in Matern\(nu=1.5\)"),
    "a column by its name": (
        lambda: sg.Matern52().on("a"),
        r"columns by their numbers, counted from 0, as in .on\(0, 2\); got 'a'",
    ),
    "many restarts": (lambda: GP.fit(X, Y, restarts="many"), "restarts must be a whole number, 0 or more, got 'many'"),
    "a word for a seed": (
        lambda: GP.fit(X, Y, seed="a"),
        "seed must be a whole number of at least 0, a numpy Generator.*got 'a'",
    ),
    "half a sample": (lambda: GP.condition(X, Y).sample(X, n=2.5), "n must be a whole number, 1 or more, got 2.5"),
    "no evaluations": (lambda: GP.fit(X, Y, max_evaluations=-3), "max_evaluations must be a whole number, 1 or more, got -3"),
    "a tie between sets": (
        lambda: sg.GP(sg.Matern52(), mean=-3.57).tie("mean.value", "likelihood.noise"),
        "mean.value is real, likelihood.noise is nonnegative: tie those that may take the same values",
    ),
    "loading nothing": (lambda: sg.load(None), "load needs the name of a file, such as 'model.structgp', got None"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_message(name):
    call, text = CASES[name]
    with pytest.raises((ValueError, TypeError), match=text):
        call()


def test_a_covariance_that_is_none_is_explained():
    """The kernel, the direction in which it fails, the parameter that is extreme, and what to do."""

    class Wrong(sg.Kernel):
        strength: float = sg.parameter(1e7, sg.positive)

        def between(self, x, z):
            return -self.strength * (x[0] - z[0]) ** 2

    text = r"covariance of Wrong.*eigenvalue is -.*between rows .* of X.*strength = 1e\+07 is extreme.*Merge"
    with pytest.raises(ValueError, match=text):
        sg.GP(Wrong(), sg.Gaussian(1e-3)).condition(zoo.X[1], zoo.Y[1])


def test_a_kernel_that_is_not_finite_is_explained():
    overflow = sg.GP(sg.Polynomial(1e300, degree=9), sg.Gaussian(0.1))
    with pytest.raises(ValueError, match=r"covariance of Polynomial.*it is (inf|nan|-inf) between rows \d+ and \d+ of X"):
        overflow.condition(1e10 + zoo.X[1], zoo.Y[1], structure="dense")


@pytest.mark.parametrize("gp", [sg.GP(sg.Matern52(), mean=sg.polynomial(1)), sg.GP(sg.Spline())])
def test_more_free_functions_than_observations(gp):
    with pytest.raises(ValueError, match=r"2 functions.*free.*1 observation"):
        gp.condition([1.0], [2.0])


def test_sampling_a_diffuse_kernel_with_a_proper_basis():
    gp = sg.GP(sg.Spline(), mean=sg.Basis(lambda x: x, covariance=1.0))
    with pytest.raises(ValueError, match="cannot be sampled"):
        gp.sample(zoo.X[1])


def test_inputs_outside_the_ball_of_half_spaces():
    with pytest.raises(ValueError, match="norm of at most"):
        sg.GP(sg.HalfSpace(0.5)).condition(X, Y)


def test_half_a_restart():
    with pytest.raises(ValueError, match="restarts"):
        GP.fit(X, Y, restarts=1.5)


ESTIMATORS = (sg.GPRegressor, sg.GPClassifier, sg.GPCountRegressor, sg.AdditiveGPRegressor, sg.AdditiveGPClassifier)
ESTIMATORS += (sg.ProjectionPursuitGPRegressor, sg.ProjectionPursuitGPClassifier)
COUNTS = np.arange(24.0) % 2


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_say_what_is_missing(estimator):
    """In X, under a mask and among the targets, in their own words."""
    with pytest.raises(ValueError, match=r"X has 1 NaN \(row 4; column 0\): inputs must be known; drop these rows"):
        estimator().fit(with_bad(X, (4, 0)), COUNTS)
    with pytest.raises(ValueError, match="X is masked in row 0: inputs must be known"):
        estimator().fit(np.ma.array(X, mask=np.arange(48).reshape(24, 2) == 0), COUNTS)
    for y in (with_bad(COUNTS, 4), np.ma.array(COUNTS, mask=np.arange(24) == 4)):
        with pytest.raises(ValueError, match=r"y has 1 NaN.*\(row 4\): drop the"):
            estimator().fit(X, y)


@pytest.mark.parametrize("estimator", [sg.GPClassifier, sg.AdditiveGPClassifier])
def test_labels_that_are_missing(estimator):
    with pytest.raises(ValueError, match=r"y has 12 NaN or missing labels \(rows 0, 2, 4, 6, 8, … 7 more\): drop the rows"):
        estimator().fit(X, np.array([None, "a"] * 12, dtype=object))
    with pytest.raises(
        ValueError, match=r"y holds text beside numbers, such as 'n.a.' \(row 5\): drop these rows, or write all"
    ):
        estimator().fit(X, np.array([0.0, 1.0, 1.0, 0.0, 1.0, "n.a."] + [1.0, 0.0] * 9, dtype=object))


def test_an_inference_that_stops_names_another():
    nothing = np.zeros(0)
    for method, other in (("variational", "laplace"), ("laplace", "variational"), ("ep", "variational")):
        stopped = Inferred(method, False, "stopped", 3, 1.0, *([nothing] * 4))
        said = stopped.advice(sg.StudentT())
        assert said.endswith(f"evidence of this model means nothing; try other parameters, or inference={other!r}")
        assert "inference=" not in stopped.advice(sg.Twinned())  # whose variational bound ends far from the truth
        assert stopped.advice(sg.Twinned()).endswith("a longer lengthscale of the gate, or a likelihood that has none")


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a pipe, a socket or a device: copy its content to a file, and load that"):
        sg.load(tmp_path / "pipe")


def test_what_is_masked_was_not_seen_by_scores_either():
    """A score has no value where y has none, and a run that came to nothing is not learned from."""
    gone = np.arange(24) == 3
    under = np.ma.array(np.where(gone, 1e9, Y), mask=gone)
    told = GP.condition(X, Y).predict(X)
    for score in (told.log_prob, told.cumulative):
        np.testing.assert_array_equal(score(under), np.where(gone, np.nan, score(Y)))
    with pytest.raises(ValueError, match="must be a finite number, got a masked value: say tell"):
        sg.Optimiser({"a": (0.0, 1.0)}).tell({"a": 0.5}, np.ma.array(3.0, mask=True))
    with pytest.raises(ValueError, match=r"y is masked in 1 place \(row 3\): drop these rows"):
        sg.AdditiveVB().fit(X, under)
    with pytest.raises(ValueError, match=r"series 1: y has 1 NaN \(row 1\)"):
        GP.fit_series(X[:, 0], under, by=np.arange(24) % 2)
    with pytest.raises(ValueError, match=r"X has 1 missing date \(row 3\)"):
        GP.condition(np.ma.array(np.datetime64("2024-01-01") + np.arange(24), mask=gone), Y)


def test_classes_have_no_order_to_be_below():
    with pytest.raises(ValueError, match="classes without an order are none below another: ask for their probability"):
        sg.Categorical(2).predictive_cumulative(1.0, np.zeros((1, 2)), np.ones((1, 2)))


def test_what_is_masked_may_be_inferred():
    gone = np.arange(24) % 5 == 0
    masked = GP.condition(X, np.ma.array(np.where(gone, 1e9, Y), mask=gone), missing="infer")
    without = GP.condition(X[~gone], Y[~gone])
    assert masked.log_evidence == pytest.approx(without.log_evidence, abs=1e-9)


def test_a_covariance_keeps_its_precision():
    K = sg.covariance(sg.Matern52(), X, X)
    np.testing.assert_array_equal(
        sg.covariance(sg.Matern52(), X[:, 0], X[:, 0]), sg.covariance(sg.Matern52(), X[:, :1], X[:, :1])
    )
    assert K.dtype == np.float64
    assert abs(float(K[0, 1]) - float(sg.Matern52()(X[0], X[1]))) < 1e-15
    single = X.astype(np.float32)  # of which no number is too large
    np.testing.assert_array_equal(sg.covariance(sg.Matern52(), single), sg.covariance(sg.Matern52(), single.astype(float)))
