"""Parameters from data."""
