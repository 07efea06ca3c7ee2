"""Variables by name and their places in the unit cube; limits from text; values on a scale that suits them."""

import numpy as np
import pytest

import structgp as sg
from structgp.decide import search
from structgp.decide.rules import Adaptive, box_around
from structgp.decide.search import Search
from structgp.decide.space import Space, as_limit
from structgp.decide.warp import fit_warp

SPACE = Space(temp=(20, 80), flow=sg.log(0.1, 10), stages=sg.integer(1, 8), solvent=["water", "ethanol", "acetone"])


def test_points_and_places():
    point = {"temp": 35.0, "flow": 1.0, "stages": 3, "solvent": "ethanol"}
    place = SPACE.place(point)
    np.testing.assert_allclose(place, [0.25, 0.5, 2.5 / 8, 0.5])
    assert SPACE.point(place) == pytest.approx({**point, "solvent": "ethanol"}) or SPACE.point(place) == point
    corners = [SPACE.point(np.full(4, u)) for u in (0.0, 1.0)]
    assert corners[0] == {"temp": 20.0, "flow": 0.1, "stages": 1, "solvent": "water"}
    assert corners[1] == {"temp": 80.0, "flow": 10.0, "stages": 8, "solvent": "acetone"}
    assert isinstance(corners[0]["stages"], int)
    assert SPACE.columns == 6
    assert SPACE.size == np.inf
    assert Space(a=sg.integer(0, 4), b=["x", "y"]).size == 10


def test_models_see_no_place_between_two_values():
    places = np.random.default_rng(0).uniform(size=(200, 4))
    seen = SPACE.seen(places)
    assert len(np.unique(seen[:, 2])) == 8
    apart = np.linalg.norm(seen[:, None, 3:] - seen[None, :, 3:], axis=-1)
    assert set(np.round(np.unique(apart), 12)) == {0.0, 1.0}
    np.testing.assert_allclose(SPACE.unseen(seen), SPACE.snapped(places))
    assert [SPACE.point(a) for a in SPACE.unseen(seen)[:9]] == [SPACE.point(a) for a in places[:9]]


def test_every_variable_has_its_turn_among_neighbours():
    space = Space(
        kind=list(map(str, range(900))), temp=(20, 80), stages=sg.integer(1, 8), solvent=["water", "ethanol", "acetone"]
    )
    here = space.snapped(np.full((1, 4), 0.4))[0]
    near = space.neighbours(here, np.random.default_rng(0))
    changed = near != here
    assert np.all(np.sum(changed, axis=1) == 1)
    assert np.sum(changed, axis=0).tolist() == [899, 0, 4, 2]  # whole numbers: −3, −1, 1, 3
    assert np.sum(changed[:12], axis=0).tolist() == [6, 0, 4, 2]
    kinds = near[changed[:, 0], 0]
    assert len(np.unique(kinds)) == 899
    assert np.ptp(kinds[:40]) > 0.8  # a sample of all of them
    assert Space(a=(0, 1)).neighbours(np.array([0.5]), np.random.default_rng(0)).shape == (0, 1)


def test_an_exchange_climbs_again(monkeypatch):
    """One category of 900 is better, at another place of the variable beside it."""
    space = Space(kind=list(map(str, range(900))), x=(0, 1))
    best, target = 377, lambda kinds: np.where(kinds == 377, 0.6, 0.5)

    def worth(view, X, rule):
        kinds = np.argmax(X[:, :900], axis=1)
        return (kinds == best) - 50 * (X[:, 900] - target(kinds)) ** 2

    def sloped(view, X, rule):
        slopes = np.zeros_like(X)
        slopes[:, 900] = -100 * (X[:, 900] - target(np.argmax(X[:, :900], axis=1)))
        return worth(view, X, rule), slopes, None

    monkeypatch.setattr(search, "values", worth)
    monkeypatch.setattr(search, "values_and_slopes", sloped)
    whole = Search(space, (), np.zeros(2), np.ones(2))
    others = whole.candidates(np.array([0.1, 0.5]), 0)
    others[:, 0] = np.where(others[:, 0] == (best + 0.5) / 900, 0.5 / 900, others[:, 0])
    monkeypatch.setattr(Search, "candidates", lambda *_: others)
    for seed in range(3):  # a look is at 768 neighbours of 899: another one follows where the best was not among them
        place, height = search.best_place(None, "ei", whole, np.array([0.1, 0.5]), np.zeros((0, 2)), seed)
        if space.point(place)["kind"] == str(best):
            break
    assert space.point(place)["kind"] == str(best)
    assert place[1] == pytest.approx(0.6, abs=1e-5)
    assert height == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Space(), "Space needs variables by name"),
        (lambda: Space(a=(2, 1)), "a: the lower end must be below the upper one, got 2 and 1"),
        (lambda: Space(a=(0, np.inf)), "a: bounds must be finite"),
        (lambda: Space(a=sg.log(0, 1)), "a: a log variable needs positive bounds"),
        (lambda: Space(a=sg.integer(0.5, 3)), "a: integer needs whole numbers"),
        (lambda: Space(a=["x"]), "a: at least two different categories"),
        (lambda: Space(a=[1, 2]), "may be a range or two categories"),
        (lambda: Space(a="water"), "is not a variable"),
        (lambda: Space(a=["water"]), "at least two different categories are needed, .*: leave out what does not vary"),
        (lambda: Space(a=sg.integer(3, 3)), "got 3 and 3: leave out what does not vary"),
        (lambda: Space(a=(80, 20)), r"got 80 and 20: write \(20, 80\)"),
        (lambda: SPACE.place({"temp": 30}), "lacks flow, stages, solvent"),
        (lambda: SPACE.place([1, 2]), r"a point needs 4 values \(temp, flow, stages, solvent\), got 2"),
        (lambda: SPACE.place([90, 1, 1, "water"]), "temp = 90 lies outside its bounds 20 to 80"),
        (
            lambda: SPACE.place({"temp": 30, "flow": 1, "stages": 2.5, "solvent": "water"}),
            "stages must be a whole number from 1 to 8",
        ),
        (
            lambda: SPACE.place({"temp": 30, "flow": 1, "stages": 2, "solvent": "oil"}),
            "solvent must be one of water, ethanol, acetone",
        ),
        (lambda: SPACE.place({"temp": "hot", "flow": 1, "stages": 2, "solvent": "water"}), "temp must be a finite number"),
        (lambda: as_limit("temp + flow", SPACE), "is not one comparison"),
        (lambda: as_limit("temp * flow <= 3", SPACE), "is not linear in the variables"),
        (lambda: as_limit("heat <= 3", SPACE), "speaks of heat, but the variables are temp"),
        (lambda: as_limit("solvent <= 3", SPACE), "needs numbers, and solvent is a category"),
        (lambda: as_limit("temp +* 2 <= 3", SPACE), "cannot be read"),
        (lambda: as_limit("2 <= 3", SPACE), "has no variable in it"),
        (lambda: Adaptive(2.0), "Adaptive: 0 < least ≤ reach ≤ most ≤ 1"),
        (lambda: sg.Bounded(0), "Bounded: reach is a part of each range"),
    ],
)
def test_messages(make, text):
    with pytest.raises((ValueError, TypeError), match=text):
        make()


def test_limits_are_read_and_met():
    limit = as_limit("temp + 2*(flow - 1) >= 3*stages + 20", SPACE)
    places = np.random.default_rng(1).uniform(size=(300, 4))
    points = [SPACE.point(place) for place in places]
    truth = [p["temp"] + 2 * (p["flow"] - 1) >= 3 * p["stages"] + 20 for p in points]
    np.testing.assert_array_equal(limit.room(SPACE, places) >= 0, truth)
    search = Search(SPACE, (limit,), np.zeros(4), np.ones(4))
    assert search.meets(search.design(100, 0)).all()
    with pytest.raises(ValueError, match="none of 32768 places meets the constraints 'temp >= 81'"):
        Search(SPACE, (as_limit("temp >= 81", SPACE),), np.zeros(4), np.ones(4)).design(3, 0)


def test_a_region_grows_with_success_and_shrinks_without():
    region = Adaptive(0.2, grow=2.0, least=0.1, most=0.5)
    assert region.reaches([3.0]) == 0.2
    assert region.reaches([3.0, 2.0, 1.0]) == 0.5
    assert region.reaches([3.0, 4.0]) == pytest.approx(0.2 * 2**-0.25)
    assert region.reaches([1.0, *[2.0] * 30, np.nan]) == 0.1
    low, high = box_around(region, np.array([0.1, 0.5]), [3.0])
    np.testing.assert_allclose([low, high], [[0.0, 0.3], [0.3, 0.7]])
    np.testing.assert_allclose(box_around(None, np.array([0.1, 0.5]), [3.0]), [[0, 0], [1, 1]])


@pytest.mark.parametrize("values", ["steep", "normal", "few", "constant", "zero", "skewed below"])
def test_warped_values_can_be_brought_back(values):
    rng = np.random.default_rng(0)
    y = {
        "steep": np.exp(rng.normal(0, 4, 40)),
        "normal": rng.normal(5, 2, 40),
        "few": np.array([1.0, 5.0, 2.0]),
        "constant": np.full(6, 3.0),
        "zero": np.zeros(6),
        "skewed below": -np.exp(rng.normal(0, 2, 40)),
    }[values]
    warp = fit_warp(y)
    z = warp(y)
    np.testing.assert_allclose(warp.inverse(z), y, rtol=1e-8, atol=1e-8)
    assert np.all(np.argsort(z, kind="stable") == np.argsort(y, kind="stable"))
    step = 1e-5 * (np.abs(y) + 1)
    np.testing.assert_allclose(warp.slope(y), (warp(y + step) - warp(y - step)) / (2 * step), rtol=1e-2)
    if values == "steep":  # the better half is spread, the worst is no outlier
        assert z.max() < 4
        assert np.std(np.sort(z)[:20]) > 0.3


def test_points_without_names_keep_their_types():
    space = Space([(0, 1), ["x", "y"], sg.integer(1, 3)])
    point = space.point(np.array([0.25, 0.75, 0.5]))
    assert list(point) == [0.25, "y", 2]
    np.testing.assert_allclose(space.place(point), [0.25, 0.75, 0.5])
    assert Space(np.array([[0, 2], [1.0, 3]])).variables == Space([(0.0, 2.0), (1.0, 3.0)]).variables
    assert Space(c=np.array(["x", "y"])).variables == Space(c=["x", "y"]).variables


def test_values_may_be_huge():
    y = 1e300 * np.array([1.0, 2.0, -3.0, 0.5, 4.0, 7.0])
    for bent in (True, False):
        np.testing.assert_allclose(fit_warp(y, bent)(y), fit_warp(y / 1e300, bent)(y / 1e300), rtol=1e-9)
