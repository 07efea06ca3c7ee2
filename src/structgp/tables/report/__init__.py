"""The report of a model: one HTML file that needs no network, in dark and light, for screens, phones and paper."""

from __future__ import annotations

import html
import importlib.resources
import json
from collections.abc import Sequence
from typing import Any

from ... import __version__
from ...decide.optimise import Optimiser, Suggestion
from ...inputs.reading import few
from ...learn.clock import NEVER, Deadline
from ..embed import Embedded
from ..model import TableModel, of_shape
from ..several import Filled, Record
from ..suspects import about_suspects, suspect_rows
from ..writing import replacing
from .answer import answer
from .beside import comparison_figures, numbered
from .changes import ChangingSeries, change_alarms, change_figures, change_headline, segment_rows
from .choices import headline as choice_headline
from .choices import run_rows, slice_figures, suggestion_rows, trace_figure
from .figures import Figure
from .maps import column_rows, map_figures, map_headline
from .parameters import about_parameters, about_sureness, how_learned, parameter_rows, sure_rows
from .sections import about_components, component_figures, confusion_rows, error_figures, fit_figures, score_rows, trial_rows
from .several import filled_figures, filled_headline, how_learned_together, length_rows, together_rows
from .systems import system_figures, system_headline, system_rows
from .words import alarms, forecast_rows, headline, parts_of

TOGETHER = (
    "Half the range of the median over the rows, and the noise, in the units of each column; correlations of what is behind."
)
MOST_NAMES = 8  # columns of one kind that are named
LONG = 40  # characters of a cell that is not to be squeezed on a small screen
SENTENCE, GAP, NARROW = 24, 2, 50  # characters: of a line of a sentence, between two columns, across a small screen
COLUMNS = 3  # that a small screen has room for beside each other
LATE = "There was no time to look at them one by one: structgp report model.structgp does."


def write_report(model: TableModel, path: Any, deadline: Deadline = NEVER) -> None:
    """Write the report of a model to one HTML file; its parts are left out once time is over."""
    _write(render(model, deadline), path)


def write_change_report(series: ChangingSeries, path: Any) -> None:
    """Write the report of the changes in a series to one HTML file."""
    sheet = Sheet()
    sheet.figures("Series and changes", change_figures(series))
    sheet.table("Segments", segment_rows(series))
    found = change_alarms(len(series.changes), len(series.y))
    _write(sheet.page(f"Changes in {series.name}", change_headline(series), found), path)


def write_choice_report(
    optimiser: Optimiser, target: str, found: Sequence[Suggestion], path: Any, notes: Sequence[str]
) -> None:
    """Write the report of an optimisation to one HTML file."""
    sheet = Sheet()
    about = "What is believed of each, in the units of the measurements; the gain is over the best that is believed of any run."
    sheet.table("What to measure next", suggestion_rows(optimiser, found), about)
    sheet.figures("How far it is", trace_figure(optimiser, target))
    sheet.table("The best runs", run_rows(optimiser, target))
    sheet.figures("Slices", slice_figures(optimiser, target), "All other variables as in the best run.")
    sheet.notes(notes)
    better = "Largest" if optimiser.maximise else "Least"
    _write(sheet.page(f"{better} {target}", choice_headline(optimiser, target, found)), path)


def write_filled_report(filled: Filled, path: Any) -> None:
    """Write the report of several columns learned together to one HTML file."""
    sheet = Sheet()
    sheet.figures("Series and what is believed of them", filled_figures(filled))
    sheet.table("How they hang together", together_rows(filled), TOGETHER)
    sheet.table("What they share", length_rows(filled))
    counts = zip(filled.names, filled.gaps, strict=True)
    sheet.table("Gaps", [["column", "values filled in"], *([name, str(count)] for name, count in counts)])
    sheet.text("Plan", str(filled.model.fitted.plan))
    sheet.text("How it was learned", how_learned_together(filled))
    title = f"{few(filled.names, MOST_NAMES)} together"
    _write(sheet.page(title, filled_headline(filled), more="; ".join(filled.model.words()) + "."), path)


def write_system_report(records: Sequence[Record], path: Any) -> None:
    """Write the report of the systems behind some columns to one HTML file."""
    sheet = Sheet()
    for record in records:
        of = f" of {record.target}" if len(records) > 1 else ""
        sheet.table(f"What was found{of}", system_rows(record))
        sheet.figures(f"Responses{of}", system_figures(record))
        sheet.text(f"In numbers{of}", record.system.summary())
    targets = " and ".join(record.target for record in records)
    title = f"How {' and '.join(records[0].sources)} make{'s' if len(records[0].sources) == 1 else ''} {targets}"
    _write(sheet.page(title, system_headline(records)), path)


def write_comparison_report(
    title: str, rows: list[list[str]], lead: str, scores: list[list[str]], notes: Sequence[str], path: Any
) -> None:
    """Write a table of models beside each other to one HTML file."""
    sheet = Sheet()
    about = "The higher, the better; the numbers are those of the models below."
    sheet.figures("How probable each makes a row that it had not seen", comparison_figures(rows), about)
    sheet.table("The models", numbered(rows))
    sheet.table("Scores of the one taken", scores)
    sheet.notes(notes)
    _write(sheet.page(title, lead), path)


def write_map_report(found: Embedded, path: Any, notes: Sequence[str]) -> None:
    """Write the report of a table that was laid out to one HTML file."""
    sheet = Sheet()
    sheet.figures("The map", map_figures(found))
    sheet.table("What the map explains", column_rows(found), "Of the variance of the cells that were seen.")
    columns = [[few(names, MOST_NAMES), kind] for names, kind in found.layout.described()]
    sheet.table("The table", [["column", "what it is"], *columns])
    sheet.notes(notes)
    sheet.text("What was learned", found.map.summary())
    _write(sheet.page("Map of a table", map_headline(found)), path)


def _write(page: str, path: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(model: TableModel, deadline: Deadline = NEVER) -> str:
    """The report of a model as HTML."""
    held = f"on {model.evaluation.kind}, which the model had not been given" if model.evaluation.kind else ""
    columns = [[few(names, MOST_NAMES), kind] for names, kind in model.layout.described()]
    sheet = Sheet()
    sheet.figures("Data and fit", fit_figures(model))
    sheet.table("Forecast", forecast_rows(model))
    sheet.table(f"Scores {held}", score_rows(model), "In brackets: the interval that holds the score with 90 % probability.")
    sheet.table("Which class was taken for which", confusion_rows(model))
    sheet.figures("Residuals and calibration", error_figures(model))
    suspects = suspect_rows(model)
    if suspects:
        sheet.table("Suspected rows", suspects, about_suspects(model))
    else:
        sheet.paragraph("Rows that scatter widely", about_suspects(model))
    late = deadline.passed()
    sheet.figures("Components", [] if late else component_figures(model), LATE if late else about_components(model))
    if not late:
        sheet.table("What was learned", [["part", ""], *map(list, parts_of(model))])
        sheet.table("How sure is it about its parameters?", sure_rows(model), about_sureness(model))
    sheet.table("The table", [["column", "what it is"], *columns])
    sheet.notes(model.notes)
    sheet.table("Candidates", trial_rows(model))
    sheet.text("Plan", str(getattr(model.fitted, "plan", "")))
    if not late:
        sheet.table("Parameters", parameter_rows(model), about_parameters(model))
    sheet.text("How it was learned", how_learned(model))
    sheet.text("How to predict", how_to_predict(model))
    count = len(model.layout.names)
    inputs = f"{count} input{'' if count == 1 else 's'}, which {of_shape(model.shape, count)}"
    lead = f"{model.task.capitalize()} from {model.rows} rows and {inputs}."
    said = answer(model) if not late else ""
    about = f"{lead} {headline(model)}"
    return sheet.page(f"Model of {model.target}", said or about, alarms(model), about if said else "")


class Sheet:
    """Sections of a page, and the figures in them."""

    def __init__(self) -> None:
        self.sections: list[str] = []
        self.drawn: list[Figure] = []

    def figures(self, title: str, found: list[Figure], about: str = "") -> None:
        """A section of figures, each with a drawing that needs no script."""
        parts = []
        for figure in found:
            number = len(self.drawn)
            self.drawn.append(figure)
            parts.append(
                f"<figure><figcaption>{html.escape(figure.title)}</figcaption>{figure.legend()}"
                f'<div class="plot" id="plot{number}">{figure.svg()}</div></figure>'
            )
        self._section(title, about, f'<div class="figures">{"".join(parts)}</div>' if parts else "")

    def table(self, title: str, rows: list[list[str]], about: str = "") -> None:
        """A section with a table, whose header is the first row."""
        self._section(title, about if len(rows) > 1 else "", _table(rows))

    def paragraph(self, title: str, text: str) -> None:
        """A section of a few sentences."""
        self._section(title, text, "")

    def text(self, title: str, text: str) -> None:
        """A section of text as it is, line by line; where there is no room, the rest of a line stands further in."""
        lines = "".join(f"<span>{html.escape(line)}</span>" for line in text.splitlines())
        self._section(title, "", f"<pre>{lines}</pre>" if text else "")

    def notes(self, notes: Sequence[str]) -> None:
        """A section of sentences, one below the other."""
        items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        self._section("Notes", "", f'<ul class="notes">{items}</ul>' if items else "")

    def _section(self, title: str, about: str, content: str) -> None:
        said = f"<p>{html.escape(about)}</p>" if about else ""
        if content or said:
            self.sections.append(f"<section><h2>{html.escape(title.strip())}</h2>{said}{content}</section>")

    def page(self, title: str, lead: str, alarms: Sequence[str] = (), more: str = "") -> str:
        """The whole page; alarms stand first, then what there is to say, and more of it in small."""
        from plotly.offline import get_plotlyjs

        own = importlib.resources.files(__name__)
        data = json.dumps([figure.plotly() for figure in self.drawn], allow_nan=False).replace("</", "<\\/")
        title = html.escape(title)
        more = f"<p>{html.escape(more)}</p>" if more else ""
        first = "".join(f'<p class="alarm">Attention: {html.escape(alarm)}.</p>' for alarm in alarms)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{own.joinpath('style.css').read_text()}</style></head><body><main>"
            f'<h1>{title}</h1>{first}<p class="lead">{html.escape(lead)}</p>{more}{"".join(self.sections)}'
            f"<footer>structgp {__version__}</footer></main>"
            f'<script type="application/json" id="figures">{data}</script><script>{get_plotlyjs()}</script>'
            f"<script>{own.joinpath('plots.js').read_text()}</script></body></html>"
        )


def how_to_predict(model: TableModel) -> str:
    """The commands that predict new rows, in the shell and in Python."""
    used = [column.name for column in model.layout.used]
    return (
        "structgp predict model.structgp NEW.csv --out predictions.csv\n\n"
        "from structgp.tables.model import load_table_model\n"
        "from structgp.tables.reading import read_frame\n"
        'model = load_table_model("model.structgp")\n'
        'model.predict(read_frame("NEW.csv", like=model.layout.how))\n'
        "print(model.fitted.summary())  # the parameters by their own names\n\n"
        f"NEW.csv needs the column{'' if len(used) == 1 else 's'} {', '.join(used)}."
    )


def _table(rows: list[list[str]]) -> str:
    """A table; each cell knows the name of its column, so that a small screen can show wide rows as cards."""
    if len(rows) < 2:
        return ""
    names = [html.escape(name, quote=True) for name in rows[0]]
    head = "".join(f"<th>{name}</th>" for name in names)
    long = lambda value: ' class="long"' if len(value) > LONG else ""
    cell = lambda name, value: f'<td data-name="{name}"{long(value)}>{html.escape(value)}</td>'
    line = lambda row: "<tr>" + "".join(map(cell, names, map(str, row))) + "</tr>"
    body = "".join(map(line, rows[1:]))
    cards = ' class="cards"' if _least_width(rows) > NARROW or len(rows[0]) > COLUMNS else ""
    return f"<table{cards}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _least_width(rows: list[list[str]]) -> int:
    """About how many characters a table needs beside each other: whole cells, or words of sentences and of names of columns."""
    word = lambda text: max(map(len, text.split()), default=0)
    least = lambda text: SENTENCE if len(text) > LONG else len(text) if len(text) <= SENTENCE else word(text)
    columns = zip(*rows, strict=True)
    return sum(GAP + max(word(name), *(least(str(cell)) for cell in cells)) for name, *cells in columns)
