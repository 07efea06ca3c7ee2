"""What the tables of the sources print, row by row, also of methods that have no run here; with the reason why not.

A row stands beside those of our numbers that answer to it: a quantity of the experiment, or what it was compared with
("baseline: …"). These numbers are copied from the sources and decide nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from study.registry import Found

BASELINE = "baseline: "


class Printed(NamedTuple):
    """A row of a table of a source: its case, its method, its numbers by column, and the quantities of ours beside these."""

    case: str
    method: str
    values: Mapping[str, float | int | str | None]
    beside: tuple[str, ...] = ()
    here: str = ""  # why there is none, or what ours is


def ours(name: str, found: Mapping[str, Found]) -> float | None:
    """Our number, or that of a baseline of ours, if it was run."""
    value = found.get(name.removeprefix(BASELINE))
    if value is None:
        return None
    number = value.baseline if name.startswith(BASELINE) else value.ours
    return number if isinstance(number, int | float) and number == number else None


REGRESSION = ("NMSE", "MNLP", "seconds")
DENSE = "no run: a dense matrix of 7,168 rows and more; inducing inputs stand in its place"
ANSWERS = {  # which of our models answers to a method, and what differs
    "Additive-MCMC": ("additive", "ours: the same model, learned once in place of drawn"),
    "Additive-VB": ("additive", "ours: the same model without a bound"),
    "Additive-Full": ("additive", "ours: the same model without its matrix"),
    "PPGPR-Greedy": ("projection pursuit", "ours: a search of its own"),
    "PPGPR-MCMC": ("projection pursuit", "ours: a search in place of draws"),
    "GP-Full": ("", DENSE),
    "SPGP": ("inducing inputs", "ours: inducing inputs"),
}
NUMBERS = {
    "000.table-4.1": {
        "synthetic": (
            (0.698, 1.094, 720),
            (0.703, 1.112, 125),
            (0.708, 1.070, 3097),
            (0.669, 1.204, 114),
            (0.714, 1.223, 846),
            (0.738, 1.534, 2233),
            (0.792, 1.702, 85),
        ),
        "friedman": (
            (0.110, 1.923, 3134),
            (0.113, 1.929, 682),
            (None,) * 3,
            (0.0424, 1.426, 523),
            (0.0401, 1.438, 4178),
            (None,) * 3,
            (0.0408, 1.410, 620),
        ),
    },
    "000.table-4.2": {
        "elevators": (
            (0.145, -4.586, 1150),
            (0.167, -4.521, 178),
            (0.147, -4.587, 8038),
            (0.128, -4.684, 211),
            (0.222, -3.741, 1244),
            (0.104, -4.767, 8219),
            (0.114, -4.811, 102),
        ),
        "pumadyn8fm": (
            (0.0705, 1.608, 611),
            (0.0716, 1.627, 92),
            (0.0714, 1.617, 3788),
            (0.0514, 1.437, 103),
            (0.0502, 1.443, 913),
            (0.0545, 1.484, 2360),
            (0.0540, 1.478, 63),
        ),
        "pumadyn8nm": (
            (0.374, 2.640, 633),
            (0.376, 2.642, 93),
            (0.372, 2.641, 3912),
            (0.0507, 1.511, 105),
            (0.0430, 1.421, 934),
            (0.0304, 1.386, 2378),
            (0.0306, 1.394, 71),
        ),
        "kin40k": (
            (0.945, 1.391, 2170),
            (0.945, 1.391, 438),
            (0.948, 1.388, 9415),
            (0.185, 0.507, 674),
            (0.138, 0.428, 2985),
            (0.0128, -0.897, 9302),
            (0.0502, -0.326, 214),
        ),
    },
}


def _regression(id: str) -> list[Printed]:
    found = []
    for case, rows in NUMBERS[id].items():
        for (method, (model, here)), values in zip(ANSWERS.items(), rows, strict=True):
            beside = tuple(f"{model}: {name}" for name in REGRESSION) if model else ()
            found.append(Printed(case, method, dict(zip(REGRESSION, values, strict=True)), beside, here))
    return found


LABELS = ("error", "MNLL", "seconds")
NO_MATRIX = "no run: the source does not say which dense process that is; 001.table-2.1 has one"
GUESSES = "no run: it guesses on some of the sets; learned inducing inputs for labels are in 001.table-2.1"
VECTORS = ("baseline: beside support vectors: error", "baseline: beside support vectors: MNLL")
OF_LABELS = {
    "Additive-LA": (LABELS, "ours: the same model"),
    "Additive-Full": (LABELS, "ours: the same model without its matrix"),
    "Full-GP": ((), NO_MATRIX),
    "FIC-50": ((), "no run: learned inducing inputs for labels are in 001.table-2.1"),
    "FIC-0.1N": ((), "no run: learned inducing inputs for labels are in 001.table-2.1"),
    "SVM": (VECTORS, "here: a tuned one, up to 5,000 rows"),
    "IVM": ((), GUESSES),
    "IVM-50": ((), GUESSES),
    "Logistic": ((), "no run: gradient boosting is the plain method here"),
}
LABEL_NUMBERS = {
    "000.table-4.3": {
        "synthetic": {
            "Additive-LA": (0.356, 0.557, 167),
            "Additive-Full": (0.341, 0.580, 305),
            "Full-GP": (0.437, 0.624, 335),
            "SVM": (0.437, 0.737, 124),
            "IVM": (0.479, 0.709, 128),
            "Logistic": (0.403, 0.744, 0),
        },
        "breast cancer": {
            "Additive-LA": (0, 0.0236, 110),
            "Additive-Full": (0.0333, 0.0853, 22),
            "Full-GP": (0, 0.0612, 23),
            "SVM": (0, 0.0368, 54),
            "IVM": (0.0111, 0.586, 327),
            "Logistic": (0.0556, 0.0995, 0),
        },
    },
    "000.table-4.4": {
        "magic": {
            "Additive-LA": (0.142, 0.348, 1580),
            "Additive-Full": (None,) * 3,
            "Full-GP": (None,) * 3,
            "SVM": (0.166, 0.397, 9833),
            "IVM": (0.341, 0.642, 1780),
            "Logistic": (0.209, 0.463, 1),
        },
        "ijcnn1": {
            "Additive-LA": (0.0513, 0.157, 8281),
            "Additive-Full": (None,) * 3,
            "Full-GP": (None,) * 3,
            "SVM": (0.0169, 0.0482, 71083),
            "IVM": (0.0950, 0.693, 3880),
            "Logistic": (0.337, 0.666, 0),
        },
        "usps": {
            "Additive-LA": (0.0164, 0.0490, 14686),
            "Additive-Full": (None,) * 3,
            "Full-GP": (None,) * 3,
            "SVM": (0.00897, 0.0317, 704),
            "IVM": (0.00648, 0.0348, 1580),
            "Logistic": (0.0204, 0.0678, 0),
        },
    },
    "002.table-2": {
        "synthetic": {
            "Full-GP": (0.604, 0.740, 2245),
            "Additive-LA": (0.280, 0.593, 161),
            "FIC-50": (0.280, 1.064, 526),
            "FIC-0.1N": (0.455, 1.361, 851),
            "IVM-50": (0.280, 0.693, 65),
            "SVM": (0.294, 0.584, 346),
        },
        "breast cancer": {
            "Full-GP": (0.067, 0.144, 6),
            "Additive-LA": (0.067, 0.122, 89),
            "FIC-50": (0.056, 0.100, 28),
            "FIC-0.1N": (0.056, 0.100, 56),
            "IVM-50": (0.067, 0.638, 12),
            "SVM": (0.056, 3.17, 1.7),
        },
        "magic": {
            "Full-GP": (None,) * 3,
            "Additive-LA": (0.139, 0.342, 2346),
            "FIC-50": (0.144, 0.366, 3340),
            "FIC-0.1N": (0.140, 0.365, 7331),
            "IVM-50": (0.658, 0.693, 118),
            "SVM": (0.119, 0.303, 8070),
        },
        "ijcnn1": {
            "Full-GP": (None,) * 3,
            "Additive-LA": (0.0516, 0.156, 14506),
            "FIC-50": (0.0482, 1.186, 4390),
            "FIC-0.1N": (0.0770, 0.817, 16728),
            "IVM-50": (0.0950, 0.693, 369),
            "SVM": (0.0166, 0.0509, 22170),
        },
    },
}


def _labels(id: str) -> list[Printed]:
    return [
        Printed(case, method, dict(zip(LABELS, values, strict=True)), *OF_LABELS[method])
        for case, rows in LABEL_NUMBERS[id].items()
        for method, values in rows.items()
    ]


SETS = {  # error and −log p of a dense process; error and support vectors; error, −log p and active set of an IVM; of SPGPC
    "synth": ((0.097, 0.227), (0.098, 98), (0.096, 0.235, 150), (0.087, 0.234, 4)),
    "crabs": ((0.039, 0.096), (0.168, 67), (0.066, 0.134, 60), (0.043, 0.105, 10)),
    "banana": ((0.105, 0.237), (0.106, 151), (0.105, 0.242, 200), (0.107, 0.261, 20)),
    "breast-cancer": ((0.288, 0.558), (0.277, 122), (0.307, 0.691, 120), (0.281, 0.557, 2)),
    "diabetis": ((0.231, 0.475), (0.226, 271), (0.230, 0.486, 400), (0.230, 0.485, 2)),
    "flare-solar": ((0.346, 0.570), (0.331, 556), (0.340, 0.628, 550), (0.338, 0.569, 3)),
    "german": ((0.230, 0.482), (0.247, 461), (0.290, 0.658, 450), (0.236, 0.491, 4)),
    "heart": ((0.178, 0.423), (0.166, 92), (0.203, 0.455, 120), (0.172, 0.414, 2)),
    "image": ((0.027, 0.078), (0.040, 462), (0.028, 0.082, 400), (0.031, 0.087, 200)),
    "ringnorm": ((0.016, 0.071), (0.016, 157), (0.016, 0.101, 100), (0.014, 0.089, 2)),
    "splice": ((0.115, 0.281), (0.102, 698), (0.225, 0.403, 700), (0.126, 0.306, 200)),
    "thyroid": ((0.043, 0.093), (0.056, 61), (0.041, 0.120, 40), (0.037, 0.128, 6)),
    "titanic": ((0.221, 0.514), (0.223, 118), (0.242, 0.578, 100), (0.231, 0.520, 2)),
    "twonorm": ((0.031, 0.085), (0.027, 220), (0.031, 0.085, 300), (0.026, 0.086, 2)),
    "waveform": ((0.100, 0.229), (0.107, 148), (0.100, 0.232, 250), (0.099, 0.228, 10)),
}
ACTIVE = 'no run: learned inducing inputs take its place; `Inducing(place="ivm")` is the same choice of rows'


def _sets() -> list[Printed]:
    found = []
    for case, (dense, vectors, active, sparse) in SETS.items():
        row = lambda method, error, log, size, beside, here, case=case: Printed(
            case, method, {"error": error, "−log p": log, "rows kept": size}, beside, here
        )
        M = sparse[2]
        found += [
            row("GPC", *dense, None, ("error, dense", "−log p, dense"), "ours: dense EP"),
            row("SVM", vectors[0], None, vectors[1], ("baseline: error, dense",), "here: a tuned one"),
            row("IVM", *active, (), ACTIVE),
            row("SPGPC", *sparse, (f"error, {M} inputs", f"−log p, {M} inputs"), "ours: as many learned inducing inputs"),
        ]
    return found


PARITY = {
    2: (
        0.069,
        {4: 0.406, 6: 0.322, 8: 0.287, 16: 0.135, 32: 0.061},
        {4: 0.321, 6: 0.173, 8: 0.134, 16: 0.067, 24: 0.062},
        {4: 0.054, 6: 0.055, 8: 0.056},
    ),
    3: (
        0.090,
        {8: 0.565, 12: 0.534, 16: 0.449, 32: 0.286, 96: 0.088},
        {8: 0.418, 12: 0.276, 16: 0.173, 32: 0.092, 64: 0.087},
        {8: 0.122, 12: 0.083, 16: 0.082},
    ),
    4: (
        0.139,
        {16: 0.484, 24: 0.482, 32: 0.543, 192: 0.196, 256: 0.138},
        {16: 0.406, 24: 0.345, 32: 0.244, 64: 0.150, 96: 0.130},
        {16: 0.233, 24: 0.133, 32: 0.121},
    ),
}
PLACED = "no run: what learned inputs are compared with; they need as many as there are clusters"


def _parity() -> list[Printed]:
    found = []
    for D, (dense, active, mixed, sparse) in PARITY.items():
        case = f"D = {D}"
        found.append(Printed(case, "GP", {"inputs": None, "error": dense}, ("", "error, dense"), "ours: dense EP"))
        for method, errors, here in (("IVM", active, PLACED), ("IVM/FITC", mixed, PLACED), ("SPGPC", sparse, "ours")):
            for M, error in errors.items():
                beside = ("", f"error, {M} inputs") if method == "SPGPC" else ()
                found.append(Printed(case, method, {"inputs": M, "error": error}, beside, here))
    return found


SERIES = ("MNLP", "MSE", "seconds")
ONE, GRID = ("baseline: MNLP", "baseline: MSE"), ("MNLP", "MSE", "seconds")
ALONE, CHANGES = "here: one process for the whole series", "ours: the grid of the same changes"
EXPERT = "no run: processes between change points that are given, for which `ChangePoint` is there"


def _changes() -> list[Printed]:
    numbers = {
        "synthetic": ((2.641, 0.930, 36), (-1.415, 0.708, 311)),
        "nile": ((1.373, 0.873, 13), (1.185, 0.743, 268)),
        "bee": ((1.587, 0.786, 327), (1.231, 0.698, 838)),
        "whistler": ((1.482, 0.776, 13273), (-1.985, 0.618, 6243)),
    }
    found = []
    for case, (one, grid) in numbers.items():
        found.append(Printed(case, "Stationary-GP", dict(zip(SERIES, one, strict=True)), ONE, ALONE))
        found.append(Printed(case, "NSGP-grid", dict(zip(SERIES, grid, strict=True)), GRID, CHANGES))
        if case == "bee":
            found.append(Printed(case, "expert change points", {"MNLP": 1.438, "MSE": 0.723, "seconds": None}, (), EXPERT))
    return found


PROJECTED = "no run: the source calls its own result extremely poor and prints no number"
USPS = 'no run: learned inputs are the row above it; of 200 rows the source says that they call everything "not 4"'
PRINTED: dict[str, list[Printed]] = {
    "000.table-3.1": _changes(),
    "000.table-4.1": _regression("000.table-4.1"),
    "000.table-4.2": _regression("000.table-4.2"),
    "000.table-4.3": _labels("000.table-4.3"),
    "000.table-4.4": _labels("000.table-4.4"),
    "001.table-2.1": _sets(),
    "001.table-2.2": _parity(),
    "001.table-2.3": [
        *(
            Printed(
                f"d = {d}", "projected SPGPC", {"error": error, "−log p": log}, ("error", "−log p"), "ours: as many projections"
            )
            for d, (error, log) in {2: (0.0782, 0.242), 4: (0.0688, 0.160), 6: (0.0995, 0.203), 8: (0.1520, 0.304)}.items()
        ),
        *(
            Printed(name, "projected SPGPC", {"error": "extremely poor", "−log p": None}, (), PROJECTED)
            for name in ("splice", "USPS")
        ),
    ],
    "001.usps": [
        row
        for inputs, sparse, active in (("200", (0.0194, 0.051), (0.0997, 0.421)), ("400", (0.0179, 0.048), (0.0154, 0.085)))
        for row in (
            Printed(
                inputs,
                "SPGPC",
                dict(zip(("error", "−log p"), sparse, strict=True)),
                ("error", "−log p"),
                "ours: learned inputs",
            ),
            Printed(inputs, "IVM", dict(zip(("error", "−log p"), active, strict=True)), (), USPS),
        )
    ],
    "002.table-2": _labels("002.table-2"),
}
