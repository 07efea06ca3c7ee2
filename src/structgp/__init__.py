"""Gaussian processes that scale by structure: exact where it can be, linear where it can be.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_WHERE = {
    "process.gp": ["GP"],
    "process.fitted": ["Fitted", "FittedLatents"],
    "process.mixture": ["FittedMixture"],
    "process.augmented": ["augmented"],
    "learn.peak": ["Averaging", "Evidence"],
    "process.evidence": ["evidence"],
    "models.compare": ["compare"],
    "models.identified": ["Identified"],
    "models.identify": ["identify"],
    "models.evidence_stream": ["EvidenceStream"],
    "process.stream": ["Stream"],
    "process.inducing_stream": ["InducingStream"],
    "process.series": ["FittedSeries"],
    "process.fitted_parts": ["FittedParts"],
    "process.series_by": ["FittedSeriesBy"],
    "parameters.tree": ["Parametrised", "fixed", "learned", "parameter"],
    "parameters.supports": [
        "increasing",
        "interval",
        "nonnegative",
        "orthonormal",
        "positive",
        "real",
        "simplex",
        "unit_interval",
    ],
    "parameters.priors": [
        "Alike",
        "Beta",
        "Gamma",
        "HalfCauchy",
        "HalfNormal",
        "InverseGamma",
        "LogNormal",
        "Normal",
        "Prior",
        "Uniform",
    ],
    "kernels.algebra": ["Kernel", "On", "Product", "Scaled", "Sum", "combine", "shares"],
    "kernels.metrics": ["CholeskyMetric", "FactorMetric", "GivensMetric", "GroupMetric", "orthonormalise", "random_rotation"],
    "kernels.stationary": [
        "GammaExponential",
        "Matern",
        "Matern12",
        "Matern32",
        "Matern52",
        "Matern72",
        "ProductMatern",
        "RationalQuadratic",
        "Ricker",
        "Sinc",
        "SquaredExponential",
    ],
    "kernels.oscillating": ["Cosine", "DampedOscillator", "Periodic", "SpectralMixture"],
    "kernels.nonstationary": [
        "ArcSine",
        "Constant",
        "HalfSpace",
        "HalfSpaceOverlap",
        "HypothesisClass",
        "IntegratedWiener",
        "Linear",
        "Polynomial",
        "Spline",
        "ThinPlate",
        "White",
        "Wiener",
    ],
    "kernels.views": ["Project", "Rotated", "Warp"],
    "kernels.changepoint": ["ChangePoint"],
    "kernels.induced": ["Induced"],
    "kernels.finite": ["DiscreteConvolution", "FourierFeatures"],
    "kernels.gibbs": ["Gibbs"],
    "kernels.outputs": ["LMC", "Coregion", "Lagged", "correlations"],
    "kernels.filters": [
        "Cascade",
        "FIR",
        "GaussianFilters",
        "LowPassFilters",
        "MaternFilters",
        "PoleFilters",
        "TransferFunction",
    ],
    "kernels.independent": ["Independent"],
    "means": ["Basis", "ConstantMean", "FunctionMean", "LevelOfOutput", "LinearMean", "ZeroMean", "polynomial"],
    "likelihoods.base": ["Likelihood"],
    "likelihoods.gaussian": ["Gaussian"],
    "likelihoods.labels": ["Bernoulli", "Ordinal"],
    "likelihoods.counts": ["Binomial", "NegativeBinomial", "Poisson"],
    "likelihoods.robust": ["LaplaceNoise", "MixtureNoise", "StudentT"],
    "likelihoods.switch": [
        "Ignorant",
        "Sloped",
        "Switch",
        "Triplet",
        "Twinned",
        "TwinnedLabels",
        "TwoExperts",
        "TwoProcesses",
        "Unrelated",
    ],
    "likelihoods.heteroscedastic": ["HeteroscedasticGaussian"],
    "likelihoods.positive": ["LogGaussian"],
    "likelihoods.durations": ["Exponential", "GammaDuration", "Weibull"],
    "likelihoods.categories": ["Categorical"],
    "likelihoods.multinomial": ["MultinomialProbit"],
    "inputs.layouts": ["Grid", "Points", "Times", "as_inputs"],
    "inputs.binning": ["bin_to_grid"],
    "inputs.outputs": ["Outputs"],
    "structure.dense": ["covariance"],
    "engines.approximation": ["Approximation"],
    "engines.neighbours": ["Neighbours"],
    "engines.inducing_inputs": ["Inducing"],
    "models.most_likely": ["FittedMostLikelyNoise", "MostLikelyNoiseGP"],
    "models.relevance": ["RelevanceVectors"],
    "models.changepoints.model": ["ChangePoints"],
    "models.changepoints.hazards": ["ConstantHazard", "FunctionHazard", "Hazard", "LogisticHazard", "TabulatedHazard"],
    "models.changepoints.segments": ["SegmentModel", "SideBySide"],
    "models.changepoints.conjugate": ["MultivariateNormalSegment", "NormalSegment", "PoissonSegment"],
    "models.changepoints.processes": ["CholeskySegment", "MarkovSegment", "UnknownScale"],
    "models.changepoints.averaged": ["AveragedSegment", "SampledSegment"],
    "models.additive.model": ["AdditiveGP"],
    "models.additive.parts": ["FittedAdditiveParts"],
    "models.additive.mcmc": ["AdditiveMCMC"],
    "models.additive.variational": ["AdditiveVB"],
    "models.pursuit.model": ["ProjectionPursuitGP"],
    "models.pursuit.greedy": ["GreedyProjectionPursuit", "ProjectionPursuitMCMC"],
    "models.labels": ["AdditiveLabels", "ProjectionPursuitLabels"],
    "sklearn.detector": ["ChangePointDetector"],
    "files": ["load"],
    "decide.space": ["Space", "integer", "log"],
    "decide.optimise": ["Optimiser"],
    "decide.run": ["Optimum", "maximise", "minimise"],
    "decide.differentiate": ["GradientEstimate", "estimate_gradient"],
    "decide.integrate": ["IntegralEstimate", "integrate"],
    "decide.reduced": ["ReducedRank"],
    "models.network": ["BayesianNetwork"],
    "decide.rules": ["Adaptive", "Bounded", "NoGain", "SmallEI", "Target"],
    "inputs.batches": ["ParquetBatches"],
    "sklearn.outputs": ["MultiOutputGP"],
    "sklearn.latent": ["GPLVM"],
    "models.latent.fitted": ["FittedMap"],
    "models.outputs": ["FittedOutputs", "fit_outputs"],
    "sklearn.classification": ["GPClassifier"],
    "sklearn.regression": ["GPCountRegressor", "GPRegressor"],
    "sklearn.robust": ["HeteroscedasticGPRegressor", "RobustGPClassifier", "TwinnedGPRegressor"],
    "sklearn.additive": [
        "AdditiveGPClassifier",
        "AdditiveGPRegressor",
        "ProjectionPursuitGPClassifier",
        "ProjectionPursuitGPRegressor",
    ],
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in ("datasets", "metrics"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'structgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "datasets", "metrics"])
