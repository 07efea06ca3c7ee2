"""The experiments, chapter by chapter of the five sources."""
