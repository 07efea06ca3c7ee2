"""The study: every table and figure of the sources has an entry, verdicts follow from numbers, pages from results."""

import os
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.processes import DIED  # noqa: E402
from study import pages  # noqa: E402
from study.__main__ import main  # noqa: E402
from study.calls import make_all  # noqa: E402
from study.calls import path_of as path_of_call  # noqa: E402
from study.printed import BASELINE, PRINTED  # noqa: E402
from study.registry import (  # noqa: E402
    Call,
    Case,
    Experiment,
    Found,
    How,
    Quantity,
    above,
    below,
    between,
    less,
    load_experiments,
    more,
    near,
    smaller,
)
from study.results import PAGES, all_found, keep, records, run  # noqa: E402
from study.verdicts import beside, counts, status, unmet, verdict  # noqa: E402

EXPERIMENTS = load_experiments()

# How many figures and tables each chapter of a source has, as they are numbered there.
FIGURES = {
    "000": {"1": 4, "2": 8, "3": 5, "4": 12, "5": 1},
    "001": {"1": 6, "2": 5, "3": 13, "4": 9, "d": 1},
    "002": {"": 9},
    "003": {"1": 2, "2": 4, "3": 9, "4": 1, "5": 1, "6": 1, "7": 2, "8": 5, "9": 5, "10": 8, "11": 4},
    "004": {"15": 10},
}
TABLES = {
    "000": {"3": 1, "4": 4, "5": 1},
    "001": {"2": 3},
    "002": {"": 2},
    "003": {"8": 3, "10": 1},
    "004": {"15": 1},
}


def numbered(kind, chapters):
    """The names of all figures or tables of a source."""
    return {
        f"{source}.{kind}-{f'{chapter}.' if chapter else ''}{number}"
        for source, counted in chapters.items()
        for chapter, count in counted.items()
        for number in range(1, count + 1)
    }


def test_every_numbered_table_and_figure_has_an_entry():
    missing = (numbered("figure", FIGURES) | numbered("table", TABLES)) - set(EXPERIMENTS)
    assert not missing, f"without an entry in study/sources: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("id", list(EXPERIMENTS))
def test_an_entry_is_complete(id):
    e = EXPERIMENTS[id]
    assert e.title
    assert e.place
    assert e.system
    assert e.source in FIGURES
    if e.kind != "runs":
        assert e.reason
        assert e.work is None
        assert not e.cases
        return
    assert e.work is not None
    assert e.cases
    for name, case in e.cases.items():
        names = [quantity.name for quantity in case.quantities]
        assert names
        assert len(set(names)) == len(names), (name, names)
        assert case.minutes > 0
        assert case.repeats >= 1
        if any(q.sense in ("below", "above", "smaller", "larger") for q in case.quantities):
            assert e.baseline, f"{id} compares with something that it does not name"


def test_results_belong_to_entries_and_what_fell_short_has_a_reason():
    for path in sorted((PAGES / "results").glob("*.json")):
        e = EXPERIMENTS[path.stem]
        for name, found in all_found(e.id).items():
            assert set(found) <= {q.name for q in e.cases[name].quantities}, (e.id, name)
            silent = [q.name for q in unmet(e.cases[name], found) if not q.why]
            assert not silent, f"{e.id}, {name}: not reached, and nothing is said about it: {silent}"


def test_the_pages_are_what_the_results_make_of_them():
    stale = []
    for source, name in pages.NAMES.items():
        path = PAGES / f"{source}-{name}.md"
        stale += [path.name] if path.read_text() != pages.page(source, EXPERIMENTS.values()) else []
    stale += ["coverage.md"] if (PAGES / "coverage.md").read_text() != pages.coverage(EXPERIMENTS.values()) else []
    assert not stale, f"make them again (python -m study --pages): {stale}"


@pytest.mark.parametrize(
    ("quantity", "found", "said", "compared"),
    [
        (less("error", 0.10), Found(0.08, 0.07), "better", "behind"),
        (less("error", 0.10), Found(0.104, 0.2), "reached", "ahead"),
        (less("error", 0.10), Found(0.12, 0.121), "not reached", "level"),
        (less("error", 0.10), Found(0.12, 0.5, error=0.015), "undecided", "ahead"),
        (less("error", 0.10), Found(0.12, 0.11, error=0.002), "not reached", "behind"),
        (less("error", 0.10), Found(0.09, 0.085, error=0.015), "reached", "undecided"),
        (near("ratio", 1.0, 0.1), Found(1.15, error=0.03), "undecided", ""),
        (less("log p", -1.0, within=0.02), Found(-1.1), "better", ""),
        (more("count", 7), Found(6.0), "not reached", ""),
        (near("slope", 1.0, 0.1), Found(0.85), "not reached", ""),
        (near("slope", 1.0, 0.1), Found(1.05), "reached", ""),
        (below("error", "better than alone", 0.5), Found(0.3, 0.5), "not shown", ""),
        (below("error", "better than alone", 0.5), Found(0.2, 0.5), "shown", ""),
        (above("error", "worse"), Found(0.3, "not installed"), "not shown", ""),
        (between("cover", "a 95 % band", 0.9, 1.0), Found(0.95), "shown", ""),
        (smaller("error"), Found(0.3, 0.5), "", "ahead"),
        (less("error", 0.1), Found(float("nan")), "not reached", ""),
        (less("error", 0.1), None, "not run", ""),
    ],
)
def test_verdicts_follow_from_the_numbers(quantity, found, said, compared):
    assert verdict(quantity, found) == said
    assert beside(quantity, found) == compared


def test_a_sense_goes_with_what_is_published():
    with pytest.raises(ValueError, match="'less' goes with a number"):
        Quantity("error", "small", "less")
    with pytest.raises(ValueError, match="no sense 'lower'"):
        Quantity("error", 0.1, "lower")


@pytest.mark.parametrize(("id", "case"), [("003.figure-1.1", "all"), ("003.figure-7.2", "a"), ("000.figure-3.1", "all")])
def test_a_cheap_experiment_runs_and_makes_its_page(id, case, tmp_path):
    e = EXPERIMENTS[id]
    record = run(e, case, How(1), f"python -m study {id}")
    keep(id, case, record, tmp_path)
    found = all_found(id, tmp_path)
    assert set(found[case]) == {q.name for q in e.cases[case].quantities}
    assert records(id, tmp_path)[case]["versions"]["python"]
    assert counts(e, found)[1] == len(e.cases[case].quantities)
    assert status(e, found).startswith("ran: ")
    text = pages.section(e, records(id, tmp_path))
    assert f"`python -m study {id}`" in text
    assert "CPU s" in text
    written = {path.name for path in pages.write([e], tmp_path)}
    assert "coverage.md" in written
    assert not pages.write([e], tmp_path)


def test_every_row_of_a_source_stands_beside_what_answers_to_it_or_says_why_not():
    assert {"000.table-4.1", "000.table-4.2", "000.table-4.3", "000.table-4.4", "001.table-2.1", "001.table-2.2"} <= set(
        PRINTED
    )
    elsewhere = {("001.table-2.3", "splice"), ("001.table-2.3", "USPS")}  # of which the source has no number
    for id, printed in PRINTED.items():
        cases = EXPERIMENTS[id].cases
        assert set(cases) == {row.case for row in printed if (id, row.case) not in elsewhere}
        for row in printed:
            assert row.here.startswith(("ours", "here: ", "no run: ")), row
            assert row.here.startswith("no run") == (not row.beside)
            names = {q.name for q in cases[row.case].quantities} if row.beside else set()
            for name in filter(None, row.beside):
                known = name.removeprefix(BASELINE) in names
                assert known or name == "inducing inputs: seconds", (id, row.method, name)
        stated = {number for row in printed for number in row.values.values()}
        for name, case in cases.items():  # what decides is among what is printed
            for q in case.quantities:
                if q.sense == "less" and q.by and "stationary" not in q.name:
                    assert q.published in stated, (id, name, q.name, q.published)


def test_numbers_that_no_one_asked_for_are_refused():
    strange = Experiment(
        "000.figure-0", "t", "p", "s", cases={"all": Case((smaller("a"),))}, work=lambda case, how: {"b": Found(1)}
    )
    with pytest.raises(ValueError, match=r"found \['b'\], of which nothing is said; known: \['a'\]"):
        run(strange, "all", How(1), "")


def test_the_command_line(capsys):
    assert main(["--list", "004"]) == 0
    assert "004.figure-15.8" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["004.figure-15.88"])
    assert "no experiment '004.figure-15.88': did you mean 004.figure-15.8" in capsys.readouterr().err
    assert main(["004.figure-15.1", "--discard"]) == 0
    assert "a drawing of an idea" in capsys.readouterr().out


def tossed(case, number):
    """One repeat: its number, beside one more."""
    return {"a": Found(float(number), number + 1.0)}


def rolled(way, number):
    """One call of an experiment that puts rows together."""
    return {"a": {"low": 0.0, "high": 10.0}[way] + number}


def spread_over(case, rows):
    return {"a": Found(max(rows.column("a", "high")), max(rows.column("a", "low")))}


def made_of(**how):
    return Experiment("000.figure-0", "t", "p", "s", cases={"all": Case((smaller("a"),), repeats=3)}, **how)


def test_repeats_are_averaged():
    found = run(made_of(work=tossed, mean=True), "all", How(3, first=2), "")["found"]["a"]
    assert found == {"ours": 3.0, "baseline": 4.0, "error": pytest.approx(3**-0.5, rel=1e-4)}


def test_rows_are_put_together_and_shared(tmp_path):
    e = made_of(work=spread_over, each=rolled, over=lambda case, how: [(w, k) for k in how.numbers for w in ("low", "high")])
    assert run(e, "all", How(3), "")["found"]["a"] == {"ours": 12.0, "baseline": 2.0}
    calls = e.calls("all", How(3)) + e.calls("all", How(2))
    first = list(make_all(calls, folder=tmp_path))
    assert len(first) == 6, "a call that two cases ask for is made once"
    call = first[0][0]
    path = path_of_call(call, tmp_path)
    path.write_text(path.read_text().replace('"value": {"a": 0.0}', '"value": {"a": 7.5}'))
    assert dict(make_all(calls, folder=tmp_path))[call].value == {"a": 7.5}, "what is kept is not made again"


def test_calls_in_processes_of_their_own_say_what_they_say_here(monkeypatch):
    for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS"):
        monkeypatch.setenv(key, os.environ.get(key, ""))  # what is set for the processes does not stay
    good, bad, dead = Call(statistics.fmean, ((1.0, 2.0),)), Call(statistics.fmean, ((),)), Call(os._exit, (3,))
    made = dict(make_all([good, bad, dead], jobs=3))
    assert made[good].value == 1.5
    assert "StatisticsError" in made[bad].reason
    assert made[dead].reason == DIED
