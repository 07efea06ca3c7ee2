"""Kronecker and Toeplitz products, their solves and determinants."""
