"""Make a cluster forget a broker that will not come back. Its replicas stay assigned to it: move them away before (topic reassign)."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError, check
from barnabas.cli.output import Output, confirm
from barnabas.cli.settings import resolve_for_change
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest

TELLS_FENCED = 2
"""The version of DescribeCluster that also has brokers that are not alive."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=int, metavar="BROKER")
    arguments.add_change(parser, asks=True)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        wire = connection.wire()
        has_all = wire.serves(DescribeClusterRequest, TELLS_FENCED)
        brokers = {each.broker_id: each for each in wire.request(DescribeClusterRequest(include_fenced_brokers=has_all)).brokers}
        if has_all and options.broker not in brokers:
            raise RefusedError(f"there is no broker {options.broker}; known are {', '.join(map(str, sorted(brokers)))}")
        is_alive = options.broker in brokers and not brokers[options.broker].is_fenced
        topics = connection.metadata().topics
        left = sum(options.broker in each.replicas for topic in topics.values() for each in topic.partitions.values())
        plan = [f"forget broker {options.broker}"]
        if is_alive:
            plan.append("it is alive: it serves nothing any more then, until it starts again")
        if left:
            plan.append(f"it has replicas of {left} partitions, which lack one then: barnabas topic reassign moves them")
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        answer = wire.request(UnregisterBrokerRequest(broker_id=options.broker))
        check(answer.error_code, answer.error_message)
    Output("table").line(f"broker {options.broker} is forgotten")
    return DONE
