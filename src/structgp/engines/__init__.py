"""How it is computed: one file an algorithm."""
