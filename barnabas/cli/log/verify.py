"""Check the files of log directories, Barnabas's or Apache Kafka's: CRCs, records, offsets, leader epochs, sequences of producers, indexes,
aborted transactions, snapshots and checkpoints. Exit code 4 if something is wrong.

Nothing is written. Beside a broker that runs, a batch that is being appended may look torn, and a checkpoint may be behind its log.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.errors import DONE, UNHEALTHY, NotUnderstoodError, RefusedError
from barnabas.cli.log.checkpoints import KINDS, entries_of
from barnabas.cli.log.files import LogFile, find_partitions
from barnabas.cli.log.reading import add_paths
from barnabas.cli.log.snapshots import check_crc
from barnabas.cli.output import Column, Output, human_bytes
from barnabas.cli.progress import Bar
from barnabas.spark.log.audit import Audit, Finding
from storage.files import META_PROPERTIES, PRODUCER_SNAPSHOT_SUFFIX, TopicPartition, find_topic_partition

COLUMNS = (
    Column("directory", "DIRECTORY", is_wide=True),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("file", "FILE"),
    Column("position", "BYTE", is_number=True),
    Column("offset", "OFFSET", is_number=True),
    Column("problem", "PROBLEM"),
)
IDENTITY = frozenset({"version", "cluster.id", "node.id"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="only these (all)")
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    partitions = {each.absolute(): _named(each) for each in find_partitions(options.paths)}
    if missing := {*options.topic} - {of.topic for of in partitions.values()}:
        raise NotUnderstoodError(f"there is no partition of {', '.join(sorted(missing))}")
    chosen = {path: of for path, of in partitions.items() if not options.topic or of.topic in options.topic}
    total, done = sum(map(_size, chosen)), 0
    findings = [row for path in sorted({path.parent for path in chosen}) for row in _log_directory(path)]
    findings += _twice(chosen)
    with Bar("verifying", is_bytes=True) as bar:
        for path, of in chosen.items():
            bar.show(done, total)
            findings += [_row(path, of, each) for each in _partition(path, of)]
            done += _size(path)
    output = Output(options.output)
    if output.is_data:
        output.data({"is_whole": not findings, "partitions": len(chosen), "size_bytes": total, "findings": findings})
    else:
        if findings:
            output.table(findings, COLUMNS)
        what = f"{len(findings)} findings" if findings else "all is whole"
        output.line(f"{len(chosen)} partitions, {human_bytes(total)}: {what}")
    return UNHEALTHY if findings else DONE


def _named(path: Path) -> TopicPartition:
    named = find_topic_partition(path.absolute().name)
    assert named is not None, "find_partitions looks for them by these names"
    return named


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.glob("*.log"))


def _partition(path: Path, of: TopicPartition) -> Iterator[Finding]:
    try:
        yield from Audit(path, *of).run()
    except OSError as e:
        yield Finding(Path(e.filename or path).name, None, None, f"it cannot be read: {e.strerror or e}")
    for file in sorted(path.glob(f"*{PRODUCER_SNAPSHOT_SUFFIX}")):
        yield from _readable(LogFile(file, of))
    for name in KINDS:
        if (path / name).exists():
            yield from _readable(LogFile(path / name, of))


def _log_directory(path: Path) -> Iterator[dict[str, Any]]:
    """Its own files: meta.properties, and the checkpoints of all partitions."""
    nobody = TopicPartition("", 0)
    for name in KINDS:
        if (path / name).exists():
            for each in _readable(LogFile(path / name, nobody)):
                yield _row(path, None, each)
    try:
        lines = (path / META_PROPERTIES).read_text().splitlines()
        absent = IDENTITY - {line.partition("=")[0].strip() for line in lines}
        problem = f"it has no {', '.join(sorted(absent))}" if absent else None
    except FileNotFoundError:
        return  # a copy of single partitions
    except (OSError, UnicodeDecodeError) as e:
        problem = f"it cannot be read: {e}"
    if problem:
        yield _row(path, None, Finding(META_PROPERTIES, None, None, problem))


def _readable(file: LogFile) -> Iterator[Finding]:
    try:
        if file.path.suffix == PRODUCER_SNAPSHOT_SUFFIX:
            check_crc(file)
        else:
            list(entries_of(file))
    except (RefusedError, OSError) as e:
        problem = str(e).removeprefix(f"{file.path} is damaged: ")
        yield Finding(file.path.name, None, None, problem)


def _twice(chosen: dict[Path, TopicPartition]) -> list[dict[str, Any]]:
    """A broker does not start with a partition in two of its log directories."""
    seen: dict[TopicPartition, Path] = {}
    rows = []
    for path, of in chosen.items():
        first = seen.setdefault(of, path)
        if first != path:
            rows.append(_row(path, of, Finding(path.name, None, None, f"the partition is in {first.parent} as well")))
    return rows


def _row(path: Path, of: TopicPartition | None, finding: Finding) -> dict[str, Any]:
    return {
        "directory": str(path),
        "topic": None if of is None else of.topic,
        "partition": None if of is None else of.partition,
        **finding._asdict(),
    }
