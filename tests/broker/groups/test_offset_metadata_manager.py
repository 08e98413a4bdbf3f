"""Transcripts of committed offsets: OffsetCommit, OffsetFetch, expiry, deleted topics, transactions in logs that Kafka wrote."""

import pytest

from broker.coordination.records import CoordinatorRecord
from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.groups.record_table import GROUP_RECORDS
from protocol.errors import ErrorCode
from protocol.messages.stored.group_records import OffsetCommitKey, OffsetCommitValue
from protocol.records import ControlRecordType, build_batch, build_control_batch, encode_end_transaction_value
from tests.broker.groups.transcript import Transcript, stable_group

DAY_MS = 24 * 60 * 60 * 1000
CHECK_MS = 600_000
NEW_ID = bytes(15) + b"n"


def test_simple_consumer_commits_without_a_group():
    script = Transcript()

    script.commit(5)
    script.fetch(0)

    script.expect("log: t-0=5", "commit 5 OK", "fetch t-0=5")
    (group,) = script.groups.values()
    assert (group.protocol_type, group.members) == (None, {})


def test_metadata_comes_back_as_it_was_committed():
    script = Transcript()

    script.commit(5, metadata="κ" * 4096)
    script.fetch(0)

    script.expect("log: t-0=5", "commit 5 OK", f"fetch t-0=5({'κ' * 4096})")


def test_metadata_that_is_too_large_refuses_its_partition():
    script = Transcript()

    script.commit(5, metadata="x" * 4097)

    script.expect("commit 5 OFFSET_METADATA_TOO_LARGE")


def test_member_commits_in_its_generation():
    script = stable_group("a")

    script.commit(7, "a", generation=1)
    script.fetch()

    script.expect("log: t-0=7", "commit 7 OK", "fetch t-0=7")


def test_commit_is_fenced_by_generation_and_member():
    script = stable_group("a")

    script.commit(7, "a", generation=0)
    script.commit(7, "made-up", generation=1)
    script.commit(7)

    script.expect("error ILLEGAL_GENERATION", "error UNKNOWN_MEMBER_ID", "error UNKNOWN_MEMBER_ID")


def test_commit_in_the_sync_phase_is_refused():
    """The member has the next generation already, and with it perhaps partitions whose last owner has just committed."""
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()

    script.commit(7, "a", generation=1)

    script.expect("error REBALANCE_IN_PROGRESS")


def test_commit_in_the_join_phase_is_taken():
    """Members commit what they processed before they rejoin."""
    script = stable_group("a", "b")
    script.join("a")

    script.commit(7, "b", generation=1)

    script.expect("log: t-0=7", "commit 7 OK")


@pytest.mark.parametrize(("version", "error"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_commit_with_a_generation_of_an_unknown_group(version: int, error: str):
    script = Transcript()

    script.commit(7, "a", generation=1, version=version)

    script.expect(f"error {error}")


def test_commit_is_answered_and_readable_when_it_is_committed():
    script = Transcript()
    script.log.is_holding = True

    script.commit(5)
    script.fetch(0)
    script.log.commit()
    script.fetch(0)

    script.expect("log: t-0=5", "fetch t-0=-1", "commit 5 OK", "fetch t-0=5")


def test_stable_fetch_waits_for_commits_in_flight():
    """KIP-447: the next owner of a partition must not start before what the last one committed."""
    script = Transcript()
    script.log.is_holding = True

    script.commit(5)
    script.fetch(0, require_stable=True)
    script.expect("log: t-0=5")
    script.log.commit()

    script.expect("commit 5 OK", "fetch t-0=5")


def test_commit_that_times_out_counts_when_it_is_committed_after_all():
    """The log has it, so a restarted coordinator would; this one must not know less."""
    script = Transcript()
    script.log.is_holding = True

    script.commit(5)
    script.advance(5_000)
    script.log.commit()
    script.fetch(0)

    script.expect("log: t-0=5", "commit 5 COORDINATOR_NOT_AVAILABLE", "fetch t-0=5")


def test_commit_that_fails_changes_nothing():
    script = Transcript()
    script.log.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER

    script.commit(5)
    script.fetch(0)

    script.expect("commit 5 NOT_COORDINATOR", "fetch t-0=-1")


def test_offset_expires_a_retention_after_its_group_became_empty():
    script = stable_group("a", offsets_retention_ms=DAY_MS)
    script.commit(7, "a", generation=1)
    script.leave("a")
    script.skip()

    script.advance(DAY_MS - CHECK_MS)
    script.expect()
    script.advance(2 * CHECK_MS)

    script.expect("log: t-0=deleted", "log: group deleted")


def test_simple_consumers_offset_expires_a_retention_after_its_commit():
    script = Transcript(offsets_retention_ms=DAY_MS)
    script.commit(1, partition=0)
    script.advance(DAY_MS // 2)
    script.commit(2, partition=1)
    script.skip()

    script.advance(DAY_MS // 2 + CHECK_MS)
    script.expect("log: t-0=deleted")
    script.advance(DAY_MS // 2 + CHECK_MS)

    script.expect("log: t-1=deleted", "log: group deleted")


def test_stable_group_keeps_the_offsets_of_topics_it_reads():
    script = stable_group("a", offsets_retention_ms=CHECK_MS)
    script.commit(7, "a", generation=1)
    script.skip()

    for _ in range(CHECK_MS // 5_000 * 3):
        script.advance(5_000)
        script.heartbeat("a")

    assert set(script.lines) == {"a heartbeat OK"}


def test_stable_group_loses_the_offsets_of_topics_it_does_not_read_any_more():
    script = Transcript(offsets_retention_ms=CHECK_MS, max_session_timeout_ms=DAY_MS)
    script.join("a", topics=["u"], session_timeout_ms=DAY_MS)
    script.advance(0)
    script.sync("a", a="A")
    script.commit(7, "a", generation=1)
    script.skip()

    script.advance(2 * CHECK_MS)

    script.expect("log: t-0=deleted")


def test_retention_time_of_an_old_commit_request_is_honoured():
    script = Transcript()
    script.commit(7, version=4, retention_time_ms=CHECK_MS)
    script.skip()

    script.advance(CHECK_MS - 1)
    script.expect()
    script.advance(CHECK_MS)

    script.expect("log: t-0=deleted", "log: group deleted")


def test_group_without_members_and_offsets_is_forgotten():
    script = stable_group("a")
    script.leave("a")
    script.skip()

    script.advance(CHECK_MS)

    script.expect("log: group deleted")
    assert script.groups == {}


def test_offsets_of_a_deleted_topic_are_deleted():
    script = Transcript()
    script.commit(5)
    script.skip()

    script.delete_topic("t")
    script.fetch(0)

    script.expect("log: t-0=deleted", "fetch t-0=-1")


def test_offsets_of_a_deleted_topic_are_deleted_later_if_that_is_refused_now():
    """Nothing else would, before the next load: a topic made anew under the name would be read from the old offset."""
    script = Transcript()
    script.commit(5)
    script.skip()
    script.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    script.delete_topic("t")
    script.advance(RETRY_BACKOFF_MS)

    script.log.fail_with = None
    script.advance(RETRY_BACKOFF_MS)
    script.create_topic("t", partitions=2, topic_id=NEW_ID)
    script.fetch(0)

    script.expect("log: t-0=deleted", "fetch t-0=-1")


def test_topic_deleted_while_loading_loses_its_offsets_too():
    script = Transcript()
    script.commit(5)
    script.skip()
    script.restart(is_loaded=False)

    script.delete_topic("t")
    script.advance(0)

    script.expect("log: t-0=deleted")


def test_offsets_of_a_topic_that_was_deleted_while_nobody_coordinated_are_deleted():
    """Kafka keeps them, and a topic made anew under the name is not read from its start."""
    script = Transcript()
    script.commit(5)
    script.skip()
    script.restart(is_loaded=False)
    script.coordinator.stop()

    script.delete_topic("t")
    script.create_topic("t", partitions=2, topic_id=NEW_ID)
    script.restart()
    script.fetch(0)

    script.expect("log: t-0=deleted", "fetch t-0=-1")


def test_offsets_of_the_topic_that_was_made_anew_stay_when_the_old_one_is_deleted():
    """A coordinator that learns of both at once, from a snapshot, loads what the one before committed for the new topic."""
    script = Transcript()
    script.commit(5)
    script.skip()
    script.restart(is_loaded=False)
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = CoordinatorRecord(key, OffsetCommitValue(offset=7, topic_id=NEW_ID))
    script.append_foreign(build_batch([GROUP_RECORDS.encode(record, 0)]))

    script.delete_topic("t")
    script.create_topic("t", partitions=2, topic_id=NEW_ID)
    script.advance(0)
    script.fetch(0, 1)

    script.expect("log: t-0=deleted", "fetch t-0=-1 t-1=7")


def test_offset_of_another_topic_of_that_name_does_not_count_for_an_id():
    """As Kafka answers from OffsetFetch 10 on."""
    script = Transcript()
    script.commit(5)
    script.skip()

    script.fetch(0, topic_id=NEW_ID)
    script.fetch(0, topic_id=b"t".ljust(16, b"\0"))
    script.fetch(0)

    script.expect("fetch t-0=-1", "fetch t-0=5", "fetch t-0=5")


def transactional_commit(offset: int, producer_id: int = 9) -> bytearray:
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=offset))
    return build_batch([GROUP_RECORDS.encode(record, 0)], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def end_transaction(control_type: ControlRecordType, producer_id: int = 9) -> bytearray:
    return build_control_batch(control_type, encode_end_transaction_value(0), timestamp=0, producer_id=producer_id, producer_epoch=0)


def test_offset_of_an_open_transaction_is_unstable():
    script = Transcript()
    script.append_foreign(transactional_commit(5))
    script.restart()
    script.skip()

    script.fetch(0)
    script.fetch(0, require_stable=True)

    script.expect("fetch t-0=-1", "fetch t-0=UNSTABLE_OFFSET_COMMIT")


@pytest.mark.parametrize(("outcome", "offset"), [(ControlRecordType.COMMIT, 5), (ControlRecordType.ABORT, -1)])
def test_offset_of_a_transaction_counts_by_its_outcome(outcome: ControlRecordType, offset: int):
    script = Transcript()
    script.append_foreign(transactional_commit(5))
    script.append_foreign(end_transaction(outcome))
    script.restart()
    script.skip()

    script.fetch(0, require_stable=True)

    script.expect(f"fetch t-0={offset}")


def test_plain_commit_wins_over_an_older_one_of_a_transaction_that_ends_later():
    script = Transcript()
    script.append_foreign(transactional_commit(5))
    script.commit(8)
    script.append_foreign(end_transaction(ControlRecordType.COMMIT))
    script.restart()
    script.skip()

    script.fetch(0)

    script.expect("fetch t-0=8")
