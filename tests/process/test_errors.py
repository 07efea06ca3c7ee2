"""Bad input: each case gets one message that says what was met, what is needed and what to do, or a right answer."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import structgp as sg
import zoo

X, Y = zoo.X[2], zoo.Y[2]
GP = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
LINE = sg.GP(sg.Matern52(), sg.Gaussian(0.1))


def with_bad(array, *places, value=np.nan):
    spoiled = np.array(array, dtype=float)
    for place in places:
        spoiled[place] = value
    return spoiled


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
    "infinity in X": (lambda: GP.condition(with_bad(X, (4, 0), value=np.inf), Y), r"X has 1 infinity \(rows 4; columns 0\)"),
    "many NaN in X": (lambda: GP.condition(with_bad(X, slice(0, 9)), Y), r"X has 18 NaN \(rows 0, 1, 2, 3, 4, … 4 more"),
    "NaN in a named column": (
        lambda: GP.condition(pd.DataFrame({"a": Y3, "b": [1.0, np.nan, 2.0]}), Y3),
        r"X has 1 NaN \(rows 1; columns b\)",
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
    "date column": (
        lambda: GP.condition(pd.DataFrame({"when": pd.to_datetime(["2024-01-01"] * 3)}), Y3),
        "columns that are not numeric: 'when'",
    ),
    "dates": (
        lambda: GP.condition(np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="M8[D]"), Y3),
        "X holds dates or durations: convert them to numbers first, for instance days since the first one",
    ),
    "text": (
        lambda: GP.condition([["a", "b"]], [1.0]),
        "X must be numeric, but row 0 holds 'a': encode text as numbers, or leave the column out",
    ),
    "complex numbers": (
        lambda: GP.condition(X.astype(complex), Y),
        "X: complex data not supported; pass real and imaginary parts",
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
    "infinity in y": (lambda: GP.condition(X, with_bad(Y, 4, value=-np.inf)), r"y has 1 infinity \(rows 4\): drop or replace"),
    "infinity in y beside gaps": (
        lambda: GP.condition(X, with_bad(with_bad(Y, 3), 4, value=np.inf), missing="infer"),
        r"y has 1 infinity \(rows 4\)",
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
        "X has 1 columns, but the model was given 2: pass the same inputs in the same order",
    ),
    "NaN in new X": (lambda: GP.condition(X, Y).predict(with_bad(zoo.XS[2], (3, 1))), r"X has 1 NaN \(rows 3; columns 1\)"),
    "update with another width": (lambda: GP.condition(X, Y).update(zoo.XS[1], np.zeros(7)), "X has 1 columns.*given 2"),
    "update with more targets": (
        lambda: GP.condition(X, Y).update(X, np.stack([Y, Y], 1)),
        "update: y has 2 targets, but the model was given 1",
    ),
    "no samples": (lambda: GP.condition(X, Y).sample(X, n=0), "n must be at least 1 sample, got 0"),
    "no samples of the prior": (lambda: GP.sample(X, n=0), "n must be at least 1 sample, got 0"),
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
        "direction in 2 dimensions but the inputs have 1 columns",
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
    "values too large to square": (lambda: GP.condition(X, 1e200 * Y), "y holds values too large to square"),
    "a part of no sum": (lambda: GP.condition(X, Y).predict(X, part=0), "part=0 cannot be predicted.*is not a sum"),
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
        overflow.condition(1e10 + zoo.X[1], zoo.Y[1])


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
