"""One file per family of problems; every module here is found by the command line."""
