"""The store is what the records of the metadata log say, and finds what a look at all ACLs finds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.metadata.record_format import build_metadata_batch
from broker.metadata.snapshot import read_newest_snapshot
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_codes import PatternType
from broker.security.authorizer.acl_store import AclStore
from protocol.messages.stored.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    RemoveAccessControlEntryRecord,
    decode_metadata_record,
)
from protocol.records import iterate_records
from storage.errors import StorageError
from tests.broker.security.authorizer.room import ALLOW, DENY, GROUP, KAFKA_S_ACLS, LITERAL, PREFIXED, READ, TOPIC, WRITE, store_of

RECORDS = [acl.to_record(acl_id) for acl_id, acl in KAFKA_S_ACLS.items()]
FROM_THE_FUTURE = AccessControlEntryRecord(
    id=bytes(15) + b"\x07",
    resource_type=8,
    resource_name="x",
    pattern_type=5,
    principal="User:ü",
    host="*",
    operation=16,
    permission_type=4,
)


def replayed(*records: object) -> ClusterState:
    state = ClusterState()
    for record in records:
        state.replay(record)
    return state


def test_snapshot_has_the_records_of_the_log_byte_by_byte(tmp_path: Path) -> None:
    written = [*RECORDS, FROM_THE_FUTURE]
    state = replayed(*written)

    write_snapshot(tmp_path, b"".join(snapshot_batches(state_records(state), epoch=1, last_timestamp=0, now_ms=0)), 10, 1)
    snapshot = read_newest_snapshot(tmp_path)

    assert snapshot is not None and snapshot.records == written
    again = replayed(*snapshot.records)
    assert encoded(list(again.acls.records())) == encoded(written)


def encoded(records: list[AccessControlEntryRecord]) -> list[bytes]:
    batch = build_metadata_batch(records, base_offset=0, epoch=1, now_ms=0)
    return [bytes(record.value or b"") for record in iterate_records(memoryview(batch), 0, max_bytes=1 << 20)]


def test_record_that_kafka_wrote_comes_back_unchanged() -> None:
    golden = Path(__file__).parents[3] / "wire" / "golden_stored_records.txt"
    (line,) = [line for line in golden.read_text().splitlines() if line.startswith("AccessControlEntryRecord")]
    value = bytes([1, 18, 0]) + bytes.fromhex(line.split()[2])  # the frame, the type and the version of a record in the log
    record, _ = decode_metadata_record(value)

    assert encoded(list(replayed(record).acls.records())) == [value]


def test_removal_leaves_the_others() -> None:
    state = replayed(*RECORDS)
    before = state.copy()

    state.replay(RemoveAccessControlEntryRecord(id=RECORDS[0].id))

    assert list(state.acls.records()) == RECORDS[1:]
    assert list(before.acls.records()) == RECORDS


def test_removal_of_an_acl_that_never_was_is_damage() -> None:
    with pytest.raises(StorageError, match="RemoveAccessControlEntryRecord"):
        replayed(RemoveAccessControlEntryRecord(id=RECORDS[0].id))


def test_aborted_transaction_adds_no_acl() -> None:
    assert not replayed(BeginTransactionRecord(), *RECORDS, AbortTransactionRecord()).acls


def test_record_takes_the_place_of_another_with_its_id() -> None:
    store = store_of([Acl(TOPIC, "a", LITERAL, "User:a", "*", READ, ALLOW)])
    assert len(list(store.find(AclFilter(TOPIC, "a")))) == 1  # the index exists
    replacement = Acl(TOPIC, "b", LITERAL, "User:a", "*", READ, ALLOW)

    store.replay(replacement.to_record(bytes(15) + b"\x01"))

    assert list(store.find(AclFilter(TOPIC, "a"))) == []
    assert [acl for _, acl in store.find(AclFilter(TOPIC, "b"))] == [replacement]


def test_rule_that_is_stored_twice_is_there_until_both_are_removed() -> None:
    acl = Acl(TOPIC, "a", PREFIXED, "User:a", "*", READ, ALLOW)
    store = store_of([acl, acl])

    assert acl in store
    store.replay_removal(RemoveAccessControlEntryRecord(id=bytes(15) + b"\x02"))
    assert acl in store
    store.replay_removal(RemoveAccessControlEntryRecord(id=bytes(15) + b"\x01"))
    assert acl not in store and len(store) == 0


def test_version_grows_with_each_change() -> None:
    store = store_of([])
    versions = [store.version]
    store.replay(RECORDS[0])
    versions.append(store.version)
    store.replay_removal(RemoveAccessControlEntryRecord(id=RECORDS[0].id))
    versions.append(store.version)
    store.become(store_of([]))
    versions.append(store.version)

    assert versions == sorted(set(versions))


def test_state_that_becomes_another_has_its_acls_in_the_same_object() -> None:
    state = replayed(RECORDS[0])
    acls = state.acls

    state.become(replayed(*RECORDS[1:]))

    assert state.acls is acls
    assert list(acls.records()) == RECORDS[1:]


NAMES = ("*", "a", "aa", "ab", "abc", "b", "abcd", "ü", "*a", "")
FILTER_VALUES = (None, "a", "ab", "abc", "*", "", "zz", "abcde", "*ab")


def random_acl(chance: random.Random) -> Acl:
    return Acl(
        chance.choice((TOPIC, GROUP, 9)),
        chance.choice(NAMES),
        chance.choice((LITERAL, PREFIXED)),
        chance.choice(("User:a", "User:b", "User:*")),
        chance.choice(("*", "10.0.0.1")),
        chance.choice((READ, WRITE)),
        chance.choice((ALLOW, DENY)),
    )


def random_filter(chance: random.Random) -> AclFilter:
    return AclFilter(
        chance.choice((0, 1, TOPIC, GROUP, 9)),
        chance.choice(FILTER_VALUES),
        chance.choice((PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED, 0)),
        chance.choice((None, None, "User:a")),
        chance.choice((None, None, "*")),
        chance.choice((1, 1, READ)),
        chance.choice((1, 1, DENY)),
    )


@pytest.mark.parametrize("seed", range(20))
def test_find_equals_a_look_at_all_acls_while_they_change(seed: int) -> None:
    """CVE-2024-27309; KAFKA-20667: a look-up costs the prefixes of a name, and not all ACLs."""
    chance = random.Random(seed)
    store = AclStore()
    all_acls: dict[bytes, Acl] = {}
    for number in range(300):
        if all_acls and chance.random() < 0.45:
            acl_id = chance.choice(list(all_acls))
            del all_acls[acl_id]
            store.replay_removal(RemoveAccessControlEntryRecord(id=acl_id))
        else:
            acl_id = number.to_bytes(16, "big")
            all_acls[acl_id] = random_acl(chance)
            store.replay(all_acls[acl_id].to_record(acl_id))
        wanted, probe = random_filter(chance), random_acl(chance)

        assert dict(store.find(wanted)) == {key: acl for key, acl in all_acls.items() if wanted.matches(acl)}, wanted
        assert (probe in store) == (probe in all_acls.values())
