"""The report of a model: one HTML file that needs no network, in dark and light, for screens, phones and paper."""

from __future__ import annotations

import html
import importlib.resources
import json
from typing import Any

from .. import __version__
from ..table_model import TableModel, replacing
from .figures import Figure
from .sections import component_figures, error_figures, fit_figures, score_rows, trial_rows


def write_report(model: TableModel, path: Any) -> None:
    """Write the report of a model to one HTML file."""
    page = render(model)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(model: TableModel) -> str:
    """The report of a model as HTML."""
    figures: list[Figure] = []

    def drawn(title: str, found: list[Figure]) -> str:
        parts = []
        for figure in found:
            number = len(figures)
            figures.append(figure)
            parts.append(
                f'<figure><figcaption>{html.escape(figure.title)}</figcaption><div class="plot" id="plot{number}">'
                f"{figure.svg()}</div></figure>"
            )
        return _section(title, "".join(parts))

    held = f"on {model.evaluation.kind}, which the model had not seen" if model.evaluation.kind else ""
    columns = [[column.name, column.describe()] for column in model.layout.columns]
    sections = [
        _section("The table", _table([["column", "what it is"], *columns])),
        drawn("Data and fit", fit_figures(model)),
        drawn("Components", component_figures(model)),
        _section(f"Scores {held}", _table(score_rows(model))),
        drawn("Residuals and calibration", error_figures(model)),
        _section("Candidates", _table(trial_rows(model))),
        _section("Plan", _text(str(getattr(model.fitted, "plan", "")))),
        _section("Parameters", _text(model.fitted.summary())),
        _section("How to predict", _text(how_to_predict(model))),
    ]
    lead = f"{model.task} from {model.rows} rows and {len(model.layout.names)} inputs, which form a {model.shape}."
    return _page(model.target, " ".join([lead, *(f"{note}." for note in model.notes)]), "".join(sections), figures)


def how_to_predict(model: TableModel) -> str:
    """The commands that predict new rows, in the shell and in Python."""
    return (
        "structgp predict model.structgp NEW.csv --out predictions.csv\n\n"
        "from structgp.table_model import load_table_model\n"
        "from structgp.tables import read_frame\n"
        'load_table_model("model.structgp").predict(read_frame("NEW.csv"))\n\n'
        f"NEW.csv needs the columns {', '.join(column.name for column in model.layout.used)}."
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{html.escape(title.strip())}</h2>{content}</section>" if content else ""


def _text(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def _table(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    line = lambda row, cell: "<tr>" + "".join(f"<{cell}>{html.escape(str(value))}</{cell}>" for value in row) + "</tr>"
    body = "".join(line(row, "td") for row in rows[1:])
    return f'<div class="wide"><table><thead>{line(rows[0], "th")}</thead><tbody>{body}</tbody></table></div>'


def _page(target: str, lead: str, sections: str, figures: list[Figure]) -> str:
    from plotly.offline import get_plotlyjs

    own = importlib.resources.files(__name__)
    data = json.dumps([figure.plotly() for figure in figures], allow_nan=False).replace("</", "<\\/")
    title = html.escape(f"Model of {target}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{own.joinpath('style.css').read_text()}</style></head><body><main>"
        f"<h1>{title}</h1><p>{html.escape(lead)}</p>{sections}<footer>structgp {__version__}</footer></main>"
        f'<script type="application/json" id="figures">{data}</script><script>{get_plotlyjs()}</script>'
        f"<script>{own.joinpath('plots.js').read_text()}</script></body></html>"
    )
