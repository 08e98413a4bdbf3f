"""Logs are opened against metadata that is caught up with the quorum: what it does not know of is renamed away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.encoded_topic_records import BatchEncoder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.record_format import build_metadata_batch, read_metadata_batches
from broker.server.client_server import open_logs
from config.server import ServerConfig
from config.topic import LogConfig
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties
from tests.broker.quorum.test_driver import TWO, Node, answer_fetch, fetched, follow, let_run

TOPIC_ID = bytes(15) + b"\x07"


class CacheListener:
    """The MetadataPublisher without its snapshots."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        self._cache.apply_committed(records)

    def handle_load_snapshot(self, reader: Any) -> None:
        raise AssertionError("no snapshot here")

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        pass


def make_log_manager(log_dir: Path) -> LogManager:
    manager = LogManager(
        [str(log_dir)],
        random_source=random.Random(1),
        producer_id_expiration_ms=1,
        open_segments_max=10,
        on_directory_failure=lambda path, error: None,
    )
    manager.lock()
    return manager


def make_replica(log_dir: Path) -> None:
    """Partition t-0 of a broker that was stopped."""
    manager = make_log_manager(log_dir)
    manager.directories[0].format(MetaProperties("cluster", 1, bytes(15) + b"\x01"))
    manager.open(config_of=lambda name: LogConfig(), topic_id_of=lambda topic, index: TOPIC_ID, now_ms=0)
    manager.create_log("t", 0, TOPIC_ID, LogConfig(), 0)
    manager.close_clean(broker_epoch=1)
    manager.unlock()


def creation() -> Iterator[Any]:
    yield TopicRecord(name="t", topic_id=TOPIC_ID)
    yield PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], leader=2, leader_epoch=0)


async def test_stale_metadata_does_not_rename_a_live_replica_away(tmp_path: Path) -> None:
    """This node's metadata log ends before the topic was made: it was copied back, or its tail was lost."""
    make_replica(tmp_path / "data")
    (tmp_path / "metadata").mkdir()
    node = Node(tmp_path / "metadata", TWO, encode_batch=BatchEncoder(), decode_batches=read_metadata_batches)
    cache = MetadataCache(ClusterState(), cluster_id="cluster", node_id=1, config=ServerConfig())
    node.driver.register(CacheListener(cache))
    manager = make_log_manager(tmp_path / "data")
    node.driver.start()

    opening = asyncio.ensure_future(open_logs(node.driver, cache, manager, now_ms=0))
    await follow(node)
    other = build_metadata_batch([TopicRecord(name="other", topic_id=bytes(16))], base_offset=0, epoch=5, now_ms=0)
    await answer_fetch(node, fetched(other, high_watermark=3))
    knew_then, was_opened = list(cache.topics), opening.done()
    made = build_metadata_batch(list(creation()), base_offset=1, epoch=5, now_ms=0)
    await answer_fetch(node, fetched(made, high_watermark=3))
    await let_run()
    await opening

    assert (knew_then, was_opened) == (["other"], False)
    assert [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()] == ["t-0"]
    assert manager.find_log("t", 0) is not None
    manager.unlock()
