"""What we believe of a function before seeing it."""
