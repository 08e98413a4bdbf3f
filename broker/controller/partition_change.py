"""PartitionChange: builds the record that changes one partition from its registration to a target. Pure.

It elects a leader if the present one cannot stay, completes a reassignment whose new replicas are all in the ISR, and updates the eligible
leader replicas (KIP-966).

Source: org.apache.kafka.controller.PartitionChangeBuilder, PartitionReassignmentReplicas.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from broker.metadata.image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
)
from protocol.messages.stored.metadata_records import PartitionChangeRecord


class Election(Enum):
    """Which replica to elect if the leader cannot stay."""

    PREFERRED = "the first replica wherever it may lead"
    ONLINE = "only a replica that has every committed record"
    UNCLEAN = "any live replica, if none that has every committed record is alive"


def _changes_something(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != NO_LEADER_CHANGE
        or record.isr is not None
        or record.replicas is not None
        or record.removing_replicas is not None
        or record.adding_replicas is not None
        or record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
        or record.directories is not None
        or record.eligible_leader_replicas is not None
        or record.last_known_elr is not None
    )


def _unassigned(node_id: int) -> bytes:
    return UNASSIGNED_DIRECTORY


class _Elected(NamedTuple):
    node_id: int
    is_unclean: bool = False


class PartitionChange:
    """The target: fields that are not set stay as in `image`. `build` is called once.

    `can_lead` tells whether a node is alive and its replica in an online directory. `min_isr` is the effective min.insync.replicas; it
    is used only with `is_elr_enabled`. `directories` has the directories of replicas that moved; `default_directory` returns the
    directory in which a broker puts a new replica. `renews_leader_epoch` bumps the leader epoch even if the leader stays."""

    __slots__ = (
        "_elr",
        "adding_replicas",
        "can_lead",
        "default_directory",
        "directories",
        "election",
        "image",
        "is_elr_enabled",
        "isr",
        "leader_recovery_state",
        "min_isr",
        "removing_replicas",
        "renews_leader_epoch",
        "replicas",
        "unclean_shutdown_replicas",
    )

    def __init__(
        self,
        image: PartitionImage,
        can_lead: Callable[[int], bool],
        min_isr: int,
        is_elr_enabled: bool = False,
        election: Election = Election.ONLINE,
        default_directory: Callable[[int], bytes] = _unassigned,
    ) -> None:
        self.image = image
        self.can_lead = can_lead
        self.min_isr = min_isr
        self.is_elr_enabled = is_elr_enabled
        self.election = election
        self.isr = list(image.isr)
        self.replicas = list(image.replicas)
        self.adding_replicas = list(image.adding_replicas)
        self.removing_replicas = list(image.removing_replicas)
        self.leader_recovery_state = image.leader_recovery_state
        self.directories: dict[int, bytes] = {}
        self.default_directory = default_directory
        self.renews_leader_epoch = False
        self.unclean_shutdown_replicas: frozenset[int] = frozenset()
        self._elr = list(image.eligible_leader_replicas)

    def build(self, topic_id: bytes, index: int) -> PartitionChangeRecord | None:
        """Returns the record; None if nothing changes."""
        record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
        image = self.image
        self._maybe_complete_reassignment()
        self._find_eligible_leaders()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(image.replicas) <= set(self.replicas):
            record.leader = image.leader  # a new leader epoch, so that a removed replica is not taken for a replica
        self._note_eligible_leaders(record)
        if record.isr is None and (self.isr or self.is_elr_enabled) and self.isr != list(image.isr):
            record.isr = self.isr
        self._note_last_known_leader(record)
        self._note_assignment(record)
        if self.leader_recovery_state != image.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return record if _changes_something(record) else None

    # -- reassignment --------------------------------------------------------------------------------------------------

    def _maybe_complete_reassignment(self) -> None:
        """Once the ISR has every replica of the target, drop the replicas to be removed."""
        if not self.adding_replicas and not self.removing_replicas:
            return
        isr = [node_id for node_id in self.isr if node_id not in self.removing_replicas]
        replicas = [node_id for node_id in self.replicas if node_id not in self.removing_replicas]
        if isr and replicas and set(replicas) <= set(isr):
            self.isr, self.replicas = isr, replicas
            self.adding_replicas, self.removing_replicas = [], []

    def _note_assignment(self, record: PartitionChangeRecord) -> None:
        image = self.image
        if self.replicas != list(image.replicas):
            record.replicas = self.replicas
        if self.directories or record.replicas is not None:
            before = image.directories or (MIGRATING_DIRECTORY,) * len(image.replicas)  # a record from before KIP-858
            known = dict(zip(image.replicas, before, strict=False)) | self.directories
            after = [known[node_id] if node_id in known else self.default_directory(node_id) for node_id in self.replicas]
            if after != list(before):
                record.directories = after
        if self.adding_replicas != list(image.adding_replicas):
            record.adding_replicas = self.adding_replicas
        if self.removing_replicas != list(image.removing_replicas):
            record.removing_replicas = self.removing_replicas

    # -- election ------------------------------------------------------------------------------------------------------

    def _elect(self, record: PartitionChangeRecord) -> None:
        elected = self._find_leader()
        if elected.node_id == self.image.leader:
            if self.renews_leader_epoch and elected.node_id != NO_LEADER:
                record.leader = elected.node_id
            return
        record.leader = elected.node_id
        if elected.node_id in self._elr:
            self.isr = [elected.node_id]
            self._elr.remove(elected.node_id)
        elif elected.is_unclean:
            # The other replicas may have records that it lacks. They return to the ISR once they have its log.
            record.isr = [elected.node_id]
            if self.image.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _find_leader(self) -> _Elected:
        leader = self.image.leader
        preferred = self.replicas[0]
        if self.election is Election.PREFERRED and self._is_clean_leader(preferred):
            return _Elected(preferred)
        if self._is_clean_leader(leader):
            return _Elected(leader)
        clean = next(filter(self._is_clean_leader, self.replicas), None)
        if clean is not None:
            return _Elected(clean)
        if self._can_elect_last_known_leader():
            return _Elected(self.image.last_known_elr[0], is_unclean=True)
        if self.election is Election.UNCLEAN:
            alive = next(filter(self.can_lead, self.replicas), None)
            if alive is not None:
                return _Elected(alive, is_unclean=True)
        return _Elected(NO_LEADER)

    def _is_clean_leader(self, node_id: int) -> bool:
        return node_id in (self.isr or self._elr) and self.can_lead(node_id)

    def _can_elect_last_known_leader(self) -> bool:
        last_known = self.image.last_known_elr
        return self.is_elr_enabled and not self._elr and not self.isr and len(last_known) == 1 and self.can_lead(last_known[0])

    # -- eligible leader replicas (KIP-966) ----------------------------------------------------------------------------

    def _find_eligible_leaders(self) -> None:
        """A replica that leaves an ISR of fewer than min.insync.replicas still has every committed record: the high watermark cannot
        move then."""
        if not self.is_elr_enabled:
            return
        if len(self.isr) >= self.min_isr:
            self._elr = []
            return
        candidates = dict.fromkeys((*self._elr, *self.image.isr))
        self._elr = [each for each in candidates if each not in self.isr and each not in self.unclean_shutdown_replicas]

    def _note_eligible_leaders(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.is_elr_enabled:
            self._elr = []  # an unclean election: they may have records that the new leader lacks
        if self._elr != list(self.image.eligible_leader_replicas):
            record.eligible_leader_replicas = self._elr

    def _note_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self.is_elr_enabled:
            return
        if record.leader == NO_LEADER and not self.image.last_known_elr:
            record.last_known_elr = [self.image.leader]
        elif record.leader >= 0 and self.image.last_known_elr:
            record.last_known_elr = []
