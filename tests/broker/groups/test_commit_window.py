"""Requests between an append and its commit: they are computed on what was appended, and show nobody what is not committed."""

from broker.handlers.groups import describe_groups, list_groups
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.groups.harness import GroupHandlers
from tests.broker.groups.transcript import Transcript, stable_group

CHECK_MS = 600_000


def test_member_s_commit_finds_the_group_that_a_commit_in_flight_makes():
    script = Transcript()
    script.log.is_holding = True

    script.commit(5)
    script.commit(6, "a", generation=1, version=9)

    script.expect("log: t-0=5", "error UNKNOWN_MEMBER_ID")


def test_member_that_joins_while_its_group_is_being_deleted_is_in_a_new_one():
    script = stable_group("a", initial_rebalance_delay_ms=0)
    script.leave("a")
    script.log.is_holding = True
    script.advance(CHECK_MS)
    script.skip()

    script.join("b")
    script.log.commit()
    script.advance(0)

    script.expect("log: group generation=0", "b join generation=1 leader=b members=b protocol=range")


def test_second_member_joins_the_group_that_the_first_one_makes():
    script = Transcript(initial_rebalance_delay_ms=100)
    script.log.is_holding = True

    script.join("a")
    script.join("b")
    script.advance(200)

    script.expect(
        "log: group generation=0",
        "a join generation=1 leader=a members=a,b protocol=range",
        "b join generation=1 leader=a protocol=range",
    )


def test_commit_replaces_one_in_flight_and_the_offset_of_neither_is_read_before():
    script = Transcript()
    script.commit(4)
    script.log.is_holding = True
    script.skip()

    script.commit(5)
    script.commit(6)
    script.fetch(0)
    script.log.held[0](ErrorCode.NONE)
    script.fetch(0)
    script.log.commit()
    script.fetch()

    script.expect("log: t-0=5", "log: t-0=6", "fetch t-0=4", "commit 5 OK", "fetch t-0=5", "commit 6 OK", "fetch t-0=6")


def test_offset_whose_deletion_is_in_flight_is_still_read():
    script = Transcript(offsets_retention_ms=1)
    script.commit(4)
    script.log.is_holding = True
    script.advance(CHECK_MS)
    script.skip()

    script.fetch()
    script.log.commit()
    script.fetch()

    script.expect("fetch t-0=4", "fetch nothing")


def test_tombstones_in_flight_are_not_written_again():
    script = Transcript(offsets_retention_ms=1)
    script.commit(4)
    script.log.is_holding = True
    script.skip()

    script.advance(2 * CHECK_MS)

    script.expect("log: t-0=deleted", "log: group deleted")


def test_expiry_is_not_put_off_by_a_commit_in_flight():
    """A busy partition always has one."""
    script = Transcript(offsets_retention_ms=CHECK_MS // 2)
    script.commit(4)
    script.log.is_holding = True
    script.advance(CHECK_MS - 1)
    script.commit(5, partition=1)
    script.skip()

    script.advance(1)

    script.expect("log: t-0=deleted")


def test_stable_fetch_does_not_wait_for_later_commits():
    script = Transcript()
    script.log.is_holding = True
    script.commit(5)
    script.fetch(0, require_stable=True)
    script.commit(6)
    script.skip()

    script.log.held[0](ErrorCode.NONE)

    script.expect("commit 5 OK", "fetch t-0=5")


def test_stable_fetch_that_waits_too_long_is_sent_to_look_for_the_coordinator():
    """Kafka tells no other error here, for older consumers would not retry it."""
    script = Transcript()
    script.log.is_holding = True
    script.commit(5)
    script.fetch(0, require_stable=True)
    script.skip()

    script.advance(5_000)

    script.expect("commit 5 COORDINATOR_NOT_AVAILABLE", "error NOT_COORDINATOR")


def test_heartbeat_and_leave_are_answered_after_what_they_were_computed_on():
    script = stable_group("a", "b")
    script.log.is_holding = True
    script.commit(5, "a", generation=1)
    script.skip()

    script.heartbeat("a")
    script.leave("b")
    script.expect()
    script.log.commit()

    script.expect("commit 5 OK", "a heartbeat OK", "leave OK OK")


def test_leadership_lost_between_append_and_commit_forgets_both_commits():
    script = Transcript()
    script.commit(4)
    script.log.is_holding = True
    script.commit(5)
    script.commit(6)
    script.skip()

    script.coordinator.runtime.on_resigned(0)
    del script.log.batches[1:]  # the next leader had them not
    script.coordinator.runtime.on_elected(0, 2)
    script.advance(0)
    script.fetch(0, require_stable=True)

    script.expect("commit 5 NOT_COORDINATOR", "commit 6 NOT_COORDINATOR", "fetch t-0=4")


def test_what_is_not_committed_at_the_election_is_not_read():
    script = Transcript()
    script.commit(4)
    script.log.is_holding = True
    script.commit(5)
    script.log.held.clear()
    script.restart()
    script.skip()

    script.fetch(0)
    script.fetch(0, require_stable=True)
    script.expect("fetch t-0=4")
    script.log.commit()

    script.expect("fetch t-0=5")


def test_group_is_listed_and_described_when_it_is_committed():
    handlers = GroupHandlers()
    handlers.script.log.is_holding = True
    handlers.script.commit(5)

    assert _seen(handlers) == ([], "Dead")
    handlers.script.log.commit()

    assert _seen(handlers) == (["g"], "Empty")


def test_group_whose_deletion_is_in_flight_is_listed_and_described():
    handlers = GroupHandlers(Transcript(offsets_retention_ms=1))
    handlers.script.commit(5)
    handlers.script.log.is_holding = True
    handlers.script.advance(CHECK_MS)

    assert _seen(handlers) == (["g"], "Empty")
    handlers.script.log.commit()

    assert _seen(handlers) == ([], "Dead")


def _seen(handlers: GroupHandlers) -> tuple[list[str], str]:
    listed = handlers.call(list_groups, 4, ListGroupsRequest()).groups
    (described,) = handlers.call(describe_groups, 5, DescribeGroupsRequest(groups=["g"])).groups
    return [group.group_id for group in listed], described.group_state
