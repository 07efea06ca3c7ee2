"""Bases for functions of a line or of a direction, and sums of their products over rows."""
