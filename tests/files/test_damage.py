"""Damaged files: each is refused with one line, or loads with exactly the numbers that were saved."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import structgp as sg
from structgp.files.values import Writer

OLD = sorted((Path(__file__).parent / "old").glob("*.structgp"))
SMALL = [path for path in OLD if path.stat().st_size < 50_000]
TIMES = 6  # that each kind of damage is done to each file

RNG = np.random.default_rng(8)
X = RNG.uniform(-2, 2, (20, 2))
Y = np.sin(X).sum(axis=1) + 0.1 * RNG.standard_normal(20)
NAMES = np.where(Y > 0.7, "high", np.where(Y > -0.7, "middle", "low"))
T, QUICK = np.linspace(0, 4, 20), {"restarts": 0, "max_evaluations": 3}
TODAY = {  # what the old files have none of: estimators, and results that came later
    "regressor": lambda: sg.GPRegressor(learn=False).fit(X, 1e4 + 50 * Y),
    "regressor of two": lambda: sg.GPRegressor(learn=False, normalize_y=True).fit(X, np.stack([Y, 100 * Y**2], axis=1)),
    "student-t": lambda: sg.GPRegressor(noise="student-t", learn=False).fit(X, Y),
    "inducing": lambda: sg.GPRegressor(structure="inducing:6", learn=False).fit(X, Y),
    "labels": lambda: sg.GPClassifier(learn=False).fit(X, NAMES),
    "softmax": lambda: sg.GPClassifier(multi_class="softmax", learn=False).fit(X, NAMES),
    "counts": lambda: sg.GPCountRegressor(learn=False).fit(X, np.round(np.exp(Y))),
    "twinned": lambda: sg.TwinnedGPRegressor(learn=False).fit(X, Y),
    "noise that changes": lambda: sg.HeteroscedasticGPRegressor(learn=False).fit(X, Y),
    "additive": lambda: sg.AdditiveGPRegressor(max_evaluations=2).fit(X, Y),
    "pursuit labels": lambda: sg.ProjectionPursuitGPClassifier(1, sines=4, max_evaluations=2).fit(X, Y > 0),
    "detector": lambda: sg.ChangePointDetector(hazard=0.02, learn=False).fit(Y),
    "map": lambda: sg.GPLVM(1, inducing=5, max_evaluations=2).fit(np.column_stack([X, Y, X @ X.T])),
    "mixture": lambda: sg.GP(sg.Matern32()).fit(T, Y, parameters="laplace", **QUICK),
    "series": lambda: sg.GP(sg.Matern32()).fit_series(T, np.stack([Y, Y**2], axis=1), shared=False, **QUICK),
    "outputs": lambda: sg.MultiOutputGP(parameters="best", **QUICK).fit(T[:, None], np.stack([Y, np.sin(T)], axis=1)),
}


def opened(raw):
    """The header of a file, and where its arrays begin."""
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + size]), 8 + size


def closed(head, data):
    text = json.dumps(head, ensure_ascii=False).encode()
    return struct.pack("<Q", len(text)) + text + data


def arrays_of(head):
    return {name: about for name, about in head.items() if name != "__metadata__"}


def with_text(raw, change):
    head, start = opened(raw)
    head["__metadata__"]["description"] = change(head["__metadata__"]["description"])
    return closed(head, raw[start:])


def flip(rng, raw, low=0, high=None):
    at = int(rng.integers(low, len(raw) if high is None else high))
    return raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :]


def flip_in_arrays(rng, raw):
    return flip(rng, raw, opened(raw)[1])


def flip_in_header(rng, raw):
    return flip(rng, raw, 0, opened(raw)[1])


def cut(rng, raw):
    return raw[: int(rng.integers(1, len(raw)))]


def longer(rng, raw):
    return raw + rng.bytes(int(rng.integers(1, 40)))


def blank(rng, raw):
    at = int(rng.integers(len(raw) - 16))
    return raw[:at] + bytes(16) + raw[at + 16 :]


def lost_block(rng, raw):
    at = int(rng.integers(len(raw) - 16))
    return raw[:at] + raw[at + 16 :]


def swapped_arrays(rng, raw):
    """Two arrays of one shape take each other's name."""
    head, start = opened(raw)
    names = sorted(arrays_of(head))
    alike = [(a, b) for a in names for b in names if a < b and all(head[a][k] == head[b][k] for k in ("shape", "dtype"))]
    a, b = alike[int(rng.integers(len(alike)))]
    head[a], head[b] = head[b], head[a]
    return closed(head, raw[start:])


def not_a_number(rng, raw):
    head, start = opened(raw)
    floats = [about for about in arrays_of(head).values() if about["dtype"] == "F64" and 0 not in about["shape"]]
    low, high = floats[int(rng.integers(len(floats)))]["data_offsets"]
    at = start + low + 8 * int(rng.integers((high - low) // 8))
    return raw[:at] + struct.pack("<d", np.nan) + raw[at + 8 :]


def other_shape(rng, raw):
    head, start = opened(raw)
    several = [about for about in arrays_of(head).values() if 0 not in about["shape"]]
    about = several[int(rng.integers(len(several)))]
    about["shape"] = [1, *about["shape"]] if rng.integers(2) else [int(np.prod(about["shape"]))] + [1] * len(about["shape"])
    return closed(head, raw[start:])


def other_type(rng, raw):
    head, start = opened(raw)
    floats = [about for about in arrays_of(head).values() if about["dtype"] == "F64"]
    floats[int(rng.integers(len(floats)))]["dtype"] = "I64"
    return closed(head, raw[start:])


def other_digit(rng, raw):
    """One digit of the description is another one."""

    def change(text):
        places = [found.start() for found in re.finditer(r"\d", text)]
        at = places[int(rng.integers(len(places)))]
        return text[:at] + str((int(text[at]) + int(rng.integers(1, 10))) % 10) + text[at + 1 :]

    return with_text(raw, change)


def other_word(rng, raw):
    """One word of the description is another one of it."""

    def change(text):
        words = sorted(set(re.findall(r'"\w+"', text)))
        a, b = (words[int(i)] for i in rng.choice(len(words), 2, replace=False))
        return text.replace(a, b, 1)

    return with_text(raw, change)


def signed_as_format_1(rng, raw):
    """The version is turned back, for which no checksum was needed."""
    return with_text(raw, lambda text: text.replace('"version": 2', '"version": 1').replace("0.1", "0.2", 1))


DAMAGES = [
    *(flip, flip_in_arrays, flip_in_header, cut, longer, blank, lost_block, swapped_arrays, not_a_number),
    *(other_shape, other_type, other_digit, other_word, signed_as_format_1),
]


def content(model):
    """All that a model holds, bit by bit."""
    writer = Writer()
    described = json.dumps(writer.encode(model, "model"))
    return described, {name: (array.dtype, array.shape, array.tobytes()) for name, array in writer.arrays.items()}


def outcome(path):
    """The model, or the words with which it is refused; any other exception ends the test."""
    try:
        return sg.load(path), None
    except ValueError as problem:
        return None, str(problem)


def told_apart(raw, whole, path, rng):
    """Damage a file in every way: each time it is refused in one line, or holds the same bit by bit. How many there were."""
    for damage in DAMAGES:
        for _ in range(TIMES):
            path.write_bytes(damage(rng, raw))
            model, refusal = outcome(path)
            if model is not None:
                assert content(model) == whole, damage
            else:
                assert refusal.startswith(f"{path} is "), damage
                assert "\n" not in refusal, damage
    return len(DAMAGES) * TIMES


@pytest.mark.parametrize("place", SMALL, ids=lambda path: path.stem)
def test_damaged_files_are_refused_or_the_same(place, tmp_path):
    path = tmp_path / "model.structgp"
    sg.load(place).save(path)
    told_apart(path.read_bytes(), content(sg.load(path)), path, np.random.default_rng(len(place.stem)))


@pytest.mark.full
@pytest.mark.parametrize("name", TODAY)
def test_damaged_files_of_what_learning_returns_today(name, tmp_path):
    path = tmp_path / "model.structgp"
    TODAY[name]().save(path)
    told_apart(path.read_bytes(), content(sg.load(path)), path, np.random.default_rng(len(name)))


def test_how_many_files_are_damaged():
    """More than 500 over what format 1 knew, in every run, and more than 1000 over what came later, in the long one."""
    each = len(DAMAGES) * TIMES
    assert len(SMALL) * each >= 500
    assert len(TODAY) * each >= 1000


@pytest.mark.parametrize("damage", [not_a_number, flip_in_arrays, swapped_arrays, other_digit, other_shape, signed_as_format_1])
def test_what_was_saved_and_what_is_there_differ(damage, tmp_path):
    """These change numbers, so nothing but the refusal is right."""
    path, rng = tmp_path / "model.structgp", np.random.default_rng(1)
    sg.load(SMALL[0]).save(path)
    raw = path.read_bytes()
    for _ in range(10):
        path.write_bytes(damage(rng, raw))
        with pytest.raises(ValueError, match=r"model\.structgp is damaged or was changed: its content is not what was saved"):
            sg.load(path)


def test_nan_in_a_file_without_a_checksum(tmp_path):
    (tmp_path / "old.structgp").write_bytes(not_a_number(np.random.default_rng(0), SMALL[0].read_bytes()))
    with pytest.raises(ValueError, match=r"is damaged or was changed: the array 't\d+' holds NaN"):
        sg.load(tmp_path / "old.structgp")


def test_a_lost_checksum(tmp_path):
    path = tmp_path / "model.structgp"
    sg.load(SMALL[0]).save(path)
    head, start = opened(path.read_bytes())
    del head["__metadata__"]["checksum"]
    path.write_bytes(closed(head, path.read_bytes()[start:]))
    with pytest.raises(ValueError, match="its checksum is missing"):
        sg.load(path)
