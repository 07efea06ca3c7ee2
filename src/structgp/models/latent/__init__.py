"""Latent inputs: where the rows of a table lie among few coordinates."""
