"""`structgp suggest`: a CSV file is the whole state, from the first empty one on, and every bad one gets one line."""

import gzip
import json
import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from sheets import xlsx
from typer.testing import CliRunner

import structgp as sg
from structgp.decide.optimise import Suggestion
from structgp.tables.cli import app
from structgp.tables.report.choices import headline, trace_figure
from structgp.tables.runs import outcomes_of, question, read_runs, variables_of, with_suggestions

BOUNDS = ("--bounds", "temp=20:80", "--bounds", "flow=0.1:10:log")


def suggest(path, *options, code=0, target="--maximise"):
    found = CliRunner().invoke(app, ["suggest", str(path), target, "yield", *options])
    assert found.exit_code == code, found.output
    return found.output


def write(path, rows, header="temp,flow,yield"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def yields(temp, flow):
    return 10 - ((temp - 60) / 20) ** 2 - np.log(flow) ** 2


ROWS = [
    f"{t},{f},{yields(t, f):.6g}"
    for t, f in zip(np.linspace(22, 78, 9), np.geomspace(0.15, 9, 9)[[3, 7, 1, 5, 0, 8, 2, 6, 4]], strict=True)
]


def test_from_the_first_empty_file_on(tmp_path):
    path = tmp_path / "runs.csv"
    for _ in range(3):
        suggest(path, *BOUNDS, "--append", str(path), "--n", "3")
        runs = read_runs(path)
        at = [runs.header.index(name) for name in ("temp", "flow", "yield")]
        done = [[*row[:2], row[2] or f"{yields(float(row[at[0]]), float(row[at[1]])):.9g}"] for _, row in runs.rows]
        write(path, [",".join(row) for row in done])
    assert len(read_runs(path).rows) == 9
    answer = json.loads(suggest(path, *BOUNDS, "--json"))
    assert answer["runs"] == 9
    assert answer["pending"] == 0
    assert answer["best"]["yield"] > 6
    one = answer["suggestions"][0]
    assert 20 <= one["point"]["temp"] <= 80
    assert one["expected_gain"] > 0
    assert 0 < one["probability"] < 1


def test_the_same_file_and_seed_give_the_same_lines(tmp_path):
    path = write(tmp_path / "runs.csv", [*ROWS, "50,1,failed", "30,5,"])
    first, again = (suggest(path, *BOUNDS, "--n", "2") for _ in range(2))
    assert first == again
    assert "1 failed run, in line 11" in first
    assert "10 runs, 1 pending" in first
    assert "better than the best with probability" in first
    assert suggest(path, *BOUNDS, "--n", "2", "--seed", "5") != first


def test_appending_keeps_what_is_there_byte_for_byte(tmp_path):
    path = tmp_path / "runs.csv"
    text = "note;temp;flow;yield;suggested_because\r\nfirst, try;30;1.5;3.1;\r\n" + '"a ; quoted";40;2.5;;'
    path.write_bytes(text.encode())
    ask = question(read_runs(path), "yield", maximise=True, variables=variables_of(BOUNDS[1::2], [], []), ignored=["note"])
    found = ask.optimiser.suggest(2)
    new = with_suggestions(ask, found, explain=True)
    assert new.startswith(text + "\n")
    lines = new[len(text) + 1 :].splitlines()
    assert [line.split(";")[0] for line in lines] == ["", ""]
    assert [line.split(";")[3:] for line in lines] == [["", "to fill the space evenly"]] * 2
    assert [float(line.split(";")[1]) for line in lines] == [one.point["temp"] for one in found]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_crash_leaves_the_old_file(tmp_path, monkeypatch, broken):
    path = write(tmp_path / "runs.csv", ROWS[:2])
    before = path.read_bytes()

    def crash(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, broken, crash)
    said = suggest(path, *BOUNDS, "--append", str(path), code=1)
    assert "no space left on device" in said
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["runs.csv"]


KILLED = """
import os, signal, sys
from structgp.decide.optimise import Suggestion
from structgp.tables.cli import app

step, here = sys.argv.pop(1), getattr(os, sys.argv.pop(1))

def killed(*given):
    if step == "after":
        here(*given)
    elif step == "half":
        os.ftruncate(given[0], os.fstat(given[0]).st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, here.__name__, killed)
app()
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "where", "lines"),
    [("half", "fsync", 2), ("before", "fsync", 2), ("before", "replace", 2), ("after", "replace", 3)],
)
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path, step, where, lines):
    path = write(tmp_path / "runs.csv", ["30,1,2.5"])
    before = path.read_text()
    command = ["suggest", str(path), "--maximise", "yield", *BOUNDS, "--append", str(path)]
    ended = subprocess.run([sys.executable, "-c", KILLED, step, where, *command], capture_output=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    after = path.read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == lines
    assert after.endswith("\n")
    if lines == 2:
        assert after == before
    assert len(read_runs(path).rows) == lines - 1


def test_a_report_shows_slices_and_the_trace(tmp_path):
    path = write(tmp_path / "runs.csv", ROWS)
    out = tmp_path / "report.html"
    suggest(path, *BOUNDS, "--report", str(out))
    page = out.read_text()
    for part in ("Largest yield", "What to measure next", "Runs and the best so far", "Along flow, through the best point"):
        assert part in page


def test_runs_beyond_a_limit_are_told_apart(tmp_path):
    path = write(tmp_path / "runs.csv", ["30,2.5,3", "50,4.5,7", "60,failed,", "70,3.5,4"], "temp,yield,cost")
    ask = question(
        read_runs(path), "yield", maximise=True, variables=variables_of(["temp=20:80"], [], []), outcomes={"cost": (None, 5.0)}
    )
    (figure,) = trace_figure(ask.optimiser, "yield")
    runs, best, beyond = figure.traces
    assert (runs.x.tolist(), runs.y.tolist()) == ([1, 4], [2.5, 3.5])
    assert (beyond.x.tolist(), beyond.y.tolist(), beyond.name) == ([2], [4.5], "runs beyond a limit")
    assert (best.x.tolist(), best.y.tolist()) == ([1, 2, 2, 3, 3, 4, 4], [2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 3.5])


def test_bounds_are_guessed_and_said(tmp_path):
    path = write(tmp_path / "runs.csv", ["20,a,1", "30,b,2", "40,a,"], "temp,kind,yield")
    said = suggest(path)
    assert "to keep them: --bounds temp=18:42" in said
    assert "to keep them: --choices kind=a,b" in said


def test_whole_numbers_categories_constraints_and_outcomes(tmp_path):
    header = "temp,stages,solvent,yield,cost"
    path = write(tmp_path / "runs.csv", ["30,2,water,1.5,3", "50,4,ethanol,2.5,7"], header)
    options = ["--bounds", "temp=20:80", "--integer", "stages=1:8", "--choices", "solvent=water,ethanol"]
    options += ["--constraint", "temp + 5*stages <= 60", "--outcome", "cost <= 5", "--json", "--n", "3"]
    answer = json.loads(suggest(path, *options))
    assert answer["best"]["cost" if "cost" in answer["best"] else "yield"] == 1.5  # the better run costs too much
    for one in answer["suggestions"]:
        point = one["point"]
        assert point["temp"] + 5 * point["stages"] <= 60 + 1e-6
        assert isinstance(point["stages"], int)
        assert point["solvent"] in ("water", "ethanol")


BAD_FILES = [
    ("temp,flow,yield\n30,1\n", "the number of cells is not that of the 3 names in the first line (line 2)"),
    ("temp,flow,yield\n30,1,2,3\n40,1,2,3\n", "(line 2, 3)"),
    ("temp,temp,yield\n30,1,2\n", "has two columns 'temp': rename one"),
    ("temp,,yield\n30,1,2\n", "column 2 has no name"),
    ("30,1,2\n40,2,3\n", "has no header"),
    ("temp,flow,result\n30,1,2\n", "has no column 'yield': its columns are temp, flow, result"),
    ("temp,yield\n30,2\n", "has no column 'flow'"),
    ("temp,flow,yield\n30,1,good\n40,2,failed\n", "holds words (good): what is sought must be a number"),
    ("temp,flow,yield\n90,1,2\n", "line 2: temp = 90 lies outside its bounds 20 to 80"),
    ("temp,flow,yield\n30,1,2\n10,1,2\n11,1,2\n12,1,2\n13,1,2\n", "and 1 more"),
    ("temp,flow,yield\n30,-1,2\n", "line 2: flow = -1 lies outside"),
    ("temp,flow,yield\nhot,1,2\n", "line 2: temp must be a finite number, got 'hot'"),
    ("temp,flow,yield\n,1,2\n", "line 2: temp is empty"),
    ("temp,flow,yield\nnan,1,2\n", "line 2: temp must be a finite number"),
    ("temp,flow,yield\n30,1,2.5kg\n", "line 2: yield is '2.5kg', which is not a number"),
    ('temp,flow,yield\n30,1,"2,5"\n', "line 2: yield is '2,5', which is not a number"),
    ('temp,flow,yield\n"30,5",1,2\n', "line 2: temp must be a finite number, got '30,5'"),
    ('temp,flow,yield\n"30,1,2\n', "is not a table"),
    ("temp,flow,yield,operator\n30,1,2,ann\n", "column 'operator'"),
    ("temp,flow,yield,batch\n30,1,2,7\n31,1,2,7\n", "has one value only: say its range, --bounds batch=7:8, or --ignore batch"),
    ("temp,flow,yield,batch\n30,1,2,7\n31,1,2,x\n", "holds numbers and text (line 3)"),
    ("temp,flow,yield,batch\n30,1,2,\n", "is empty, and no bounds were given"),
    ("temp,flow,yield,id\n" + "".join(f"30,1,2,k{i}\n" for i in range(30)), "holds 30 different texts"),
    ("yield\n2\n", "has no column 'temp': its columns are yield"),
    ("temp;flow,yield\n30;1,2\n", "has no column 'temp': its columns are temp;flow, yield"),
    ("temp,flow,yield\n1e999,1,2\n", "line 2: temp must be a finite number, got inf"),
    ("temp,flow,yield,kind\n30,1,2,a\n", "holds 1 different text, and no bounds were given"),
    ('temp,flow,yield\n"30"x,1,2\n', "is not a table"),
    (";flow;yield\n30;1;2\n", "column 1 has no name"),
    (b"\xff\xfet\x00e\x00", "is not UTF-8"),
    (b"temp,flow,yield\n30,1,\xe9\n", "is not UTF-8"),
    (b"PK\x03\x04rest", "is no spreadsheet that can be read"),
    (b"\x00\x01\x02\x03" * 50, "is not a table"),
    (b"\x1f\x8b\x08\x00", "is gzipped but cut off or damaged: copy it again"),
    (b"PAR1\x15\x04", "is a damaged Parquet file"),
    ("temp,flow\n", "has no column 'yield': its columns are temp, flow"),
    ("Temp,flow,yield\n30,1,2\n", "has no column 'temp': its columns are Temp, flow, yield"),
    ("temp,flow,yield,yield\n30,1,2,3\n", "has two columns 'yield': rename one"),
    ("temp,flow,yield\n30,1,2\n40,1\n", "(line 3)"),
    ("temp,flow,yield\n30;1;2\n", "the number of cells is not that of the 3 names in the first line (line 2)"),
    ("temp\tflow\tyield\n30,1,2\n", "the number of cells is not that of the 3 names in the first line (line 2)"),
    ("temp,flow,yield\n30,1,1.2.3\n", "line 2: yield is '1.2.3', which is not a number"),
    ("temp,flow,yield\n30,1,5 %\n", "line 2: yield is '5 %', which is not a number"),
    ("temp,flow,yield\n30,1,1 000\n", "line 2: yield is '1 000', which is not a number"),
    ("temp,flow,yield\n30,1,0x1F\n", "line 2: yield is '0x1F', which is not a number"),
    ("temp,flow,yield\n30,0,2\n", "line 2: flow = 0 lies outside its bounds 0.1 to 10"),
    ("temp,flow,yield\n30,1,2\n1/2,1,2\n", "line 3: temp must be a finite number, got '1/2'"),
    ("temp,flow,yield\n30 °C,1,2\n", "line 2: temp must be a finite number, got '30 °C'"),
    ("temp,flow,yield\n30,,2\n", "line 2: flow is empty"),
    ('temp,flow,yield,note\n30,1,2,"two\nlines\n', "is not a table"),
    ("<html><body>no table</body></html>\n", "is a web page, not a table: save the table in it as CSV"),
    ('{"temp": 30, "flow": 1}\n', "is JSON, not a table: save the table in it as CSV"),
]


@pytest.mark.parametrize(("content", "text"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_gets_one_line(tmp_path, content, text):
    path = tmp_path / "runs.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = suggest(path, *BOUNDS, code=1)
    assert said.startswith("structgp: ")
    assert len(said.splitlines()) == 1
    assert text in said


BAD_COMMANDS = [
    (["--bounds", "temp"], "--bounds 'temp' is not understood: write --bounds temp=20:80"),
    (["--bounds", "temp=20"], "is not understood"),
    (["--bounds", "temp=80:20"], "temp: the lower end must be below the upper one"),
    (["--bounds", "temp=20:80:cube"], "is not understood"),
    (["--bounds", "temp=0:80:log"], "a log variable needs positive bounds"),
    (["--bounds", "temp=20:80", "--bounds", "temp=20:90"], "'temp' was given twice"),
    (["--integer", "n=1.5:8"], "integer needs whole numbers"),
    (["--integer", "n=1:8:log"], "is not understood: write --integer stages=1:8"),
    (["--choices", "solvent=water"], "is not understood: write --choices solvent=water,ethanol"),
    (["--bounds", "temp=20:80", "--outcome", "cost"], 'write --outcome "cost <= 5"'),
    (["--bounds", "temp=20:80", "--outcome", "cost <= cheap"], 'write --outcome "cost <= 5"'),
    (["--bounds", "temp=20:80", "--constraint", "temp*temp <= 3"], "is not linear"),
    (["--bounds", "temp=20:80", "--constraint", "heat <= 3"], "speaks of heat"),
    (["--bounds", "temp=20:80", "--constraint", "temp >= 90"], "meets the constraints"),
    (["--bounds", "yield=20:80"], "'yield' is measured, so it has no bounds"),
    (["--bounds", "temp=20:80", "--noise", "-1"], "noise must be None (learned), 0 (exact) or a variance"),
    (["--bounds", "temp=20:80", "--acquisition", "luck"], "acquisition must be one of"),
    (["--bounds", "temp=20:80", "--minimise", "cost"], "say what is sought"),
    ([], "no variable is known: say what may be changed"),
]


@pytest.mark.parametrize(("options", "text"), BAD_COMMANDS, ids=range(len(BAD_COMMANDS)))
def test_a_bad_command_gets_one_line(tmp_path, options, text):
    said = suggest(tmp_path / "runs.csv", *options, code=1)
    assert len(said.splitlines()) == 1
    assert text in said


def test_other_places_to_write(tmp_path):
    path = write(tmp_path / "runs.csv", ROWS[:2])
    other = write(tmp_path / "other.csv", ROWS[:1])
    assert "--append adds to the table that was read" in suggest(path, *BOUNDS, "--append", str(other), code=1)
    assert "is a folder" in suggest(tmp_path, *BOUNDS, code=1)
    assert "so it must be CSV" in suggest(tmp_path / "runs.xlsx", *BOUNDS, code=1)
    suggest(path, *BOUNDS, "--append", str(tmp_path / "new.csv"))
    assert (tmp_path / "new.csv").read_text().startswith(path.read_text())


@pytest.mark.parametrize("kind", ["xlsx", "parquet", "arrow", "csv.gz"])
def test_runs_of_other_kinds_go_on_in_csv(tmp_path, kind):
    rows = [[float(cell) for cell in row.split(",")] for row in ROWS]
    frame = pl.DataFrame(rows, schema=["temp", "flow", "yield"], orient="row")
    path, plain = tmp_path / f"runs.{kind}", write(tmp_path / "plain.csv", ROWS)
    if kind == "xlsx":
        path.write_bytes(xlsx(runs=[frame.columns, *rows]))
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        (frame.write_parquet if kind == "parquet" else frame.write_ipc)(path)
    suggested = lambda said: [line for line in said.splitlines() if line.startswith("1. ")]
    new = tmp_path / "new.csv"
    assert suggested(suggest(path, *BOUNDS, "--append", str(new))) == suggested(suggest(plain, *BOUNDS))
    assert len(new.read_text().splitlines()) == len(ROWS) + 2
    assert "lines are added to CSV only: give --append a new file" in suggest(path, *BOUNDS, "--append", str(path), code=1)


def test_limits_of_outcomes():
    assert outcomes_of(["cost <= 5", "cost > 1", "purity >= 0.9"]) == {"cost": (1.0, 5.0), "purity": (0.9, None)}


@pytest.mark.parametrize(("noise", "over"), [(None, "the best that is believed of any run"), (0.0, "it")])
def test_a_gain_is_over_what_is_believed_and_over_the_best_of_exact_values(noise, over):
    opt = sg.Optimiser(sg.Space(flow=(0, 1)), noise=noise)
    opt.tell({"flow": 0.5}, 2.0)
    said = headline(opt, "yield", [Suggestion({"flow": 0.25}, expected_gain=0.125)])
    assert said.endswith(f"yield = 2, at flow = 0.5. The next run is expected to gain 0.125 over {over}.")
