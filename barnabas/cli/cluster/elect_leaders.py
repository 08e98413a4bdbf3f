"""Elect leaders: the preferred ones, the first of each partition's replicas, or with --unclean any, for partitions without a leader.

An unclean election may lose records: the new leader may lack some that were acknowledged. It asks first.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import Partition, get_topics, partitions_of, topics_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, check
from barnabas.cli.group.facts import parse_topics, within
from barnabas.cli.output import Output, confirm
from barnabas.cli.report import Outcome, report, report_nothing
from barnabas.cli.settings import resolve_for_change
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1
"""ElectionType's codes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--preferred", action="store_true", help="this is what it does if nothing else is said")
    kind.add_argument("--unclean", action="store_true", help="a replica that is not in sync, where no other is alive")
    add("-t", "--topic", action="append", default=[], metavar="TOPIC[:N,…]", help="only these, or some partitions of them (all)")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    chosen = parse_topics(options.topic)
    with Connection(settings) as connection:
        topics = get_topics(connection, chosen) if chosen else topics_of(connection)
        partitions = {each: topics[each[0]].partitions[each[1]] for each in partitions_of(topics) if within(each, chosen)}
        if options.unclean:
            needed = {each: "without a leader: its records may be lost" for each, partition in partitions.items() if partition.leader < 0}
        else:
            needed = {
                each: f"leader {partition.leader}, preferred {partition.replicas[0]}"
                for each, partition in partitions.items()
                if partition.leader != partition.replicas[0]
            }
        if not needed:
            report_nothing(Output(options.output), "no partition needs an election")
            return DONE
        plan = [f"elect a leader of {name}-{index}, {why}" for (name, index), why in needed.items()]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes or not options.unclean):
            return DONE
        outcomes = _elect(connection, UNCLEAN if options.unclean else PREFERRED, list(needed))
    report(Output(options.output), "partition", outcomes)
    return DONE


def _elect(connection: Connection, kind: int, partitions: list[Partition]) -> list[Outcome]:
    """By the wire: confluent-kafka 2.16's elect_leaders takes no timeout, and raises SystemError for one. Raises RefusedError."""
    topics: dict[str, list[int]] = defaultdict(list)
    for name, index in partitions:
        topics[name].append(index)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()],
        timeout_ms=connection.timeout_ms,
    )
    answer = connection.wire().request(request)
    check(answer.error_code)
    outcomes = []
    for topic in sorted(answer.replica_election_results, key=lambda topic: str(topic.topic)):
        for each in sorted(topic.partition_result, key=lambda each: int(each.partition_id)):
            name = f"{topic.topic}-{each.partition_id}"
            if each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                outcomes.append(Outcome(name, "not needed any more", is_done=True))
            else:
                outcomes.append(Outcome.of_wire(name, each.error_code, each.error_message, "elected"))
    return outcomes
