"""What a prior is at given inputs: one file a form."""
