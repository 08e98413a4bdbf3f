"""`barnabas cluster status`: what a cluster, of whichever nodes, says of itself, for a person or as JSON.

Metadata, DescribeCluster, DescribeConfigs and DescribeQuorum of any broker, and the log ends of all of them. What a broker does not serve,
or one that does not answer, leaves its part of the report unknown (null); only when no broker answers at all does the command fail.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cli.cluster_folder import DEFAULT_DIRECTORY, FILE_NAME, FolderError, read_folder
from broker.cli.cluster_report import to_text
from broker.cli.secured_folder import CLIENT_FILE
from broker.cli.wire_client import WireClient
from config.endpoints import parse_host_and_port
from config.properties import ConfigError
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    ReplicaState,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    import argparse

    from broker.cli.client_security import ClientSecurity

Report = dict[str, Any]
"""What --json prints."""

TIMEOUT_S = 5.0
TOPIC_RESOURCE = 2
MIN_ISR = "min.insync.replicas"
METADATA_TOPIC = "__cluster_metadata"
LATEST = -1
DEBUGGING_REPLICA_ID = -2  # a follower tells its own log end


class StatusError(Exception):
    """No broker answered. `str()` is the line to print."""


def status(arguments: list[str]) -> int:
    """Print the report; returns the exit code: 1 if no broker answers."""
    options = _parser().parse_args(arguments)
    try:
        security, named = _security(options.command_config or _own_config(options))
        servers, controllers = _addresses(options, named)
        report = make_report(servers, controllers, asks_all=not options.no_lag, security=security)
    except (StatusError, FolderError, ConfigError, OSError) as e:
        print(f"barnabas cluster status: {e}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else to_text(report))
    return 0


def make_report(
    servers: Sequence[tuple[str, int]],
    controllers: Sequence[tuple[str, int]],
    *,
    asks_all: bool,
    security: ClientSecurity | None = None,
) -> Report:
    """What the first of `servers` that answers knows, and with `asks_all` what each broker says of its own logs."""
    with _connect(servers, security) as client:
        cluster = client.request(DescribeClusterRequest(include_fenced_brokers=client.serves(DescribeClusterRequest, 2)))
        topics = client.request(MetadataRequest(topics=None, allow_auto_topic_creation=False)).topics
        min_isrs = _min_isrs(client, topics)
        quorum = _quorum(client) or _quorum_of_controllers(controllers, security)
    brokers = sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    ends = {
        broker.broker_id: None if broker.is_fenced else _log_ends((broker.host, broker.port), broker.broker_id, topics, security)
        for broker in brokers
    }
    partitions = [_partition(topic, each, min_isrs, ends) for topic in topics for each in topic.partitions]
    return {
        "cluster_id": cluster.cluster_id,
        # A broker names any other as the controller, which forwards (KIP-590): only the quorum knows.
        "controller_id": None if quorum is None else quorum["leader_id"],
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "is_fenced": broker.is_fenced,
                "leaders": sum(each["leader"] == broker.broker_id for each in partitions),
                "replicas": sum(broker.broker_id in each["replicas"] for each in partitions),
                "out_of_sync": sum(broker.broker_id in set(each["replicas"]) - set(each["isr"]) for each in partitions),
                "lag": _sum(each["lags"].get(broker.broker_id) for each in partitions if broker.broker_id in each["replicas"]),
            }
            for broker in brokers
        ],
        "quorum": quorum,
        "topics": len(topics),
        "partitions": partitions,
        "under_replicated": _where(partitions, "is_under_replicated"),
        "under_min_isr": _where(partitions, "is_under_min_isr"),
        "offline": _where(partitions, "is_offline"),
    }


def _partition(
    topic: MetadataResponseTopic, partition: MetadataResponsePartition, min_isrs: Mapping[str, int], ends: Mapping[int, Any]
) -> Report:
    """One partition. A replica's lag is how far its log end is behind the leader's; None if either is not known."""
    name, index = topic.name or "", partition.partition_index
    log_ends = {replica: (ends.get(replica) or {}).get((name, index)) for replica in partition.replica_nodes}
    leader_end = log_ends.get(partition.leader_id)
    min_isr = min_isrs.get(name)
    return {
        "topic": name,
        "partition": index,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replica_nodes),
        "isr": list(partition.isr_nodes),
        "min_isr": min_isr,
        "log_end_offset": leader_end,
        "lags": {
            replica: None if end is None or leader_end is None else max(leader_end - end, 0)  # the leader is asked at another moment
            for replica, end in log_ends.items()
        },
        "is_under_replicated": len(partition.isr_nodes) < len(partition.replica_nodes),
        "is_under_min_isr": min_isr is not None and len(partition.isr_nodes) < min(min_isr, len(partition.replica_nodes)),
        "is_offline": partition.leader_id < 0,
    }


def _min_isrs(client: WireClient, topics: Sequence[MetadataResponseTopic]) -> dict[str, int]:
    """min.insync.replicas by topic; without those that are not told."""
    if not topics or not client.serves(DescribeConfigsRequest):
        return {}
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name or "", configuration_keys=[MIN_ISR])
        for topic in topics
    ]
    answer = client.request(DescribeConfigsRequest(resources=resources))
    return {each.resource_name: int(config.value) for each in answer.results for config in each.configs if config.name == MIN_ISR}


def _log_ends(
    address: tuple[str, int], broker_id: int, topics: Sequence[MetadataResponseTopic], security: ClientSecurity | None
) -> dict[tuple[str, int], int] | None:
    """The log ends of the replicas on one broker, as it says itself; None if it does not answer."""
    asked = []
    for topic in topics:
        hosted = [each.partition_index for each in topic.partitions if broker_id in each.replica_nodes]
        if hosted:
            partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in hosted]
            asked.append(ListOffsetsTopic(name=topic.name or "", partitions=partitions))
    try:
        with WireClient(*address, timeout_s=TIMEOUT_S, security=security) as client:
            answer = client.request(ListOffsetsRequest(replica_id=DEBUGGING_REPLICA_ID, topics=asked)) if asked else None
    except OSError:
        return None
    return {
        (topic.name, each.partition_index): each.offset
        for topic in (answer.topics if answer is not None else ())
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def _quorum(client: WireClient) -> Report | None:
    """The metadata quorum, as its leader says; None if this peer does not know it."""
    if not client.serves(DescribeQuorumRequest):
        return None
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData()])
    answer = client.request(DescribeQuorumRequest(topics=[topic]))
    if answer.error_code != ErrorCode.NONE or not answer.topics:
        return None
    (partition,) = answer.topics[0].partitions
    if partition.error_code != ErrorCode.NONE:
        return None
    end = max((voter.log_end_offset for voter in partition.current_voters), default=0)
    return {
        "leader_id": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "high_watermark": partition.high_watermark,
        "voters": [_quorum_replica(voter, end) for voter in partition.current_voters],
        "observers": [_quorum_replica(observer, end) for observer in partition.observers],
    }


def _quorum_replica(replica: ReplicaState, end: int) -> Report:
    is_known = replica.log_end_offset >= 0
    return {"id": replica.replica_id, "log_end_offset": replica.log_end_offset, "lag": end - replica.log_end_offset if is_known else None}


def _quorum_of_controllers(controllers: Sequence[tuple[str, int]], security: ClientSecurity | None) -> Report | None:
    """As the active one of these controllers says."""
    for host, port in controllers:
        try:
            with WireClient(host, port, timeout_s=TIMEOUT_S, security=security) as client:
                if quorum := _quorum(client):
                    return quorum
        except OSError:
            continue
    return None


def _connect(servers: Sequence[tuple[str, int]], security: ClientSecurity | None) -> WireClient:
    """A connection to the first that answers."""
    why = []
    for host, port in servers:
        try:
            return WireClient(host, port, timeout_s=TIMEOUT_S, security=security)
        except OSError as e:
            why.append(f"{host}:{port}: {e.strerror or e}")
    raise StatusError(f"no broker answers: {'; '.join(why)}")


def _sum(lags: Any) -> int | None:
    """None if one is not known."""
    known = list(lags)
    return None if None in known else sum(known)


def _where(partitions: Sequence[Report], claim: str) -> list[str]:
    return [f"{each['topic']}-{each['partition']}" for each in partitions if each[claim]]


def _own_config(options: argparse.Namespace) -> str | None:
    """The administrator's file of a secured folder that is asked for; None for brokers that are named, and for plain folders."""
    directory = Path(options.directory or DEFAULT_DIRECTORY)
    folder = None if options.bootstrap_server else read_folder(directory)
    return str(directory / CLIENT_FILE) if folder is not None and folder.is_secure else None


def _security(path: str | None) -> tuple[ClientSecurity | None, str]:
    """How to connect, and bootstrap.servers of the file; "" without one. Raises ConfigError."""
    if path is None:
        return None, ""
    from broker.cli.client_security import read_command_config

    config = read_command_config(Path(path))
    return config.security, config.bootstrap_servers


def _addresses(options: argparse.Namespace, named: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Of brokers and of controllers: those that are given, else `named`, else those of the folder, else Kafka's first port."""
    directory = Path(options.directory or DEFAULT_DIRECTORY)
    folder = read_folder(directory)
    controllers = _parse("--bootstrap-controller", options.bootstrap_controller)
    if options.bootstrap_server:
        return _parse("--bootstrap-server", options.bootstrap_server), controllers
    if named:
        return _parse("bootstrap.servers", named), controllers
    if folder is None:
        if options.directory:
            raise FolderError(f"there is no {FILE_NAME} in {directory}")
        return [("localhost", 9092)], controllers
    known = [("127.0.0.1", port) for port in folder.controller_ports.values()]
    return [("127.0.0.1", port) for port in folder.ports.values()], controllers or known


def _parse(key: str, text: str) -> list[tuple[str, int]]:
    return [parse_host_and_port(key, each.strip()) for each in text.split(",") if each.strip()]


def _parser() -> argparse.ArgumentParser:
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(prog="barnabas cluster status", description="Show a cluster's state, as one of its brokers tells it.")
    add = parser.add_argument
    add("--bootstrap-server", default="", metavar="HOST:PORT[,…]", help="brokers; the first that answers is asked")
    add("--bootstrap-controller", default="", metavar="HOST:PORT[,…]", help="controllers, for the quorum, where brokers do not tell it")
    add("--command-config", metavar="FILE", help="a Java client's properties: security.protocol, ssl.… and sasl.…, bootstrap.servers")
    add(
        "--directory",
        default="",
        metavar="DIR",
        help=f"without both: the folder of `cluster up`, by its {FILE_NAME} (default: ./{DEFAULT_DIRECTORY} if it is there, else "
        "localhost:9092 is asked)",
    )
    add("--json", action="store_true", help="one JSON object, with every partition")
    add("--no-lag", action="store_true", help="ask one broker alone: how far replicas are behind is not known then")
    return parser
