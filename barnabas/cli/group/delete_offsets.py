"""Delete a group's committed offsets of topics that no member reads (OffsetDelete)."""

from __future__ import annotations

import argparse
from itertools import groupby

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError, RefusedError, check
from barnabas.cli.group.facts import get_groups, parse_topics, within
from barnabas.cli.group.offsets import committed
from barnabas.cli.output import Output, confirm
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("-t", "--topic", "--topics", action="append", required=True, metavar="TOPIC[:0,1]")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    topics = parse_topics(options.topic)
    with Connection(settings) as connection:
        group = get_groups(connection, [options.group])[options.group]
        own = committed(connection, [options.group])[options.group]
        if isinstance(own, CommandError):
            raise own
        chosen = sorted(each for each in own if within(each, topics))
        if not chosen:
            raise RefusedError(f"group {options.group} has committed no offset of {', '.join(topics)}")
        plan = [f"delete the offset of {topic}-{index} of group {options.group}: {own[topic, index]}" for topic, index in chosen]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        asked = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for _, index in each])
            for name, each in groupby(chosen, key=lambda partition: partition[0])
        ]
        answer = connection.wire(group.coordinator.id).request(OffsetDeleteRequest(group_id=options.group, topics=asked))
    check(answer.error_code)
    outcomes = [
        Outcome.of_wire(f"{topic.name}-{each.partition_index}", each.error_code, None, "deleted")
        for topic in answer.topics
        for each in topic.partitions
    ]
    report(Output(options.output), "partition", outcomes)
    return DONE
