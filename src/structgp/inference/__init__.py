"""Observations that are not Gaussian, as Gaussian sites: one rule a file, one search for all."""
