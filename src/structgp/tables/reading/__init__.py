"""Tables from files: text of any kind, spreadsheets, Parquet and pictures, read into columns of numbers, dates and categories.

`files` and `text` turn bytes into columns of text, `cells` and `dates` say what such a column holds, `layout` remembers how
each column of the training table became numbers. Whatever had to be assumed is said, one note of the `Table` each.
"""

from .files import Table, as_csv, as_table, read_frame, read_table
from .layout import MOST_LEVELS, Column, Layout, as_floats, as_text, find_column, kind_of, look, target_in
from .moments import CALENDAR, SECONDS

__all__ = [
    "CALENDAR",
    "MOST_LEVELS",
    "SECONDS",
    "Column",
    "Layout",
    "Table",
    "as_csv",
    "as_floats",
    "as_table",
    "as_text",
    "find_column",
    "kind_of",
    "look",
    "read_frame",
    "read_table",
    "target_in",
]
