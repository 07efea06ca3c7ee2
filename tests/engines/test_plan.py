"""Offers: ranked with the data in hand, each algorithm by itself, and what is in the plan of a fit is what ran."""

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines.base import Offer
from structgp.engines.cholesky import CholeskyConditional, RootConditional
from structgp.engines.eigen import Eigen, EigenConditional
from structgp.engines.grid_holes import Krylov, KrylovConditional
from structgp.engines.plan import ENGINES
from structgp.inputs.observations import read_observations
from structgp.inputs.rows import in_bucket
from structgp.structure.base import No

GRID = sg.Grid(np.linspace(0.0, 3.0, 30), np.linspace(0.0, 2.0, 30))
SMOOTH = sg.GP(sg.SquaredExponential([0.7, 1.1]), sg.Gaussian(0.1))
Y = np.sin(GRID.points.sum(axis=1))
ONE_HOLE = np.where(np.arange(900) == 17, np.nan, Y)
UNEQUAL = np.where(np.arange(900) == 17, 0.3, 0.0)

SMALL = sg.Grid(np.linspace(0.0, 3.0, 5), np.linspace(0.0, 2.0, 4))
VALUES = np.cos(2 * SMALL.points.sum(axis=1))


def ranks(plan):
    """The names of those that apply, in order, and the flops of each."""
    offers = [offer for offer in plan.offers if offer.cost]
    return [offer.engine.name for offer in offers], [offer.cost.flops for offer in offers]


def test_holes_and_unequal_noise_rank_again_by_cost():
    """A hole is taken out of the whole grid; with unequal noise the whole matrix is cheaper than what is left for grids."""
    assert ranks(SMOOTH.plan(GRID))[0][0] == "Eigen"
    assert ranks(SMOOTH.plan(GRID, y=Y))[0][0] == "Eigen"
    hole, unequal = SMOOTH.plan(GRID, y=ONE_HOLE), SMOOTH.plan(GRID, y=Y, noise=UNEQUAL)
    assert ranks(hole)[0] == ["Eigen", "Cholesky", "Krylov"]
    assert ranks(unequal)[0] == ["Cholesky", "Krylov"]
    for plan in (hole, unequal):
        flops = ranks(plan)[1]
        assert flops == sorted(flops)
        assert "Lines      no: some cells have no value, or a noise of their own" in str(plan)
    assert "cells without a value are taken out one by one (1)" in str(hole)
    assert "Eigen      no: some cells have no value, or a noise of their own" in str(unequal)


def test_the_structure_that_is_asked_for_comes_first():
    plan = SMOOTH.plan(GRID, structure="kronecker", y=Y, noise=UNEQUAL)
    assert isinstance(plan.engine, Krylov)
    assert plan.engine.whole
    assert plan.chosen.quality == "exact"
    assert [offer.engine.name for offer in plan.offers if offer.cost] == ["Krylov", "Cholesky"]


def test_without_data_everything_is_taken_to_be_seen():
    assert isinstance(SMOOTH.plan(GRID).engine, Eigen)
    assert "Krylov" not in str(SMOOTH.plan(GRID)).replace("else Krylov", "")  # not needed, so not in the way
    holes = SMOOTH.plan(sg.Grid(*GRID.axes, cells=np.arange(899)))
    assert holes.engine == Eigen(1)
    assert "Lines      no: some cells are missing" in str(holes)


# what was seen: (model, y, known noise, structure, the engine, what it leaves)
RAN = {
    "all": (sg.Gaussian(0.1), VALUES, None, "kronecker", "Eigen", EigenConditional),
    "holes": (sg.Gaussian(0.1), np.where(VALUES > 0.9, np.nan, VALUES), None, "kronecker", "Eigen", EigenConditional),
    "unequal noise": (sg.Gaussian(0.1), VALUES, np.linspace(0, 1, 20), "kronecker", "Krylov", KrylovConditional),
    "labels": (sg.Bernoulli(), VALUES > 0, None, "kronecker", "Krylov", KrylovConditional),
    "labels by the matrix": (sg.Bernoulli(), VALUES > 0, None, "dense", "Cholesky", CholeskyConditional),
    "factors of any sign": (sg.StudentT(4.0, 0.1), VALUES, None, "auto", "SignedCholesky", RootConditional),
}


@pytest.mark.parametrize("name", zoo.mostly_full(RAN, "holes", "factors of any sign"))
def test_the_plan_of_a_fit_is_what_ran(name):
    likelihood, y, noise, structure, engine, conditional = RAN[name]
    gp = sg.GP(sg.SquaredExponential([0.7, 1.1]), likelihood)
    fitted = gp.condition(SMALL, y, noise=noise, missing="infer", structure=structure)
    assert type(fitted.plan.engine).__name__ == engine
    assert isinstance(fitted.conditional, conditional)
    assert fitted.plan == gp.plan(SMALL, structure, y=y, noise=noise)


def test_static_choices_are_those_of_the_learned_values():
    """A filter says in the plan how it ran: by the noise that was learned."""
    t, gp = np.linspace(0.0, 6.0, 80), sg.GP(sg.Matern52(), sg.Gaussian(0.5))
    fitted = gp.fit(t, np.sin(t), restarts=0, max_evaluations=30, structure="markov")
    assert fitted.plan.engine == fitted.conditional.engine
    assert fitted.plan.engine == fitted.plan.engine.tuned(fitted.gp, *in_bucket(fitted.inputs, fitted.data))
    assert fitted.plan.engine.accurate  # the noise went below what the fast form takes
    assert not gp.plan(t, "markov", y=np.sin(t)).engine.accurate


def test_an_update_that_ends_an_algorithm_takes_another():
    t, gp = np.arange(12.0), sg.GP(sg.SquaredExponential(2.0), sg.Gaussian(0.1))
    fitted = gp.condition(t, np.sin(t), structure="toeplitz")
    assert fitted.update([12.0], [0.1]).plan.engine.name == "Toeplitz"
    later = fitted.update([12.0], [0.1], noise=0.7)
    assert later.plan.engine.name == "Cholesky"
    whole = gp.condition(np.arange(13.0), np.append(np.sin(t), 0.1), noise=np.append(np.zeros(12), 0.7), structure="dense")
    assert later.log_evidence == pytest.approx(whole.log_evidence, rel=1e-9)


def test_weights_are_not_values_with_one_noise():
    gp = sg.GP(sg.SquaredExponential([0.7, 1.1]), sg.Gaussian(0.1))
    ours, dense = (gp.condition(SMALL, VALUES, weights=np.full(20, 2.0), structure=s) for s in ("kronecker", "dense"))
    assert ours.plan.engine.name == "Krylov"
    assert ours.log_evidence == pytest.approx(dense.log_evidence, rel=1e-6)


REFUSED = {
    "kronecker": (sg.Matern52(), GRID, "Matern52 of the joint distance does not factor"),
    "space-time": (sg.SquaredExponential(), GRID, "no factor has a finite state"),
    "toeplitz-grid": (sg.Linear(), GRID, "Linear does not factor"),
    "toeplitz": (sg.Linear(), np.arange(5.0), "Linear is not stationary"),
    "markov": (sg.SquaredExponential(), np.arange(5.0), "SquaredExponential has no finite state"),
}


@pytest.mark.parametrize("structure", REFUSED)
def test_a_structure_that_does_not_exist_says_why(structure):
    kernel, inputs, reason = REFUSED[structure]
    with pytest.raises(ValueError, match=f"structure='{structure}' cannot be had: {reason}.*; structure='auto' takes the best"):
        sg.GP(kernel).plan(inputs, structure=structure)


def test_every_engine_offers_or_says_why():
    """With and without data, for values, labels and outliers, on a grid, at times and anywhere."""
    places = {"grid": SMALL, "times": np.arange(20.0), "anywhere": np.random.default_rng(0).normal(size=(20, 2))}
    for X in places.values():
        for likelihood, y in ((sg.Gaussian(0.1), VALUES), (sg.Bernoulli(), VALUES > 0), (sg.StudentT(), VALUES)):
            gp = sg.GP(sg.Matern52(), likelihood)
            for plan in (gp.plan(X), gp.plan(X, y=y), gp.plan(X, y=np.where(VALUES > 0.9, np.nan, y))):
                assert len(plan.offers) == len(ENGINES)
                assert plan.chosen.cost is not None
                assert all((offer.cost is None) != (offer.reason is None) for offer in plan.offers)


def test_choices_never_change_the_algorithm():
    inputs, holes = sg.as_inputs(SMALL), np.where(VALUES > 0.9, np.nan, VALUES)
    data = read_observations(SMOOTH.likelihood, holes, None, "infer", inputs)
    for engine in ENGINES:
        assert type(engine.tuned(SMOOTH, inputs, data)) is type(engine)
        answer = engine.offer(SMOOTH, inputs, data)
        assert isinstance(answer, No) or (isinstance(answer, Offer) and type(answer.engine) is type(engine))


@pytest.mark.averaged
def test_a_plan_knows_whether_parameters_will_be_averaged_over():
    t, gp = np.linspace(0.0, 6.0, 40), sg.GP(sg.Matern52(), sg.Gaussian(0.5))
    plan = gp.plan(t)
    assert plan.members == 6
    assert str(plan).endswith("parameters averaged over: 40 rows for 3 parameters leave them unsure")
    assert plan.evaluations == gp.plan(t, parameters="best").evaluations + 6
    assert gp.plan(t, parameters="best").members == gp.plan(np.linspace(0, 6, 400)).members == 1
    assert gp.plan(t, y=np.sin(t), parameters=sg.Averaging(members=4)).members == 4
