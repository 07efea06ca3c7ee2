"""Files whose columns have types: Parquet, Arrow in its three forms, and NetCDF, whose fields become rows."""

import numpy as np
import polars as pl
import pytest

from structgp.tables.automatic.problem import layout_of, shape_of
from structgp.tables.reading import read_table

xr = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")

FRAME = pl.DataFrame({"when": [f"0{day}.02.2020" for day in range(1, 6)], "n": range(5), "v": [1.5, None, 2.5, -999.0, 3.0]})


@pytest.mark.parametrize("kind", ["parquet", "ipc", "ipc_stream"])
def test_columns_come_back_and_text_is_read_as_everywhere(tmp_path, kind):
    getattr(FRAME, f"write_{kind}")(tmp_path / "table")
    table = read_table(tmp_path / "table")
    assert table.frame["when"].dtype == pl.Date
    assert table.frame["n"].to_list() == list(range(5))
    assert table.frame["v"].null_count() == 2
    assert table.written.equals(FRAME)
    assert any("-999 is taken as missing" in note for note in table.notes)


def field(calendar="standard"):
    """A field over time and a map with a cell of land, a mask over the map, and the bounds of the months."""
    lat, lon = np.linspace(-10.0, 10.0, 4), np.linspace(0.0, 30.0, 5)
    sst = 20 + np.arange(6.0)[:, None, None] + lat[:, None] / 10 + lon / 30
    sst[:, 0, 0] = np.nan
    data = {"sst": (("time", "lat", "lon"), sst), "depth": (("lat", "lon"), np.ones((4, 5)))}
    days = ("time", 31.0 * np.arange(6), {"units": "days since 1999-01-01", "calendar": calendar})
    return xr.Dataset(data, coords={"time": days, "lat": lat, "lon": lon})


@pytest.mark.parametrize(("engine", "kind"), [("scipy", "NETCDF3_64BIT"), ("h5netcdf", "NETCDF4")])
def test_a_field_is_a_row_for_each_cell(tmp_path, engine, kind):
    field().to_netcdf(tmp_path / "field.nc", engine=engine, format=kind)
    table = read_table(tmp_path / "field.nc")
    assert table.frame.columns == ["time", "lat", "lon", "sst"]
    assert table.frame.height == 6 * 4 * 5
    assert table.frame["sst"].null_count() == 6
    assert str(table.frame["time"][20]) == "1999-02-01 00:00:00"
    row = table.frame.row(20 + 5 + 2, named=True)
    assert row["sst"] == pytest.approx(20 + 1 + row["lat"] / 10 + row["lon"] / 30)
    assert table.notes == ("a row for each of the 6 × 4 × 5 cells of time, lat, lon", "'depth' has other axes: left out")
    layout = layout_of(table, "sst", None)
    X = layout.numbers(table.frame)
    assert shape_of(X, layout) == "grid"


def test_axes_without_numbers_are_counted_and_turned_grids_keep_their_coordinates(tmp_path):
    turned = {"lon": (("y", "x"), np.arange(6.0).reshape(2, 3)), "run": 3.0}
    xr.Dataset({"t": (("y", "x"), np.ones((2, 3), dtype="float32"))}, coords=turned).to_netcdf(
        tmp_path / "f.nc", engine="scipy"
    )
    frame = read_table(tmp_path / "f.nc").frame
    assert frame.columns == ["y", "x", "lon", "t"]
    assert frame["x"].to_list() == [0, 1, 2, 0, 1, 2]
    assert frame["lon"].to_list() == list(range(6))


def test_what_cannot_be_read_gets_one_line(tmp_path):
    whole, path = tmp_path / "field.nc", tmp_path / "bad.nc"
    field().to_netcdf(whole, engine="scipy")
    path.write_bytes(whole.read_bytes()[:600])
    with pytest.raises(ValueError, match="no NetCDF file that can be read"):
        read_table(path)
    field().to_netcdf(whole, engine="h5netcdf")
    path.write_bytes(whole.read_bytes()[:600])
    with pytest.raises(ValueError, match="no NetCDF file that can be read"):
        read_table(path)
    xr.Dataset({"n": 1.0}).to_netcdf(path, engine="scipy")
    with pytest.raises(ValueError, match=r"no variable with an axis: a field such as sst\(time, lat, lon\)"):
        read_table(path)
    FRAME.write_ipc(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match="damaged Arrow file"):
        read_table(path)
    path.write_bytes(b"FEA1" + bytes(20))
    with pytest.raises(ValueError, match="Feather file of the first version"):
        read_table(path)


def test_a_calendar_with_other_months_is_refused(tmp_path):
    field("360_day").to_netcdf(tmp_path / "field.nc", engine="scipy")
    with pytest.raises(ValueError, match=r"NetCDF|calendar"):
        read_table(tmp_path / "field.nc")
