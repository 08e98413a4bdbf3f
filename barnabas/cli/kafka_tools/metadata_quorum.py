"""kafka-metadata-quorum: who leads the metadata quorum, and how far the others are. Adding and removing voters is not served here."""

from __future__ import annotations

import argparse
import json
from typing import Any

from barnabas.cli.cluster.quorum_facts import describe_quorum
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.kafka_tools.run import add_connection, settings_of
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.uuids import ZERO_UUID, uuid_to_text

TITLES = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe")
    kind = describe.add_mutually_exclusive_group(required=True)
    kind.add_argument("--status", action="store_true")
    kind.add_argument("--replication", action="store_true")


def run(options: argparse.Namespace) -> int:
    with Connection(settings_of(options)) as connection:
        answer = describe_quorum(connection)
        quorum = answer.topics[0].partitions[0]
        if options.replication:
            _print_replication(quorum)
        else:
            cluster_id = connection.wire().request(DescribeClusterRequest()).cluster_id
            _print_status(cluster_id, quorum, {node.node_id: node.listeners for node in answer.nodes})
    return DONE


def _print_status(cluster_id: str, quorum: Any, listeners: dict[int, Any]) -> None:
    leader = next(each for each in quorum.current_voters if each.replica_id == quorum.leader_id)
    slowest = min(quorum.current_voters, key=lambda each: int(each.log_end_offset))
    lag_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp if slowest.last_caught_up_timestamp >= 0 else -1
    facts = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": 0 if slowest is leader else lag_ms,
        "CurrentVoters": json.dumps([_node(each, listeners) for each in quorum.current_voters]),
        "CurrentObservers": json.dumps([_node(each, {}) for each in quorum.observers]),
    }
    print("\n".join(f"{name + ':':23} {value}" for name, value in facts.items()))


def _node(replica: Any, listeners: dict[int, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {"id": replica.replica_id}
    if replica.replica_directory_id != ZERO_UUID:
        node["directoryId"] = uuid_to_text(replica.replica_directory_id)
    if found := listeners.get(replica.replica_id):
        node["endpoints"] = [f"{each.name}://{each.host}:{each.port}" for each in found]
    return node


def _print_replication(quorum: Any) -> None:
    leader = next(each for each in quorum.current_voters if each.replica_id == quorum.leader_id)
    others = [each for each in quorum.current_voters if each is not leader]
    rows = [TITLES]
    for status, replicas in (("Leader", [leader]), ("Follower", others), ("Observer", quorum.observers)):
        rows += [
            (
                str(each.replica_id),
                uuid_to_text(each.replica_directory_id),
                str(each.log_end_offset),
                str(leader.log_end_offset - each.log_end_offset),
                str(each.last_fetch_timestamp),
                str(each.last_caught_up_timestamp),
                status,
                "",
            )
            for each in replicas
        ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(TITLES))]
    for row in rows:
        print("\t".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)))
