"""Plays random steps to Apache Kafka and to Barnabas, and prints where they differ.

    python -m tests.peers.differential [--seeds 20] [--first 0] [--fuzzer consumer-groups] [--directory DIR] [--all-steps]

All fuzzers without --fuzzer. Each failing seed is printed with the fewest steps that show a difference; `--seeds 1 --first N` plays one
seed again. Ends with status 1 where something differs that differences.py does not name.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

from tests.peers.differential.comparison import Comparison, both_brokers
from tests.peers.differential.fuzzers import FUZZERS


def main() -> int:
    arguments = _parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the brokers end with the run
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-compare-"))
    chosen = [fuzzer for fuzzer in FUZZERS if arguments.fuzzer in (None, fuzzer.name)]
    failure_count = 0
    for number, (settings, fuzzers) in enumerate(groupby(chosen, key=lambda fuzzer: fuzzer.settings)):
        with both_brokers(directory / str(number), settings) as pair:
            for fuzzer in fuzzers:
                seeds = range(arguments.first, arguments.first + arguments.seeds)
                failure_count += _run(Comparison(fuzzer, pair), fuzzer.name, seeds, is_minimised=not arguments.all_steps)
    if failure_count:
        print(f"\nThe brokers' data and logs are in {directory}")
    elif arguments.directory is None:
        shutil.rmtree(directory)
    return 1 if failure_count else 0


def _run(comparison: Comparison, name: str, seeds: range, *, is_minimised: bool) -> int:
    """How many seeds fail."""
    began_s, failures = time.monotonic(), 0
    for seed in seeds:
        failure = comparison.check(seed, is_minimised=is_minimised)
        if failure is not None:
            failures += 1
            print(f"\n{failure}", flush=True)
    print(f"\n{name}: {len(seeds)} seeds in {time.monotonic() - began_s:.0f} s, {failures} differ", flush=True)
    for reason, count in comparison.met.most_common():
        print(f"  on purpose, {count} times: {reason}")
    return failures


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers.differential", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fuzzer", choices=[fuzzer.name for fuzzer in FUZZERS])
    parser.add_argument("--all-steps", action="store_true", help="print failing seeds as they are, without making them short")
    parser.add_argument("--directory", type=Path, help="where data and logs go (default: a temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
