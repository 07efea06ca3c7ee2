import time

import numpy as np
import polars as pl
import pytest

import structgp as sg
from structgp.automatic import fit_table, prepare
from structgp.automatic.candidates import Candidate
from structgp.automatic.compare import compare, hold_out
from structgp.automatic.problem import Problem, season_of, task_of
from structgp.automatic.scores import evaluate

DAYS = 40


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.5, 1.5, 2.0], "regression"),
        ([0, 1, 1], "classification"),
        (["a", "b", None], "classification"),
        ([True, False, True], "classification"),
        ([0, 3, 7], "counts"),
        ([100, 250, 3000], "regression"),
        ([-1, 3, 7], "regression"),
    ],
)
def test_the_task_is_seen_in_the_target(values, task):
    assert task_of(pl.Series("y", values)) == task


def test_seasons_are_found_where_there_are_any():
    t = np.linspace(0, 10, 200)
    assert season_of(t, t**2 + np.sin(2 * np.pi * t)) == pytest.approx(1.0, rel=0.01)
    assert season_of(t, t + np.random.default_rng(0).standard_normal(200)) is None
    assert season_of(t, np.ones(200)) is None
    hours = np.arange(6000.0)
    assert season_of(hours, np.sin(2 * np.pi * hours / 7) + 0.001 * hours) == pytest.approx(7.0, rel=1e-3)


def candidate(name, noise, seconds=0.0):
    """A model that learns nothing, or fails."""
    gp = sg.GP(sg.Matern32(lengthscale=5.0), sg.Gaussian(noise or 1.0))

    def fit(X, y, tell):
        if noise is None:
            raise ValueError("it cannot be learned")
        return gp.condition(X, y)

    return Candidate(name, fit, lambda fitted, X, y: fitted.gp.condition(X, y, missing="infer"), seconds)


def test_the_best_candidate_within_the_budget_gets_all_rows():
    t = np.arange(float(DAYS))
    y = np.sin(t / 4) + 0.1 * np.random.default_rng(0).standard_normal(DAYS)
    problem = Problem(t[:, None], y, "regression", "series", (), 0)
    choices = [candidate("loud", 100.0), candidate("broken", None), candidate("right", 0.01), candidate("slow", 0.02, 1e9)]
    fitted, trials, evaluation, _ = compare(problem, choices, time.perf_counter() + 1e6)
    assert [trial.name for trial in trials if trial.chosen] == ["right"]
    assert trials[1].note == "failed: it cannot be learned"
    assert trials[3].note.startswith("left out: about 1000000000 s of learning")
    assert len(fitted.inputs) == DAYS
    assert evaluation.kind == "the last tenth of the series"
    np.testing.assert_array_equal(evaluation.y, y[-4:])
    before = sg.GP(sg.Matern32(lengthscale=5.0), sg.Gaussian(0.01)).condition(t[:-4], y[:-4])
    assert trials[2].log_evidence == pytest.approx(before.log_evidence)
    assert evaluation.scores["this model"]["log loss"] == pytest.approx(-np.mean(before.predict(t[-4:]).log_prob(y[-4:])))
    pieces = []
    for origin in (24, 28, 32):
        given = before.gp.condition(t[:origin], y[:origin])
        pieces.append(given.predict(t[origin : origin + 4]).log_prob(y[origin : origin + 4]))
    assert trials[2].held_out == pytest.approx(np.mean(pieces))
    with pytest.raises(ValueError, match="no candidate could be learned: failed: it cannot"):
        compare(problem, [candidate("broken", None)], time.perf_counter() + 1e6)


def test_labels_and_large_tables_are_held_out_fairly():
    rng = np.random.default_rng(0)
    y = (np.arange(200) % 4 == 0).astype(float)
    problem = Problem(rng.uniform(size=(200, 2)), y, "classification", "table", ("no", "yes"), 0)
    held, kind = hold_out(problem, rng)
    assert held.sum() == 40
    assert kind == "a random fifth of the rows"
    assert not hold_out(problem._replace(X=problem.X[:10], y=y[:10]), rng)[0].any()
    rare = problem._replace(y=(np.arange(200) == int(np.flatnonzero(held)[0])).astype(float))
    assert not any(hold_out(rare, np.random.default_rng(seed))[0][np.flatnonzero(rare.y)].any() for seed in range(20))


def test_shapes_lead_to_candidates():
    rng = np.random.default_rng(0)
    rows, columns = (part.ravel() for part in np.meshgrid(np.arange(6.0), np.arange(7.0)))
    grid = prepare(pl.DataFrame({"r": rows, "c": columns, "v": rng.standard_normal(42)}), "v")
    assert grid.problem.shape == "grid"
    assert {candidate.plan.engine.name for candidate in grid.candidates} == {"Eigen"}
    table = prepare(pl.DataFrame({**{f"x{d}": rng.uniform(size=60) for d in range(3)}, "v": rng.uniform(size=60)}), "v")
    assert table.problem.shape == "table"
    assert [candidate.name.split(" of ")[-1] for candidate in table.candidates][::2] == [
        "one column each",
        "learned projections",
    ]
    t = np.arange(120.0)
    series = prepare(pl.DataFrame({"t": t, "v": 0.1 * t + np.sin(2 * np.pi * t / 12)}), "v")
    assert [candidate.name.split(" + ")[0] for candidate in series.candidates[:2]] == ["trend that bends", "trend"]
    assert "season of" in series.candidates[0].name
    curve = prepare(pl.DataFrame({"t": t[::-1], "v": 0.1 * t}), "v")
    assert curve.problem.shape == "curve"
    assert prepare(pl.DataFrame({"t": t[::-1], "v": 0.1 * t}), "v", time_column="t").problem.shape == "series"


def test_long_tables_of_labels_and_counts_have_sums_to_try():
    rng = np.random.default_rng(0)
    columns = {f"x{d}": rng.uniform(size=1000) for d in range(4)}
    for target, rows in ((rng.integers(0, 3, 1000), 800), (np.array(["a", "b", "c"])[rng.integers(0, 3, 1000)], 800)):
        ready = prepare(pl.DataFrame({**columns, "v": target}), "v")
        assert next(one.rows for one in ready.candidates if one.plan is not None) == rows
        assert ready.candidates[0].name == "a sum of functions of one column each"
        assert ready.candidates[1].name == "a sum of functions of learned projections"


def test_scores_have_intervals_and_baselines():
    rng = np.random.default_rng(0)
    t = np.arange(200.0)
    problem = Problem(t[:, None], rng.standard_normal(200), "regression", "curve", (), 0)
    held = t >= 100
    fitted = sg.GP(sg.Matern32(variance=1e-6), sg.Gaussian(1.0)).condition(t[~held], problem.y[~held])
    found = evaluate(problem, fitted, held, "half of the rows")
    y = problem.y[held]
    assert found.scores["this model"]["RMSE"] == pytest.approx(np.sqrt(np.mean(y**2)), rel=1e-3)
    low, high = found.intervals["this model"]["RMSE"]
    spread = np.std(y**2) / np.sqrt(100) / (2 * np.sqrt(np.mean(y**2)))  # of the root of a mean, by its derivative
    assert high - low == pytest.approx(2 * 1.645 * spread, rel=0.2)
    assert found.covered[0] == np.mean(np.abs(y) < 0.6745)
    in_time = evaluate(problem._replace(shape="series"), fitted, held, "")
    assert in_time.scores == found.scores


def test_a_forecast_is_no_surer_than_the_past_allows():
    rng = np.random.default_rng(3)
    t = np.arange(150.0)
    slope = np.cumsum(0.1 * rng.standard_normal(150))
    frame = pl.DataFrame({"t": t, "v": np.cumsum(slope) + rng.standard_normal(150)})
    heard = []
    model = fit_table(frame, "v", budget=1e6, seed=0, say=lambda *said: heard.append(said))
    assert {what for what, _, evidence in heard if evidence is not None} == {trial.name for trial in model.trials}
    assert heard[-1] == ("giving the chosen model all rows", 0, None)
    chosen = next(trial for trial in model.trials if trial.chosen)
    assert chosen.held_out == max(trial.held_out for trial in model.trials if trial.held_out is not None)
    assert model.evaluation.scores["this model"]["in 95 % interval"] >= 0.8
