"""The models behind tests/files/old: what each of them was made from, and what it said then.

`python tests/files/old_models.py FOLDER` writes the files with the structgp that is on the path. Those in the folder `old` were
written by structgp 0.1.0 in format 1, and stay as they are: files must load forever.
"""

import json
import sys
from pathlib import Path

import numpy as np

import structgp as sg
from structgp.files import save

RNG = np.random.default_rng(11)
LINE, PLANE = np.sort(RNG.uniform(0, 5, 14)), RNG.uniform(-2, 2, (14, 2))
NEW_LINE, NEW_PLANE = np.array([0.3, 2.2, 5.5]), np.array([[0.1, 0.2], [-1.0, 1.5], [2.5, -0.5]])
WAVE, HILL = np.sin(2 * LINE), np.sin(PLANE).sum(axis=1)
COUNTS, LABELS, CLASSES = np.round(np.exp(WAVE)), (WAVE > 0) * 1.0, np.repeat([0.0, 1.0, 2.0], 5)[:14]
NOISE = sg.Gaussian(0.1)
SERIES = np.repeat([0.0, 4.0], 10) + np.sin(np.arange(20.0) ** 2)
AXES = np.linspace(-2, 2, 4), np.linspace(-1, 1, 5)
FIVE = np.linspace(-1.0, 1.0, 40).reshape(20, 2) @ [[1.0, 0.4], [-0.3, 1.0]] + 0.1 * RNG.standard_normal((20, 2))


def grid(values, **options):
    """A model on a grid of 4 × 5 cells, or on those cells whose value is known."""
    places = sg.Grid(*AXES)
    kernel = options.pop("kernel", sg.ProductMatern([0.7, 1.6]))
    return sg.GP(kernel, NOISE).condition(places, values, missing="infer", **options)


def cells(holes=()):
    """Values for 4 × 5 cells."""
    values = np.sin(np.arange(20.0))
    values[list(holes)] = np.nan
    return values


def told(model):
    """What a model says at places it has not seen: lists of numbers by name."""
    if isinstance(model, sg.Stream):
        said = model.predict(NEW_LINE + 5)
    elif hasattr(model, "belief"):
        said = model.predict()
    else:
        columns = getattr(getattr(model, "inputs", None), "dimension", 2)
        said = model.predict(NEW_LINE if columns == 1 else NEW_PLANE)
    names = [name for name in ("mean", "variance") if hasattr(said, name)] or ["probability"]
    numbers = {name: np.asarray(getattr(said, name), dtype=float).tolist() for name in names}
    return {**numbers, "log_evidence": float(model.log_evidence)}


def recipes():
    """Every kind of model that could be saved, by name; small."""
    on_line = lambda kernel, likelihood=NOISE, y=WAVE, **options: sg.GP(kernel, likelihood).condition(LINE, y, **options)
    on_plane = lambda kernel, likelihood=NOISE, y=HILL, **options: sg.GP(kernel, likelihood).condition(PLANE, y, **options)
    regular = np.linspace(0, 5, 14)
    two = lambda y: sg.AdditiveLabels(intervals=4).condition(FIVE, y)
    binary = (FIVE[:, 0] > FIVE[:, 1]) * 1.0
    prior = sg.Matern52(sg.learned([0.7, 1.6], prior=sg.LogNormal(0.0, 1.0)), sg.fixed(1.2))
    return {
        "dense": lambda: sg.GP(prior, mean=0.0).fit(PLANE, HILL, restarts=0, max_evaluations=5),
        "dense-basis": lambda: sg.GP(sg.SquaredExponential(), NOISE, sg.polynomial(1)).condition(PLANE, HILL),
        "targets": lambda: on_plane(sg.Matern32(), y=np.stack([HILL, HILL**2], axis=1)),
        "markov": lambda: sg.GP(sg.Matern52() + sg.Periodic(1.3), mean=0.2).fit(LINE, WAVE, restarts=0, max_evaluations=5),
        "spline": lambda: on_line(sg.Spline()),
        "thin-plate": lambda: on_plane(sg.ThinPlate()),
        "approximate": lambda: on_line(sg.SquaredExponential(), approximate="state-space"),
        "toeplitz": lambda: sg.GP(sg.SquaredExponential(), NOISE).condition(regular, np.cos(regular), structure="toeplitz"),
        "toeplitz-holes": lambda: sg.GP(sg.SquaredExponential(), NOISE).condition(
            regular, np.where(np.arange(14) == 4, np.nan, np.cos(regular)), missing="infer", structure="toeplitz"
        ),
        "grid": lambda: grid(cells()),
        "grid-few": lambda: grid(cells(range(5, 20))),
        "grid-holes": lambda: grid(cells([3, 7])),
        "grid-lines": lambda: grid(cells(), kernel=sg.SquaredExponential([0.7, 1.6]), structure="toeplitz-grid"),
        "space-time": lambda: grid(cells([3]), structure="space-time"),
        "additive": lambda: sg.AdditiveGP(sg.Matern32(), NOISE).condition(PLANE, HILL),
        "additive-labels": lambda: two(binary),
        "pursuit": lambda: sg.ProjectionPursuitGP(1, sines=4).fit(FIVE, FIVE[:, 0] ** 2, max_evaluations=3),
        "pursuit-labels": lambda: sg.ProjectionPursuitLabels(projections=1, sines=4).fit(FIVE, binary, max_evaluations=3),
        "classes": lambda: on_plane(sg.Matern52(), sg.Categorical(classes=3), CLASSES),
        "classes-line": lambda: on_line(sg.Matern32(), sg.Categorical(classes=3), CLASSES),
        "one-against-rest": lambda: one_against_rest([two(binary), two(1 - binary)]),
        "ep": lambda: on_plane(sg.Matern52(), sg.Bernoulli(), (HILL > 0) * 1.0),
        "ep-line": lambda: on_line(sg.Matern32(), sg.Bernoulli("logit"), LABELS),
        "laplace": lambda: on_line(sg.Matern32(), sg.StudentT(), inference="laplace", structure="dense"),
        "counts": lambda: on_line(sg.Matern32(), sg.Poisson(), COUNTS, inference="variational", extra=np.full(14, 2.0)),
        "stream": lambda: sg.GP(sg.Matern52() + sg.Constant(), NOISE).condition(LINE, WAVE, structure="markov").stream(),
        "stream-short": lambda: sg.GP(sg.Matern12(), NOISE).stream().update(LINE[:3], WAVE[:3]),
        "change-points": lambda: detector(sg.NormalSegment()),
        "change-points-markov": lambda: detector(sg.GP(sg.Matern32(5.0), NOISE)),
        "change-points-dense": lambda: detector(sg.CholeskySegment(sg.GP(sg.Matern32(5.0), NOISE), window=8)),
    }


def one_against_rest(parts):
    from structgp.models.one_against_rest import OneAgainstRest

    return OneAgainstRest(tuple(parts))


def detector(segments):
    """The stream of a change-point model after a series."""
    return sg.ChangePoints(segments, 0.05, hypotheses=6).stream().update(SERIES)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    expected = {}
    for name, make in recipes().items():
        model = make()
        save(model, folder / f"{name}.structgp")
        expected[name] = told(model)
        print(name, (folder / f"{name}.structgp").stat().st_size, flush=True)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
