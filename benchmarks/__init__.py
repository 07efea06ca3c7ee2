"""Named problems, measured side by side with the peers that can do them: `python -m benchmarks --list`."""
