"""Opens this node's replica of the metadata quorum: its log, its durable vote, and its driver.

Its voters are those of controller.quorum.voters or, with kraft.version 1, those in the log. A node without a controller listener cannot be
reached by others, so it must be the only voter. The embedded default is such a node.

Source: kafka.raft.KafkaRaftManager.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock, wall_clock_ms
from broker.quorum.driver import NoPeers, Peers, QuorumDriver
from broker.quorum.listening import BatchReader, DecodeBatches
from broker.quorum.log import EncodeBatch, QuorumLog, log_config
from broker.quorum.quorum_state import read_vote, write_vote
from broker.quorum.raft import RaftConfig
from broker.quorum.raft_log import ControlRecord
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import NO_ENDPOINTS, Address, Endpoints, ReplicaKey, Voter, VoterSet
from config.endpoints import parse_host_and_port
from config.server import ServerConfig
from protocol.records import ControlRecordType
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError

DEFAULT_LISTENER = "CONTROLLER"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
"""The `format` command leaves it in each directory; a start that formats empty directories itself leaves none."""
BOOTSTRAP_KEY = "controller.quorum.bootstrap.servers"


class OpenedQuorum(NamedTuple):
    """`driver` is not started yet. Close `log` after it."""

    driver: QuorumDriver
    log: QuorumLog
    replica: RaftReplica


class RecordFormats(NamedTuple):
    """Encodes and decodes metadata records, which the quorum does not interpret."""

    encode: EncodeBatch
    decode: DecodeBatches


def open_quorum(
    root: Path,
    config: ServerConfig,
    me: ReplicaKey,
    formats: RecordFormats,
    *,
    cluster_id: str,
    clock: Clock,
    random_source: random.Random,
    run_blocking: RunBlocking,
    disk: Disk = SYSTEM_DISK,
    peers: Peers | None = None,
    on_failure: Callable[[Exception], None],
) -> OpenedQuorum:
    """Opens the quorum whose log is in `root`, the metadata log directory. Blocks. Raises StorageError, also when it has other voters
    and `peers` is None."""
    settings = log_config(config.metadata_log_segment_bytes, config.metadata_log_segment_ms)
    to_wall_clock_ms = functools.partial(wall_clock_ms, clock)
    log = QuorumLog.open(root, settings, formats.encode, now_ms=clock.now_ms(), disk=disk, to_wall_clock_ms=to_wall_clock_ms)
    try:
        control_records = list(log.control_records())
        is_formatted = disk.exists(root / BOOTSTRAP_FILE)
        raft_config = _raft_config(config, me, cluster_id, control_records, is_formatted=is_formatted)
        vote = read_vote(log.log.directory, disk)
        replica = RaftReplica(raft_config, log, vote, control_records, random_source=random_source, now_ms=clock.monotonic_ms())
        voters = replica.raft.voters
        if peers is None and not voters.is_only_voter(me):
            names = ", ".join(str(voter.key) for voter in voters)
            raise StorageError(f"{log.log.directory}: the metadata quorum's voters are {names}; the only one must be this node ({me})")
    except BaseException:
        log.close()
        raise
    driver = QuorumDriver(
        replica,
        log,
        BatchReader(log, formats.decode),
        clock=clock,
        run_blocking=run_blocking,
        write_vote=functools.partial(write_vote, log.log.directory, disk=disk),
        peers=peers or NoPeers(),
        on_failure=on_failure,
    )
    return OpenedQuorum(driver, log, replica)


def _raft_config(
    config: ServerConfig, me: ReplicaKey, cluster_id: str, control_records: list[ControlRecord], *, is_formatted: bool
) -> RaftConfig:
    voters = _static_voters(config, me, is_formatted=is_formatted)
    in_log = [record.value for record in control_records if record.type is ControlRecordType.KRAFT_VOTERS]
    endpoints = voters.endpoints_of(me.node_id)
    if in_log and not config.controller_listener_names:
        # Keep this node's entry in the voter set: no other node uses it, and another version of this node finds its address there.
        endpoints = VoterSet.from_record(in_log[-1]).endpoints_of(me.node_id) or endpoints
    return RaftConfig(
        me=me,
        cluster_id=cluster_id,
        listener_name=_listener_name(config),
        endpoints=endpoints or _own_endpoints(config),
        bootstrap=other_addresses(config),
        static_voters=voters,
        can_become_voter="controller" in config.process_roles,
        auto_join=config.controller_quorum_auto_join_enable,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        answer_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
    )


def _static_voters(config: ServerConfig, me: ReplicaKey, *, is_formatted: bool) -> VoterSet:
    """Returns the voters of kraft.version 0. If the config names none, this node is the only one, with two exceptions. The config may
    have bootstrap servers of another quorum. Or the `format` command has written the voters; if this node is not among them, it waits
    for their leader."""
    name = _listener_name(config)
    if config.controller_quorum_voters:
        return VoterSet(Voter(ReplicaKey(each.node_id), {name: (each.host, each.port)}) for each in config.controller_quorum_voters)
    is_elsewhere = "controller" not in config.process_roles or not config.is_own_quorum_server
    is_elsewhere = is_elsewhere or (is_formatted and bool(config.controller_listener_names))
    return VoterSet() if is_elsewhere else VoterSet([Voter(ReplicaKey(me.node_id), _own_endpoints(config))])


def other_addresses(config: ServerConfig) -> list[Address]:
    """Returns the configured addresses of other nodes of the quorum, which are asked for the leader. A node that is not a voter has no
    other way to find it. Bootstrap servers may include this node."""
    servers = config.controller_quorum_bootstrap_servers
    if servers:
        return [parse_host_and_port(BOOTSTRAP_KEY, server) for server in servers]
    return [(voter.host, voter.port) for voter in config.controller_quorum_voters if voter.node_id != config.node_id]


def _own_endpoints(config: ServerConfig) -> Endpoints:
    """Returns the endpoints at which other replicas reach this node."""
    found = {
        endpoint.listener_name: (endpoint.host or "localhost", endpoint.port)
        for endpoint in (*config.listeners, *config.advertised_listeners)
        if endpoint.listener_name in config.controller_listener_names
    }
    return found if "controller" in config.process_roles else NO_ENDPOINTS


def _listener_name(config: ServerConfig) -> str:
    return config.controller_listener_names[0] if config.controller_listener_names else DEFAULT_LISTENER
