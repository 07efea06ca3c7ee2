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
        block = _scanned(self.path).select([*self.columns, self.target]).slice(self.at, self.rows).collect()
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
        count = table.select(pl.len()).collect().item()
        path = str(self.path) if isinstance(self.path, (str, Path)) else tuple(map(str, self.path))
        return [Block(path, self.target, tuple(columns), at, self.rows) for at in range(0, count, self.rows)]


def _scanned(path: Paths) -> Any:
    import polars as pl

    return pl.scan_parquet(path if isinstance(path, (str, Path)) else list(path))  # type: ignore[arg-type]
