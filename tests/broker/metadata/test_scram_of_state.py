"""SCRAM credentials in the cluster's state: in snapshots, in copies, in transactions, and what the listeners see of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.snapshot import read_newest_snapshot
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from broker.security.credentials.scram_store import ScramKey
from config.server import ServerConfig
from protocol.messages.stored import metadata_records as records
from protocol.messages.stored.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from protocol.sasl.scram import ScramCredential, ScramMechanism


def credential(name: str, mechanism: int = 1, salt: bytes = b"salt") -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=salt, stored_key=b"stored-key", server_key=b"server-key", iterations=4096
    )


SET = [credential("a", 1), credential("a", 2), credential("b", 1)]


def replayed(*changes: Any) -> ClusterState:
    state = ClusterState()
    for record in changes:
        state.replay(record)
    return state


def test_credentials_come_back_in_a_snapshot(tmp_path: Path) -> None:
    state = replayed(*SET)

    write_snapshot(tmp_path, b"".join(snapshot_batches(state_records(state), epoch=1, last_timestamp=0, now_ms=0)), 10, 1)
    snapshot = read_newest_snapshot(tmp_path)

    assert snapshot is not None and snapshot.records == SET
    assert list(replayed(*snapshot.records).scram.records()) == SET


def test_a_later_credential_of_the_same_user_and_mechanism_takes_its_place() -> None:
    state = replayed(*SET, credential("a", 1, b"other"))

    assert len(state.scram) == 3
    assert state.scram.find_user(ScramMechanism.SCRAM_SHA_256, "a") == ScramCredential(b"other", b"stored-key", b"server-key", 4096)


@pytest.mark.parametrize(("user", "mechanism", "left"), [("a", 2, 2), ("b", 2, 3), ("c", 1, 3)])
def test_a_removal_removes_one_mechanism_of_the_user(user: str, mechanism: int, left: int) -> None:
    state = replayed(*SET, RemoveUserScramCredentialRecord(name=user, mechanism=mechanism))

    assert len(state.scram) == left
    assert ScramKey(user, mechanism) not in state.scram


def test_a_copy_is_independent() -> None:
    state = replayed(*SET)
    copy = state.copy()

    copy.replay(RemoveUserScramCredentialRecord(name="a", mechanism=1))

    assert list(state.scram.records()) == SET
    assert list(copy.scram.records()) == SET[1:]


def test_a_transaction_that_is_aborted_sets_nothing() -> None:
    state = replayed(records.BeginTransactionRecord(), *SET, records.AbortTransactionRecord())

    assert len(state.scram) == 0


def test_listeners_see_what_is_committed_also_after_a_snapshot_was_loaded() -> None:
    state = ClusterState()
    cache = MetadataCache(state, cluster_id="c", node_id=1, config=ServerConfig())
    credentials = cache.credentials

    cache.apply_committed(SET[:1])
    assert credentials.find_user(ScramMechanism.SCRAM_SHA_256, "a") == ScramCredential(b"salt", b"stored-key", b"server-key", 4096)
    assert credentials.find_user(ScramMechanism.SCRAM_SHA_512, "a") is None

    cache.replace_state(replayed(SET[2]))
    assert credentials.find_user(ScramMechanism.SCRAM_SHA_256, "a") is None
    assert credentials.find_user(ScramMechanism.SCRAM_SHA_256, "b") is not None


def test_a_credential_of_an_unknown_mechanism_is_kept_and_used_for_nothing() -> None:
    state = replayed(credential("a", 7))

    assert list(state.scram.records()) == [credential("a", 7)]
    assert all(state.scram.find_user(mechanism, "a") is None for mechanism in ScramMechanism)


def test_no_text_of_a_record_or_a_credential_shows_a_secret() -> None:
    record = credential("alice")
    found = replayed(record).scram.find_user(ScramMechanism.SCRAM_SHA_256, "alice")

    for text in (repr(record), str(record), repr(found)):
        assert not any(secret in text for secret in ("salt'", "stored-key", "server-key"))
    assert "name='alice'" in repr(record) and "iterations=4096" in repr(record)
