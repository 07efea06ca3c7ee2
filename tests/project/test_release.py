"""A release: one version everywhere, and a history in which it is seen when something became slower."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

import structgp as sg

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import history  # noqa: E402
from benchmarks.registry import load_problems  # noqa: E402


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = next(one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"] if one["name"] == "structgp")
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    assert {project["version"], locked["version"], cited} == {sg.__version__}


def test_changes_of_this_version_are_told():
    assert f"## {sg.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def run(yardsticks, times):
    """A run as `python -m benchmarks history` keeps it: a yardstick around each problem."""
    record = lambda seconds: {"status": "ok", "cpu": {"cold": 5 * seconds, "warm": [1.2 * seconds, seconds]}}
    block = lambda name, seconds: {"problem": name, "records": [{"size": 10, "method": "structgp", **record(seconds)}]}
    blocks = [block("yardstick", yardsticks[0])]
    for (name, seconds), after in zip(times.items(), yardsticks[1:], strict=True):
        blocks += [block(name, seconds), block("yardstick", after)]
    return {"format": 1, "problems": blocks}


def test_a_slower_machine_is_no_slower_release():
    before, after = run([0.1, 0.1, 0.1], {"a": 1.0, "b": 2.0}), run([0.3, 0.3, 0.3], {"a": 3.0, "b": 6.0})
    rows = history.compared(before, after)
    assert [(row["problem"], row["note"]) for row in rows] == [("a", ""), ("b", "")]
    assert [row["warm"] for row in rows] == pytest.approx([1.0, 1.0])


def test_the_yardsticks_beside_a_problem_are_its_own():
    after = run([0.1, 0.1, 0.5], {"a": 1.0, "b": 3.0})  # others came while b was measured
    assert [row["warm"] for row in history.compared(run([0.1] * 3, {"a": 1.0, "b": 1.0}), after)] == pytest.approx([1.0, 1.0])


def test_a_slower_release_is_seen():
    rows = history.compared(run([0.1] * 3, {"a": 1.0, "b": 2.0}), run([0.2] * 3, {"a": 4.0, "b": 4.0}))
    assert [row["note"] for row in rows] == ["slower: cold and warm", ""]
    assert rows[0]["cold"] == pytest.approx(2.0)


def test_what_takes_next_to_nothing_is_not_called_slower():
    rows = history.compared(run([1.0, 1.0], {"a": 0.0001}), run([1.0, 1.0], {"a": 0.001}))
    assert rows[0]["note"] == ""


def test_problems_that_come_go_or_fail_say_so():
    failed = run([0.1] * 3, {"b": 1.0, "c": 1.0})
    failed["problems"][3]["records"] = [{"size": 10, "method": "structgp", "status": "timeout", "reason": "more than 600 s"}]
    rows = history.compared(run([0.1] * 3, {"a": 1.0, "c": 1.0}), failed)
    assert {row["problem"]: row["note"] for row in rows} == {"a": "gone", "b": "not measured before", "c": "failed"}


def test_a_run_without_a_yardstick_cannot_be_compared():
    with pytest.raises(SystemExit, match="measure it by `benchmarks history`"):
        history.compared({"problems": []}, {"problems": []})


def test_the_command_ends_with_one_where_something_became_slower(tmp_path, capsys):
    old, same, slow = (tmp_path / f"{name}.json" for name in ("old", "same", "slow"))
    old.write_text(json.dumps(run([0.1] * 2, {"a": 1.0})))
    same.write_text(json.dumps(run([0.2] * 2, {"a": 2.0})))
    slow.write_text(json.dumps(run([0.1] * 2, {"a": 2.0})))
    assert history.main(["--of", str(same), "--against", str(old)]) == 0
    assert "nothing became slower" in capsys.readouterr().out
    assert history.main(["--of", str(slow), "--against", str(old)]) == 1
    assert "1 of 1 take more than 1.5 times as long" in capsys.readouterr().out


def test_runs_of_a_busy_machine_say_so(tmp_path, capsys):
    old, new = tmp_path / "0.1.0.json", tmp_path / "new.json"
    for path, load in ((old, 9.1), (new, 1.5)):
        path.write_text(json.dumps(run([0.1] * 2, {"a": 1.0}) | {"machine": {"load_average": [load, 1.0, 1.0], "cores": 2}}))
    assert history.main(["--of", str(new), "--against", str(old)]) == 0
    said = capsys.readouterr().out
    assert "0.1.0.json was measured at a load of 9.1 on 2 cores: its multiples are rough" in said
    assert "this run was measured" not in said


def test_the_last_release_is_that_with_the_largest_number(tmp_path):
    for version in ("0.2.0", "0.10.0", "0.9.1"):
        (tmp_path / f"{version}.json").write_text("{}")
    assert history.last_release(folder=tmp_path).stem == "0.10.0"
    assert history.last_release(tmp_path / "0.10.0.json", tmp_path).stem == "0.9.1"


def test_what_is_kept_of_a_release_is_there():
    problems = load_problems()
    for name, size, method in history.KEPT:
        assert method in problems[name].methods
        assert size in problems[name].sizes
    kept = json.loads(history.last_release().read_text())
    assert {case.problem for case, _ in history.multiples(kept)} == {name for name, *_ in history.KEPT}


def test_ci_says_loudly_which_pythons_the_wheel_was_not_tried_under(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "release"))
    from install import without

    assert without([], "3.13") == ""
    assert without(["3.11"], "3.13") == "::warning::THE WHEEL WAS NOT TRIED UNDER PYTHON 3.11, which is not here\n"
    with pytest.raises(SystemExit, match=r"under 3\.13 only: CI needs one more of Python 3\.12, 3\.11"):
        without(["3.12", "3.11"], "3.13")
