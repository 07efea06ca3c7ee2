"""From raw records to rows, slopes and tables."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.registry import Problem
from benchmarks.run import Record

Row = dict[str, Any]
DASH = "–"


def summarise(problem: Problem, records: Sequence[Record], references: Sequence[str] | None = None) -> list[Row]:
    """One row per size and method: best and median over all rounds, ratios to the references, memory and scores."""
    groups: dict[tuple[int, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["size"], record["method"]), []).append(record)
    rows = [{"N": size, "method": method, **measured(group)} for (size, method), group in groups.items()]
    add_ratios(rows, problem.references if references is None else references)
    add_scores(problem, rows, groups)
    return rows


def measured(group: Sequence[Record]) -> Row:
    """Times and memory of the rounds that went well; the reason of the first that did not."""
    good = [record for record in group if record["status"] == "ok"]
    failed = [r["reason"] if r["status"] == "unavailable" else f"{r['status']}: {r['reason']}" for r in group if r not in good]
    if not good:
        return {"note": failed[0]}
    warm = [t for record in good for t in record["warm"]]
    peak = max(record["memory"]["peak"] for record in good)
    return {
        "cold s": min(sum(record["cold"].values()) for record in good),
        "warm s": min(warm),
        "median s": statistics.median(warm),
        "peak MB": peak / 1e6,
        "added MB": max(record["memory"]["peak"] - record["memory"]["baseline"] for record in good) / 1e6,
        "note": "; ".join([*failed[:1], *disturbance(good)]),
    }


def disturbance(good: Sequence[Record]) -> list[str]:
    """Said when others used more than a tenth of the machine even in the quietest round: such times are upper bounds."""
    quietest = min(record.get("others") or 0.0 for record in good)
    return [f"disturbed: others used {quietest:.0%} of the machine"] if quietest > 0.1 else []


def add_ratios(rows: list[Row], references: Sequence[str]) -> None:
    """Best warm time over that of each reference at the same size, in a column named after the reference."""
    for reference in references:
        base = {row["N"]: row["warm s"] for row in rows if row["method"] == reference and "warm s" in row}
        for row in rows:
            if "warm s" in row and row["N"] in base:
                row[f"/ {reference}"] = row["warm s"] / base[row["N"]]


def add_scores(problem: Problem, rows: list[Row], groups: Mapping[tuple[int, str], Sequence[Record]]) -> None:
    """The problem's own columns, computed here after all timing is over."""
    for size in {row["N"] for row in rows}:
        results = {m: r["result"] for (n, m), group in groups.items() if n == size for r in group if r["status"] == "ok"}
        if not results:
            continue
        scores = problem.score(problem.make(size), results)
        for row in rows:
            if row["N"] == size:
                row |= scores.get(row["method"], {})


def slopes(rows: Sequence[Row]) -> dict[str, float]:
    """For each method with two sizes or more, p in time ∝ N^p, by least squares on the logarithms of the best warm times."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if "warm s" in row:
            points.setdefault(row["method"], []).append((row["N"], row["warm s"]))
    return {method: slope(p) for method, p in points.items() if len({n for n, _ in p}) > 1}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of log t against log N."""
    return statistics.linear_regression([math.log(n) for n, _ in points], [math.log(t) for _, t in points]).slope


def columns(rows: Sequence[Row]) -> list[str]:
    """The columns in the order of their first appearance, with the note last and only where there is one."""
    names = dict.fromkeys(key for row in rows for key in row if key != "note")
    return [*names, *(["note"] if any(row.get("note") for row in rows) else [])]


def table(rows: Sequence[Row], markdown: bool = False) -> str:
    """The rows as an aligned plain-text table, or as markdown for the README."""
    names = columns(rows)
    cells = [names] + [[cell(row.get(name)) for name in names] for row in rows]
    right = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in names]
    if markdown:
        return markdown_lines(cells, right)
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    aligned = [[c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)] for line in cells]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def markdown_lines(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    rule = ["---:" if r else "---" for r in right]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in [cells[0], rule, *cells[1:]])


def cell(value: Any) -> str:
    """Three digits for a measured number, whole integers, a dash for nothing."""
    if value is None:
        return DASH
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.3g}"


def slope_lines(rows: Sequence[Row]) -> str:
    """The exponents of growth, one method after the other."""
    found = slopes(rows)
    return "log–log slope of warm time against N: " + ", ".join(f"{m} {p:.2f}" for m, p in found.items()) if found else ""
