import datetime
import gzip
import json

import numpy as np
import polars as pl
import pytest

from structgp.tables.automatic.problem import calendar_of
from structgp.tables.reading import Layout, find_column, read_frame

TEXT = """date,speed,colour,empty,note,same
2020-01-01,1.5,red,,a,1
2021-07-01,NA,blue,,b,1
2023-01-01,3.5,red,,c,1
2023-01-02,2.5,,,d,1
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(TEXT)
    return path


def test_columns_become_numbers_and_say_so(table):
    layout = Layout.of(read_frame(table), leave_out=("note",))
    assert layout.names == ["date", "speed", "colour=red"]
    X = layout.numbers(read_frame(table))
    np.testing.assert_allclose(X[:, 0], [2020.0, 2021.5, 2023.0, 2023.0], atol=2e-3 + 1 / 365)
    np.testing.assert_array_equal(X[:, 1], [1.5, 2.5, 3.5, 2.5])
    np.testing.assert_array_equal(X[:, 2], [1.0, 0.0, 1.0, 0.0])
    said = {column.name: column.describe() for column in layout.columns}
    assert said["date"] == "date, in years"
    assert said["speed"] == "number, 1 missing, filled with the median 2.5"
    assert said["colour"] == "category, 2 levels: blue, red, 1 missing"
    assert said["empty"] == "left out: every value is missing"
    assert said["same"] == "left out: the same value everywhere"


def test_every_format_holds_the_same_table(table, tmp_path):
    frame = read_frame(table)
    frame.write_parquet(tmp_path / "data.parquet")
    (tmp_path / "data.tsv").write_text(TEXT.replace(",", "\t"))
    (tmp_path / "semicolons.csv").write_text("\ufeff" + TEXT.replace(",", ";"))
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    for name in ("data.parquet", "data.tsv", "semicolons.csv", "data.csv.gz"):
        assert read_frame(tmp_path / name).equals(frame), name


@pytest.mark.parametrize(("step", "unit", "last"), [(400, "years", None), (1, "days", 3.0), (0.001, "seconds", 259.2)])
def test_dates_have_a_unit_that_suits_their_span(step, unit, last):
    start = datetime.datetime(2020, 1, 1)
    frame = pl.DataFrame({"t": [start + i * datetime.timedelta(days=step) for i in range(4)]})
    layout = Layout.of(frame)
    assert layout.columns[0].unit == unit
    if last is not None:
        assert layout.numbers(frame)[-1, 0] == pytest.approx(last)


def test_a_layout_survives_json(table):
    layout = Layout.of(read_frame(table))
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"a,b\n", "no rows"),
        (b"a,b,a\n1,2,3\n", "two columns called 'a': rename one"),
        (b"1,2\n3,4\n", "no header"),
        (b"a,b\n1,2\n1,2,3\n", "cannot be read as a table"),
        (b"a\0b\n", "not a table"),
        (b"\x1f\x8b123", "cut off or damaged"),
        (b"PAR1 and no more", "damaged Parquet"),
    ],
)
def test_bad_files_get_one_line(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_frame(path)
    assert "\n" not in str(caught.value)


def test_missing_files_and_columns_have_neighbours(table):
    with pytest.raises(FileNotFoundError, match=r"did you mean .*data\.csv\?"):
        read_frame(table.with_name("dta.csv"))
    with pytest.raises(ValueError, match="folder"):
        read_frame(table.parent)
    frame = read_frame(table)
    assert find_column(frame, "speed") == "speed"
    with pytest.raises(ValueError, match="no target 'Spede' in the table: did you mean 'speed'"):
        find_column(frame, "Spede", "target")
    with pytest.raises(ValueError, match="the columns are date, speed"):
        find_column(frame, "zzz")


def test_new_tables_may_lack_every_value(table):
    frame = read_frame(table)
    layout = Layout.of(frame, leave_out=("note", "empty", "same"))
    gone = frame.with_columns([pl.lit(None, dtype=pl.String).alias(name) for name in ("date", "speed", "colour")])
    np.testing.assert_array_equal(layout.numbers(gone), [[np.nan, 2.5, 0.0]] * 4)


def test_new_tables_must_fit_the_layout(table):
    frame = read_frame(table)
    layout = Layout.of(frame, leave_out=("note", "empty", "same"))
    with pytest.raises(ValueError, match="lacks 'speed', which the model needs"):
        layout.numbers(frame.drop("speed"))
    with pytest.raises(ValueError, match=r"'speed' holds a category \('fast'\), but the model was given a number"):
        layout.numbers(frame.with_columns(pl.lit("fast").alias("speed")))
    with pytest.raises(ValueError, match="'colour' holds 'green', which the model has not seen"):
        layout.numbers(frame.with_columns(pl.lit("green").alias("colour")))
    with pytest.raises(ValueError, match="no column is left as an input"):
        Layout.of(frame.select("empty", "same"))


def test_a_picture_is_a_table_of_its_cells(tmp_path):
    image = pytest.importorskip("PIL.Image")
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    image.fromarray(grey).save(tmp_path / "picture.png")
    frame = read_frame(tmp_path / "picture.png")
    assert frame.columns == ["row", "column", "grey"]
    assert frame.row(5) == (1, 2, 200.0)
    (tmp_path / "cut.png").write_bytes((tmp_path / "picture.png").read_bytes()[:40])
    with pytest.raises(ValueError, match="damaged picture"):
        read_frame(tmp_path / "cut.png")


def test_a_column_of_years_counts_by_the_calendar():
    layout = Layout.of(pl.DataFrame({"year": [1990.04, 1990.12, 2001.5]}))
    assert layout.used[0].unit == "years"
    assert calendar_of(layout)["a year"] == pytest.approx(1.0)
    assert Layout.of(pl.DataFrame({"year": [1.0, 2.0, 3.5]})).used[0].unit == ""
    assert calendar_of(Layout.of(pl.DataFrame({"age": [1990.04, 1990.12, 2001.5]}))) == {}
