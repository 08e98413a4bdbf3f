"""The controller's decisions about brokers: registration, heartbeats, fencing, controlled shutdown and unregistration. Computes records.

A broker registers fenced. A heartbeat unfences it once it has read its registration in the metadata; then it is elected for its partitions
without a leader. A broker that is fenced or shuts down loses its leaderships to other members of the ISR, or its partitions have no leader.

The only broker of a cluster is treated differently. When it registers again, or shuts down, the records of its partitions stay as they are,
and it is elected again when it is unfenced. Kafka first writes records without a leader. Clients see no difference, because a fenced broker
leads nothing. A single node saves one record for each partition at its start and stop.

Source: ClusterControlManager, BrokerHeartbeatManager, ReplicationControlManager (handleBroker…, processBrokerHeartbeat).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from broker.controller.controller_result import ControllerResult, Steps
from broker.controller.elections import Elections
from broker.controller.heartbeats import BrokerHeartbeats
from broker.metadata.cluster_state import ClusterState
from broker.metadata.features import METADATA_VERSION_FEATURE, knows_cordoned_directories
from broker.metadata.image import BrokerImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.stored.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
NO_EPOCH = -1
RESERVED_IDS_COUNT = 100
"""Directory ids below it are Kafka's own (DirectoryId.reserved)."""

NextOffset = Callable[[], int]
"""The offset that the next record gets."""


class BrokerState(Enum):
    """The state of a broker's life cycle (Kafka's BrokerControlState)."""

    FENCED = "leads nothing and is in no ISR"
    UNFENCED = "may lead"
    CONTROLLED_SHUTDOWN = "still serves, while others take over what it leads"
    SHUTDOWN_NOW = "may stop at once"


class BrokerControl:
    """Reads `state`, never changes it. Owns the sessions, which are not part of the state."""

    def __init__(
        self, state: ClusterState, cluster_id: str, elections: Elections, heartbeats: BrokerHeartbeats, now_ms: int, *, embedded_id: int
    ) -> None:
        """`embedded_id` is the broker in this process. Its older incarnations are gone: they would hold the locks of its directories."""
        self._state = state
        self._cluster_id = cluster_id
        self._elections = elections
        self._heartbeats = heartbeats
        self._embedded_id = embedded_id
        for broker in state.brokers.values():
            if not broker.is_fenced and broker.node_id != embedded_id:
                heartbeats.inherit(broker.node_id, broker.epoch, now_ms)

    # -- registration ----------------------------------------------------------------------------------------------

    def register(self, request: BrokerRegistrationRequest, next_offset: NextOffset, now_ms: int) -> Steps[BrokerRegistrationResponse]:
        """Raises KafkaError. The partitions that an older incarnation led get other leaders first. If the epoch of its last clean stop
        shows that it was not stopped cleanly, it is not an eligible leader replica any more either (KIP-966)."""
        if request.cluster_id != self._cluster_id:
            why = f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        node_id = request.broker_id
        existing = self._state.brokers.get(node_id)
        is_amended = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and not is_amended and self._may_live(existing, request, now_ms):
            why = (
                "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve "
                "once the heartbeat manager expires the broker's session."
            )
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, why)
        self._check_log_dirs(request)
        self._check_features(request)
        record = _registration(request)
        if existing is not None and is_amended:
            record.broker_epoch, record.fenced = existing.epoch, existing.is_fenced
            record.in_controlled_shutdown = existing.is_in_controlled_shutdown
            yield [record]
        elif self._is_alone(node_id):
            record.broker_epoch = next_offset()
            yield [record]
        else:

            def finish(records_count: int) -> list[Any]:
                record.broker_epoch = next_offset() + records_count
                return [record]

            is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
            is_unclean = self._elections.is_elr_enabled and not is_clean
            yield from self._elections.fence_broker(node_id, finish, is_unclean=is_unclean)
        self._heartbeats.register(node_id, record.broker_epoch, now_ms)
        return BrokerRegistrationResponse(broker_epoch=record.broker_epoch)

    def _may_live(self, existing: BrokerImage, request: BrokerRegistrationRequest, now_ms: int) -> bool:
        """Whether an older incarnation may still be alive. It is not if this controller has never heard from it and the new one has
        opened its log directories, which a living process keeps locked: then both machines were restarted, as after a power cut. Kafka's
        controller waits for the end of the session."""
        if self._heartbeats.is_inherited(existing.node_id) and existing.log_dirs and set(existing.log_dirs) <= set(request.log_dirs):
            return False
        return self._heartbeats.has_session(existing.node_id, existing.epoch, now_ms)

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
        """Every finalized feature must be within the broker's supported range. A feature that the broker does not name counts as
        supported at version 0 only."""
        supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        if METADATA_VERSION_FEATURE not in supported:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION_FEATURE}'")
        for name, level in self._state.features.items():
            lowest, highest = supported.get(name, (0, 0))
            if not lowest <= level <= highest:
                why = f"Unable to register because the broker does not support finalized version {level} of {name}. The broker wants a "
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{why}version between {lowest} and {highest}, inclusive.")

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: BrokerHeartbeatRequest, next_offset: NextOffset, now_ms: int) -> Steps[BrokerHeartbeatResponse]:
        """Process a broker's heartbeat. The contact is recorded in the call, before the first step; a KafkaError is raised in the call
        too."""
        broker = self.checked(request.broker_id, request.broker_epoch)
        if not self._elections.is_being_fenced(broker.node_id):
            self._heartbeats.note_contact(broker.node_id, broker.epoch, request.current_metadata_offset, now_ms)
        return self._follow_heartbeat(broker, request, next_offset)

    def _follow_heartbeat(
        self, broker: BrokerImage, request: BrokerHeartbeatRequest, next_offset: NextOffset
    ) -> Steps[BrokerHeartbeatResponse]:
        node_id = broker.node_id
        if self._cordons_others(broker, request):
            # First, so that no replica is placed in them once the broker is unfenced: other operations may run between steps.
            assert request.cordoned_log_dirs is not None
            yield [change_record(broker, cordoned_log_dirs=request.cordoned_log_dirs)]
            broker = self.checked(node_id, request.broker_epoch)
        is_caught_up = request.current_metadata_offset >= broker.epoch
        if self._elections.is_being_fenced(node_id):
            # Its fencing or shutdown is still going on, in steps. The broker may ask again.
            return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=True)
        now = self._current_state(broker)
        following = self._next_state(broker, now, request, is_caught_up=is_caught_up)
        if following is not now:
            yield from self._transition(broker, following)
            if following is BrokerState.CONTROLLED_SHUTDOWN:
                self._heartbeats.begin_shutdown(node_id, next_offset() - 1)
        offline = [each for each in request.offline_log_dirs if each in broker.log_dirs]
        if offline:
            from broker.controller.directory_control import offline_steps

            yield from offline_steps(self._state, self._elections, broker, offline)
        return BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
            should_shut_down=following is BrokerState.SHUTDOWN_NOW,
        )

    def _cordons_others(self, broker: BrokerImage, request: BrokerHeartbeatRequest) -> bool:
        """Whether the broker's cordoned log directories differ from those in the metadata, which has none before its first heartbeat."""
        told = request.cordoned_log_dirs
        if told is None or not knows_cordoned_directories(self._state.features):
            return False
        return broker.cordoned_log_dirs is None or set(broker.cordoned_log_dirs) != set(told)

    def _current_state(self, broker: BrokerImage) -> BrokerState:
        if broker.is_fenced:
            return BrokerState.FENCED
        return BrokerState.CONTROLLED_SHUTDOWN if self._heartbeats.is_shutting_down(broker.node_id) else BrokerState.UNFENCED

    def _next_state(self, broker: BrokerImage, now: BrokerState, request: BrokerHeartbeatRequest, *, is_caught_up: bool) -> BrokerState:
        """BrokerHeartbeatManager.calculateNextBrokerState."""
        node_id = broker.node_id
        if now is BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED if is_caught_up and not request.want_fence else BrokerState.FENCED
        if now is BrokerState.CONTROLLED_SHUTDOWN:
            is_done = not self._elections.partitions.leads_any(node_id) and self._heartbeats.may_shut_down(node_id, self._active())
            return BrokerState.SHUTDOWN_NOW if is_done else BrokerState.CONTROLLED_SHUTDOWN
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if request.want_shut_down:
            has_successors = not self._is_alone(node_id) and self._elections.partitions.leads_any(node_id)
            return BrokerState.CONTROLLED_SHUTDOWN if has_successors else BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED

    def _transition(self, broker: BrokerImage, following: BrokerState) -> Steps[None]:
        node_id = broker.node_id
        if following is BrokerState.UNFENCED:
            unfencing = change_record(broker, fenced=UNFENCE)
            if self._is_alone(node_id):
                yield from self._elections.unfence_only_broker(node_id, unfencing)
                return
            yield from self._elections.prepare()
            if self._state.brokers.get(node_id) is broker:
                yield from self._elections.unfence_broker(node_id, unfencing)
        elif following is BrokerState.CONTROLLED_SHUTDOWN:
            if not broker.is_in_controlled_shutdown:
                yield [change_record(broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN)]
            yield from self._elections.fence_broker(node_id, lambda records_count: ())
        elif broker.is_fenced:
            return
        elif following is BrokerState.SHUTDOWN_NOW and node_id == self._embedded_id and self._is_alone(node_id):
            # A single node: its partitions keep their leader, which its next start is again. It is fenced, since Apache Kafka, if it starts
            # here next, waits for the session of a broker that is not.
            yield [change_record(broker, fenced=FENCE)]
        else:
            yield from self.fence(node_id)

    def _active(self) -> list[int]:
        return [broker.node_id for broker in self._state.brokers.values() if broker.is_active]

    def _is_alone(self, node_id: int) -> bool:
        """Whether there is no other broker, alive or not."""
        return all(each == node_id for each in self._state.brokers)

    # -- fencing and unregistration ----------------------------------------------------------------------------------

    def find_expired(self, now_ms: int) -> list[int]:
        """Returns the brokers to be fenced: their sessions have timed out."""
        expired = self._heartbeats.find_expired(now_ms)
        for node_id in expired:
            self._heartbeats.remove(node_id)
        return [node_id for node_id in expired if node_id in self._state.brokers and not self._state.brokers[node_id].is_fenced]

    def fence(self, node_id: int) -> Steps[None]:
        """Fence the broker and give its leaderships to others. Its session ends in the call, before the first step."""
        self._heartbeats.remove(node_id)
        broker = self._state.brokers.get(node_id)
        return self._fence(node_id, NO_EPOCH if broker is None else broker.epoch)

    def _fence(self, node_id: int, epoch: int) -> Steps[None]:
        def fencing() -> list[Any]:
            """Returns no record if the broker has registered again meanwhile."""
            broker = self._state.brokers.get(node_id)
            if broker is None or broker.epoch != epoch or broker.is_fenced:
                return []
            return [change_record(broker, fenced=FENCE)]

        if fencing():
            yield from self._elections.fence_broker(node_id, lambda records_count: fencing())

    def fence_others(self, embedded_id: int) -> Steps[None]:
        """Fence every other broker. In a quorum of one that no other node can reach, no other broker is alive, whatever an older log
        says."""
        for node_id in [broker.node_id for broker in self._state.brokers.values() if not broker.is_fenced]:
            if node_id != embedded_id:
                yield from self.fence(node_id)

    def unregister(self, node_id: int) -> Steps[None]:
        """Remove the broker's registration, its leaderships, and its memberships of ISRs and eligible leader replicas. Raises
        KafkaError."""
        if node_id not in self._state.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not currently registered")

        def finish(records_count: int) -> list[Any]:
            broker = self._state.brokers.get(node_id)
            return [] if broker is None else [UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.epoch)]

        yield from self._elections.fence_broker(node_id, finish, is_unclean=True)
        self._heartbeats.remove(node_id)

    # -- log directories -------------------------------------------------------------------------------------------

    def assign_replicas(self, request: AssignReplicasToDirsRequest) -> ControllerResult[AssignReplicasToDirsResponse]:
        """Record in which directories a broker has its replicas. Raises KafkaError."""
        from broker.controller.directory_control import assign_replicas  # late: a start without moved replicas does not need it

        broker = self.checked(request.broker_id, request.broker_epoch)
        return assign_replicas(self._state, self._elections, broker, request)

    # -- inside ----------------------------------------------------------------------------------------------------

    def checked(self, node_id: int, epoch: int) -> BrokerImage:
        """Returns the broker if it is registered with that epoch. Raises KafkaError."""
        broker = self._state.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {node_id}")
        if broker.epoch != epoch:
            why = f"Expected broker epoch {epoch} for broker {node_id}, but found broker epoch {broker.epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, why)
        return broker


def change_record(broker: BrokerImage, **changes: Any) -> BrokerRegistrationChangeRecord:
    """The record that changes some facts of the broker's registration."""
    return BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, **changes)


def _registration(request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    """Returns the registration record; its epoch is set later."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
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
