"""What runs found, kept as one small JSON file for each experiment in docs/study/results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study.baselines import mean_of
from study.calls import Made, make
from study.machine import ROOT
from study.registry import Call, Experiment, Found, How, Rows

PAGES = ROOT / "docs" / "study"
DIGITS = 5  # that are kept


def record(experiment: Experiment, name: str, how: How, command: str, made: Mapping[Call, Made]) -> dict[str, Any]:
    """One case of which all calls are made: what was found, what they took one after the other, and with what."""
    own = [made[call] for call in experiment.calls(name, how)]
    found = found_of(experiment, name, how, made)
    several = lambda words: " and ".join(dict.fromkeys(words))
    libraries = {library: None for one in own for library in one.versions or {}}
    return {
        "found": {key: _plain(value) for key, value in found.items()},
        "repeats": how.repeats,
        "first": how.first,
        "cpu": round(sum(one.cpu for one in own), 1),
        "wall": round(sum(one.wall for one in own), 1),
        "command": command,
        "code": several(one.code for one in own),
        "versions": {key: several(v for one in own if (v := (one.versions or {}).get(key))) for key in libraries},
        "machine": several(one.machine for one in own),
    }


def found_of(experiment: Experiment, name: str, how: How, made: Mapping[Call, Made]) -> dict[str, Found]:
    """What a case comes to when its calls are made: as they say, on average, or put together from rows."""
    assert experiment.work is not None
    values = {call: made[call].value for call in experiment.calls(name, how)}
    if experiment.each is None:
        repeats = [{key: Found(*value) for key, value in own.items()} for own in values.values()]
        found = {key: average([own[key] for own in repeats]) for key in repeats[0]} if experiment.mean else repeats[0]
    else:
        found = dict(experiment.work(name, Rows({call.args: value for call, value in values.items()})))
    known = {quantity.name for quantity in experiment.cases[name].quantities}
    if strange := set(found) - known:
        raise ValueError(f"{experiment.id}, {name}: found {sorted(strange)}, of which nothing is said; known: {sorted(known)}.")
    return found


def average(found: Sequence[Found]) -> Found:
    """Of repeats; the baseline may be words, or nothing."""
    ours, beside = [one.ours for one in found], [one.baseline for one in found]
    words = [value for value in beside if not isinstance(value, int | float)]
    return mean_of(ours, words[0] if words else beside)


def run(experiment: Experiment, name: str, how: How, command: str) -> dict[str, Any]:
    """One case in this process."""
    made = {call: make(call) for call in experiment.calls(name, how)}
    for one in made.values():
        if one.reason:
            raise RuntimeError(one.reason)
    return record(experiment, name, how, command, made)


def _plain(found: Found) -> dict[str, Any]:
    short = lambda value: float(f"{float(value):.{DIGITS}g}") if value is not None and not isinstance(value, str) else value
    whole = {"ours": short(found.ours), "baseline": short(found.baseline), "error": short(found.error)}
    return {key: value for key, value in whole.items() if value is not None}


def path_of(id: str, pages: Path = PAGES) -> Path:
    """Where the results of an experiment are."""
    return pages / "results" / f"{id}.json"


def records(id: str, pages: Path = PAGES) -> dict[str, dict[str, Any]]:
    """The last run of each case."""
    path = path_of(id, pages)
    return json.loads(path.read_text())["cases"] if path.exists() else {}


def keep(id: str, case: str, record: Mapping[str, Any], pages: Path = PAGES) -> None:
    """The run of one case in place of an earlier one; the other cases stay."""
    path = path_of(id, pages)
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = {**records(id, pages), case: dict(record)}
    path.write_text(json.dumps({"id": id, "cases": cases}, indent=1, ensure_ascii=False) + "\n")


def found_in(record: Mapping[str, Any]) -> dict[str, Found]:
    """The values of a record."""
    values = record["found"].items()
    return {name: Found(value["ours"], value.get("baseline"), value.get("error")) for name, value in values}


def all_found(id: str, pages: Path = PAGES) -> dict[str, dict[str, Found]]:
    """What was found for every case that ran."""
    return {name: found_in(record) for name, record in records(id, pages).items()}
