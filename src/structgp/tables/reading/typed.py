"""Files whose columns have types: Parquet, Arrow (Feather, IPC), and NetCDF, whose fields become one row for each cell."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...inputs.reading import few
from .text import first_line

if TYPE_CHECKING:
    import polars as pl

PARQUET = b"PAR1"
ARROW, ARROW_STREAM, FEATHER_1 = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
NETCDF_3, NETCDF_4 = b"CDF", b"\x89HDF\r\n\x1a\n"
MOST_ROWS = 5_000_000  # cells of a field that are made rows of a table


def typed_frame(content: bytes, path: Path) -> tuple[pl.DataFrame, list[str]] | None:
    """The columns of a file that says their types, and what was assumed; None for any other file."""
    import polars as pl

    readers: dict[bytes, tuple[str, Any]] = {
        PARQUET: ("Parquet", pl.read_parquet),
        ARROW: ("Arrow", pl.read_ipc),
        ARROW_STREAM: ("Arrow", pl.read_ipc_stream),
    }
    if content.startswith(FEATHER_1):
        raise ValueError(
            f"{path} is a Feather file of the first version, which is no longer written: save it as Arrow or Parquet"
        )
    if content.startswith((NETCDF_3, NETCDF_4)):
        return _netcdf(content, path)
    for mark, (name, read) in readers.items():
        if content.startswith(mark):
            try:
                return read(io.BytesIO(content)), []
            except (pl.exceptions.PolarsError, OSError) as problem:
                raise ValueError(f"{path} is a damaged {name} file ({first_line(problem)}): write it again") from None
    return None


def _netcdf(content: bytes, path: Path) -> tuple[pl.DataFrame, list[str]]:
    """The variables with the most cells as columns beside their coordinates, a row for each cell."""
    try:
        import xarray

        engine = "scipy" if content.startswith(NETCDF_3) else "h5netcdf"
        if engine == "h5netcdf":
            import h5netcdf  # noqa: F401
    except ImportError:
        raise ValueError(f"{path} is a NetCDF file, which needs xarray and h5netcdf: pip install 'structgp[netcdf]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is odd in a file that can be read
            with xarray.open_dataset(io.BytesIO(content), engine=engine) as dataset:
                whole = dataset.load()
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as problem:
        raise ValueError(f"{path} is no NetCDF file that can be read ({first_line(problem)}): write it again") from None
    return _cells(whole, path)


def _cells(dataset: Any, path: Path) -> tuple[pl.DataFrame, list[str]]:
    """The largest variables of a data set over the same axes, as columns."""
    import polars as pl

    variables = {str(name): one for name, one in dataset.data_vars.items() if one.dims and one.dtype.kind in "fiubMmSUO"}
    if not variables:
        raise ValueError(f"{path} has no variable with an axis: a field such as sst(time, lat, lon) is needed")
    axes = max((one.dims for one in variables.values()), key=lambda dims: math.prod(dataset.sizes[dim] for dim in dims))
    taken = {name: one for name, one in variables.items() if set(one.dims) == set(axes)}
    left = [name for name in variables if name not in taken]
    size = math.prod(dataset.sizes[dim] for dim in axes)
    if size > MOST_ROWS:
        raise ValueError(f"{path} has {size} cells, and at most {MOST_ROWS} are read: take a part of it")
    columns: dict[str, np.ndarray] = {}
    places = np.indices([dataset.sizes[dim] for dim in axes]).reshape(len(axes), -1)
    for dim, place in zip(axes, places, strict=True):
        known = dataset[dim].values if dim in dataset.coords else np.arange(dataset.sizes[dim])
        if known.dtype == object:
            raise ValueError(f"{path} counts {dim} by a calendar with other months: only that of every day is read")
        columns[str(dim)] = known[place]
    for name, coordinate in dataset.coords.items():  # such as longitudes of a grid that is turned
        if name not in axes and coordinate.dims and set(coordinate.dims) <= set(axes):
            columns[str(name)] = _over(coordinate, axes, dataset)
    for name, one in taken.items():
        columns[name] = _over(one, axes, dataset)
    sizes = " × ".join(str(dataset.sizes[dim]) for dim in axes)
    notes = [f"a row for each of the {sizes} cells of {few(list(map(str, axes)))}"]
    notes += (
        [f"{few([repr(name) for name in left])} {'has' if len(left) == 1 else 'have'} other axes: left out"] if left else []
    )
    return pl.DataFrame({name: _plain(values) for name, values in columns.items()}), notes


def _over(variable: Any, axes: tuple[Any, ...], dataset: Any) -> np.ndarray:
    """The values of a variable in all cells."""
    whole = variable.expand_dims({dim: dataset.sizes[dim] for dim in axes if dim not in variable.dims})
    return whole.transpose(*axes).values.reshape(-1)


def _plain(values: np.ndarray) -> Any:
    """Values as a table has them: gaps are missing, times in microseconds, names as text."""
    import polars as pl

    if values.dtype.kind == "f":
        return pl.Series(values.astype(float)).fill_nan(None)
    if values.dtype.kind == "M":
        return pl.Series(values.astype("datetime64[us]"))
    if values.dtype.kind in "SO":
        return pl.Series([value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values])
    return pl.Series(values)
