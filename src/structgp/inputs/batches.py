"""Blocks of rows of Parquet files, one after the other or by number, for tables that do not fit in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Paths = str | Path | Sequence[str | Path]


class Block(NamedTuple):
    """So many rows of Parquet files from a place on, which are read when they are needed."""

    path: Paths
    target: str
    columns: tuple[str, ...]
    at: int
    rows: int

    def read(self) -> tuple[Any, Any]:
        """The columns that tell, as a table, and the target."""
        block = _collected(self.path, _scanned(self.path).select([*self.columns, self.target]).slice(self.at, self.rows))
        return block.select(self.columns), block[self.target]


@dataclasses.dataclass(frozen=True)
class ParquetBatches:
    """The rows (X, y) of one or several Parquet files, `rows` at a time; every loop begins anew.

    `target` is the column that is foretold, `columns` those that tell (all others if left out). A path may have a star in it.
    """

    path: Paths
    target: str
    columns: tuple[str, ...] | None = None
    rows: int = 65_536

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        import polars as pl

        for block in self.blocks():
            X, y = block.read()
            yield X.select(pl.all().cast(pl.Float64)).to_numpy(), y.cast(pl.Float64).to_numpy()

    def blocks(self) -> list[Block]:
        """The blocks, not yet read."""
        import polars as pl

        table = _scanned(self.path)
        try:
            names = table.collect_schema().names()
        except (pl.exceptions.PolarsError, OSError) as problem:
            said = str(problem).partition("\n")[0][:100]
            raise ValueError(f"there are no Parquet files to be read at {self.path} ({said}): check the path") from None
        columns = [name for name in names if name != self.target] if self.columns is None else list(self.columns)
        unknown = [name for name in (self.target, *columns) if name not in names]
        if unknown:
            raise ValueError(f"{self.path} has no column {unknown[0]!r}: it has {', '.join(names)}")
        count = _collected(self.path, table.select(pl.len())).item()
        path = str(self.path) if isinstance(self.path, (str, Path)) else tuple(map(str, self.path))
        return [Block(path, self.target, tuple(columns), at, self.rows) for at in range(0, count, self.rows)]


def _scanned(path: Paths) -> Any:
    """The rows of all files, not yet read; columns that the first file does not have are left out."""
    import polars as pl

    wider = pl.ScanCastOptions(integer_cast="upcast", float_cast="upcast")
    paths: Any = path if isinstance(path, (str, Path)) else list(path)
    return pl.scan_parquet(paths, extra_columns="ignore", cast_options=wider)


def _collected(path: Paths, rows: Any) -> Any:
    """What was asked of files; those that do not go together are refused in one line."""
    import polars as pl

    try:
        return rows.collect()
    except (pl.exceptions.SchemaError, pl.exceptions.ColumnNotFoundError) as problem:
        said = str(problem).partition("\n")[0].partition(", hint:")[0].partition(", consider")[0]
        raise ValueError(
            f"the files of {path} do not have the same columns ({said}): the first says which there are, and of what type"
        ) from None
