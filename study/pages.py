"""The pages of docs/study, made of the registry and of the results: never written by hand."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.printed import PRINTED, ours
from study.registry import SOURCES, Case, Experiment, Found
from study.results import PAGES, all_found, found_in, records
from study.verdicts import beside, counts, duration, status, unmet, verdict

NAMES = {"000": "saatci", "001": "naish-guzman", "002": "gilboa", "003": "boyle", "004": "murphy"}
HEADER = "| case | quantity | published | ours | baseline | against the source | against the baseline |\n" + "|---" * 7 + "|"


def number(value: float | str | None) -> str:
    """As it is shown in a table."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def rows(name: str, case: Case, found: Mapping[str, Found]) -> list[str]:
    """A line for each quantity of a case."""
    lines = []
    for quantity in case.quantities:
        value = found.get(quantity.name)
        ours = number(value.ours) + (f" ± {value.error:.2g}" if value.error else "") if value else ""
        printed = number(quantity.published) + (f" ({quantity.by})" if quantity.by else "")
        cells = [name, quantity.name, printed, ours, number(value.baseline) if value else ""]
        cells += [verdict(quantity, value), beside(quantity, value)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def section(experiment: Experiment, kept: Mapping[str, Mapping[str, Any]]) -> str:
    """One experiment: what it is, its table, why something fell short, and how it was run."""
    parts = [f"## {experiment.id}", f"{experiment.title} ({experiment.place}; {experiment.system})."]
    if experiment.kind != "runs":
        return "\n\n".join([*parts, f"Not run: {experiment.reason}."])
    found = {name: found_in(record) for name, record in kept.items()}
    parts += [experiment.note] if experiment.note else []
    parts += [f"Baseline: {experiment.baseline}."] if experiment.baseline else []
    table = [line for name, case in experiment.cases.items() for line in rows(name, case, found.get(name, {}))]
    parts.append("\n".join([HEADER, *table]))
    parts += as_printed(experiment.id, found)
    whys = reasons(experiment, found)
    parts += ["Why not:\n\n" + "\n".join(whys)] if whys else []
    left = {name: case for name, case in experiment.cases.items() if name not in kept}
    runs = [how_it_ran(name, experiment.cases[name], record) for name, record in kept.items()]
    if left:
        minutes = sum(case.minutes for case in left.values())
        cases = f" --cases {shlex.join(left)}" if kept else ""
        runs.append(f"- not run here, about {duration(minutes)}: `python -m study {experiment.id}{cases}`")
    return "\n\n".join([*parts, "\n".join([*runs, *with_what(kept)])])


def as_printed(id: str, found: Mapping[str, Mapping[str, Found]]) -> list[str]:
    """The table of the source row by row, with what ran here in brackets, and why nothing did."""
    printed = PRINTED.get(id, [])
    if not printed:
        return []
    columns = list(printed[0].values)
    lines = ["| " + " | ".join(["case", "method", *columns, "here"]) + " |", "|---" * (len(columns) + 3) + "|"]
    for row in printed:
        cells = []
        for place, value in enumerate(row.values.values()):
            name = row.beside[place] if place < len(row.beside) else ""
            here = ours(name, found.get(row.case, {}))
            cells.append(("–" if value is None else number(value)) + (f" ({number(here)})" if here is not None else ""))
        here = row.here if row.case in found or not row.beside else f"{row.here}; this case was not run yet"
        lines.append("| " + " | ".join([row.case, row.method, *cells, here]) + " |")
    return ["All rows of the source, in brackets what ran here:", "\n".join(lines)]


def reasons(experiment: Experiment, found: Mapping[str, Mapping[str, Found]]) -> list[str]:
    """Why something fell short, each reason once, with the cases and quantities it is of."""
    told: dict[str, dict[str, list[str]]] = {}
    for name, values in found.items():
        for q in unmet(experiment.cases[name], values):
            told.setdefault(q.why or "no reason is known", {}).setdefault(name, []).append(q.name)
    of = lambda cases: ", ".join(f"{name} ({'; '.join(quantities)})" for name, quantities in cases.items())
    return [f"- {of(cases)}: {why}" for why, cases in told.items()]


def how_it_ran(name: str, case: Case, record: Mapping[str, Any]) -> str:
    """Command, repeats and time in one line."""
    fewer = f" of {case.repeats}" if record["repeats"] < case.repeats else ""
    numbers = f"{record['repeats']}{fewer} repeat{'s' if case.repeats > 1 else ''} from number {record['first']}"
    return f"- {name}: `{record['command']}`, {numbers}; {record['cpu']:g} CPU s, {record['wall']:g} s"


def with_what(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Code, versions and machine, once for all cases that have them in common."""
    told: dict[str, list[str]] = {}
    for name, record in kept.items():
        versions = ", ".join(f"{library} {version}" for library, version in record["versions"].items())
        told.setdefault(f"code {record['code']}; {versions}; {record['machine']}", []).append(name)
    return [f"- {', '.join(names)}: {what}" if len(told) > 1 else f"- {what}" for what, names in told.items()]


def page(source: str, experiments: Iterable[Experiment], pages: Path = PAGES) -> str:
    """All experiments of a source."""
    own = [e for e in experiments if e.source == source]
    made = "This page is made by the runs: `python -m study --pages`. [What it is](index.md)."
    return "\n\n".join([f"# {SOURCES[source]}", made, *(section(e, records(e.id, pages)) for e in own)]) + "\n"


def coverage(experiments: Iterable[Experiment], pages: Path = PAGES) -> str:
    """Every experiment in one table, and sums."""
    lines = ["| experiment | what | system | status |", "|---|---|---|---|"]
    own = list(experiments)
    for e in own:
        link = f"[{e.id}]({e.source}-{NAMES[e.source]}.md#{e.id.replace('.', '')})"
        lines.append(f"| {link} | {e.title} | {e.system} | {status(e, all_found(e.id, pages))} |")
    return "\n\n".join(["# Coverage", "\n".join(sums(own, pages)), "\n".join(lines)]) + "\n"


def sums(experiments: list[Experiment], pages: Path = PAGES) -> list[str]:
    """A line for each source."""
    lines = ["| source | tables and figures | drawings | cannot be run | runnable | ran | numbers and claims found | reached |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for source, title in SOURCES.items():
        own = [e for e in experiments if e.source == source]
        kinds = [sum(e.kind == kind for e in own) for kind in ("diagram", "cannot", "runs")]
        told = [counts(e, all_found(e.id, pages)) for e in own if e.kind == "runs"]
        cells = [len(own), *kinds, *(sum(c) for c in ([t[1] > 0 for t in told], [t[1] for t in told], [t[2] for t in told]))]
        lines.append("| " + " | ".join([f"{source} {title.split(',')[0]}", *map(str, cells)]) + " |")
    return lines


def write(experiments: Iterable[Experiment], pages: Path = PAGES) -> list[Path]:
    """All pages; those that changed."""
    own = list(experiments)
    texts = {pages / f"{source}-{name}.md": page(source, own, pages) for source, name in NAMES.items()}
    texts[pages / "coverage.md"] = coverage(own, pages)
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[path])
    return changed
