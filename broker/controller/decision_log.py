"""The log lines about the controller's decisions: elections and why, reassignments, brokers that come and go.

They are written when the records are appended, before they are replayed: the state that the records were computed on tells the reason. When
thousands change at once, the first lines are written and one line counts the others. A cluster of one node has no such log.

Kafka logs the same in ReplicationControlManager and ClusterControlManager, at INFO.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.metadata.encoded_topic_records import EncodedTopicRecords
from broker.metadata.image import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, PartitionImage
from broker.observability.limited_log import PARTITION_LINES_INTERVAL_MS, PARTITION_LINES_MAX, LimitedLog
from protocol.messages.stored.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from broker.controller.elections import Elections
    from broker.loop.clock import Clock
    from broker.metadata.cluster_state import ClusterState

logger = logging.getLogger("barnabas.controller")

FENCED, UNFENCED = 1, -1
IN_CONTROLLED_SHUTDOWN = 1


class DecisionLog:
    """See the module's docstring. Owner: LocalController."""

    def __init__(self, clock: Clock) -> None:
        self._log = LimitedLog(logger, clock, lines_max=PARTITION_LINES_MAX, interval_ms=PARTITION_LINES_INTERVAL_MS)

    def note(self, records: Sequence[Any], state: ClusterState, elections: Elections) -> None:
        """Log `records`, which are appended and about to be replayed into `state`."""
        if isinstance(records, EncodedTopicRecords) or not logger.isEnabledFor(logging.INFO):
            return  # EncodedTopicRecords are of a new topic, which has a line of its own
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                self._note_partition(record, state, elections)
            else:
                self._note_broker(record)

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _note_partition(self, record: PartitionChangeRecord, state: ClusterState, elections: Elections) -> None:
        topic = state.topics_by_id.get(record.topic_id)
        if topic is None:
            return
        old = topic.partitions[record.partition_id]
        name = f"{topic.name}-{record.partition_id}"
        if record.leader not in (NO_LEADER_CHANGE, old.leader):
            self._note_election(name, record, old, _reason(record, old, state, elections))
        self._note_reassignment(name, record, old)

    def _note_election(self, name: str, record: PartitionChangeRecord, old: PartitionImage, reason: str) -> None:
        isr = list(old.isr) if record.isr is None else record.isr
        epoch = old.leader_epoch + 1
        if record.leader == NO_LEADER:
            self._log.warning("partitions without a leader", "%s has no leader in epoch %d, ISR %s: %s", name, epoch, isr, reason)
        elif record.leader_recovery_state == RECOVERING:
            self._log.warning(
                "unclean elections",
                "unclean election of broker %d for %s in epoch %d, ISR was %s: acknowledged records may be lost",
                record.leader,
                name,
                epoch,
                list(old.isr),
            )
        elif record.leader in old.eligible_leader_replicas:
            self._log.info(
                "elections", "elected eligible leader replica %d for %s in epoch %d, ISR %s: %s", record.leader, name, epoch, isr, reason
            )
        else:
            self._log.info("elections", "elected broker %d for %s in epoch %d, ISR %s: %s", record.leader, name, epoch, isr, reason)

    def _note_reassignment(self, name: str, record: PartitionChangeRecord, old: PartitionImage) -> None:
        if record.adding_replicas is None and record.removing_replicas is None:
            return
        adding = list(old.adding_replicas) if record.adding_replicas is None else record.adding_replicas
        removing = list(old.removing_replicas) if record.removing_replicas is None else record.removing_replicas
        replicas = list(old.replicas) if record.replicas is None else record.replicas
        if adding or removing:
            self._log.info(
                "reassignments begun", "reassignment of %s begins: adding %s, removing %s, replicas %s", name, adding, removing, replicas
            )
        elif set(old.adding_replicas) <= set(replicas):
            self._log.info("reassignments completed", "reassignment of %s is complete: replicas %s", name, replicas)
        else:
            self._log.info("reassignments cancelled", "reassignment of %s is cancelled: replicas %s", name, replicas)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _note_broker(self, record: Any) -> None:
        if isinstance(record, RegisterBrokerRecord):
            self._log.info("brokers", "broker %d registered in epoch %d", record.broker_id, record.broker_epoch)
        elif isinstance(record, UnregisterBrokerRecord):
            self._log.info("brokers", "broker %d is unregistered", record.broker_id)
        elif isinstance(record, FenceBrokerRecord):
            self._note_fenced(record.id)
        elif isinstance(record, UnfenceBrokerRecord):
            self._note_unfenced(record.id)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            if record.fenced == FENCED:
                self._note_fenced(record.broker_id)
            elif record.fenced == UNFENCED:
                self._note_unfenced(record.broker_id)
            if record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN:
                self._log.info("brokers", "broker %d is about to stop", record.broker_id)

    def _note_fenced(self, node_id: int) -> None:
        self._log.info("brokers", "broker %d is fenced", node_id)

    def _note_unfenced(self, node_id: int) -> None:
        self._log.info("brokers", "broker %d is unfenced", node_id)


def _reason(record: PartitionChangeRecord, old: PartitionImage, state: ClusterState, elections: Elections) -> str:
    """Returns why the partition gets another leader, or none."""
    leader = old.leader
    if leader == NO_LEADER:
        return "it had no leader"
    replicas = old.replicas if record.replicas is None else record.replicas
    if leader not in replicas:
        return f"its replica on broker {leader} is removed"
    broker = state.brokers.get(leader)
    if broker is None:
        return f"broker {leader} is not registered"
    if broker.is_in_controlled_shutdown:
        return f"broker {leader} is about to stop"
    if broker.is_fenced or elections.is_being_fenced(leader):
        return f"broker {leader} is fenced"
    if leader in (old.isr if record.isr is None else record.isr) and record.leader == replicas[0]:
        return "it is the preferred leader"
    return f"broker {leader} cannot lead it any more"  # as when its log directory fails
