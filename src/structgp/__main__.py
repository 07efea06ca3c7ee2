"""`python -m structgp`."""

from .cli import app

app(prog_name="structgp")
