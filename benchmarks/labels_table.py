"""`python -m benchmarks labels-table`: labels of thousands of rows, `GPClassifier()` beside other classifiers.

    python -m benchmarks labels-table                                     # 60 s for each fit, two cores, one after the other
    python -m benchmarks labels-table --sets magic_5000 --structures auto dense inducing
    python -m benchmarks labels-dense                                     # the exact classifier of 4,000 rows

Wrong labels, mean −log probability, and seconds, of the clock and of the processor, compilation included; every fit has a
process of its own, as in `chooser-study`, whose other options it takes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import chooser_study
from benchmarks.chooser_study import AUTO, PEERS

DENSE_SECONDS = 300.0  # the default of an estimator
SETS = ("image_all", "splice_all", "banana_all", "waveform_all", "uci_spambase", "magic_5000")


def main(words: Sequence[str]) -> int:
    """All sets, with the chooser and with the peers."""
    return lines(words, sets=SETS, structures=(AUTO, *PEERS), jobs=1, json=Path("labels-table.jsonl"))


def dense(words: Sequence[str]) -> int:
    """The exact classifier of 4,000 rows."""
    return lines(
        words, sets=["magic_4000"], structures=["dense"], jobs=1, seconds=DENSE_SECONDS, json=Path("labels-dense.jsonl")
    )


def lines(words: Sequence[str], **defaults: Any) -> int:
    """Run what is not yet in the file, and print a line for each fit in it, and how learning ended."""
    parser = chooser_study.make_parser()
    parser.set_defaults(**defaults)
    options = parser.parse_args(words)
    done = chooser_study.read(options.json)
    if not options.table:
        for record in chooser_study.run(options, done):
            print(chooser_study.line(record), flush=True)
            done.append(record)
    ended = sorted((chooser_study.line(record), record.get("learning", "")) for record in chooser_study.last(done))
    print(*(f"{text}  {learning}" for text, learning in ended), sep="\n")
    return 0
