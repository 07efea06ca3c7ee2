"""Sums of one-dimensional functions."""
