"""Delete the records of a topic before an offset or a time (DeleteRecords)."""

from __future__ import annotations

import argparse
import sys
import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import Partition, get_topics, offsets, partitions_of, starts_and_ends
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError, NotUnderstoodError
from barnabas.cli.output import Column, Output, confirm
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.times import parse_time_ms

COLUMNS = (Column("partition", "PARTITION", is_number=True), Column("start_offset", "BEGINS AT", is_number=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add(
        "-o", "--before", "--offset", required=True, metavar="OFFSET|@TIME|end",
        help="records before it are deleted: an offset, a time (@2026-01-31T10:00, @-7d), or end for all",
    )  # fmt: skip
    add("-p", "--partition", "--partitions", type=int, action="append", default=[], metavar="N", help="only these (all)")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        partitions = partitions_of(get_topics(connection, [options.topic]))
        if unknown := sorted(set(options.partition) - {index for _, index in partitions}):
            raise NotUnderstoodError(f"topic {options.topic} has no partition {', '.join(map(str, unknown))}")
        chosen = [each for each in partitions if not options.partition or each[1] in options.partition]
        bounds = starts_and_ends(connection, chosen)
        targets = _targets(connection, options.before, bounds)
        if not targets:
            print("no record is before that", file=sys.stderr)
            return DONE
        begins = {each: bounds[each][0] for each in targets}
        plan = [f"delete records of {name}-{index} from {begins[name, index]} to before {end}" for (name, index), end in targets.items()]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        asked = [TopicPartition(*each, offset) for each, offset in targets.items()]
        answers = connection.attempts(connection.admin.delete_records(asked, request_timeout=connection.timeout_s))
    output = Output(options.output)
    done = {each.partition: answer for each, answer in answers.items() if not isinstance(answer, CommandError)}
    output.rows([{"partition": index, "start_offset": answer.low_watermark} for index, answer in sorted(done.items())], COLUMNS)
    failed = [Outcome.of(f"{each.topic}-{each.partition}", answer, "") for each, answer in answers.items() if each.partition not in done]
    report(output, "partition", failed)
    return DONE


def _targets(connection: Connection, before: str, bounds: dict[Partition, tuple[int | None, int | None]]) -> dict[Partition, int]:
    """Where each partition is to begin, without those that begin there or later. Raises NotUnderstoodError."""
    ends = {each: end for each, (_, end) in bounds.items()}
    if before.startswith("@"):
        time_ms = parse_time_ms(before[1:], time.time_ns() // 1_000_000)
        found = offsets(connection, bounds, OffsetSpec.for_timestamp(time_ms))
        wished = {each: ends[each] if offset is None else offset for each, offset in found.items()}
    elif before in ("end", "-1"):
        wished = ends
    elif before.isdigit():
        wished = {each: None if end is None else min(int(before), end) for each, end in ends.items()}
    else:
        raise NotUnderstoodError(f"--before {before}: it is an offset, @ and a time, or end")
    return {each: offset for each, offset in wished.items() if offset is not None and offset > (bounds[each][0] or 0)}
