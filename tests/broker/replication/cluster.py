"""Three brokers' replication rooms in one process: real partitions, logs, fetchers, dispatch and handlers, over a network by hand.

    cluster = Cluster(tmp_path)
    cluster.create_topic("a", replicas=(1, 2, 3))
    acknowledged = cluster.produce("a", "x")
    cluster.settle()

What nodes send each other waits in `cluster.messages`, as bytes of the wire, until `deliver` or `lose`. Metadata is the real
controller's: what it decides is in `cluster.batches`, and each node hears of it when it is told to. Each node has a clock of its own,
which stands still once the node is dead.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from broker.controller.controller import Controller
from broker.controller.partition_change import Election, PartitionChange
from broker.dispatch import KafkaApis
from broker.loop.deferred import Deferred
from broker.loop.turns import Turns
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.network.peer_requests import api_of
from broker.observability.metrics import Metrics
from broker.replication.fetcher.fetcher_control import FetchersOnDemand
from broker.replication.fetcher.manager import ReplicaFetcherManager
from broker.replication.fetcher.replica_fetcher import Endpoint, LeaderConnection
from broker.replication.isr.isr_state import IsrProposal, OnIsrAnswer
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from config.server import ServerConfig
from config.topic import LogConfig
from protocol import codec
from protocol.errors import KafkaError
from protocol.framing import skip_tags
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from protocol.messages.stored.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from protocol.records import iterate_headers, iterate_records
from storage import log_opener
from storage.log import Log
from tests.broker.controller.cluster import collected
from tests.broker.replication.world import TOPIC_RESOURCE, DirectoryLogs, ManualExecutor, batch
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for
from tests.support.services import services

NODE_IDS = (1, 2, 3)
PORT = 9092
FENCED, UNFENCED = 1, -1
SETTLING_ROUNDS_MAX = 400
ROUND_MS = 600  # longer than a long poll


class Stored(NamedTuple):
    """One record as a log has it."""

    offset: int
    epoch: int
    value: str


class Message:
    """Something on its way: `arrive` brings it to its receiver, `vanish` tells the sender that the connection is gone."""

    def __init__(
        self, sender: Node, receiver: Node | None, arrive: Callable[[], None], vanish: Callable[[], None], *, is_request: bool = False
    ) -> None:
        self.sender = sender
        self.is_request = is_request
        self.receiver = receiver
        self.arrive = arrive
        self.vanish = vanish


@stands_for(LeaderConnection)
class LinkedConnection:
    """A connection between two nodes of the cluster."""

    def __init__(self, cluster: Cluster, sender: Node, receiver_id: int) -> None:
        self._cluster = cluster
        self._sender = sender
        self._receiver_id = receiver_id
        self._facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        self._is_closed = False

    def send(
        self, message: Any, on_answer: Callable[[Any | None], None], *, version: int | None = None, timeout_ms: int | None = None
    ) -> None:
        assert version is not None
        receiver = self._cluster.nodes[self._receiver_id]  # this run of it; a later one gets later requests, by a new connection
        api = api_of(message)
        header = struct.pack(">hhih", api.key, version, 1, -1) + (b"\0" if api.request_header_version(version) >= 2 else b"")
        frame = header + codec.encode(message, version)

        def arrive() -> None:
            answer = receiver.apis.handle(memoryview(bytearray(frame)), self._facts)
            if isinstance(answer, Deferred):
                answer.when_done(answered)
            else:
                answered(answer)

        def answered(chunks: Any) -> None:
            data = b"".join(bytes(each) if isinstance(each, bytes | bytearray | memoryview) else _read(each) for each in chunks)
            self._cluster.messages.append(Message(receiver, self._sender, lambda: take(data), vanish))

        def take(data: bytes) -> None:
            position = 8 if api.response_header_version(version) == 0 else skip_tags(memoryview(data), 8)
            response, _ = codec.decode(api.response_class, version, memoryview(bytearray(data)), position)
            end(response)

        def vanish() -> None:
            end(None)

        def end(response: Any | None) -> None:
            if not self._is_closed and not self._sender.is_dead:
                on_answer(response)

        self._cluster.messages.append(Message(self._sender, receiver, arrive, vanish, is_request=True))

    def close(self) -> None:
        self._is_closed = True


@stands_for(DirectoryLogs)
class KeptLogs(DirectoryLogs):
    """Logs that a restarted node finds again; after a power cut, what it finds is on the disk."""

    def __init__(self, directory: Path, *, is_durable: bool) -> None:
        super().__init__(directory)
        self._is_durable = is_durable

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int, directory_id: bytes | None = None
    ) -> Log:
        directory = self.directory / f"{topic}-{partition}"
        if not directory.exists():
            return super().create_log(topic, partition, topic_id, config, now_ms, directory_id)
        log = self.logs[topic, partition] = log_opener.open_log(directory, topic, partition, topic_id, config, now_ms=now_ms)
        if self._is_durable:
            log.flush()
        return log


class Node:
    """One run of one broker, from its start to its death."""

    def __init__(self, cluster: Cluster, node_id: int, directory: Path, settings: dict[str, Any], *, is_durable: bool) -> None:
        self.node_id = node_id
        self.is_dead = False
        self.clock = ManualClock()
        self.clock.advance(1_000_000)
        self.executor = ManualExecutor()
        self.heard_count = len(cluster.batches)  # batches of metadata
        self._cluster = cluster
        config = ServerConfig(node_id=node_id, **settings)
        self.metadata = MetadataCache(cluster.controller.state.copy(), cluster_id="cluster", node_id=node_id, config=config)
        self.logs = KeptLogs(directory, is_durable=is_durable)
        metrics = Metrics()
        self.fetchers: ReplicaFetcherManager | None = None
        self._config = config
        self.replica_manager = ReplicaManager(
            config=config,
            node_id=node_id,
            clock=self.clock,
            metrics=metrics,
            metadata=self.metadata,
            log_manager=self.logs,  # type: ignore[arg-type]
            run_blocking=self.executor,
            fetchers=FetchersOnDemand(self._make_fetchers),
            alter_isr=self._alter_isr,
        )
        self.metadata.subscribe(self.replica_manager.apply)
        self.metadata.subscribe(lambda _: None if self.fetchers is None else self.fetchers.take_over_settings())
        self.replica_manager.end_loading()
        parts = services(
            config=config, node_id=node_id, clock=self.clock, metrics=metrics, metadata=self.metadata, replica_manager=self.replica_manager
        )
        self.apis = KafkaApis(parts, Turns(lambda callback, *rest: self.clock.call_later(0, callback, *rest), self.clock.monotonic_us))

    def _make_fetchers(self) -> ReplicaFetcherManager:
        self.fetchers = ReplicaFetcherManager(self._config, self.metadata, self.replica_manager, self.clock, self._connect)
        return self.fetchers

    def _connect(self, endpoint: Endpoint, number: int) -> LinkedConnection:
        return LinkedConnection(self._cluster, self, int(endpoint.host.removeprefix("host")))

    def _alter_isr(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        self._cluster.send_proposal(self, proposal, on_answer)

    def hear(self, count: int | None = None) -> None:
        """The next `count` batches of the metadata reach it, by default all."""
        batches = self._cluster.batches[self.heard_count :][:count]
        for records in batches:
            self.heard_count += 1
            self.metadata.apply_committed(records)

    def partition(self, topic: str = "a") -> Partition:
        return self.replica_manager.get_partition(topic, 0)

    def log(self, topic: str = "a") -> Log:
        return self.partition(topic).log

    def die(self) -> None:
        self.is_dead = True
        if self.fetchers is not None:
            self.fetchers.close()
        for log in self.logs.logs.values():
            log.abandon()


class Cluster:
    """See the module's docstring. `settings` are every node's."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self.controller = Controller(ServerConfig(), node_id=0, random_source=random.Random(1))
        self.batches: list[list[Any]] = []
        self.messages: list[Message] = []
        self._without_power: set[int] = set()
        self.nodes: dict[int, Node] = {}
        self.commit([FeatureLevelRecord(name="metadata.version", feature_level=25)])
        for node_id in NODE_IDS:
            self.start(node_id)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def commit(self, records: list[Any]) -> None:
        if records:
            self.controller.replay(records)
            self.batches.append(records)

    def create_topic(self, name: str, *, replicas: tuple[int, ...] = NODE_IDS, leader: int = 1, **config: str) -> None:
        topic_id = name.encode().rjust(16, b"\1")
        made = PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=list(replicas), isr=list(replicas), leader=leader, leader_epoch=0
        )
        configs = [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ]
        self.commit([TopicRecord(name=name, topic_id=topic_id), *configs, made])
        self.hear_all()

    def hear_all(self) -> None:
        for node in self.alive:
            node.hear()

    def send_proposal(self, node: Node, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        """An AlterPartition is on its way; one that is lost is sent again."""
        members = [BrokerState(broker_id=each.broker_id, broker_epoch=each.broker_epoch) for each in proposal.members]
        asked = AlterPartitionRequestPartitionData(
            partition_index=proposal.partition,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            leader_recovery_state=proposal.leader_recovery_state,
            new_isr_with_epochs=members,
        )
        topics = [AlterPartitionRequestTopicData(topic_id=proposal.topic_id, partitions=[asked])]

        def send() -> None:
            self.messages.append(Message(node, None, arrive, send))

        def arrive() -> None:
            epoch = node.metadata.broker_epoch
            request = AlterPartitionRequest(broker_id=node.node_id, broker_epoch=epoch, topics=topics)
            try:
                result = collected(self.controller.partitions.alter_partition(request))
            except KafkaError:
                return  # STALE_BROKER_EPOCH: a later incarnation is there
            self.commit(result.records)
            (answer,) = result.response.topics[0].partitions

            def take() -> None:
                if on_answer(answer, node.clock.monotonic_ms()):
                    send()

            self.messages.append(Message(node, node, take, send))

        send()

    def elect(self, *, is_unclean: bool = False) -> None:
        """Brokers that are fenced leave the ISRs, and others lead."""
        controller = self.controller
        for topic in controller.state.topics.values():
            image = topic.partitions[0]
            change = PartitionChange(
                image,
                controller.elections.acceptor(image),
                min_isr=1,
                election=Election.UNCLEAN if is_unclean else Election.ONLINE,
            )
            change.isr = [each for each in image.isr if controller.state.brokers[each].is_active] or list(image.isr)
            record = change.build(topic.topic_id, 0)
            self.commit([] if record is None else [record])

    def change_leader(self, name: str, leader_id: int) -> None:
        """Another member of the ISR leads, and every node hears of it."""
        self.lead(self.controller.state.topics[name].topic_id, leader_id)
        self.hear_all()

    def lead(self, topic_id: bytes, leader_id: int) -> None:
        """Another member of the ISR leads, and nobody has heard of it yet."""
        self.commit([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader_id)])

    # -- faults --------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_dead]

    def start(self, node_id: int) -> Node:
        """A new run of the broker, which registers with a new epoch. It begins with the metadata as it is then, as a broker does."""
        known = self.controller.state.brokers.get(node_id)
        if known is not None and not known.is_fenced:
            self.fence(node_id)
        endpoint = BrokerEndpoint(name="PLAINTEXT", host=f"host{node_id}", port=PORT, security_protocol=0)
        epoch = 100 + len(self.batches)
        self.commit([RegisterBrokerRecord(broker_id=node_id, broker_epoch=epoch, end_points=[endpoint], fenced=False)])
        self.elect()
        node = self.nodes[node_id] = Node(
            self, node_id, self._directory / str(node_id), self._settings, is_durable=node_id in self._without_power
        )
        self._without_power.discard(node_id)
        return node

    def cut_power(self, node_id: int) -> None:
        """As `kill`, and what was not durable is gone."""
        logs = [(log, log.durable_end_offset) for log in self.nodes[node_id].logs.logs.values()]
        self.kill(node_id)
        self._without_power.add(node_id)
        for log, durable_end_offset in logs:
            left = log_opener.open_log(log.directory, log.topic, log.partition, log.topic_id, log.config, now_ms=0)
            left.truncate_to(durable_end_offset)
            left.close()

    def kill(self, node_id: int) -> None:
        """The process is gone; the controller has not noticed yet."""
        node = self.nodes[node_id]
        node.die()
        for message in [each for each in self.messages if node in (each.sender, each.receiver)]:
            self.messages.remove(message)
            if not message.sender.is_dead or (message.receiver is not None and not message.receiver.is_dead):
                message.vanish()

    def fence(self, node_id: int, *, is_unclean: bool = False) -> None:
        broker = self.controller.state.brokers[node_id]
        self.commit([BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, fenced=FENCED)])
        self.elect(is_unclean=is_unclean)

    def unfence(self, node_id: int) -> None:
        broker = self.controller.state.brokers[node_id]
        self.commit([BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, fenced=UNFENCED)])
        self.elect()

    # -- time ----------------------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        self.messages.remove(message)
        if message.receiver is not None and message.receiver.is_dead:
            message.vanish()
        else:
            message.arrive()

    def lose(self, message: Message) -> None:
        """The connection breaks."""
        self.messages.remove(message)
        message.vanish()

    def advance(self, ms: float) -> None:
        for node in self.alive:
            node.clock.advance(ms)

    def run(self) -> None:
        """All that is on its way arrives, and all that waits for the disk is written, while no time passes."""
        for _ in range(10_000):
            self.advance(0)
            for node in self.alive:
                node.executor.run()
            if not self.messages:
                return
            self.deliver(self.messages[0])
        raise AssertionError("the nodes talk without end")

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        """As `run`, up to a moment."""
        for _ in range(10_000):
            self.advance(0)
            if is_reached():
                return
            self.deliver(self.messages[0])
        raise AssertionError("it did not come to that")

    def settle(self, rounds: int = 6) -> None:
        """Time passes and everything arrives."""
        for _ in range(rounds):
            self.hear_all()
            self.run()
            self.advance(ROUND_MS)
        self.hear_all()
        self.run()

    # -- clients -------------------------------------------------------------------------------------------------------

    def leader(self, topic: str = "a") -> Node:
        """Whom the controller has elected."""
        return self.nodes[self.controller.state.topics[topic].partitions[0].leader]

    def produce(self, topic: str, *values: str, node: Node | None = None, acks: int = -1) -> list[Any]:
        """A list that gets its one result when the append is answered."""
        answers: list[Any] = []
        replica_manager = (node or self.leader(topic)).replica_manager
        replica_manager.append([(topic, 0, batch(*values))], acks=acks, timeout_ms=10_000_000, on_done=answers.extend)
        return answers

    def isr(self, topic: str = "a") -> tuple[int, ...]:
        return self.controller.state.topics[topic].partitions[0].isr


def _read(chunk: Any) -> bytes:
    data = bytes(chunk.read())
    chunk.release()
    return data


def stored(log: Log, end_offset: int | None = None) -> list[Stored]:
    """Every record of the log below `end_offset`, by default its end."""
    end = log.log_end_offset if end_offset is None else end_offset
    found: list[Stored] = []
    offset = log.log_start_offset
    while offset < end:
        records = log.read(offset, max_bytes=1 << 20, end_offset=end, minimum_one_batch=True)
        data = bytes(records) if isinstance(records, bytes) else _read(records)
        if not data:
            break
        for position, header in iterate_headers(data):
            for record in iterate_records(data, position):
                found.append(Stored(record.offset, header.partition_leader_epoch, (record.value or b"").decode()))
            offset = header.next_offset
    return found
