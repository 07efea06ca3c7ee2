"""A table of runs as the whole state of an optimisation: what was measured, what failed, and what is still to be done.

Each line is a run. With a number in the column of the target it was measured, without anything there it is pending, and with
anything else it failed. The file is only ever added to: what is in it stays as it is, byte for byte. A workbook and other files
that are no plain text are read, and go on in a new CSV file.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._types import how_many
from ..decide.optimise import Optimiser, Suggestion
from ..decide.space import Category, Continuous, Space, Variable, Whole, as_limit
from ..inputs.reading import few
from .reading import as_csv
from .reading.text import decoded

WHY = "suggested_because"
FAILED = ("failed", "fail", "error", "crash", "nan", "inf", "-inf", "none", "na", "n/a")
WIDER = 0.1  # of the observed range, added at both ends where no bounds were given
MOST_CATEGORIES = 20
SEPARATORS = ",;\t"
PACKED = (".xlsx", ".xlsb", ".xls", ".ods", ".parquet", ".arrow", ".feather", ".nc", ".gz")


class Runs(NamedTuple):
    """The cells of a table of runs: its header, its rows with their line numbers, and how they are separated."""

    path: Path
    text: str
    header: list[str]
    rows: list[tuple[int, list[str]]]
    separator: str
    plain: bool = True  # lines can be added to the file itself
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> list[tuple[int, str]]:
        """The cells of a column with their lines."""
        at = self.header.index(name)
        return [(line, row[at]) for line, row in self.rows]


class Question(NamedTuple):
    """An optimiser that was told all runs, and what a person should know of how they were read."""

    optimiser: Optimiser
    runs: Runs
    target: str
    failed: list[int]  # lines
    notes: list[str]


def read_runs(path: Path) -> Runs:
    """The cells of a table; no rows where there is no file, or an empty one."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a CSV file in it, or of one that is to be made")
    content = path.read_bytes() if path.exists() else b""
    if not content.strip():
        if path.suffix.lower() in PACKED:
            raise ValueError(f"{path} is to be added to line by line, so it must be CSV: call it {path.with_suffix('.csv')}")
        return Runs(path, "", [], [], ",")
    other = as_csv(path)
    text, notes = other or decoded(content, path)
    if other is None and (notes or content.startswith((b"\xff\xfe", b"\xfe\xff"))):
        raise ValueError(f"{path} is not UTF-8, so nothing can be added to it: save it as CSV UTF-8")
    text = text.removeprefix("\ufeff")
    first = text.lstrip("\r\n").splitlines()[0]
    separator = max(SEPARATORS, key=first.count)
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as problem:
        raise ValueError(f"{path} is not a table: {problem}. Check the quotes in it") from None
    numbered = [(number, [cell.strip() for cell in row]) for number, row in enumerate(lines, 1) if any(map(str.strip, row))]
    header, rows = numbered[0][1], numbered[1:]
    if any(not name for name in header):
        raise ValueError(f"{path}: column {header.index('') + 1} has no name: give it one in the first line")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has two columns {twice[0]!r}: rename one of them")
    if all(_number(name) is not None for name in header):
        raise ValueError(f"{path} has no header: its first line must name the columns")
    ragged = [line for line, row in rows if len(row) != len(header)]
    if ragged:
        raise ValueError(
            f"{path}: the number of cells is not that of the {len(header)} names in the first line (line {few(ragged)}): "
            "complete these lines"
        )
    return Runs(path, text, header, rows, separator, other is None, tuple(notes))


def variables_of(bounds: Sequence[str], integers: Sequence[str], choices: Sequence[str]) -> dict[str, Variable]:
    """Variables from what was said on the command line."""
    found: dict[str, Variable] = {}
    for kind, texts in (("--bounds", bounds), ("--integer", integers), ("--choices", choices)):
        for text in texts:
            name, _, rest = text.partition("=")
            name = name.strip()
            if name in found:
                raise ValueError(f"{name!r} was given twice: say once what it is")
            found[name] = _variable(kind, text, name, rest.strip())
    return found


def _variable(kind: str, text: str, name: str, rest: str) -> Variable:
    if kind == "--choices":
        values = [value.strip() for value in rest.split(",") if value.strip()]
        if not name or len(set(values)) < 2:
            raise ValueError(f"--choices {text!r} is not understood: write --choices solvent=water,ethanol")
        return Space({name: Category("", tuple(values))}).variables[0]
    parts = rest.split(":")
    numbers = [_number(part) for part in parts[:2]]
    scale = parts[2:] == ["log"]
    if not name or len(numbers) != 2 or None in numbers or (parts[2:] and not scale) or (scale and kind == "--integer"):
        example = "--integer stages=1:8" if kind == "--integer" else "--bounds temp=20:80, or --bounds flow=0.1:10:log"
        raise ValueError(f"{kind} {text!r} is not understood: write {example}")
    low, high = numbers
    given = Whole("", low, high) if kind == "--integer" else Continuous("", low, high, scale)  # type: ignore[arg-type]
    return Space({name: given}).variables[0]


def outcomes_of(texts: Sequence[str]) -> dict[str, tuple[float | None, float | None]]:
    """Limits of outcomes by name, from text such as "cost <= 5"."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for text in texts:
        match = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*(\S+)\s*", text)
        limit = _number(match[3]) if match else None
        if match is None or limit is None:
            raise ValueError(f'--outcome {text!r} is not understood: write --outcome "cost <= 5"')
        low, high = found.get(match[1], (None, None))
        found[match[1]] = (low, limit) if match[2][0] == "<" else (limit, high)
    return found


def question(
    runs: Runs,
    target: str,
    *,
    maximise: bool,
    variables: Mapping[str, Variable],
    constraints: Sequence[str] = (),
    outcomes: Mapping[str, tuple[float | None, float | None]] | None = None,
    ignored: Sequence[str] = (),
    noise: float | None = None,
    acquisition: str = "ei",
    seed: int = 0,
) -> Question:
    """The optimiser that a table of runs stands for."""
    outcomes, notes = dict(outcomes or {}), list(runs.notes)
    _check_names(runs, target, variables, outcomes, ignored)
    found = dict(variables)
    others = [name for name in runs.header if name not in (target, WHY, *outcomes, *ignored, *variables)]
    for name in others:
        found[name], note = _from_file(runs, name)
        notes.append(note)
    if not found:
        raise ValueError("no variable is known: say what may be changed, as in --bounds temp=20:80")
    ordered = {
        name: found[name] for name in (*(n for n in runs.header if n in found), *(n for n in found if n not in runs.header))
    }
    space = Space(ordered)
    limits = [as_limit(text, space) for text in constraints]
    optimiser = Optimiser(
        space,
        maximise=maximise,
        constraints=limits,
        outcome_constraints=outcomes,
        noise=noise,
        acquisition=acquisition,
        seed=seed,
    )
    failed = _tell(optimiser, runs, target, outcomes)
    return Question(optimiser, runs, target, failed, notes)


def _check_names(runs: Runs, target: str, variables: Any, outcomes: Any, ignored: Sequence[str]) -> None:
    for name in variables:
        if name == target or name in outcomes:
            raise ValueError(f"{name!r} is measured, so it has no bounds: leave it out of --bounds, --integer and --choices")
    if not runs.header:
        return
    for name in (target, *variables, *outcomes, *ignored):
        if name not in runs.header:
            raise ValueError(f"{runs.path} has no column {name!r}: its columns are {', '.join(runs.header)}")
    cells = [cell for _, cell in runs.column(target) if cell]
    words = list(dict.fromkeys(cell for cell in cells if cell.lower() not in FAILED))
    if words and not any(re.search(r"\d", cell) for cell in cells):
        raise ValueError(f"column {target!r} of {runs.path} holds words ({few(words, 3)}): what is sought must be a number")


def _from_file(runs: Runs, name: str) -> tuple[Variable, str]:
    """What a variable is, by its cells, and the line that says so."""
    cells = [cell for _, cell in runs.column(name) if cell]
    numbers = [number for cell in cells if (number := _number(cell)) is not None and math.isfinite(number)]
    where = f"column {name!r} of {runs.path}"
    if cells and len(numbers) == len(cells):
        low, high = min(numbers), max(numbers)
        if not low < high:
            raise ValueError(
                f"{where} has one value only: say its range, --bounds {name}={low:g}:{high + 1:g}, or --ignore {name}"
            )
        margin = WIDER * (high - low)
        low, high = float(f"{low - margin:.4g}"), float(f"{high + margin:.4g}")
        return Continuous(
            name, low, high
        ), f"the bounds of {name} were guessed from the file; to keep them: --bounds {name}={low:g}:{high:g}"
    values = sorted(set(cells))
    if numbers:
        lines = [line for line, cell in runs.column(name) if cell and _number(cell) is None]
        raise ValueError(
            f"{where} holds numbers and text (line {few(lines)}): correct it, or say --choices, or --ignore {name}"
        )
    if not 2 <= len(values) <= MOST_CATEGORIES:
        what = "is empty" if not values else f"holds {how_many(len(values), 'different text')}"
        raise ValueError(f"{where} {what}, and no bounds were given: say --bounds {name}=low:high, or --ignore {name}")
    return Category(
        name, tuple(values)
    ), f"the choices of {name} were read from the file; to keep them: --choices {name}={','.join(values)}"


def _tell(optimiser: Optimiser, runs: Runs, target: str, outcomes: Mapping[str, Any]) -> list[int]:
    """Tell all runs; the lines of those that failed."""
    failed, bad, pending = [], [], []
    at = {name: runs.header.index(name) for name in (*optimiser.space.names, target, *outcomes)} if runs.header else {}
    for line, row in runs.rows:
        point = {variable.name: _cell(variable, row[at[variable.name]]) for variable in optimiser.space.variables}
        try:
            place = optimiser.space.place(point)
        except ValueError as problem:
            blank = [name for name in point if not row[at[name]]]
            bad.append((line, f"{blank[0]} is empty" if blank else str(problem).split(": ")[0]))
            continue
        cell = row[at[target]]
        value = _number(cell)
        measured = {name: _number(row[at[name]]) for name in outcomes}
        if not cell:
            pending.append(optimiser.space.point(place))
        elif value is None or not math.isfinite(value) or any(m is None or not math.isfinite(m) for m in measured.values()):
            if value is None and cell.lower() not in FAILED and re.search(r"\d", cell):
                bad.append((line, f"{target} is {cell!r}, which is not a number"))
                continue
            failed.append(line)
            optimiser.tell(optimiser.space.point(place), failed=True)
        else:
            optimiser.tell(optimiser.space.point(place), value, failed=False, **measured)
    if bad:
        said = "; ".join(f"line {line}: {what}" for line, what in bad[:3])
        more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise ValueError(f"{runs.path}: {said}{more}. Correct the cells, or the bounds that were given")
    optimiser.pending = tuple(pending)
    return failed


def _cell(variable: Variable, cell: str) -> Any:
    if isinstance(variable, Category):
        return cell
    number = _number(cell)
    return cell if number is None else number


def with_suggestions(question: Question, found: Sequence[Suggestion], explain: bool) -> str:
    """The text of the file with a line for each suggestion after what is there."""
    runs, header = question.runs, list(question.runs.header)
    text = runs.text
    if not header:
        header = [
            *question.optimiser.space.names,
            question.target,
            *question.optimiser.outcome_constraints,
            *([WHY] if explain else []),
        ]
        text = _line(header, ",")
    end = "" if not text or text.endswith(("\n", "\r")) else "\n"
    lines = []
    for one in found:
        cells = {name: _written(value) for name, value in one.point.items()}
        if explain and WHY in header:
            cells[WHY] = one.why
        lines.append(_line([cells.get(name, "") for name in header], runs.separator))
    return text + end + "".join(lines)


def _line(cells: Sequence[str], separator: str) -> str:
    made = io.StringIO()
    csv.writer(made, delimiter=separator, lineterminator="\n").writerow(cells)
    return made.getvalue()


def _written(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
