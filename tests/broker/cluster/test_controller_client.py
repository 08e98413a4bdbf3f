"""What a broker asks the controller without waiting."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

from broker.metadata.image import GROUP_METADATA_TOPIC
from protocol.errors import KafkaError
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.broker.metadata.room import open_room, registration


async def turns() -> None:
    """As many as a creation takes."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_refused_creation_leaves_no_cycle(tmp_path: Path) -> None:
    """With its traceback it stayed until the next deep collection, hours later: 190,000 names in a Metadata left 400 of them."""
    room = await open_room(tmp_path)
    refusals: list[weakref.ref[KafkaError]] = []

    def note(outcome: CreateTopicsResponse | KafkaError) -> None:
        assert isinstance(outcome, KafkaError)
        refusals.append(weakref.ref(outcome))

    gc.disable()
    try:
        too_large = CreatableTopic(name="t", num_partitions=20_000, replication_factor=1)
        room.client.begin_creating_topics(CreateTopicsRequest(topics=[too_large]), note)
        while not refusals:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = [refusal() for refusal in refusals]
    finally:
        gc.enable()

    assert left == [None]
    await room.close()


async def test_an_internal_topic_is_prepared_once_enough_brokers_are_unfenced(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    room.client.prepare_internal_topic(GROUP_METADATA_TOPIC, brokers_count=2)
    await turns()
    assert GROUP_METADATA_TOPIC not in room.cache.topics
    room.quorum.propose(room.quorum.epoch, registration(2, is_fenced=True))
    await turns()
    assert 2 in room.cache.brokers and GROUP_METADATA_TOPIC not in room.cache.topics

    room.quorum.propose(room.quorum.epoch, registration(2)[1:])
    await turns()

    assert GROUP_METADATA_TOPIC in room.cache.topics
    await room.close()
