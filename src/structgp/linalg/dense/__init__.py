"""Factors of whole matrices."""
