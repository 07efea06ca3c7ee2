"""The benchmark frame itself, on a problem that takes no time and needs no peers."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import data, plan_honesty, report, run  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.machine import Watch, wait_until_idle  # noqa: E402
from benchmarks.problems import dense  # noqa: E402
from benchmarks.registry import PROBLEMS, Problem, Unavailable  # noqa: E402
from benchmarks.run import Limits, environment, run_problem, skipped  # noqa: E402

FAKE = """
import time
from benchmarks.registry import Run, Unavailable, problem

def make(N):
    return list(range(N))

def score(data, results):
    return {name: {"error": abs(result["sum"] - sum(data))} for name, result in results.items()}

SUMS = problem(
    name="fake-sums", about="sums", make=make, sizes=(10, 20), quick=(5,), references=("plain",), score=score, repeat=2
)

@SUMS.method("plain")
def plain(x):
    print("a library that chatters")
    return Run(lambda: {"sum": sum(x)})

@SUMS.method("off by one")
def off(x):
    seen = []
    return Run(lambda: {"sum": sum(x) + len(seen)}, before=lambda: seen.__setitem__(slice(None), [1]))

@SUMS.method("absent", requires=("no_such_library",))
def absent(x):
    raise AssertionError("never started")

@SUMS.method("unwilling")
def unwilling(x):
    raise Unavailable("sums only even N" if len(x) % 2 else "sums no lists")

@SUMS.method("broken")
def broken(x):
    return Run(lambda: 1 / 0)

@SUMS.method("dying")
def dying(x):
    import os
    return Run(lambda: os._exit(7))

SLOW = problem(name="fake-slow", about="waits", make=make, sizes=(1, 2), quick=(1,))

@SLOW.method("slow")
def slow(x):
    return Run(lambda: time.sleep(100))
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """The module fake_problems, importable here and in the workers."""
    folder = tmp_path_factory.mktemp("fake")
    (folder / "fake_problems.py").write_text(FAKE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        yield folder
    for name in ("fake-sums", "fake-slow"):
        PROBLEMS.pop(name, None)
    sys.modules.pop("fake_problems", None)


@pytest.fixture(scope="module")
def outcome(fake):
    """One run of the command: its JSON file."""
    path = fake / "out.json"
    assert main(["fake-sums", "--from", "fake_problems", "--sizes", "10,21", "--json", str(path)]) == 0
    return json.loads(path.read_text())


def rows_of(outcome, method):
    return [row for row in outcome["problems"][0]["rows"] if row["method"] == method]


class TestOneRun:
    def test_every_raw_timing_is_kept(self, outcome):
        records = [r for r in outcome["problems"][0]["records"] if r["method"] == "plain"]
        assert [(r["size"], r["round"]) for r in records] == [(10, 0), (10, 1), (21, 0), (21, 1)]
        assert all(len(r["warm"]) == 5 and set(r["cold"]) == {"start", "first"} for r in records)
        assert all(r["memory"]["peak"] >= r["memory"]["ready"] > 0 for r in records)

    def test_methods_take_turns(self, outcome):
        records = [r for r in outcome["problems"][0]["records"] if r["method"] in ("plain", "off by one") and r["size"] == 10]
        assert [r["method"] for r in records] == ["plain", "off by one"] * 2

    def test_the_machine_is_described(self, outcome):
        machine = outcome["machine"]
        assert machine["cores"] >= 1
        assert machine["versions"]["numpy"] == np.__version__
        assert {"cpu", "date", "python", "memory_bytes", "load_average", "settings"} <= set(machine)

    def test_scores_and_ratios_join_the_rows(self, outcome):
        assert [row["error"] for row in rows_of(outcome, "plain")] == [0, 0]
        assert [row["error"] for row in rows_of(outcome, "off by one")] == [1, 1]
        assert all(row["/ plain"] == 1 for row in rows_of(outcome, "plain"))
        for plain, off in zip(rows_of(outcome, "plain"), rows_of(outcome, "off by one"), strict=True):
            assert off["/ plain"] == pytest.approx(off["warm s"] / plain["warm s"])

    def test_slopes_are_there_for_what_ran_twice(self, outcome):
        assert set(outcome["problems"][0]["slopes"]) == {"plain", "off by one"}

    @pytest.mark.parametrize(
        ("method", "notes"),
        [
            ("absent", ["no_such_library not installed"] * 2),
            ("unwilling", ["sums no lists"] * 2),
            ("broken", ["error: ZeroDivisionError: division by zero"] * 2),
        ],
    )
    def test_what_cannot_run_keeps_its_row_with_the_reason(self, outcome, method, notes):
        assert [row["note"] for row in rows_of(outcome, method)] == notes

    def test_a_worker_that_dies_is_reported(self, outcome):
        assert all("worker ended with code 7" in row["note"] for row in rows_of(outcome, "dying"))


class TestCommandLine:
    def test_a_method_that_is_too_slow_is_shown_and_not_tried_at_larger_sizes(self, fake, capsys):
        assert main(["fake-slow", "--from", "fake_problems", "--timeout", "1.5", "--repeat", "2"]) == 0
        out = capsys.readouterr().out
        assert "timeout: more than 1.5 s" in out
        assert "timeout: not tried: N = 1: more than 1.5 s" in out

    def test_markdown_and_peers(self, fake, capsys):
        main(["fake-sums", "--from", "fake_problems", "--quick", "--markdown", "--peers", "plain", "absent"])
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        assert lines[0].startswith("| N | method | cold s | warm s | median s |")
        assert set(lines[1]) <= set("|-: ")
        assert len(lines) == 4
        assert lines[3].endswith("| no_such_library not installed |")

    def test_list_names_problems_sizes_and_methods(self, fake, capsys):
        main(["--list", "--from", "fake_problems"])
        out = capsys.readouterr().out
        assert "dense-evidence: " in out
        assert "N = 500, 1000, 2000, 4000; methods: lapack, structgp, scikit-learn" in out
        assert "fake-sums: sums" in out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["dense-evidense"], "unknown problem 'dense-evidense': did you mean dense-evidence?"),
            (["dense-fit", "--peers", "gptorch"], "unknown method 'gptorch': did you mean gpytorch?"),
        ],
    )
    def test_an_unknown_name_gets_a_hint(self, words, message, capsys):
        with pytest.raises(SystemExit):
            main(words)
        assert message in " ".join(capsys.readouterr().err.split())


class TestReport:
    def test_the_slope_of_a_power_law_is_its_exponent(self):
        rows = [{"N": n, "method": "cubic", "warm s": 1e-9 * n**3} for n in (500, 1000, 4000)] + [
            {"N": 500, "method": "once", "warm s": 1.0}
        ]
        assert report.slopes(rows) == {"cubic": pytest.approx(3)}
        assert report.slope_lines(rows) == "log–log slope of warm time against N: cubic 3.00"

    def test_the_plain_table_is_aligned_and_shows_gaps(self):
        rows = [
            {"N": 10, "method": "a", "warm s": 0.00123456, "note": ""},
            {"N": 2000, "method": "long name", "note": "not installed"},
        ]
        assert report.table(rows).splitlines() == [
            "   N  method      warm s  note",
            "  10  a          0.00123",
            "2000  long name        –  not installed",
        ]

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, "–"), (0.0, "0"), (12, "12"), (1234.5678, "1235"), (-113.04, "-113"), (3e-15, "3e-15"), (float("inf"), "inf")],
    )
    def test_cells(self, value, text):
        assert report.cell(value) == text

    def test_the_best_and_the_median_are_over_all_rounds(self):
        def record(warm):
            memory = {"baseline": 10**6, "ready": 2 * 10**6, "peak": 5 * 10**6}
            return {"status": "ok", "cold": {"start": 1.0, "first": 2.0}, "warm": warm, "memory": memory}

        row = report.measured([record([3.0, 1.0]), record([2.0])])
        assert row == {"cold s": 3.0, "warm s": 1.0, "median s": 2.0, "peak MB": 5.0, "added MB": 4.0, "note": ""}

    def test_a_disturbed_measurement_says_so(self):
        assert report.disturbance([{"others": 0.5}, {"others": 0.02}]) == []
        assert report.disturbance([{"others": 0.5}, {"others": 0.4}]) == ["disturbed: others used 40% of the machine"]
        assert report.disturbance([{"others": None}, {}]) == []

    def test_a_reference_that_did_not_run_gives_no_ratio(self):
        rows = [{"N": 1, "method": "a", "warm s": 1.0}, {"N": 1, "method": "b", "note": "not installed"}]
        report.add_ratios(rows, ["b"])
        assert rows[0] == {"N": 1, "method": "a", "warm s": 1.0}


def test_a_reason_is_not_nested_over_sizes():
    first = skipped({"status": "timeout", "size": 5, "reason": "more than 1 s"})
    assert skipped({**first, "size": 6})["reason"] == first["reason"] == "not tried: N = 5: more than 1 s"


def test_workers_see_this_checkout_and_no_compilation_cache(monkeypatch):
    for name in ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, "/somewhere")
    assert environment()["PYTHONPATH"].startswith(str(ROOT))
    assert not {"JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"} & set(environment())


def test_the_watch_gives_a_fraction():
    watch = Watch()
    assert watch.others() is None or 0 <= watch.others() <= 1
    wait_until_idle(most=0.0)


def test_an_interrupt_keeps_what_was_measured(monkeypatch):
    def worker(problem, name, size, limits):
        if size > 1:
            raise KeyboardInterrupt
        return {"status": "error", "reason": "just a test"}

    monkeypatch.setattr(run, "run_worker", worker)
    told = []
    records = run_problem(Problem("p", "", lambda N: N, (), ()), [2, 1], ["a"], 1, Limits(), told.append)
    assert [record["size"] for record in records] == [1]
    assert told[-1] == "p: stopped; the table holds what was measured"


def test_nothing_to_run_gives_no_records():
    assert run_problem(Problem("p", "", lambda N: N, (), ()), [1], [], repeat=1, limits=Limits()) == []


class TestReferee:
    def test_the_gradient_of_the_evidence_is_its_slope(self):
        small = dense.make(25)
        _, gradient = dense.evidence(small, dense.THETA)
        for i, step in enumerate(1e-5 * np.eye(len(dense.THETA))):
            up, down = (dense.evidence(small, dense.THETA * np.exp(s * step))[0] for s in (1, -1))
            assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-6)

    def test_the_evidence_is_a_gaussian_density(self):
        small = dense.make(25)
        K = dense.covariance(small.X, dense.THETA) + dense.THETA[-1] * np.eye(25)
        expected = -0.5 * (small.y @ np.linalg.solve(K, small.y) + np.linalg.slogdet(2 * np.pi * K)[1])
        assert dense.evidence(small, dense.THETA)[0] == pytest.approx(expected)


class TestData:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("STRUCTGP_DATA", str(tmp_path))
        return tmp_path

    def write(self, path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))

    def test_splits_are_row_numbers(self, folder):
        self.write(folder / "toy" / "data.csv.gz", "a,b,y\n1,2,3\n4,,6\n7,8,9\n")
        np.savez(folder / "toy" / "splits.npz", train=np.array([[0, 2]], dtype="uint16"), test=np.array([[1]], dtype="uint16"))
        (part,) = data.load("toy").parts()
        assert part.X_train.tolist() == [[1, 2], [7, 8]]
        assert part.y_test.tolist() == [6]
        assert np.isnan(part.X_test[0, 1])

    def test_train_and_test_files_are_one_split(self, folder):
        self.write(folder / "toy" / "train.csv.gz", "x,y\n1,2\n3,4\n")
        self.write(folder / "toy" / "test.csv.gz", "x,y\n5,6\n")
        (part,) = data.load("toy").parts()
        assert part.y_train.tolist() == [2, 4]
        assert part.X_test.tolist() == [[5]]

    def test_folds_and_text(self, folder):
        self.write(folder / "toy" / "data.csv.gz", "kind,x,y\na,1,2\nb,3,4\n")
        np.savez(folder / "toy" / "folds.npz", fold=np.array([0, 1], dtype="uint8"))
        table = data.load("toy")
        assert [part.y_test.tolist() for part in table.parts(inputs=["x"])] == [[2], [4]]
        with pytest.raises(ValueError, match="toy: kind hold text: name the numeric inputs= to use"):
            table.inputs_and_target()
        with pytest.raises(ValueError, match="toy has no column 'z'; its columns: kind, x, y"):
            table.inputs_and_target("z")

    def test_several_tables_need_a_name(self, folder):
        self.write(folder / "toy" / "weekly.csv.gz", "t,y\n1,2\n")
        self.write(folder / "toy" / "monthly.csv.gz", "t,y\n3,4\n")
        assert data.load("toy", "monthly").columns["y"].tolist() == [4]
        with pytest.raises(ValueError, match=r"pass file= one of \['monthly', 'weekly'\]"):
            data.load("toy")
        with pytest.raises(ValueError, match="toy has no stored splits"):
            list(data.load("toy", "weekly").parts())

    def test_what_is_missing_is_said(self, folder, monkeypatch):
        (folder / "there").mkdir()
        with pytest.raises(Unavailable, match=r"no data set 'toy' in .*: it holds there"):
            data.load("toy")
        with pytest.raises(ValueError, match=r"there has no data.npz"):
            data.arrays("there")
        monkeypatch.setenv("STRUCTGP_DATA", "/nowhere")
        with pytest.raises(Unavailable, match="no data folder at /nowhere: set STRUCTGP_DATA"):
            data.load("toy")


def honesty_row(engine, size, operation, said, seconds, situation="easy"):
    row = {"engine": engine, "situation": situation, "size": size, "operation": operation}
    return row | {"said": said, "seconds": seconds, "count": 1}


def test_plans_are_held_against_the_clock(tmp_path, capsys):
    rows = [
        honesty_row("Cholesky", 1000, "condition", 0.1, 0.1),
        honesty_row("Kalman", 1000, "condition", 0.5, 0.1),
        honesty_row("Kalman", 4000, "condition", 1.0, 9.0),
        honesty_row("Kalman", 4000, "sample", None, 0.1),
        honesty_row("Kalman", 4000, "compile", 2.0, 3.0),
        honesty_row("Cholesky", 1000, "compile", 2.0, 2.0),
        {"engine": "Kalman", "situation": "holes", "size": 10, "no": "no end in 3 s"},
    ]
    lines = plan_honesty.worst(rows)
    assert lines[1].split() == ["Cholesky", "1.00", "1.00"]
    assert lines[2].split() == ["Kalman", "0.11", "0.67"]
    assert lines[3] == "2 of 5 are off by more than a factor of 3:"
    assert lines[4:] == ["  Kalman, easy, 1000: condition 5.00", "  Kalman, easy, 4000: condition 0.11"]
    assert plan_honesty.growing(rows) == ["grow faster than was said: Kalman, easy, condition"]
    slower = plan_honesty.cliffs(rows)  # a matrix of four times as many rows takes 6.4 s
    assert slower[1:] == ["  Kalman, easy, 4000: condition 9 s, dense about 6.4 s"]
    assert plan_honesty.cliffs([row for row in rows if row["engine"] != "Cholesky"]) == []
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"rows": [*rows, honesty_row("Kalman", 4000, "condition", 9.0, 9.0, "smooth")]}))
    assert plan_honesty.main(["--read", str(file)]) == 0
    assert "| Kalman | 4,000 | 0.11 – 1 |  | 0.67 |" in capsys.readouterr().out.splitlines()


def test_a_case_that_is_cut_keeps_what_it_measured(monkeypatch):
    def cut(command, stdout, timeout, **_):
        stdout.write('{"said": {"learn": 7.0}}\n{"operations": {"condition": {"said": 1.0, "seconds": 2.0, "count": 1}}}\n')
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(plan_honesty.subprocess, "run", cut)
    options = plan_honesty.make_parser().parse_args(["--timeout", "3"])
    rows = plan_honesty.told("Kalman", "easy", 10, plan_honesty.in_a_process("Kalman", "easy", 10, options))
    assert [row.get("seconds") for row in rows] == [2.0, None]
    assert rows[1]["no"] == "no end in 3 s; the plan says 7 s to learn"


def test_every_engine_has_its_cases():
    found = list(plan_honesty.cases(list(plan_honesty.FAMILIES), ["easy"], [0]))
    assert len(found) == len(plan_honesty.FAMILIES)
    for name, situation, size in found:
        family = plan_honesty.FAMILIES[name]
        assert situation in family.situations
        if name in ("Kalman", "Krylov"):  # as the others do
            made = family.make(size, situation)
            known = {option: value for option, value in made.options.items() if option != "missing"}
            plan = made.gp.plan(made.X, family.structure, y=made.y, **known)
            assert type(plan.engine).__name__ == family.engine
            assert len(made.new) == plan_honesty.PLACES


def test_a_plan_that_cannot_be_measured_says_why(capsys):
    assert plan_honesty.told("Kalman", "easy", 10, {"no": "the plan takes Cholesky"})[0]["no"] == "the plan takes Cholesky"
    assert capsys.readouterr().out.endswith("no: the plan takes Cholesky\n")
