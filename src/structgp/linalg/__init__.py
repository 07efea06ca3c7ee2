"""Numbers only: the algorithms, without a word about kernels."""
