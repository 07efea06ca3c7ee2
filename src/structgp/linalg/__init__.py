"""Numbers only: the algorithms, without a word about what they are for."""
