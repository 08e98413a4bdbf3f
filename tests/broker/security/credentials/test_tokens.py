"""Delegation tokens as credentials: what a listener finds, and a login by it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.snapshot import read_newest_snapshot
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from broker.security.credentials.token_hmacs import TokenHmacs
from broker.security.credentials.token_store import TokenStore
from broker.security.sasl.scram_server import ScramServer
from config.server import ServerConfig
from protocol.messages.stored.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from protocol.sasl.exchange import Identity, SaslError
from protocol.sasl.scram import ScramMechanism, unknown_user_credential
from protocol.sasl.scram_client import ScramClient

KEY = "a-secret"


def token(token_id: str = "t1", owner: str = "User:alice", end_ms: int = 5000) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=owner, requester=owner, renewers=["User:bob"], max_timestamp=9000, expiration_timestamp=end_ms, token_id=token_id
    )


def make_cache(key: str | None = KEY) -> MetadataCache:
    return MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=ServerConfig(delegation_token_secret_key=key))


def log_in(cache: MetadataCache, mechanism: ScramMechanism, token_id: str, password: str) -> Identity | None:
    """The identity after an exchange. Raises SaslError."""
    server = ScramServer(mechanism, cache.credentials, "server-nonce", cache.credentials.cluster_secret)
    client = ScramClient(mechanism, token_id, password, "client-nonce", is_token=True)
    challenge = b""
    while not client.is_complete:
        response = client.evaluate(challenge)
        if response is not None:
            challenge = server.evaluate(response)
    return server.identity


def password_of(token_id: str, key: str = KEY) -> str:
    return base64.b64encode(TokenHmacs(key).of(token_id)).decode()


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_who_has_the_hmac_logs_in_as_the_owner_until_the_token_ends(mechanism: ScramMechanism) -> None:
    cache = make_cache()
    cache.apply_committed([token()])

    identity = log_in(cache, mechanism, "t1", password_of("t1"))

    assert identity == Identity("alice", is_token_authenticated=True, credential_end_ms=5000)


def test_a_changed_token_has_its_new_end_and_the_earlier_of_both_counts() -> None:
    cache = make_cache()
    cache.apply_committed([token()])
    cache.apply_committed([token(end_ms=20_000)])

    found = cache.credentials.find_token(ScramMechanism.SCRAM_SHA_256, "t1")

    assert found is not None and found.end_ms == 9000


@pytest.mark.parametrize("password", ["wrong", password_of("t2"), password_of("t1", "another-key")])
def test_another_password_is_refused(password: str) -> None:
    cache = make_cache()
    cache.apply_committed([token(), token("t2")])

    with pytest.raises(SaslError):
        log_in(cache, ScramMechanism.SCRAM_SHA_256, "t1", password)


def test_a_removed_token_is_unknown_at_once() -> None:
    cache = make_cache()
    cache.apply_committed([token()])
    log_in(cache, ScramMechanism.SCRAM_SHA_256, "t1", password_of("t1"))

    cache.apply_committed([RemoveDelegationTokenRecord(token_id="t1")])

    with pytest.raises(SaslError):
        log_in(cache, ScramMechanism.SCRAM_SHA_256, "t1", password_of("t1"))


def test_a_snapshot_replaces_the_tokens() -> None:
    cache = make_cache()
    cache.apply_committed([token()])
    state = ClusterState()
    state.replay(token("t2", "User:bob"))

    cache.replace_state(state)

    assert cache.credentials.find_token(ScramMechanism.SCRAM_SHA_256, "t1") is None
    assert log_in(cache, ScramMechanism.SCRAM_SHA_256, "t2", password_of("t2")) == Identity("bob", True, 5000)


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_secret_key_nobody_logs_in_by_a_token(key: str | None) -> None:
    cache = make_cache(key)
    cache.apply_committed([token()])

    assert cache.credentials.find_token(ScramMechanism.SCRAM_SHA_256, "t1") is None


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_salt_does_not_tell_whether_the_token_exists(mechanism: ScramMechanism) -> None:
    cache = make_cache()
    cache.apply_committed([token()])
    unknown = unknown_user_credential(mechanism, "t1", cache.credentials.cluster_secret)

    found = cache.credentials.find_token(mechanism, "t1")

    assert found is not None
    assert (found.credential.salt, found.credential.iterations) == (unknown.salt, unknown.iterations)


def test_every_node_with_the_key_finds_a_token_by_its_hmac_as_tokens_come_and_go() -> None:
    hmacs, tokens = TokenHmacs(KEY), TokenStore()
    assert hmacs.find(tokens, hmacs.of("t1")) is None

    tokens.replay(token("t1"))
    tokens.replay(token("t2"))
    assert hmacs.find(tokens, TokenHmacs(KEY).of("t1")) == token("t1")

    tokens.replay_removal(RemoveDelegationTokenRecord(token_id="t1"))
    assert hmacs.find(tokens, hmacs.of("t1")) is None
    assert hmacs.find(tokens, hmacs.of("t2")) == token("t2")

    other = TokenStore({"t3": token("t3")})
    assert hmacs.find(other, hmacs.of("t2")) is None and hmacs.find(other, hmacs.of("t3")) == token("t3")


def test_tokens_come_back_in_a_snapshot_and_a_copy_is_independent(tmp_path: Path) -> None:
    state = ClusterState()
    records = [token("t1"), token("t2")]
    for record in records:
        state.replay(record)

    write_snapshot(tmp_path, b"".join(snapshot_batches(state_records(state), epoch=1, last_timestamp=0, now_ms=0)), 10, 1)
    snapshot = read_newest_snapshot(tmp_path)
    copy = state.copy()
    copy.replay(RemoveDelegationTokenRecord(token_id="t1"))
    copy.replay(RemoveDelegationTokenRecord(token_id="never-there"))

    assert snapshot is not None and snapshot.records == records
    assert list(state.tokens.by_id) == ["t1", "t2"] and list(copy.tokens.by_id) == ["t2"]


def test_no_text_shows_the_secret_key() -> None:
    assert KEY not in repr(TokenHmacs(KEY))
