"""Where we look and what was observed there, read once at the door."""
