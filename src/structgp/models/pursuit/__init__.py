"""Functions of learned projections."""
