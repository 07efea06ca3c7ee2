"""`structgp fit` for a series in many files: learned in parts, here or on the workers of a Dask scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...learn.clock import Deadline
from ..writing import check_folder, replacing_all
from .base import seconds_of

KERNEL = "Matern32"  # where none is said
ROWS = 2**20  # of a part


def is_many(data: Path, scheduler: str | None) -> bool:
    """Whether the data are many files, or are to be worked on elsewhere."""
    return scheduler is not None or "*" in str(data)


def fit_in_parts(
    data: Path,
    target: str | None,
    time: str | None,
    kernel: Sequence[str],
    scheduler: str | None,
    out: Path,
    budget: str,
    seed: int,
) -> dict[str, Any]:
    """Learn a column along a column of times; writes one file of smoothed values for each part, and what was learned."""
    import numpy as np

    import structgp as sg

    from ...parameters.tree import named_values
    from ..expression import parse_kernel

    deadline = Deadline.after(seconds_of(budget))
    check_folder(out)
    if len(kernel) > 1:
        raise ValueError(
            f"a series in many files is learned with one kernel: add the {len(kernel)} up, as in 'Matern52 + Linear'"
        )
    if target is None:
        raise ValueError(f"{data} are many files: name the column to be predicted with --target, and the times with --time")
    batches = sg.ParquetBatches(str(data), target, None if time is None else (time,), rows=ROWS)
    blocks = batches.blocks()
    names = blocks[0].columns if blocks else ()
    if len(names) != 1:
        raise ValueError(f"many files have one column of times, and there are {', '.join(names)}: name it with --time")
    gp = sg.GP(parse_kernel(kernel[0] if kernel else KERNEL, names), mean=sg.ConstantMean())
    fitted: Any = gp.fit(batches, missing="infer", over=scheduler, seconds=deadline, seed=seed)
    folder, kept = out / "smoothed", out / "fitted.structgp"
    parts = [folder / f"{number:05d}.parquet" for number in range(len(blocks))]
    with replacing_all(*parts, kept, folder=folder) as places:
        for block, found, place in zip(blocks, fitted.smoothed(), places[:-1], strict=True):
            table = block.read()[0].with_columns(mean=np.asarray(found.mean), sd=np.sqrt(np.asarray(found.variance)))
            table.write_parquet(place)
        fitted.save(places[-1])
    values = {name: np.asarray(value).tolist() for name, value in named_values(fitted.gp).items()}
    answer = {"rows": sum(fitted.plan.rows), "log_evidence": fitted.log_evidence, "values": values}
    said = f"{fitted.summary()}\n\nsmoothed     {folder}\nfitted       {kept}, which structgp.load reads"
    return {**answer, "files": {"smoothed": str(folder), "fitted": str(kept)}, "text": said}
