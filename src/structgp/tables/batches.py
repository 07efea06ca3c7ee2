"""Blocks of rows of a Parquet file, one after the other, for files that do not fit in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class ParquetBatches:
    """The rows (X, y) of one or several Parquet files, `rows` at a time; every loop begins anew.

    `target` is the column that is foretold, `columns` those that tell (all others if left out). A path may have a star in it.
    """

    path: str | Path
    target: str
    columns: tuple[str, ...] | None = None
    rows: int = 65_536

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        import polars as pl

        table: Any = pl.scan_parquet(self.path)
        names = table.collect_schema().names()
        columns = [name for name in names if name != self.target] if self.columns is None else list(self.columns)
        unknown = [name for name in (self.target, *columns) if name not in names]
        if unknown:
            raise ValueError(f"{self.path} has no column {unknown[0]!r}: it has {', '.join(names)}")
        count = table.select(pl.len()).collect().item()
        for at in range(0, count, self.rows):
            block = table.select([*columns, self.target]).slice(at, self.rows).collect()
            yield block.select(pl.col(columns).cast(pl.Float64)).to_numpy(), block[self.target].cast(pl.Float64).to_numpy()
