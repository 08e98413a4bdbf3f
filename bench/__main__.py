"""`python -m bench`: measure Barnabas. `python -m bench compare`: Barnabas and Apache Kafka in turn. `python -m bench versus A B`: two
commits in turn, and whether a row lost. `python -m bench profile ROW`, `python -m bench anatomy`, `python -m bench calls produce`: where
the time goes. `python -m bench compaction`: a compacted topic while it is written and read, beside Apache Kafka. `python -m bench console`:
the console in Chromium.

`ROWS=a,b` (or `--rows a,b`) selects rows; `python -m bench list` names them all. Everything stays on loopback and in a folder
that is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench import report
from bench.campaign import measure
from bench.comparison import PAIRS_MIN, TOLERANCE
from bench.rows import ROWS, select
from bench.servers import BARNABAS, KAFKA, PRODUCTS, Product, check_available

COMPARED_RUNS = 5
# A single product is measured for a quick look; Python has no JIT to warm, so a tenth suffices for caches and allocator.
MEASURED_RUNS = 3
MEASURED_WARMUP = 0.1
COMPACTED_KEYS_PER_GIGABYTE = 100_000
# All core rows, ten pairs each, in a quarter of an hour instead of half a one.
QUICK_SCALE = 0.25
# The machine alone, without a broker.
NOT_COMPARED = frozenset(("raw-limit",))


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    if options.command == "list":
        for row in ROWS.values():
            print(f"{row.name:28} {'core' if row.is_core else '':5} {row.title}")
        return 0
    if options.command == "anatomy":
        from bench.anatomy import run

        print(run())
        return 0
    if options.command == "calls":
        from bench.calls import run as record_calls

        print(record_calls(options.api))
        return 0
    if options.command == "profile":
        from bench.profiling import profile

        return profile(options.row, scale=options.scale, output_dir=options.output, data_dir=options.data_dir)
    if options.command == "compaction":
        return _compaction(options)
    if options.command == "console":
        return _console(options)
    if options.command == "versus":
        return _versus(options)
    products = [BARNABAS, KAFKA] if options.command == "compare" else [PRODUCTS[options.product]]
    return _measure(options, products)


def _measure(options: argparse.Namespace, products: list[Product]) -> int:
    for product in products:
        check_available(product)
    is_hot = KAFKA in products
    runs = options.runs or (COMPARED_RUNS if is_hot else MEASURED_RUNS)
    warmup = options.warmup if options.warmup is not None else (1.0 if is_hot else MEASURED_WARMUP)
    results = measure(select(options.rows), products, runs=runs, scale=options.scale, warmup=warmup, data_dir=options.data_dir)
    print()
    print(report.table(results))
    if options.save:
        print(f"\nsaved: {report.save(results, scale=options.scale, warmup=warmup)}")
    return 1 if any(note.startswith("failed") for result in results for note in result.notes) else 0


def _compaction(options: argparse.Namespace) -> int:
    from bench.compaction import run, table

    products = [PRODUCTS[name] for name in options.products.split(",")]
    for product in products:
        check_available(product)
    keys = options.keys or max(int(options.gigabytes * COMPACTED_KEYS_PER_GIGABYTE), 1)
    results = run(products, gigabytes=options.gigabytes, keys=keys, pairs=options.pairs, rate=options.rate, data_dir=options.data_dir)
    print()
    print(table(results))
    return 0


def _console(options: argparse.Namespace) -> int:
    from bench.console import misses, run, table

    product = PRODUCTS[options.product]
    check_available(product)
    result = run(product, scale=options.scale, data_dir=options.data_dir)
    print(table(result))
    for missed in misses(result):
        print(f"missed: {missed}")
    return 1 if misses(result) else 0


def _versus(options: argparse.Namespace) -> int:
    from bench.versus import run

    names = ",".join([*options.names, options.rows])
    rows = [row for row in select(names) if names.strip(",") or row.name not in NOT_COMPARED]
    return run(
        rows,
        (options.before, options.after),
        pairs=options.pairs,
        scale=options.scale * (QUICK_SCALE if options.quick else 1.0),
        warmup=MEASURED_WARMUP * (QUICK_SCALE if options.quick else 1.0),
        tolerance=options.tolerance,
        data_dir=options.data_dir,
        is_saved=options.save,
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--scale", type=float, default=1.0, help="multiplies every volume; 1.0 is what published figures use")
    common.add_argument("--data-dir", type=Path, help="where the brokers' data goes (a folder of its own, removed at the end)")
    chosen = argparse.ArgumentParser(add_help=False, parents=[common])
    chosen.add_argument("--rows", default=os.environ.get("ROWS", ""), help="comma-separated names; the core rows without it")
    chosen.add_argument("--save", action="store_true", help="write JSON to bench/results")
    measured = argparse.ArgumentParser(add_help=False, parents=[chosen])
    measured.add_argument("--runs", type=int, help=f"of each row; {MEASURED_RUNS}, or {COMPARED_RUNS} with Apache Kafka")
    measured.add_argument("--warmup", type=float, help="1.0 is about ten million records; 0 is none")

    parser = argparse.ArgumentParser(prog="python -m bench", description="measure a broker; see docs/performance.md")
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", parents=[measured], help="one product (the command that runs without a name)")
    run.add_argument("--product", choices=tuple(PRODUCTS), default=BARNABAS.name)
    commands.add_parser("compare", parents=[measured], help="Barnabas and Apache Kafka in turn")
    versus = commands.add_parser("versus", parents=[chosen], help="two commits in turn; ends with 1 when a row lost")
    versus.add_argument("before", help="a commit, or . for this checkout")
    versus.add_argument("after", help="the same")
    versus.add_argument("names", nargs="*", metavar="ROW", help="the core rows without any")
    versus.add_argument("--pairs", type=_pairs, default=PAIRS_MIN, help=f"of runs for each row ({PAIRS_MIN}; fewer give no verdict)")
    versus.add_argument("--quick", action="store_true", help=f"{QUICK_SCALE:g} of every volume")
    versus.add_argument("--tolerance", type=float, default=TOLERANCE, help=f"what a row may lose ({TOLERANCE:g})")
    compaction = commands.add_parser("compaction", help="compact a topic while it is written and read, and check every key")
    compaction.add_argument("--gigabytes", type=float, default=10.0, help="of records of 1 KB")
    compaction.add_argument("--keys", type=int, help=f"{COMPACTED_KEYS_PER_GIGABYTE} for each gigabyte")
    compaction.add_argument("--pairs", type=_pairs, default=1, help="runs of each product, in turn")
    compaction.add_argument("--rate", type=int, default=500, help="records per second that are sent meanwhile")
    compaction.add_argument("--products", default=",".join(PRODUCTS))
    compaction.add_argument("--data-dir", type=Path, help="where the brokers' data goes, twice the gigabytes")
    console = commands.add_parser("console", parents=[common], help="the console in Chromium; ends with 1 when a target is missed")
    console.add_argument("--product", choices=tuple(PRODUCTS), default=BARNABAS.name)
    commands.add_parser("list", help="the names of the rows")
    commands.add_parser("anatomy", help="where the time of one produce and one fetch goes, layer by layer")
    calls = commands.add_parser("calls", help="the functions that one request calls, in order")
    calls.add_argument("api", choices=("produce", "fetch"))
    profile = commands.add_parser("profile", parents=[common], help="a flame graph of Barnabas under a row")
    profile.add_argument("row", choices=tuple(name for name, row in ROWS.items() if not row.is_cluster))
    profile.add_argument("--output", type=Path, default=Path("bench/results/profiles"))
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["run", *arguments]
    return parser.parse_args(arguments)


def _pairs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
