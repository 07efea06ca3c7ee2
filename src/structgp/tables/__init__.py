"""Tables in, models and reports out: files, expressions, what to fit when nothing is said, the command line."""
