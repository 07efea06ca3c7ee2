"""Everything that there is, once, by name: a new kernel, input, mean, likelihood or engine joins in one line.

Shapes are shared (N training rows, M new ones, one or two columns), because JAX compiles anew for each new shape.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
from structgp.engines.block_toeplitz import BlockLevinson
from structgp.engines.cholesky import Cholesky, SignedCholesky
from structgp.engines.eigen import Eigen
from structgp.engines.grid_holes import Krylov
from structgp.engines.grid_seen import SeenCells
from structgp.engines.kalman import Kalman
from structgp.engines.space_time import JointChain, SpaceTimeChains
from structgp.engines.toeplitz import FourierToeplitz
from structgp.engines.toeplitz_grid import ToeplitzLines
from structgp.engines.toeplitz_holes import FourierHoles
from structgp.engines.woodbury import Woodbury

N, M = 24, 7
_RNG = np.random.default_rng(20240607)
X = {D: _RNG.uniform(-2.0, 2.0, (N, D)) for D in (1, 2)}
XS = {D: _RNG.uniform(-2.5, 2.5, (M, D)) for D in (1, 2)}
Y = {D: np.sin(2 * x.sum(axis=1)) + 0.3 * x[:, 0] + 0.1 * _RNG.standard_normal(N) for D, x in X.items()}


def mostly_full(cases, *kept):
    """The cases of a law, for `parametrize`: `make test` runs those that are kept, `make test-all` runs every one."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    kept = [case if isinstance(case, tuple) else (case,) for case in kept]
    if strangers := [case for case in kept if case not in cases]:
        raise ValueError(f"{strangers} are not among the cases")
    return [pytest.param(*case, marks=() if case in kept else pytest.mark.full) for case in cases]


def bend(x):
    """A warp without parameters."""
    return jnp.sinh(x)


def above_three_thresholds(x):
    """Three hypotheses about the sign of a label."""
    return jnp.where(x[0] > jnp.array([-1.0, 0.0, 1.0]), 1.0, -1.0)


def one_of_three(x):
    """The number of an output, from the sign of x and its size."""
    return jnp.where(x[:1] > 0.8, 2.0, jnp.where(x[:1] > -0.5, 1.0, 0.0))


def with_output(x):
    """A place, and the number of one of three outputs."""
    return jnp.concatenate([x[:1], one_of_three(x)])


def with_one_of_two(x):
    """A place, and the number of one of two outputs."""
    return jnp.concatenate([x[:1], jnp.where(x[:1] > 0.1, 1.0, 0.0)])


class Bend(sg.Parametrised):
    """A warp with a parameter that is learned."""

    amount: float = sg.parameter(0.5, sg.positive)

    def __call__(self, x):
        return x + jnp.tanh(self.amount * x)

    def __repr__(self):
        return f"Bend(amount={float(self.amount):.4g})"


NAMESPACE = {name: getattr(sg, name) for name in sg.__all__ if name not in ("load", "GPRegressor")}
NAMESPACE |= {
    "bend": bend,
    "above_three_thresholds": above_three_thresholds,
    "one_of_three": one_of_three,
    "with_output": with_output,
    "with_one_of_two": with_one_of_two,
    "Bend": Bend,
}

_SCALES = [[1.0, 0.3], [0.5, 2.0], [1.4, 0.7]]
_LOADINGS = [[0.6, 0.5], [0.6, 0.1], [0.6, -0.5]]

# name: (kernel, number of columns)
KERNELS = {
    "SquaredExponential": (sg.SquaredExponential(0.7, 1.3), 1),
    "SquaredExponential-ARD": (sg.SquaredExponential([0.7, 1.9], 1.3), 2),
    "SquaredExponential-Cholesky": (sg.SquaredExponential(sg.CholeskyMetric([1.2, 0.6], [0.4]), 1.3), 2),
    "SquaredExponential-Givens": (sg.SquaredExponential(sg.GivensMetric([0.7, 1.9], [0.6]), 1.3), 2),
    "SquaredExponential-Group": (sg.SquaredExponential(sg.GroupMetric([0.9], (0, 0)), 1.3), 2),
    "SquaredExponential-Factor": (sg.SquaredExponential(sg.FactorMetric([[0.5], [-0.8]], [1.4, 2.1]), 1.3), 2),
    "RationalQuadratic": (sg.RationalQuadratic(0.8, 1.2, 1.7), 2),
    "GammaExponential": (sg.GammaExponential(0.9, 1.1, 1.4), 1),
    "Matern12": (sg.Matern12([1.1, 0.6], 0.8), 2),
    "Matern32": (sg.Matern32(0.8, 1.4), 1),
    "Matern52": (sg.Matern52([0.7, 1.6], 1.2), 2),
    "Matern72": (sg.Matern72(0.9, 0.7), 1),
    "Matern": (sg.Matern(1.1, 1.2, nu=4.5), 2),
    "ProductMatern": (sg.ProductMatern([0.7, 1.6], 1.2, nu=1.5), 2),
    "Ricker": (sg.Ricker([0.7, 1.6], 1.2), 2),
    "Sinc": (sg.Sinc(0.6, 1.2), 1),
    "Sinc-2": (sg.Sinc([0.6, 0.3], 1.2), 2),
    "Cosine": (sg.Cosine(1.7, 1.2), 1),
    "Periodic": (sg.Periodic(1.3, 0.8, 1.2), 1),
    "Periodic-2": (sg.Periodic([1.3, 2.2], [0.8, 1.1], 1.2), 2),
    "DampedOscillator": (sg.DampedOscillator(1.3, 0.9, 1.2), 1),
    "SpectralMixture": (sg.SpectralMixture([0.7, 0.4], [0.3, 0.9], [0.2, 0.1]), 1),
    "SpectralMixture-2": (sg.SpectralMixture([0.7, 0.4], [[0.3, 0.1], [0.5, 0.7]], [[0.2, 0.3], [0.1, 0.2]]), 2),
    "Constant": (sg.Constant(1.3), 2),
    "Linear": (sg.Linear([0.7, 1.2], [0.3, -0.2]), 2),
    "Polynomial": (sg.Polynomial(0.4, 0.7, degree=3), 2),
    "DiscreteConvolution": (sg.DiscreteConvolution(sg.Matern52(0.9), [[0.0, 0.5], [-1.0, 0.2]], [0.6, 1.1]), 2),
    "Gibbs": (sg.Gibbs([[-1.0, 0.3], [0.8, -0.4]], [[0.5, 1.1], [1.6, 0.7]], 1.2), 2),
    "FourierFeatures": (sg.FourierFeatures([[0.4, 1.0], [1.3, -0.2]], [0.8, 1.5], 1.2), 2),
    "White": (sg.White(0.6), 1),
    "Wiener": (sg.Wiener(0.8, start=-0.5), 1),
    "IntegratedWiener": (sg.IntegratedWiener(0.8, order=2), 1),
    "IntegratedWiener-3": (sg.IntegratedWiener(0.8, order=3, start=-2.1), 1),
    "Spline": (sg.Spline(0.8), 1),
    "Spline-1": (sg.Spline(0.8, order=1, start=-0.5), 1),
    "Spline-3": (sg.Spline(0.8, order=3), 1),
    "ThinPlate": (sg.ThinPlate(0.8, scale=2.0), 2),
    "ThinPlate-1": (sg.ThinPlate(0.8), 1),
    "ArcSine": (sg.ArcSine([0.7, 1.6], 0.4, 1.2), 2),
    "HypothesisClass": (sg.HypothesisClass(above_three_thresholds, [0.2, 0.5, 0.3], 1.2), 1),
    "HalfSpace": (sg.HalfSpace(4.0, 1.2), 2),
    "HalfSpace-box": (sg.HalfSpace(4.0, 1.2, support="box"), 1),
    "HalfSpaceOverlap": (sg.HalfSpaceOverlap(0.7, 0.4), 2),
    "Sum": (sg.Matern52(0.7, 1.2) + sg.Linear(0.3) + sg.White(0.2), 1),
    "Product": (sg.Periodic(1.3, 0.8, 1.2) * sg.SquaredExponential(2.1), 1),
    "Scaled": (2.5 * sg.Matern32(0.8), 1),
    "Scaled-Sum": (sg.Scaled(sg.Matern32(0.8) + sg.Constant(0.4), 1.7), 1),
    "On": (sg.Matern32(0.8, 1.4).on(1), 2),
    "On-Sum": ((sg.Matern32(0.8, 1.4) + sg.Linear(0.3)).on(0) + sg.Matern52(1.3).on(1), 2),
    "On-Product": ((sg.Matern32(0.8, 1.4) * sg.Linear(0.3)).on(1), 2),
    "On-Scaled": ((2.5 * sg.Matern32(0.8) * sg.Cosine(1.7)).on(1), 2),
    "Project": (sg.Project(sg.Matern52(0.8, 1.3), [0.6, 0.8]), 2),
    "Project-2": (sg.Project(sg.Matern52([0.8, 1.5], 1.3), [[0.6, -0.8], [0.8, 0.6]]), 2),
    "Warp": (sg.Warp(sg.Matern32(0.8, 1.4), bend), 1),
    "Warp-learned": (sg.Warp(sg.Matern32(0.8, 1.4), Bend(0.7)), 1),
    "ChangePoint": (sg.ChangePoint(sg.Matern32(0.8), sg.Matern52(1.4, 0.6), 0.3), 1),
    "ChangePoint-smooth": (sg.ChangePoint(sg.Matern32(0.8), sg.Linear(0.6), 0.3, 0.5, dim=1), 2),
    "ChangePoint-Spline": (sg.ChangePoint(sg.Spline(0.8, order=1), sg.Matern52(1.4, 0.6), 0.3), 1),
    "Coregion": (sg.Warp(sg.Coregion([[0.7], [-0.4], [1.1]], [0.3, 0.5, 0.2]), one_of_three), 1),
    "Lagged": (
        sg.Warp(sg.Lagged(sg.GaussianFilters(3, 2, loadings=_LOADINGS, lengthscale=_SCALES), [0.3, -0.4]), with_output),
        1,
    ),
    "MaternFilters": (sg.Warp(sg.MaternFilters(3, lengthscale=[[1.0], [0.5], [1.4]]), with_output), 1),
    "LowPassFilters": (sg.Warp(sg.LowPassFilters(3, lengthscale=[[1.0], [0.5], [1.4]]), with_output), 1),
    "PoleFilters": (sg.Warp(sg.PoleFilters([1.0], [2.0], [[[1.0, 0.3]], [[0.5, 0.7]], [[0.2, -0.9]]]), with_output), 1),
    "Cascade": (
        sg.Warp(sg.Cascade(sg.TransferFunction([0.8], [1.1]), sg.TransferFunction([2.0], [1.5])), with_one_of_two),
        1,
    ),
    "tied": ((sg.Matern32(0.8) + sg.Matern52(0.8, 0.5)).tie("terms[0].lengthscale", "terms[1].lengthscale"), 1),
    "fixed": (sg.Matern32(sg.fixed(0.8), 1.4), 1),
}

# name: a kernel of three outputs, on (time, number of the output)
OF_OUTPUTS = {
    "ICM": sg.Coregion([[0.7], [-0.4], [1.1]], [0.3, 0.5, 0.2]).on(1) * sg.Matern32(0.7).on(0),
    "LMC": sg.Coregion([[0.7], [-0.4], [1.1]], [0.3, 0.5, 0.2]).on(1) * sg.Matern32(0.7).on(0)
    + sg.Coregion.full([[1.0, 0.5, 0.2], [0.5, 2.0, 0.1], [0.2, 0.1, 0.7]]).on(1) * sg.Matern52(2.0).on(0),
    "MaternFilters-1": sg.MaternFilters(3, 2, nu=0.5, lengthscale=_SCALES),
    "MaternFilters-2": sg.MaternFilters(3, 2, lengthscale=_SCALES),
    "MaternFilters-3": sg.MaternFilters(3, 1, False, nu=2.5, lengthscale=[[1.0], [0.5], [1.4]]),
    "Lagged": sg.Lagged(sg.MaternFilters(3, 1, lengthscale=[[1.0], [0.5], [1.4]]), [0.35, -0.6]),
    "PoleFilters": sg.PoleFilters(
        [1.0, 0.5], [0.0, 2.0], [[[1.0, 0.0], [0.3, 0.5]], [[0.5, 0.0], [-0.4, 0.2]], [[0.1, 0.0], [0.7, 1.0]]]
    ),
    "GaussianFilters": sg.GaussianFilters(3, 2, lengthscale=_SCALES),
    "LowPassFilters": sg.LowPassFilters(3, 2, lengthscale=_SCALES),
    "FIR": sg.FIR([[1.0, 0.5, 0.2], [0.4, 1.1, 0.3], [-0.3, 0.2, 0.9]]),
}

# name: the places as a caller gives them
INPUTS = {
    "1-D": X[1],
    "1-D flat and sorted": np.sort(X[1][:, 0]),
    "1-D regular": np.linspace(-2.0, 2.0, N),
    "2-D": X[2],
    "duplicated rows": np.repeat(X[1][: N // 2], 2, axis=0),
    "nearly repeated rows": np.concatenate([X[1][: N // 2], X[1][: N // 2] + 1e-9]),
    "grid": sg.Grid(np.linspace(-2.0, 2.0, 6), np.linspace(-1.0, 1.0, 4)),
    "grid with holes": sg.Grid(np.linspace(-2.0, 2.0, 6), np.linspace(-1.0, 1.0, 5), cells=np.arange(N)[::-1]),
}

MEANS = {
    "zero": None,
    "constant": sg.ConstantMean(0.4),
    "linear": sg.LinearMean(0.3, -0.2),
    "function": sg.FunctionMean(lambda x: jnp.sum(jnp.cos(x))),
    "diffuse basis": sg.polynomial(1),
    "proper basis": sg.Basis(lambda x: jnp.concatenate([jnp.ones(1), x[:1]]), [0.5, -0.3], [[1.2, 0.3], [0.3, 0.7]]),
}

LIKELIHOODS = {"Gaussian": sg.Gaussian(0.15)}

# name: (likelihood of one latent value, three observations that it may see, their extra numbers)
OBSERVED_THROUGH = {
    "Gaussian": (sg.Gaussian(0.15), [-0.7, 0.4, 2.5], 1.0),
    "probit": (sg.Bernoulli(), [0.0, 1.0, 1.0], 1.0),
    "probit with bias": (sg.Bernoulli(bias=0.4), [0.0, 1.0, 1.0], 1.0),
    "probit with flips": (sg.Bernoulli(flip=0.02), [0.0, 1.0, 1.0], 1.0),
    "logit": (sg.Bernoulli("logit"), [0.0, 1.0, 1.0], 1.0),
    "logit with flips": (sg.Bernoulli("logit", bias=-0.3, flip=0.05), [0.0, 1.0, 1.0], 1.0),
    "Binomial": (sg.Binomial(), [0.0, 3.0, 7.0], [5.0, 4.0, 11.0]),
    "Binomial probit": (sg.Binomial("probit"), [0.0, 3.0, 7.0], [5.0, 4.0, 11.0]),
    "Ordinal": (sg.Ordinal([-0.8, 0.3, 1.1], 0.7), [0.0, 1.0, 3.0], 1.0),
    "Ordinal logit": (sg.Ordinal([-0.8, 0.3, 1.1], 0.7, "logit"), [0.0, 1.0, 3.0], 1.0),
    "Poisson": (sg.Poisson(), [0.0, 3.0, 40.0], [0.5, 1.0, 7.0]),
    "NegativeBinomial": (sg.NegativeBinomial(0.6), [0.0, 3.0, 40.0], [0.5, 1.0, 7.0]),
    "StudentT": (sg.StudentT(4.0, 0.3), [-0.7, 0.4, 8.5], 1.0),
    "LaplaceNoise": (sg.LaplaceNoise(0.3), [-0.7, 0.4, 8.5], 1.0),
    "MixtureNoise": (sg.MixtureNoise(0.2, 2.0, 0.1), [-0.7, 0.4, 8.5], 1.0),
    "Exponential": (sg.Exponential(), [0.2, 1.3, 6.0], [1.0, 1.0, 0.0]),
    "Weibull": (sg.Weibull(1.7), [0.2, 1.3, 6.0], [1.0, 1.0, 0.0]),
    "GammaDuration": (sg.GammaDuration(2.3), [0.2, 1.3, 6.0], [1.0, 1.0, 0.0]),
    "LogGaussian": (sg.LogGaussian(0.2), [0.2, 1.3, 6.0], 1.0),
}

# name of the structure to ask for: the algorithm, of those that take any places on a line
ENGINES = {"dense": Cholesky(), Kalman.structure: Kalman(), Woodbury.structure: Woodbury()}
# the kernel by which laws look at an algorithm that does not take just any
SOME_KERNEL = {Woodbury.structure: sg.Constant(1.3) + sg.Polynomial(0.2, 0.5, degree=3)}

# The same of those that ask for more: a grid, even spacing. Their laws stand in tests of their own.
PARTICULAR = {engine.structure: engine for engine in (Eigen(), SpaceTimeChains(), ToeplitzLines(), FourierToeplitz())}

# Those that ask less of the data than these: gaps, unequal noise, few places seen, factors of any sign, several outputs.
GENERAL = (SeenCells(), Krylov(), JointChain(), FourierHoles(), SignedCholesky(), BlockLevinson())
