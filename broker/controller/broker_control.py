"""The controller's decisions about brokers: registration, heartbeats, fencing, controlled shutdown, log directories. Computes records.

A broker registers fenced and is unfenced by a heartbeat once it has heard of its registration; then it is elected where nobody leads.
One that goes leaves its leaderships to other members of the ISR; where there is none, it stays the ISR's last member.

Where a new incarnation registers, or a broker shuts down, and nobody can take a partition over, its record stays as it is, and the
broker itself is elected anew when it is unfenced: Kafka first writes that nobody leads. Clients see no difference, a fenced broker
leads nothing; but a single node's start and stop would write one more record for each partition.

Source: ClusterControlManager, BrokerHeartbeatManager, ReplicationControlManager (handleBroker…, handleDirectoriesOffline).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.controller.cluster_control import election_records, lost_replica_record, with_directory
from broker.controller.controller_result import ControllerResult
from broker.controller.heartbeats import BrokerHeartbeats
from broker.metadata.cluster_state import ClusterState
from broker.metadata.features import METADATA_VERSION_FEATURE
from broker.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    PartitionImage,
    TopicImage,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.stored.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
RESERVED_IDS_COUNT = 100
"""Directory ids below it are Kafka's own (DirectoryId.reserved)."""


class BrokerControl:
    """Reads `state`, never changes it; owns the sessions, which are no part of the state."""

    def __init__(self, state: ClusterState, cluster_id: str, heartbeats: BrokerHeartbeats, now_ms: int, *, embedded_id: int) -> None:
        """`embedded_id` is the broker in this process, whose older incarnations are gone: they held its directories' locks."""
        self._state = state
        self._cluster_id = cluster_id
        self._heartbeats = heartbeats
        for broker in state.brokers.values():
            if not broker.is_fenced and broker.node_id != embedded_id:
                heartbeats.register(broker.node_id, broker.epoch, now_ms)  # it inherits no sessions: each gets a new one

    # -- registration ----------------------------------------------------------------------------------------------

    def register(self, request: BrokerRegistrationRequest, new_epoch: int, now_ms: int) -> ControllerResult[BrokerRegistrationResponse]:
        """`new_epoch` is the offset of the next record. Raises KafkaError."""
        if request.cluster_id != self._cluster_id:
            why = f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        node_id = request.broker_id
        existing = self._state.brokers.get(node_id)
        is_amended = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and not is_amended and self._heartbeats.has_session(node_id, existing.epoch, now_ms):
            why = (
                "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve "
                "once the heartbeat manager expires the broker's session."
            )
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, why)
        self._check_log_dirs(request)
        self._check_features(request)
        record = RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=new_epoch,
            end_points=[
                BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=each.name, min_supported_version=each.min_supported_version, max_supported_version=each.max_supported_version
                )
                for each in request.features
            ],
            rack=request.rack,
            fenced=True,
            log_dirs=sorted(request.log_dirs),
        )
        records: list[Any] = []
        if is_amended:
            assert existing is not None
            record.broker_epoch, record.fenced = existing.epoch, existing.is_fenced
            record.in_controlled_shutdown = existing.is_in_controlled_shutdown
        else:
            records += self._departures(node_id, leaves_leaderless=False)
        self._heartbeats.register(node_id, record.broker_epoch, now_ms)
        return ControllerResult([*records, record], BrokerRegistrationResponse(broker_epoch=record.broker_epoch))

    def _check_log_dirs(self, request: BrokerRegistrationRequest) -> None:
        ids = request.log_dirs
        if not ids:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if any(int.from_bytes(each) < RESERVED_IDS_COUNT for each in ids):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
        if len(set(ids)) != len(ids):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
        for broker in self._state.brokers.values():
            if broker.node_id != request.broker_id and not set(ids).isdisjoint(broker.log_dirs):
                why = f"Broker {broker.node_id} is already registered with a directory of the request"
                raise KafkaError(ErrorCode.INVALID_REGISTRATION, why)

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Every finalized feature must be within what the broker supports; one that it does not name has version 0 there."""
        supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        if METADATA_VERSION_FEATURE not in supported:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION_FEATURE}'")
        for name, level in self._state.features.items():
            lowest, highest = supported.get(name, (0, 0))
            if not lowest <= level <= highest:
                why = f"Unable to register because the broker does not support finalized version {level} of {name}. The broker wants a "
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{why}version between {lowest} and {highest}, inclusive.")

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: BrokerHeartbeatRequest, next_offset: int, now_ms: int) -> ControllerResult[BrokerHeartbeatResponse]:
        """What a broker's heartbeat comes to (BrokerHeartbeatManager.calculateNextBrokerState). Raises KafkaError."""
        broker = self.checked(request.broker_id, request.broker_epoch)
        node_id = broker.node_id
        is_caught_up = request.current_metadata_offset >= broker.epoch
        response = BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=broker.is_fenced)
        records: list[Any] = []
        if broker.is_fenced:
            response.should_shut_down = request.want_shut_down
            if not request.want_shut_down and not request.want_fence and is_caught_up:
                response.is_fenced = False
                records = [_change(broker, fenced=UNFENCE), *election_records(self._state, node_id, _OnlineDirectories(broker))]
        elif request.want_fence and not request.want_shut_down:
            response.is_fenced = True
            records = self.fencing_records(node_id)
        elif request.want_shut_down:
            response.should_shut_down = request.want_fence or self._may_shut_down(node_id)
            if response.should_shut_down:
                # A node that nobody can take over from goes without a word: it registers anew when it comes back.
                response.is_fenced = True
                records = self.fencing_records(node_id, leaves_leaderless=False) if self._others_active(node_id) else []
            elif not broker.is_in_controlled_shutdown:
                records = [_change(broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN), *self._departures(node_id)]
        self._heartbeats.note_contact(node_id, broker.epoch, request.current_metadata_offset, now_ms)
        if request.want_shut_down and records and not response.should_shut_down:
            self._heartbeats.begin_shutdown(node_id, next_offset + len(records))
        offline = [each for each in request.offline_log_dirs if each in broker.log_dirs]
        if offline:
            records += self._offline_records(broker, offline)
        return ControllerResult(records, response)

    def _may_shut_down(self, node_id: int) -> bool:
        """Whether nobody can take over what the broker leads, or somebody has, and those who live know of it."""
        return not any(self._departures(node_id)) and self._heartbeats.may_shut_down(node_id, self._others_active(node_id))

    def _others_active(self, node_id: int) -> list[int]:
        return [broker.node_id for broker in self._state.brokers.values() if broker.node_id != node_id and broker.is_active]

    def _offline_records(self, broker: BrokerImage, offline: list[bytes]) -> list[Any]:
        records: list[Any] = []
        for topic, index, partition in self._partitions():
            if broker.node_id in partition.replicas and len(partition.directories) == len(partition.replicas):
                place = partition.replicas.index(broker.node_id)
                if partition.directories[place] in offline:
                    records.append(lost_replica_record(topic, index, partition, broker.node_id))
        left = [each for each in broker.log_dirs if each not in offline]
        return [*records, _change(broker, log_dirs=left)]

    # -- fencing ---------------------------------------------------------------------------------------------------

    def find_expired(self, now_ms: int) -> list[int]:
        """Brokers to be fenced: they have not been heard of for a session's time."""
        expired = self._heartbeats.find_expired(now_ms)
        for node_id in expired:
            self._heartbeats.remove(node_id)
        return [node_id for node_id in expired if node_id in self._state.brokers and not self._state.brokers[node_id].is_fenced]

    def fencing_records(self, node_id: int, *, leaves_leaderless: bool = True) -> list[Any]:
        """The broker leads nothing any more."""
        departures = self._departures(node_id, leaves_leaderless=leaves_leaderless)
        return [*departures, _change(self._state.brokers[node_id], fenced=FENCE)]

    def _departures(self, node_id: int, *, leaves_leaderless: bool = False) -> list[PartitionChangeRecord]:
        """Others take over what the broker leads, and it leaves the ISRs that have others in them. `leaves_leaderless`: where there is
        nobody else, nobody leads; the ISR keeps its last member, which has every committed record."""
        records = []
        for topic, index, partition in self._partitions():
            if node_id not in partition.isr and partition.leader != node_id:
                continue
            isr = [replica for replica in partition.isr if replica != node_id]
            successors = [each for each in partition.replicas if each in isr and self._is_active(each)]
            change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
            if partition.leader != node_id:
                change.isr = isr if isr else None
            elif successors:
                change.leader, change.isr = successors[0], isr
            elif leaves_leaderless:
                change.leader = NO_LEADER
            else:
                continue
            if change.isr is not None or partition.leader == node_id:
                records.append(change)
        return records

    def _is_active(self, node_id: int) -> bool:
        broker = self._state.brokers.get(node_id)
        return broker is not None and broker.is_active

    # -- log directories -------------------------------------------------------------------------------------------

    def assign_replicas(self, request: AssignReplicasToDirsRequest) -> ControllerResult[AssignReplicasToDirsResponse]:
        """Note in which directories a broker has its replicas; what is in one that is offline is led by nobody. Raises KafkaError."""
        broker = self.checked(request.broker_id, request.broker_epoch)
        is_online = _OnlineDirectories(broker).is_online
        records: list[Any] = []
        directories = []
        for directory in request.directories:
            topics = []
            for asked in directory.topics:
                topic = self._state.topics_by_id.get(asked.topic_id)
                results = []
                for each in asked.partitions:
                    index = each.partition_index
                    error = _assignment_error(topic, index, broker.node_id)
                    if error is ErrorCode.NONE:
                        assert topic is not None
                        record = _assignment(topic, index, broker.node_id, directory.id, is_online=is_online(directory.id))
                        records += [] if record is None else [record]
                    results.append(AssignReplicasToDirsResponsePartitionData(partition_index=index, error_code=error))
                topics.append(AssignReplicasToDirsResponseTopicData(topic_id=asked.topic_id, partitions=results))
            directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
        return ControllerResult(records, AssignReplicasToDirsResponse(directories=directories))

    # -- inside ----------------------------------------------------------------------------------------------------

    def checked(self, node_id: int, epoch: int) -> BrokerImage:
        """The broker, registered with that epoch. Raises KafkaError."""
        broker = self._state.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {node_id}")
        if broker.epoch != epoch:
            why = f"Expected broker epoch {epoch} for broker {node_id}, but found broker epoch {broker.epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, why)
        return broker

    def _partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self._state.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition


class _OnlineDirectories:
    """Where a registered broker's replicas may be led. Satisfies Directories."""

    def __init__(self, broker: BrokerImage) -> None:
        self._log_dirs = frozenset(broker.log_dirs)

    def is_online(self, directory: bytes) -> bool:
        return directory in self._log_dirs or directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)

    def find_directory(self, key: tuple[str, int], known: bytes) -> bytes:
        return known if self.is_online(known) else LOST_DIRECTORY


def _change(broker: BrokerImage, **changes: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, **changes)


def _assignment_error(topic: TopicImage | None, index: int, node_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if node_id in topic.partitions[index].replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assignment(topic: TopicImage, index: int, node_id: int, directory: bytes, *, is_online: bool) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    if not is_online:
        return lost_replica_record(topic, index, partition, node_id)
    directories = with_directory(partition, node_id, directory)
    if directories == partition.directories:
        return None
    return PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, directories=list(directories))
