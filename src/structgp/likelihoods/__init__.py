"""How observations arise from a function."""
