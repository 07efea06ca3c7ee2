"""`python -m benchmarks labels-table`: labels of thousands of rows, `GPClassifier()` beside other classifiers.

    python -m benchmarks labels-table                                     # 60 s for each fit, two cores, one after the other
    python -m benchmarks labels-table --sets magic_5000 --structures auto dense inducing

Wrong labels, mean −log probability, and seconds, of the clock and of the processor, compilation included; every fit in a process
of its own, as `chooser-study` does, whose other options it takes.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import chooser_study
from benchmarks.chooser_study import AUTO, PEERS

SETS = ("image_all", "splice_all", "banana_all", "waveform_all", "uci_spambase", "magic_5000")


def main(words: Sequence[str]) -> int:
    """Run what is not yet in the file, and print a line for each fit in it."""
    parser = chooser_study.make_parser()
    parser.set_defaults(sets=SETS, structures=(AUTO, *PEERS), jobs=1, json=Path("labels-table.jsonl"))
    options = parser.parse_args(words)
    done = chooser_study.read(options.json)
    if not options.table:
        for record in chooser_study.run(options, done):
            print(chooser_study.line(record), flush=True)
            done.append(record)
    print(*sorted(map(chooser_study.line, done)), sep="\n")
    return 0
