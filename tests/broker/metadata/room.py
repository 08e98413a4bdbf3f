"""A broker's metadata room on a real directory, with a clock that stands still and an executor that the test controls."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.cluster.broker_lifecycle import BrokerLifecycle
from broker.cluster.controller_client import ControllerClient
from broker.controller.controller import Controller
from broker.controller.local_controller import LocalController
from broker.handlers.services import Services
from broker.metadata.cluster_state import ClusterState
from broker.metadata.encoded_topic_records import BatchEncoder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.publisher import MetadataPublisher
from broker.metadata.record_format import read_metadata_batches
from broker.metadata.snapshot import read_bootstrap_records
from broker.metadata.snapshot_generator import SnapshotGenerator
from broker.network.context import RequestContext
from broker.quorum.driver import QuorumDriver
from broker.quorum.log import QuorumLog
from broker.quorum.opening import RecordFormats, open_quorum
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import ReplicaKey
from broker.replication.replica_manager import ReplicaManager
from config.endpoints import Endpoint
from config.server import ServerConfig
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.stored.metadata_records import BrokerEndpoint, BrokerRegistrationChangeRecord, RegisterBrokerRecord
from storage.meta_properties import read_meta_properties
from tests.support.clock import LoopTurnsClock
from tests.support.doubles import stands_for
from tests.support.services import request_context, services

NODE_ID = 1
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = bytes.fromhex("92d34381b12f403eb9b8411c07f2183a")
LISTENERS = (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"), Endpoint("INTERNAL", "broker-1", 19092, "PLAINTEXT"))


class HeldExecutor:
    """Runs what it is given at once, or, while held, when `release` is called. `runs_count` counts the fsyncs."""

    def __init__(self) -> None:
        self.is_held = False
        self.error: Exception | None = None
        self.runs_count = 0
        self._gate = asyncio.Event()

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.runs_count += 1
        if self.is_held:
            await self._gate.wait()
        if self.error is not None:
            raise self.error
        return function(*arguments)

    def release(self) -> None:
        self.is_held = False
        self._gate.set()


@stands_for(ReplicaManager)
class NoReplicas:
    """A broker without partitions: none is ever on its way in or out."""

    def when_made(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        callback()

    def when_removed(self, callback: Callable[[], None]) -> None:
        callback()


@dataclass
class Room:
    """The collaborators, wired as quorum_server.py and client_server.py wire them."""

    config: ServerConfig
    cache: MetadataCache
    client: ControllerClient
    local: LocalController
    lifecycle: BrokerLifecycle
    quorum: QuorumDriver
    log: QuorumLog
    replica: RaftReplica
    publisher: MetadataPublisher
    executor: HeldExecutor
    clock: LoopTurnsClock
    snapshots: SnapshotGenerator
    failures: list[Exception]
    controllers: list[Controller]
    """Each that was made, the newest last."""
    loaded_records_count: int = 0
    """Records of the log that the start replayed."""

    @property
    def controller(self) -> Controller:
        return self.controllers[-1]

    @property
    def services(self) -> Services:
        return services(
            config=self.config,
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            clock=self.clock,
            metadata=self.cache,
            controller=self.client,
            replica_manager=NoReplicas(),
        )

    async def write_snapshot(self) -> None:
        await self.snapshots.write(self.publisher.heard, self.cache.state.copy())

    async def close(self) -> None:
        await self.client.close()
        await self.lifecycle.stop()
        await self.local.close()
        await self.quorum.close()
        await self.snapshots.close()
        self.log.close()


def make_room(
    root: Path,
    config: ServerConfig | None = None,
    *,
    directory_id: bytes = DIRECTORY_ID,
    is_alone: bool = True,
) -> Room:
    """Open the metadata log in `root`; its driver is not started."""
    config = config or ServerConfig(offsets_topic_replication_factor=1)
    clock = LoopTurnsClock()
    cache = MetadataCache(ClusterState(), cluster_id=CLUSTER_ID, node_id=NODE_ID, config=config)
    executor = HeldExecutor()
    failures: list[Exception] = []
    controllers: list[Controller] = []

    def make_active() -> Controller:
        now_ms = clock.monotonic_ms()
        state = cache.state.copy()
        controllers.append(
            Controller(config, node_id=NODE_ID, random_source=random.Random(7), state=state, cluster_id=CLUSTER_ID, now_ms=now_ms)
        )
        return controllers[-1]

    def fail(error: Exception) -> None:
        failures.append(error)
        local.fail(error)

    quorum, log, replica = open_quorum(
        root,
        config,
        ReplicaKey(NODE_ID, directory_id),
        RecordFormats(BatchEncoder(lambda: cache.state.metadata_version), read_metadata_batches),
        cluster_id=CLUSTER_ID,
        clock=clock,
        random_source=random.Random(7),
        run_blocking=executor.run_blocking,
        on_failure=fail,
    )
    snapshots = SnapshotGenerator(log, cache.state, config, clock, executor.run_blocking, quorum_records_at=replica.raft.kraft_records_at)
    publisher = MetadataPublisher(cache, snapshots)
    local = LocalController(
        make_active,
        quorum,
        clock,
        node_id=NODE_ID,
        bootstrap=lambda: read_bootstrap_records(root),
        is_alone=is_alone,
    )
    client = ControllerClient(local, cache, config, clock)
    lifecycle = BrokerLifecycle(local, cache, config, clock, metadata_offset=lambda: publisher.heard.offset - 1)
    quorum.register(publisher)
    quorum.register(local)
    return Room(config, cache, client, local, lifecycle, quorum, log, replica, publisher, executor, clock, snapshots, failures, controllers)


async def open_room(root: Path, config: ServerConfig | None = None, *, is_alone: bool = True) -> Room:
    """Open the metadata log in `root` and activate, as at a broker's start."""
    identity = read_meta_properties(root)
    directory_id = DIRECTORY_ID if identity is None or identity.directory_id is None else identity.directory_id
    room = make_room(root, config, directory_id=directory_id, is_alone=is_alone)
    room.quorum.start()
    await room.quorum.caught_up()
    room.loaded_records_count = room.publisher.replayed_records_count
    await room.publisher.shorten_start()
    await room.local.wait_first_records_committed()
    await room.lifecycle.start(incarnation_id=os.urandom(16), endpoints=LISTENERS, log_dirs=[directory_id])
    return room


def creation(name: str, partitions: int = -1, replicas: int = -1, *, validate_only: bool = False, **configs: str) -> CreateTopicsRequest:
    """A request for one topic; configs are given with underscores for dots."""
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)
    return CreateTopicsRequest(topics=[topic], validate_only=validate_only)


def context(api_version: int, listener_name: str = "PLAINTEXT") -> RequestContext:
    return request_context(0, api_version, listener_name=listener_name)


def registration(node_id: int, *, rack: str | None = None, is_fenced: bool = False, epoch: int = 10) -> list[Any]:
    """Records that register a broker."""
    endpoint = BrokerEndpoint(name="PLAINTEXT", host=f"host-{node_id}", port=9092)
    register = RegisterBrokerRecord(
        broker_id=node_id, broker_epoch=epoch, end_points=[endpoint], rack=rack, fenced=True, log_dirs=[DIRECTORY_ID]
    )
    return [register] if is_fenced else [register, BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, fenced=-1)]


def make_controller(*node_ids: int, config: ServerConfig | None = None, **limits: int) -> Controller:
    """A controller whose state has these brokers, unfenced."""
    controller = Controller(config or ServerConfig(), node_id=NODE_ID, random_source=random.Random(7), **limits)
    for node_id in node_ids or (NODE_ID,):
        controller.replay(registration(node_id))
    return controller
