"""Quotas in the cluster's state: in snapshots, in copies, in transactions, and told to subscribers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.snapshot import read_newest_snapshot
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from broker.security.quotas.client_quotas import ClientQuota, make_entity, quota_record
from protocol.messages.stored import metadata_records as records

USER = make_entity([("user", "a"), ("client-id", None)])
ADDRESS = make_entity([("ip", "10.0.0.1")])
SET = [quota_record(USER, "producer_byte_rate", 7.0), quota_record(ADDRESS, "connection_creation_rate", 9.0)]


def replayed(*changes: Any) -> ClusterState:
    state = ClusterState()
    for record in changes:
        state.replay(record)
    return state


def test_quotas_come_back_in_a_snapshot(tmp_path: Path) -> None:
    state = replayed(*SET)

    write_snapshot(tmp_path, b"".join(snapshot_batches(state_records(state), epoch=1, last_timestamp=0, now_ms=0)), 10, 1)
    snapshot = read_newest_snapshot(tmp_path)

    assert snapshot is not None and snapshot.records == SET


def test_a_delta_tells_which_quotas_changed() -> None:
    state = replayed(*SET, SET[0])

    assert state.take_delta().changed_client_quotas == (
        ClientQuota(USER, "producer_byte_rate"),
        ClientQuota(ADDRESS, "connection_creation_rate"),
    )
    assert state.take_delta().is_empty

    state.replay(quota_record(USER, "producer_byte_rate", None))

    delta = state.take_delta()
    assert delta.changed_client_quotas == (ClientQuota(USER, "producer_byte_rate"),) and not delta.is_empty
    assert state.client_quotas.find(USER, "producer_byte_rate") is None


def test_a_late_subscriber_is_told_all_quotas() -> None:
    state = replayed(*SET)
    state.take_delta()

    assert state.full_delta().changed_client_quotas == tuple(state.client_quotas)


def test_a_copy_has_the_quotas_and_a_snapshot_s_state_tells_what_differs() -> None:
    state = replayed(*SET)
    copy = state.copy()
    copy.replay(quota_record(USER, "producer_byte_rate", None))
    state.take_delta()

    state.become(copy)

    assert state.take_delta().changed_client_quotas == (ClientQuota(USER, "producer_byte_rate"),)
    assert list(state.client_quotas) == [ClientQuota(ADDRESS, "connection_creation_rate")]


def test_a_transaction_that_is_aborted_sets_nothing() -> None:
    state = replayed(records.BeginTransactionRecord(), *SET, records.AbortTransactionRecord())

    assert list(state.client_quotas) == [] and state.take_delta().is_empty
