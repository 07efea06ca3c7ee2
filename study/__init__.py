"""The tables and figures of the five sources, run again: `python -m study --list`."""
