"""kafka-metadata-quorum: who leads the metadata quorum, how far the others are, and which controllers vote (controller_changes.py)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from barnabas.cli.cluster.quorum_facts import describe_quorum
from barnabas.cli.errors import DONE, FAILED, CommandError, RefusedError, check
from barnabas.cli.kafka_tools import controller_changes
from barnabas.cli.kafka_tools.controller_changes import add_controller_arguments, read_controller, remove_controller_arguments
from barnabas.cli.kafka_tools.controllers import ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS, connect
from barnabas.cli.kafka_tools.run import TIMEOUT_S, add_connection, error_text
from barnabas.cli.settings import ADDRESS, Settings
from config.loading import read_properties
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.uuids import ZERO_UUID, uuid_to_text

TITLES = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status", "")
UNKNOWN_MS = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser, to_controllers=True)
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="who leads, and how far the others are")
    describe.add_argument("--status", action="store_true")
    describe.add_argument("--replication", action="store_true")
    describe.add_argument("--human-readable", action="store_true", help="with --replication: how long ago, and not when")
    add = commands.add_parser("add-controller", help="let a controller vote; --command-config is its own server.properties")
    add_controller_arguments(add)
    remove_controller_arguments(commands.add_parser("remove-controller", help="take a controller's vote away"))


def run(options: argparse.Namespace) -> int:
    try:
        if options.command == "describe":
            _check(options)
            _describe(options)
        elif options.command == "add-controller":
            controller = read_controller(options.command_config)
            with connect(options, _of_controller(options)) as connection:
                controller_changes.add_controller(connection, controller, dry_run=options.dry_run)
        else:
            with connect(options) as connection:
                node_id, directory_id = options.controller_id, options.controller_directory_id
                controller_changes.remove_controller(connection, node_id, directory_id, dry_run=options.dry_run)
    except RefusedError as e:
        print(error_text(e), file=sys.stderr)
        return FAILED
    return DONE


def _check(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    if options.status and options.replication:
        raise CommandError("Only one of --status or --replication should be specified with describe sub-command")
    if not options.status and not options.replication:
        raise CommandError("One of --status or --replication must be specified with describe sub-command")
    if options.status and options.human_readable:
        raise CommandError("The option --human-readable is only supported along with --replication")


def _of_controller(options: argparse.Namespace) -> Settings:
    """A controller's file: what says how to log in is among its properties, by a Java client's names, and the others are not a client's.
    Raises ConfigError."""
    address = {ADDRESS: options.bootstrap_server or options.bootstrap_controller}
    return Settings(address, read_properties(Path(options.command_config)) | address, timeout_s=TIMEOUT_S)


def _describe(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with connect(options) as connection:
        answer = describe_quorum(connection)
        quorum = answer.topics[0].partitions[0]
        if options.replication:
            _print_replication(quorum, is_human_readable=options.human_readable)
        else:
            kind = ENDPOINT_BROKERS if options.bootstrap_controller is None else ENDPOINT_CONTROLLERS
            cluster = connection.wire().request(DescribeClusterRequest(endpoint_type=kind))
            check(cluster.error_code, cluster.error_message)
            _print_status(cluster.cluster_id, quorum, {node.node_id: node.listeners for node in answer.nodes})


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
        "CurrentObservers": json.dumps([_node(each, listeners) for each in quorum.observers]),
    }
    print("\n".join(f"{name + ':':23} {value}" for name, value in facts.items()))


def _node(replica: Any, listeners: dict[int, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {"id": replica.replica_id}
    if replica.replica_directory_id != ZERO_UUID:
        node["directoryId"] = uuid_to_text(replica.replica_directory_id)
    if found := listeners.get(replica.replica_id):
        node["endpoints"] = [f"{each.name}://{each.host}:{each.port}" for each in found]
    return node


def _print_replication(quorum: Any, *, is_human_readable: bool) -> None:
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
                _when(each.last_fetch_timestamp, "last fetch", is_human_readable=is_human_readable),
                _when(each.last_caught_up_timestamp, "last caught up", is_human_readable=is_human_readable),
                status,
                "",
            )
            for each in replicas
        ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(TITLES))]
    for row in rows:
        print("\t".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)))


def _when(time_ms: int, what: str, *, is_human_readable: bool) -> str:
    """Raises CommandError for what this machine's clock has not reached yet (MetadataQuorumCommand.relativeTimeMs)."""
    if time_ms == UNKNOWN_MS or not is_human_readable:
        return str(time_ms)
    now_ms = time.time_ns() // 1_000_000
    if not 0 < time_ms <= now_ms:
        raise CommandError(
            "Error while computing relative time, possible drift in system clock. "
            f"Current timestamp is {now_ms}, {what} timestamp is {time_ms}"
        )
    return f"{now_ms - time_ms} ms ago"
