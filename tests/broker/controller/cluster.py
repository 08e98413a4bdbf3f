"""A controller and what its brokers ask of it, as a transcript: every record is appended, and committed, at once."""

from __future__ import annotations

import random
from typing import Any

from broker.controller.controller import Controller
from broker.controller.controller_result import ControllerResult, Steps
from broker.metadata.image import PartitionImage
from config.server import ServerConfig
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.stored.metadata_records import ConfigRecord, FeatureLevelRecord, PartitionRecord, TopicRecord

EMBEDDED = 1
SESSION_MS = 9_000
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
TOPIC_ID = bytes(15) + b"\x01"


class Cluster:
    """A controller whose records are committed at once; `offset` is that of the next."""

    def __init__(self, **settings: Any) -> None:
        self.config = ServerConfig(**settings)
        self.now_ms = 0
        self.offset = 100
        self.epochs: dict[int, int] = {}
        self.make_controller()
        self.append([FeatureLevelRecord(name="metadata.version", feature_level=25)])

    def make_controller(self, **options: Any) -> None:
        self.controller = Controller(
            self.config, node_id=EMBEDDED, random_source=random.Random(1), cluster_id="cluster", now_ms=self.now_ms, **options
        )

    def append(self, records: list[Any]) -> None:
        self.controller.replay(records)
        self.offset += len(records)

    def run(self, steps: Steps[Any]) -> Any:
        """What an operation answers; each of its steps is appended before the next."""
        try:
            while True:
                self.append(list(next(steps)))
        except StopIteration as e:
            return e.value

    def register(self, node_id: int, incarnation: int = 1, **facts: Any) -> int:
        request = registration_request(node_id, incarnation)
        for name, value in facts.items():
            setattr(request, name, value)
        response = self.run(self.controller.brokers.register(request, lambda: self.offset, self.now_ms))
        self.epochs[node_id] = response.broker_epoch
        return self.epochs[node_id]

    def heartbeat(self, node_id: int, **facts: Any) -> BrokerHeartbeatResponse:
        facts = {"current_metadata_offset": self.offset} | facts
        request = BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=self.epochs[node_id], **facts)
        response: BrokerHeartbeatResponse = self.run(self.controller.brokers.heartbeat(request, lambda: self.offset, self.now_ms))
        return response

    def join(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.register(node_id)
            self.heartbeat(node_id)

    def expire(self) -> list[int]:
        expired = self.controller.brokers.find_expired(self.now_ms)
        for node_id in expired:
            self.run(self.controller.brokers.fence(node_id))
        return expired

    def pass_time(self, ms: int, *alive: int) -> None:
        """The controller looks for silent brokers all the while."""
        for _ in range(ms // 1_000):
            self.now_ms += 1_000
            for node_id in alive:
                self.heartbeat(node_id)
            self.expire()

    def partition(
        self, *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None, directories: Any = None, **facts: Any
    ) -> None:
        """Topic t with one partition."""
        members = list(replicas if isr is None else isr)
        self.append(
            [
                TopicRecord(name="t", topic_id=TOPIC_ID),
                PartitionRecord(
                    partition_id=0,
                    topic_id=TOPIC_ID,
                    replicas=list(replicas),
                    isr=members,
                    leader=members[0] if leader is None else leader,
                    leader_epoch=0,
                    directories=directories or [directory(each) for each in replicas],
                    **facts,
                ),
            ]
        )

    def configure(self, topic: str = "t", **settings: str | None) -> None:
        """The topic's own configs, underscores for dots; of all brokers for the topic ""."""
        kind = TOPIC_RESOURCE if topic else BROKER_RESOURCE
        self.append(
            [
                ConfigRecord(resource_type=kind, resource_name=topic, name=name.replace("_", "."), value=value)
                for name, value in settings.items()
            ]
        )

    def enable_elr(self) -> None:
        self.append([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])

    @property
    def image(self) -> PartitionImage:
        """Of the partition."""
        return self.controller.state.topics["t"].partitions[0]

    @property
    def facts(self) -> tuple[int, int, tuple[int, ...]]:
        """Leader, leader epoch and ISR of the partition."""
        return self.image.leader, self.image.leader_epoch, self.image.isr

    def is_fenced(self, node_id: int) -> bool:
        return self.controller.state.brokers[node_id].is_fenced


def registration_request(node_id: int, incarnation: int = 1, cluster_id: str = "cluster") -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=cluster_id,
        incarnation_id=bytes([node_id, incarnation] * 8),
        listeners=[Listener(name="PLAINTEXT", host=f"host-{node_id}", port=9092), Listener(name="INTERNAL", host="in", port=1)],
        features=[
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=25),
            Feature(name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1),
            Feature(name="group.version", min_supported_version=0, max_supported_version=1),
            Feature(name="transaction.version", min_supported_version=0, max_supported_version=2),
        ],
        rack="r",
        log_dirs=[directory(node_id)],
    )


def directory(node_id: int) -> bytes:
    return bytes([node_id] * 16)


def collected(steps: Steps[Any]) -> ControllerResult[Any]:
    """The whole operation at once, on the state as it is."""
    records: list[Any] = []
    try:
        while True:
            records += next(steps)
    except StopIteration as e:
        return ControllerResult(records, e.value)
