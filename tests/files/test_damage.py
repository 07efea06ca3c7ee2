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


@pytest.mark.parametrize("place", SMALL, ids=lambda path: path.stem)
def test_damaged_files_are_refused_or_the_same(place, tmp_path):
    path, rng = tmp_path / "model.structgp", np.random.default_rng(len(place.stem))
    sg.load(place).save(path)
    raw = path.read_bytes()
    whole = content(sg.load(path))
    for damage in DAMAGES:
        for _ in range(TIMES):
            path.write_bytes(damage(rng, raw))
            model, refusal = outcome(path)
            if model is not None:
                assert content(model) == whole, damage
            else:
                assert refusal.startswith(f"{path} is "), damage
                assert "\n" not in refusal, damage


def test_at_least_500_files_are_damaged():
    assert len(SMALL) * len(DAMAGES) * TIMES >= 500


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
