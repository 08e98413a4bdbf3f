"""Whom an election makes leader, and what the record says of it."""

from __future__ import annotations

from broker.controller.partition_change import Election, PartitionChange
from broker.metadata.image import NO_LEADER, RECOVERING, PartitionImage
from protocol.messages.stored.metadata_records import PartitionChangeRecord

TOPIC_ID = bytes(15) + b"\x01"


def elect(image: PartitionImage, *alive: int, election: Election = Election.ONLINE, **facts: bool) -> PartitionChangeRecord | None:
    change = PartitionChange(image, alive.__contains__, min_isr=2, election=election, **facts)
    change.isr = [node_id for node_id in image.isr if node_id in alive] or list(image.isr)
    return change.build(TOPIC_ID, 0)


def image(**facts: object) -> PartitionImage:
    known: dict[str, object] = {"leader": 1, "leader_epoch": 1, "partition_epoch": 1, "replicas": (1, 2, 3), "isr": (1, 2, 3)}
    return PartitionImage(**(known | facts))  # type: ignore[arg-type]


def record(**changes: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **changes)


def test_a_leader_that_can_stay_stays() -> None:
    assert elect(image(), 1, 2, 3) is None
    assert elect(image(leader=3), 1, 2, 3) is None


def test_a_preferred_election_moves_to_the_first_replica() -> None:
    assert elect(image(leader=3), 1, 2, 3, election=Election.PREFERRED) == record(leader=1)
    assert elect(image(leader=3, isr=(3, 2)), 1, 2, 3, election=Election.PREFERRED) is None


def test_the_first_live_member_of_the_isr_in_the_order_of_the_assignment_follows() -> None:
    assert elect(image(isr=(3, 2, 1)), 2, 3) == record(leader=2, isr=[3, 2])


def test_nobody_leads_where_no_member_of_the_isr_is_alive() -> None:
    assert elect(image(isr=(1,)), 2, 3) == record(leader=NO_LEADER)


def test_an_unclean_election_makes_the_leader_the_whole_isr_and_recovering() -> None:
    expected = record(leader=2, isr=[2], leader_recovery_state=RECOVERING)
    assert elect(image(isr=(1,)), 2, 3, election=Election.UNCLEAN) == expected


def test_a_clean_leader_goes_before_an_unclean_one() -> None:
    assert elect(image(isr=(1, 3)), 2, 3, election=Election.UNCLEAN) == record(leader=3, isr=[3])


def test_an_eligible_leader_is_elected_where_the_isr_is_empty() -> None:
    gone = image(leader=NO_LEADER, isr=(), eligible_leader_replicas=(2, 3))

    assert elect(gone, 3, is_elr_enabled=True) == record(leader=3, isr=[3], eligible_leader_replicas=[2])


def test_the_last_known_leader_is_elected_where_nobody_is_eligible() -> None:
    gone = image(leader=NO_LEADER, isr=(), last_known_elr=(2,))

    expected = record(leader=2, isr=[2], last_known_elr=[], leader_recovery_state=RECOVERING)
    assert elect(gone, 2, 3, is_elr_enabled=True) == expected
    assert elect(gone, 3, is_elr_enabled=True) is None


def test_the_last_leader_is_remembered_and_the_isr_may_be_empty() -> None:
    change = PartitionChange(image(isr=(1,)), lambda node_id: False, min_isr=2, is_elr_enabled=True)
    change.isr = []

    assert change.build(TOPIC_ID, 0) == record(leader=NO_LEADER, isr=[], eligible_leader_replicas=[1], last_known_elr=[1])
    assert PartitionChange(image(isr=(1,)), {1}.__contains__, min_isr=2, is_elr_enabled=True).build(TOPIC_ID, 0) is None


def test_who_was_shut_down_uncleanly_is_not_eligible() -> None:
    change = PartitionChange(image(isr=(1, 2)), {1}.__contains__, min_isr=2, is_elr_enabled=True)
    change.isr, change.unclean_shutdown_replicas = [1], frozenset({2})

    assert change.build(TOPIC_ID, 0) == record(isr=[1])
