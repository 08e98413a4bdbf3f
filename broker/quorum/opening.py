"""Opening this node's part of the metadata quorum: its log, what it remembers, and the driver of its replica.

A quorum of one for now: its only voter is this node, named in server.properties or, with kraft.version 1, in the log by formatting.

Source: kafka.raft.KafkaRaftManager.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from broker.blocking import RunBlocking
from broker.clock import Clock
from broker.quorum.driver import NoPeers, QuorumDriver
from broker.quorum.listening import BatchReader, DecodeBatches
from broker.quorum.log import EncodeBatch, QuorumLog, log_config
from broker.quorum.quorum_state import read_vote, write_vote
from broker.quorum.raft import RaftConfig
from broker.quorum.raft_log import ControlRecord
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import NO_ENDPOINTS, Endpoints, ReplicaKey, Voter, VoterSet
from config.server import ServerConfig
from protocol.records import ControlRecordType
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError

DEFAULT_LISTENER = "CONTROLLER"


class OpenedQuorum(NamedTuple):
    """`driver` is not started yet. Close `log` after it."""

    driver: QuorumDriver
    log: QuorumLog
    replica: RaftReplica


class RecordFormats(NamedTuple):
    """Knows the metadata records, which are nothing but records to the quorum."""

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
    call_soon: Callable[..., Any],
    run_blocking: RunBlocking,
    disk: Disk = SYSTEM_DISK,
    on_failure: Callable[[Exception], None],
) -> OpenedQuorum:
    """The quorum whose log is in `root`, the metadata log directory. Blocks. Raises StorageError, also when others vote in it."""
    settings = log_config(config.metadata_log_segment_bytes, config.metadata_log_segment_ms)
    log = QuorumLog.open(root, settings, formats.encode, now_ms=clock.now_ms(), disk=disk)
    try:
        control_records = list(log.control_records())
        raft_config = _raft_config(config, me, cluster_id, control_records)
        vote = read_vote(log.log.directory, disk)
        replica = RaftReplica(raft_config, log, vote, control_records, random_source=random_source, now_ms=clock.monotonic_ms())
        voters = replica.raft.voters
        if not voters.is_only_voter(me):
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
        call_soon=call_soon,
        run_blocking=run_blocking,
        write_vote=functools.partial(write_vote, log.log.directory, disk=disk),
        peers=NoPeers(),
        on_failure=on_failure,
    )
    return OpenedQuorum(driver, log, replica)


def _raft_config(config: ServerConfig, me: ReplicaKey, cluster_id: str, control_records: list[ControlRecord]) -> RaftConfig:
    static_endpoints = {voter.node_id: {_listener_name(config): (voter.host, voter.port)} for voter in config.controller_quorum_voters}
    in_log = [record.value for record in control_records if record.type is ControlRecordType.KRAFT_VOTERS]
    endpoints: Endpoints = static_endpoints.get(me.node_id, NO_ENDPOINTS)
    if in_log:
        # What the voters say of this node stays: nobody else asks it yet, and another version of it finds its address there.
        endpoints = VoterSet.from_record(in_log[-1]).endpoints_of(me.node_id) or endpoints
    return RaftConfig(
        me=me,
        cluster_id=cluster_id,
        listener_name=_listener_name(config),
        endpoints=endpoints,
        bootstrap=(),
        static_voters=VoterSet([Voter(ReplicaKey(me.node_id), endpoints)]),
    )


def _listener_name(config: ServerConfig) -> str:
    return config.controller_listener_names[0] if config.controller_listener_names else DEFAULT_LISTENER
