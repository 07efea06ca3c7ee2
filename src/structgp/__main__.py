"""`python -m structgp`."""

from .tables.cli import app

app(prog_name="structgp")
