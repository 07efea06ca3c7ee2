import polars as pl
import pytest
from odd_tables import CASES

from structgp.tables.reading import read_table


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
    found = {name: (kind(table.frame[name]), table.frame[name].to_list()) for name in table.frame.columns}
    assert found == case.columns
    assert len(table.notes) == len(case.notes), table.notes
    for note, piece in zip(table.notes, case.notes, strict=True):
        assert piece in note
        assert "\n" not in note


def test_there_are_enough():
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)
