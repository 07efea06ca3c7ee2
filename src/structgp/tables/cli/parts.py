"""`structgp fit` for a series in many files: learned in parts, here or on the workers of a Dask scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KERNEL = "Matern32"  # where none is said
ROWS = 2**20  # of a part


def is_many(data: Path, scheduler: str | None) -> bool:
    """Whether the data are many files, or are to be worked on elsewhere."""
    return scheduler is not None or "*" in str(data)


def fit_in_parts(
    data: Path, target: str | None, time: str | None, kernel: str | None, over: Any, out: Path, seconds: Any, seed: int
) -> dict[str, Any]:
    """Learn a column along a column of times; writes one file of smoothed values for each part, and what was learned."""
    import numpy as np

    import structgp as sg

    from ...parameters.tree import named_values
    from ..expression import parse_kernel

    if target is None:
        raise ValueError(f"{data} are many files: name the column to be predicted with --target, and the times with --time")
    batches = sg.ParquetBatches(str(data), target, None if time is None else (time,), rows=ROWS)
    blocks = batches.blocks()
    names = blocks[0].columns if blocks else ()
    if len(names) != 1:
        raise ValueError(f"many files have one column of times, and there are {', '.join(names)}: name it with --time")
    gp = sg.GP(parse_kernel(kernel or KERNEL, names), mean=sg.ConstantMean())
    fitted: Any = gp.fit(batches, missing="infer", over=over, seconds=seconds, seed=seed)
    folder = out / "smoothed"
    folder.mkdir(parents=True, exist_ok=True)
    for number, (block, found) in enumerate(zip(blocks, fitted.smoothed(), strict=True)):
        table = block.read()[0].with_columns(mean=np.asarray(found.mean), sd=np.sqrt(np.asarray(found.variance)))
        table.write_parquet(folder / f"{number:05d}.parquet")
    kept = out / "fitted.structgp"
    fitted.save(kept)
    values = {name: np.asarray(value).tolist() for name, value in named_values(fitted.gp).items()}
    answer = {"rows": sum(fitted.plan.rows), "log_evidence": fitted.log_evidence, "values": values}
    said = f"{fitted.summary()}\n\nsmoothed     {folder}\nfitted       {kept}, which structgp.load reads"
    return {**answer, "files": {"smoothed": str(folder), "fitted": str(kept)}, "text": said}
