"""Parts that are laid on several devices give the numbers of the whole: four forced ones, in a process of their own."""

import os
import subprocess
import sys

CODE = """
import jax
import numpy as np
import structgp as sg
from structgp.parameters.tree import free_vector

rng = np.random.default_rng(5)
t = np.sort(rng.uniform(0, 20, 240))
y = np.sin(t) + 0.2 * rng.normal(size=240)
import polars as pl
pl.DataFrame({"t": t, "y": y}).write_parquet("rows.parquet")
gp, rows = sg.GP(sg.Matern32(1.0, 1.0), sg.Gaussian(0.1)), sg.ParquetBatches("rows.parquet", "y", rows=40)
devices = jax.devices()
assert len(devices) == 4
shared = gp.fit(rows, over=devices, max_evaluations=4)
assert "6 parts on 4 devices" in str(shared.plan)
handles = shared._known.handles
on = [next(iter(handle.value().part.t.devices())) for handle in handles]
assert on == [devices[i % 4] for i in range(6)]
alone = gp.fit(rows, max_evaluations=4)
assert np.array_equal(free_vector(shared.gp), free_vector(alone.gp))
assert shared.log_evidence == alone.log_evidence
new = np.linspace(-1, 21, 30)
assert np.array_equal(shared.predict(new).mean, alone.predict(new).mean)
print("the same")
"""


def test_parts_are_laid_on_devices(tmp_path):
    forced = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    said = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "XLA_FLAGS": forced, "JAX_PLATFORMS": "cpu"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip().endswith("the same"), said.stderr[-3000:]
