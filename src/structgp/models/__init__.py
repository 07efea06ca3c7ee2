"""Named systems, wired from the parts of the other rooms."""
