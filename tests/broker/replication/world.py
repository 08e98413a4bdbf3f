"""One broker's replication room over real logs in a temporary directory, with the clock, the executor and the controller by hand.

    world = World(tmp_path)
    world.create_topic("orders", replicas=(1, 2, 3))
    results = world.produce("orders", batch("a"), acks=-1)

The node is broker 1. Metadata comes by replaying Kafka's records, as from the metadata log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker.handlers.services import Services
from broker.loop.deferred import Deferred
from broker.loop.turns import at_once
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from broker.observability.metrics import Metrics
from broker.replication.delayed_produce import PartitionAppendResult
from broker.replication.fetch.fetch_data import FetchIsolation, FetchParams, FetchTarget, PartitionRead
from broker.replication.fetcher.fetcher_control import FetcherControl, FollowedPartition, InitialFetch
from broker.replication.isr.isr_state import IsrProposal, OnIsrAnswer
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from config.server import ServerConfig
from config.topic import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionResponsePartitionData
from protocol.messages.stored.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.records import SimpleRecord, build_batch, iterate_headers, iterate_records
from storage import log_opener
from storage.errors import StorageError
from storage.future_logs import FutureLogs
from storage.log import Log
from storage.log_creations import CreationWork, NewLog
from storage.log_directory import RemovalWork
from storage.log_manager import LogManager
from tests.support.clock import WALL_START_MS, ManualClock
from tests.support.doubles import stands_for
from tests.support.services import request_context, services

NODE_ID = 1
TOPIC_RESOURCE = 2


def batch(*values: str, timestamp: int = WALL_START_MS, **fields: Any) -> memoryview:
    """A writable batch of records without keys."""
    return memoryview(build_batch([SimpleRecord(None, value.encode(), (), timestamp) for value in values], **fields))


class ManualFuture:
    """What ManualExecutor hands out: done when the test says so."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._callbacks: list[Callable[[Any], object]] = []
        self._error: Exception | None = None
        self._value: Any = None
        self._is_done = False

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> Exception | None:
        return self._error

    def run(self, error: Exception | None = None) -> None:
        self._error = error
        self._is_done = True
        if error is None:
            try:
                self._value = self._call()
            except StorageError as refusal:
                self._error = refusal
        for callback in self._callbacks:
            callback(self)


class ManualExecutor:
    """Keeps blocking calls until `run`, but for the creation of logs unless it `keeps_creations`."""

    def __init__(self) -> None:
        self.pending: list[ManualFuture] = []
        self.keeps_creations = False

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> ManualFuture:
        future = ManualFuture(lambda: function(*arguments))
        if not self.keeps_creations and isinstance(getattr(function, "__self__", None), CreationWork | DirectoryCreation):
            future.run()
        else:
            self.pending.append(future)
        return future

    def run(self, error: Exception | None = None) -> None:
        """Run what is pending now; what that starts stays pending."""
        pending, self.pending = self.pending, []
        for future in pending:
            future.run(error)


@stands_for(FetcherControl, own=("fetched",))
class NotedFetchers:
    """Who is to be fetched from where."""

    def __init__(self) -> None:
        self.fetched: dict[FollowedPartition, InitialFetch] = {}

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        assert partition not in self.fetched
        self.fetched[partition] = start

    def remove(self, partition: FollowedPartition) -> None:
        self.fetched.pop(partition, None)


class SentProposal:
    """A proposal on its way to the controller, which the test plays."""

    def __init__(self, proposal: IsrProposal, on_answer: OnIsrAnswer, clock: ManualClock) -> None:
        self.proposal = proposal
        self.on_answer = on_answer
        self._clock = clock

    @property
    def isr(self) -> tuple[int, ...]:
        return self.proposal.isr

    def accept(self, *, isr: Iterable[int] | None = None, partition_epoch: int | None = None, leader_epoch: int | None = None) -> None:
        """The controller commits it, by default as it is."""
        answer = AlterPartitionResponsePartitionData(
            partition_index=self.proposal.partition,
            leader_id=NODE_ID,
            leader_epoch=self.proposal.leader_epoch if leader_epoch is None else leader_epoch,
            isr=list(self.isr if isr is None else isr),
            partition_epoch=self.proposal.partition_epoch + 1 if partition_epoch is None else partition_epoch,
        )
        assert not self.on_answer(answer, self._clock.monotonic_ms())

    def refuse(self, error_code: ErrorCode) -> bool:
        """Returns whether it is to be sent again."""
        answer = AlterPartitionResponsePartitionData(partition_index=self.proposal.partition, error_code=error_code)
        return self.on_answer(answer, self._clock.monotonic_ms())


@stands_for(FutureLogs)
class NoFutures:
    """Nothing moves."""

    def futures(self) -> list[Log]:
        return []


@stands_for(CreationWork)
class DirectoryCreation:
    """Makes logs one after the other, until it is done or they are withdrawn."""

    def __init__(self, logs: DirectoryLogs, wanted: Iterable[NewLog], now_ms: int) -> None:
        self._logs = logs
        self._now_ms = now_ms
        self.wanted = {(new.topic, new.partition): new for new in wanted}
        self.names = list(self.wanted)

    def run(self) -> None:
        while self.wanted:
            name, new = self.wanted.popitem()
            if name not in self._logs.logs:
                with suppress(StorageError):
                    self._logs.create_log(*name, new.topic_id, new.config, self._now_ms)


@stands_for(LogManager)
class DirectoryLogs:
    """The part of a LogManager that a ReplicaManager uses, for one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs: dict[tuple[str, int], Log] = {}
        self.directories = [directory]
        self.online_directories = [directory]
        self.futures = NoFutures()

    def find_log(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def each_log(self) -> Iterator[Log]:
        return iter(tuple(self.logs.values()))

    def set_aside(self, topic: str, partition: int) -> None:
        log = self.logs.pop((topic, partition))
        log.abandon()
        log.directory.rename(log.directory.with_name(f"{log.directory.name}-stray"))

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int, directory_id: bytes | None = None
    ) -> Log:
        directory = self.directory / f"{topic}-{partition}"
        if self.directory.is_file():
            raise StorageError("not a directory", path=self.directory)
        directory.mkdir(parents=True)
        log = self.logs[topic, partition] = log_opener.open_log(directory, topic, partition, topic_id, config, now_ms=now_ms)
        return log

    def plan_creations(self, wanted: Iterable[NewLog], now_ms: int) -> DirectoryCreation:
        self._creation = DirectoryCreation(self, wanted, now_ms)
        return self._creation

    def created(self, work: DirectoryCreation) -> None:
        pass

    def withdraw_creations(self, names: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        names = tuple(names)
        for name in names:
            self._creation.wanted.pop(name, None)
        return [name for name in names if name in self.logs]

    def find_directory_id(self, log_dir: str) -> bytes | None:
        return None

    def delete_logs(self, partitions: Iterable[tuple[str, int]]) -> Generator[None, None, list[RemovalWork]]:
        for key in partitions:
            self.logs.pop(key).abandon()
            yield
        return []

    def is_leaving(self, topic: str, partition: int) -> bool:
        return False


class World:
    """See the module's docstring."""

    def __init__(self, directory: Path, *, logs: LogManager | None = None, is_alone: bool = False, **settings: Any) -> None:
        """`logs` is a LogManager where a test needs a whole one; alone, it has no way to a controller."""
        self.clock = ManualClock()
        self.executor = ManualExecutor()
        self.proposals: list[SentProposal] = []
        self.fetchers = NotedFetchers()
        self.failed_log_dirs: list[Path] = []
        self.misplaced: list[tuple[bytes, int, bytes]] = []
        self.on_accepted: Callable[[], None] | None = None  # of the last of them
        self.config = ServerConfig(**settings)
        self.metadata = MetadataCache(ClusterState(), cluster_id="cluster", node_id=NODE_ID, config=self.config)
        self.metrics = Metrics()
        self.logs: LogManager | DirectoryLogs = logs or DirectoryLogs(directory)
        self.replica_manager = ReplicaManager(
            config=self.config,
            node_id=NODE_ID,
            clock=self.clock,
            metrics=self.metrics,
            metadata=self.metadata,
            log_manager=self.logs,  # type: ignore[arg-type]
            run_blocking=self.executor,
            fetchers=self.fetchers,
            alter_isr=None if is_alone else lambda proposal, on_answer: self.alter_isr(proposal, on_answer),
            on_log_dir_failure=lambda log_dir, error: self.failed_log_dirs.append(log_dir),
            assign_directory=self._note_assignment,
        )
        self.metadata.subscribe(self.replica_manager.apply)
        self._topics_count = 0
        self.alter_isr = self._keep_proposal

    def _keep_proposal(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        self.proposals.append(SentProposal(proposal, on_answer, self.clock))

    def _note_assignment(self, topic_id: bytes, index: int, directory_id: bytes, on_accepted: Callable[[], None] | None = None) -> None:
        self.misplaced.append((topic_id, index, directory_id))
        self.on_accepted = on_accepted

    def shrink_isrs(self) -> None:
        """What IsrExpiration does at its intervals, now."""
        for partition in self.replica_manager.partitions():
            partition.maybe_shrink_isr(self.clock.monotonic_ms())

    # -- the cluster -------------------------------------------------------------------------------------------------

    def register_broker(self, node_id: int, *, epoch: int = 0, is_fenced: bool = False, rack: str | None = None) -> None:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host=f"host{node_id}", port=9092, security_protocol=0)
        record = RegisterBrokerRecord(broker_id=node_id, broker_epoch=epoch, end_points=[endpoint], rack=rack, fenced=is_fenced)
        self.metadata.apply_committed([record])

    def shut_down_broker(self, node_id: int) -> None:
        """It announces a controlled shutdown."""
        epoch = self.metadata.brokers[node_id].epoch
        record = BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, in_controlled_shutdown=1)
        self.metadata.apply_committed([record])

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: tuple[int, ...] = (NODE_ID,),
        isr: tuple[int, ...] | None = None,
        leader: int = NODE_ID,
        leader_epoch: int = 0,
        topic_id: bytes | None = None,
        **settings: str,
    ) -> bytes:
        """Returns the topic's id, by default the topic's number. `settings` are topic configs with underscores for dots."""
        self._topics_count += 1
        topic_id = topic_id or self._topics_count.to_bytes(16, "big")
        for node_id in replicas:
            if node_id not in self.metadata.brokers:
                self.register_broker(node_id)
        configs = [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ]
        created = [
            PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=list(replicas), isr=list(isr or replicas),
                leader=leader, leader_epoch=leader_epoch, partition_epoch=0,
            )
            for index in range(partitions)
        ]  # fmt: skip
        self.metadata.apply_committed([TopicRecord(name=name, topic_id=topic_id), *configs, *created])
        return topic_id

    def delete_topic(self, name: str, *, takes_turn: bool = True) -> None:
        """The logs are closed when a turn of the loop has passed."""
        topic = self.metadata.find_topic(name)
        assert topic is not None
        self.metadata.apply_committed([RemoveTopicRecord(topic_id=topic.topic_id)])
        if takes_turn:
            self.clock.advance(0)

    def change_partition(self, name: str, index: int = 0, **changes: Any) -> None:
        """Replay a PartitionChangeRecord: `leader=2`, `isr=[1]` …"""
        topic = self.metadata.find_topic(name)
        assert topic is not None
        self.metadata.apply_committed([PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, **changes)])

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        self.metadata.apply_committed([ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)])

    # -- requests ----------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.replica_manager.get_partition(topic, index)

    def produce(
        self, topic: str, records: memoryview, *, index: int = 0, acks: int = 1, timeout_ms: int = 30_000
    ) -> list[PartitionAppendResult]:
        """A list that gets its one result when the append is answered."""
        answers: list[PartitionAppendResult] = []
        self.replica_manager.append([(topic, index, records)], acks=acks, timeout_ms=timeout_ms, on_done=answers.extend)
        return answers

    def fetch(self, topic: str, offset: int, *, index: int = 0, max_bytes: int = 1 << 20, **params: Any) -> list[PartitionRead]:
        """A list that gets its one read when the fetch is answered; a consumer that does not wait, unless `params` say otherwise."""
        return self.fetch_all([FetchTarget(topic, index, offset, max_bytes)], **params)

    def fetch_all(self, targets: list[FetchTarget], **params: Any) -> list[PartitionRead]:
        """As the Fetch handler does, without a session."""
        answers: list[PartitionRead] = []
        reader, asked = self.replica_manager.reader, fetch_params(**params)
        operation = reader.find_wait(asked, targets, None)
        if operation is None:
            reads = at_once(reader.read(asked, targets, None, is_arrival=True))
            operation = reader.delay(asked, targets, reads, None)
            if operation is None:
                return reads
        reader.park(operation, lambda targets: answers.extend(at_once(reader.read(asked, targets, None))))
        return answers

    def follower_fetch(
        self, node_id: int, topic: str, offset: int, *, index: int = 0, epoch: int = -1, **target: Any
    ) -> list[PartitionRead]:
        """A follower's fetch, which shows the leader that it has everything below `offset`."""
        asked = FetchTarget(topic, index, offset, 1 << 20, current_leader_epoch=epoch, **{"log_start_offset": 0, **target})
        return self.fetch_all([asked], replica_id=node_id, isolation=FetchIsolation.LOG_END)

    def services(self) -> Services:
        return services(
            config=self.config,
            node_id=NODE_ID,
            clock=self.clock,
            metrics=self.metrics,
            metadata=self.metadata,
            replica_manager=self.replica_manager,
            log_manager=self.logs,
        )


def fetch_params(**params: Any) -> FetchParams:
    defaults: dict[str, Any] = {
        "replica_id": -1,
        "replica_epoch": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation": FetchIsolation.HIGH_WATERMARK,
    }
    return FetchParams(**(defaults | params))


def context(api_key: int, version: int) -> RequestContext:
    return request_context(api_key, version)


def values(records: Any) -> list[str]:
    """The values in a response's records, which are released."""
    data = bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()
    if hasattr(records, "release") and not isinstance(records, memoryview):
        records.release()
    return [record.value.decode() for position, _ in iterate_headers(data) for record in iterate_records(data, position) if record.value]


def completed(outcome: Any) -> Any:
    """A handler's response, which must be there."""
    if isinstance(outcome, Deferred):
        assert outcome.is_done, "the request still waits"
        return outcome.value
    return outcome
