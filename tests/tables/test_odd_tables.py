import datetime as dt

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
from odd_tables import CASES
from sheets import ods, xls, xlsb, xlsx

from structgp.tables.reading import Layout, look, read_table


def read(case, folder):
    path = folder / f"table{case.suffix}"
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    return read_table(path, **case.options)


def kind(series):
    if isinstance(series.dtype, pl.Datetime):
        return "Datetime UTC" if series.dtype.time_zone else "Datetime"
    return str(series.dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_read(case, tmp_path):
    table = read(case, tmp_path)
    frame = table.frame.with_columns(cs.datetime(time_zone="*").dt.convert_time_zone("UTC"))
    found = {name: (kind(frame[name]), frame[name].to_list()) for name in frame.columns}
    assert found == case.columns
    assert len(table.notes) == len(case.notes), table.notes
    for note, piece in zip(table.notes, case.notes, strict=True):
        assert piece in note
        assert "\n" not in note


def test_bytes_at_random_are_no_table(tmp_path):
    rng = np.random.default_rng(0)
    for count in (30, 300, 5000):
        (tmp_path / "t.csv").write_bytes(rng.bytes(count))
        with pytest.raises(ValueError, match=r"t.csv is not a table: CSV, TSV, Parquet and spreadsheets are read"):
            read_table(tmp_path / "t.csv")


def test_there_are_enough():
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


def test_spreadsheets(tmp_path):
    day = lambda d, h=0: dt.datetime(2020, 1, d, h)
    rows = [["Sales of a shop"], ["when", "what", "price"], [day(1), "a", 1.5], [day(2, 12), "b", "n.a."], [day(3), None, 3]]
    (tmp_path / "book.xlsx").write_bytes(xlsx(Empty=[], First=rows, Other=[["x"], [1]]))
    table = read_table(tmp_path / "book.xlsx")
    assert table.frame.to_dict(as_series=False) == {
        "when": [day(1), day(2, 12), day(3)],
        "what": ["a", "b", None],
        "price": [1.5, None, 3.0],
    }
    assert table.notes == (
        "sheet 'First' was read, and not 'Empty', 'Other'",
        "line 1 is a title, 'Sales of a shop': passed over",
        "column 'price': 'n.a.' is taken as missing (1 cell)",
    )


@pytest.mark.parametrize("write", [ods, xls, xlsb], ids=lambda write: write.__name__)
def test_spreadsheets_of_other_kinds(write, tmp_path):
    path = tmp_path / f"book.{write.__name__}"
    path.write_bytes(write([["x", "y", "word"], [1, 2.5, "a"], [3, 4.5, "b"]]))
    assert read_table(path).frame.to_dict(as_series=False) == {"x": [1, 3], "y": [2.5, 4.5], "word": ["a", "b"]}


LONG = 300  # lines, of which the last are beyond those by which the way of writing is seen


@pytest.mark.parametrize(
    ("odd", "expected", "note"),
    [
        ("7.5,b", 7.5, None),
        ('"7.5",b', 7.5, None),
        ("# 7.5,b", None, "1 line of comment is passed over"),
        (",", None, None),
        ("7.5", 7.5, "line 302 has fewer cells than the header: those at its end are missing"),
    ],
)
def test_long_tables_are_read_as_short_ones(odd, expected, note, tmp_path):
    (tmp_path / "x.csv").write_text("x,word\n" + "0.5,a\n" * LONG + odd + "\n1.5,c\n")
    table = read_table(tmp_path / "x.csv")
    assert table.frame["x"].to_list() == [0.5] * LONG + ([] if expected is None else [expected]) + [1.5]
    assert table.notes == (() if note is None else (note,))


def test_a_long_table_with_a_wrong_line_names_it(tmp_path):
    (tmp_path / "x.csv").write_text("x,word\n" + "0.5,a\n" * LONG + "1,2,3\n")
    with pytest.raises(ValueError, match="line 302 has 3 cells, the header 2"):
        read_table(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 and no more", "is no spreadsheet that can be read .xlsx, xlsb, xls and ods are., or it is damaged"),
        (xlsx(A=[]), "is empty: a table with a header"),
        (b"%PDF-1.7 and more", "is a PDF, not a table: save the table in it as CSV or xlsx"),
        (b"<html><table></table></html>", "is a web page, not a table"),
        (b'[{"a": 1}]', "is JSON, not a table"),
        (b"\xff\xfea", "is not utf-16 text .byte 2.: save it as UTF-8"),
        (
            "t\n13/02/2020\n12/14/2020\n",
            "holds '13/02/2020' and '12/14/2020': in one the day comes first, in the other the month",
        ),
        ("a,b\n1,2\n3,4,5\n", r"line 3 has 3 cells, the header 2\): repair that line, or put cells .* in \"quotes\""),
        ("2020-01-01,5\n2020-01-02,6\n", "has no header: its first line should name the columns, but reads 2020-01-01, 5"),
        ("# only\n# comments\n", "is empty"),
    ],
)
def test_what_cannot_be_read_gets_one_line(content, message, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_wrong_options_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match="dates must be one of auto, day-first, month-first, got 'us'"):
        read_table(tmp_path / "x.csv", dates="us")
    with pytest.raises(ValueError, match=r"there is no time zone 'Berlin': write for instance UTC, .01:00 or Europe/Berlin"):
        read_table(tmp_path / "x.csv", zone="Berlin")


def test_files_show_a_table_as_it_was_written(tmp_path):
    (tmp_path / "x.csv").write_text('key,day,word,price\n007,1/13/2020,no,"$1,200.5"\n011,2/1/2020,,n.a.\n')
    shown = read_table(tmp_path / "x.csv").written
    assert shown.to_dict(as_series=False) == {
        "key": ["007", "011"],
        "day": ["1/13/2020", "2/1/2020"],
        "word": ["no", None],
        "price": [1200.5, None],
    }


def test_new_tables_are_read_like_the_first(tmp_path):
    """Alone, each cell of the second table would be read in another way."""
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(
        "day;price;gap;kind;at\n"
        + "".join(f"{d}/02/2020;1,5;{d};{'ab'[d % 2]};2020-01-{d}T10:00+01:00\n" for d in range(10, 30))
    )
    first.write_text(first.read_text().replace(";20;", ";-999;").replace(";b;", ";1;", 1))
    table = read_table(first)
    layout = Layout.of(table.frame, how=table.how)
    assert [column.kind for column in layout.columns] == ["date", "number", "number", "category", "date"]
    second.write_text("day;price;gap;kind;at\n03/02/2020;1,234;-999;1;2020-01-30 10:00\n")
    again = read_table(second, like=layout.how)
    assert again.frame["day"].to_list() == [dt.date(2020, 2, 3)]
    assert again.frame["price"].to_list() == [1.234]
    assert again.frame["kind"].to_list() == ["1"]
    X = dict(zip(layout.names, layout.numbers(again.frame)[0], strict=True))
    assert X["day"] == -7.0
    assert X["gap"] == layout.columns[2].fill
    assert X["at"] == 20.0
    assert any("times without a zone are taken for those of +01:00" in note for note in again.notes)
    bare = Layout.of(table.frame.select("day"), how={})
    with pytest.raises(ValueError, match="holds times in the zone UTC, but the model was given times without one"):
        bare.numbers(again.frame.select(pl.col("at").alias("day")))


def test_old_layouts_are_read():
    old = {
        "name": "t",
        "kind": "date",
        "missing": 0,
        "unit": "days",
        "origin": 86400.0,
        "levels": [],
        "fill": None,
        "dropped": "",
    }
    (column,) = Layout.from_json([old]).columns
    assert column.written(1.5) == "1970-01-03"
    assert column.drawn(1.0) == "1970-01-03"
    assert column.drawn(1.5) == "1970-01-03 12:00:00"


@pytest.mark.parametrize(
    ("name", "dropped"),
    [("id", True), ("house_id", True), ("rowId", True), ("Unnamed: 0", True), ("width", False), ("solid", False)],
)
def test_numbers_of_rows_are_no_inputs(name, dropped):
    frame = pl.DataFrame({name: [1, 2, 5], "a": [0.5, 0.2, 0.3]})
    layout = Layout.of(frame)
    assert (layout.columns[0].describe() == "left out: it numbers the rows (give it another name if it means more)") == dropped
    assert Layout.of(frame.select(name)).names == [name]  # unless there is nothing else
    assert Layout.of(frame[::-1]).names == [name, "a"]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (["2020-01-31", "2020-02-29", "2020-03-31"], ["2020-04-30", "2020-05-31"]),
        (["2020-01-15", "2020-02-15", "2020-03-15"], ["2020-04-15", "2020-05-15"]),
        (["2018-01-01", "2019-01-01", "2020-01-01"], ["2021-01-01", "2022-01-01"]),
        (["2020-01-01", "2020-04-01", "2020-07-01"], ["2020-10-01", "2021-01-01"]),
        ([f"2020-06-{d:02d}" for d in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12)], ["2020-06-15", "2020-06-16"]),
        ([f"2020-06-{d:02d}" for d in (1, 2, 3, 4, 5, 6)], ["2020-06-07", "2020-06-08"]),
        (["2020-06-01", "2020-06-08", "2020-06-15"], ["2020-06-22", "2020-06-29"]),
    ],
)
def test_a_series_goes_on_by_the_calendar(days, expected):
    series = pl.Series("t", days).str.to_date()
    column = look(series)
    places = column.following(column.numbers(series)[:, 0], 2)
    assert [column.written(place) for place in places] == expected


def test_times_keep_their_zone_and_style(tmp_path):
    (tmp_path / "x.csv").write_text("t\n" + "".join(f"{h:%d.%m.%Y %H:%M}\n" for h in HALF_HOURS))
    table = read_table(tmp_path / "x.csv", zone="Europe/Berlin")
    column = look(table.frame["t"], table.how["t"])
    assert column.describe() == "date, in hours, zone Europe/Berlin"
    places = column.following(column.numbers(table.frame["t"])[:, 0], 3)
    assert [column.written(place) for place in places] == [
        "29.03.2020 01:30+01:00",
        "29.03.2020 03:00+02:00",  # an hour is skipped
        "29.03.2020 03:30+02:00",
    ]
    assert column.drawn(places[0]) == "2020-03-29 01:30:00"
    days = pl.Series("t", [dt.datetime(2020, 3, d, 11) for d in (26, 27, 28)]).dt.replace_time_zone("UTC")
    daily = look(days.dt.convert_time_zone("Europe/Berlin"))
    after = daily.following(daily.numbers(days)[:, 0], 1)[0]
    assert daily.written(after) == "2020-03-29 12:00+02:00"  # at the same time of day


HALF_HOURS = [dt.datetime(2020, 3, 28, 22) + dt.timedelta(minutes=30 * i) for i in range(7)]


def test_numbers_go_on_by_their_step():
    column = look(pl.Series("t", [0.0, 0.5, 1.0]))
    np.testing.assert_allclose(column.following(np.array([1.0, 0.0, 0.5]), 2), [1.5, 2.0])


def test_a_year_and_a_month_are_a_date(tmp_path):
    (tmp_path / "x.csv").write_text("Year,Month,v\n2020,1,1.5\n2020,2,2.5\n")
    table = read_table(tmp_path / "x.csv")
    assert table.frame["date"].to_list() == [dt.date(2020, 1, 1), dt.date(2020, 2, 1)]
    assert table.written.columns == ["Year", "Month", "v"]
    assert table.notes == ("columns 'Year', 'Month' are read as one, 'date'",)
    layout = Layout.of(table.frame, leave_out=("v",), how=table.how)
    assert layout.used[0].written(layout.numbers(table.frame)[1, 0]) == "2020-02"
    (tmp_path / "new.csv").write_text("Year,Month\n2020,3\n")
    assert read_table(tmp_path / "new.csv", like=layout.how).frame["date"].to_list() == [dt.date(2020, 3, 1)]
    (tmp_path / "days.csv").write_text("v,year,month,day\n7,2020,2,28\n8,2020,2,30\n")
    assert read_table(tmp_path / "days.csv").frame["date"].to_list() == [dt.date(2020, 2, 28), None]


@pytest.mark.parametrize(
    "text", ["year,month,a,v\n2020,1,5,1\n2020,2,6,2\n", "year,month,v\n20,1,1\n21,2,2\n", "year,v\n2020,1\n"]
)
def test_a_year_and_a_month_among_other_columns_stay(text, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    assert read_table(tmp_path / "x.csv").frame.columns == text.split("\n")[0].split(",")
