"""Transcripts of the coordinator's own life: loading, restart without a close, leadership coming and going."""

import pytest

from broker.groups.coordinator import GroupCoordinator
from protocol.errors import ErrorCode, KafkaError
from protocol.records import SimpleRecord, build_batch
from tests.broker.groups.transcript import Transcript, stable_group


def test_restarted_coordinator_knows_members_assignment_and_offsets():
    script = stable_group("a", "b")
    script.commit(7, "a", generation=1)
    script.skip()

    script.restart()
    script.sync("b")
    script.heartbeat("a")
    script.fetch(0)

    script.expect("b sync assignment=B", "a heartbeat OK", "fetch t-0=7")


def test_member_that_does_not_find_the_restarted_coordinator_expires():
    script = stable_group("a", "b")
    script.restart()
    script.advance(9_000)
    script.heartbeat("a")

    script.advance(1_000)
    script.heartbeat("a")

    script.expect("a heartbeat OK", "a heartbeat REBALANCE_IN_PROGRESS")


def test_rebalance_in_flight_is_forgotten_by_a_restart():
    """Members of the old generation find themselves in it; the newcomer asks again."""
    script = stable_group("a")
    script.join("b")
    script.restart()

    script.heartbeat("a")
    script.join("b", member_id="b-lost")

    script.expect("a heartbeat OK", "b join UNKNOWN_MEMBER_ID")


def test_assignment_whose_commit_was_not_seen_counts_after_a_restart():
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.log.is_holding = True
    script.sync("a", a="A")
    script.skip()

    script.restart()
    script.sync("a")

    script.expect("a sync assignment=A")


def test_deleted_group_stays_deleted():
    script = stable_group("a")
    script.leave("a")
    script.advance(600_000)

    script.restart()

    assert script.groups == {}


def test_empty_group_keeps_its_generation():
    script = stable_group("a")
    script.leave("a")
    script.restart()
    script.skip()

    script.join("b")
    script.advance(1_000)

    script.expect("b join generation=3 leader=b members=b protocol=range")


def test_groups_are_not_served_while_they_load():
    script = stable_group("a")
    script.restart(is_loaded=False)

    script.join("b")
    script.fetch(0)
    script.heartbeat("a")

    script.expect("error COORDINATOR_LOAD_IN_PROGRESS", "error COORDINATOR_LOAD_IN_PROGRESS", "a heartbeat OK")
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        script.coordinator.list_groups()


def is_loading(coordinator: GroupCoordinator) -> bool:
    try:
        coordinator.list_groups()
    except KafkaError as e:
        return e.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return False


@pytest.mark.usefixtures("one_step_in_each_turn")
def test_loading_lets_the_event_loop_run_between_steps():
    script = Transcript()
    for offset in range(3):
        script.commit(offset)
    script.restart(is_loaded=False)

    turns = 0
    while is_loading(script.coordinator):
        (timer, *_) = script.clock.pending_timers
        timer.cancel()
        timer.fire()
        turns += 1

    assert turns == 4


def test_malformed_and_unknown_records_do_not_stop_loading():
    script = Transcript()
    malformed, of_another_kind, unknown = b"\0\1broken", b"\0\3\0\1g", b"\x7f\xff"
    script.append_foreign(build_batch([SimpleRecord(key, b"x") for key in (malformed, of_another_kind, unknown)]))
    script.commit(7)

    script.restart()
    script.skip()
    script.fetch(0)

    script.expect("fetch t-0=7")


def test_resigning_sends_waiting_members_away():
    script = Transcript(initial_rebalance_delay_ms=1000)
    script.join("a")
    script.skip()

    script.coordinator.runtime.on_resigned(0)
    script.heartbeat("a")

    script.expect("a join NOT_COORDINATOR", "error NOT_COORDINATOR")
    assert script.groups == {}


def test_resigning_answers_commits_in_flight():
    script = Transcript()
    script.log.is_holding = True
    script.commit(5)
    script.fetch(0, require_stable=True)
    script.skip()

    script.coordinator.runtime.on_resigned(0)
    script.log.commit()

    script.expect("commit 5 NOT_COORDINATOR", "error NOT_COORDINATOR")


def test_appends_told_done_out_of_order_are_replayed_in_the_logs_order():
    script = Transcript()
    script.log.is_holding = True
    script.commit(5)
    script.commit(6)
    script.skip()

    first, second = script.log.held
    second(ErrorCode.NONE)
    script.expect()
    first(ErrorCode.NONE)
    script.fetch(0)

    script.expect("commit 5 OK", "commit 6 OK", "fetch t-0=6")


def test_name_too_long_for_a_record_fails_its_own_request_only():
    script = Transcript()

    script.commit(5, group_id="g" * 40_000)
    script.commit(6)

    script.expect("commit 5 UNKNOWN_SERVER_ERROR", "log: t-0=6", "commit 6 OK")


def test_election_of_a_later_epoch_loads_again():
    script = stable_group("a")
    first = script.groups.get("g")

    script.coordinator.runtime.on_elected(0, 7)
    assert is_loading(script.coordinator)
    script.advance(0)
    script.heartbeat("a")

    assert script.groups.get("g") is not first
    script.expect("a heartbeat OK")


def test_election_of_the_same_epoch_changes_nothing():
    script = stable_group("a")
    first = script.groups.get("g")

    script.coordinator.runtime.on_elected(0, 0)

    assert script.groups.get("g") is first


def test_stopped_coordinator_is_not_available():
    script = Transcript(initial_rebalance_delay_ms=1000)
    script.join("a")
    script.skip()

    script.coordinator.stop()
    script.join("b")

    script.expect("a join NOT_COORDINATOR", "error COORDINATOR_NOT_AVAILABLE")
    assert script.clock.pending_timers == []


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # From String.hashCode of Java 17 and Utils.abs, over 50 partitions; the last hashes to Integer.MIN_VALUE.
    [("g1", 42), ("my-group", 12), ("console-consumer-12345", 6), ("grüppe", 12), ("😀x", 39), ("polygenelubricants", 0)],
)
def test_group_id_maps_to_the_partition_that_kafka_uses(group_id: str, partition: int):
    script = Transcript()
    script.log.partition_count = 50

    assert script.coordinator.partition_for(group_id) == partition
