"""The active controller looks for silent brokers as long as it is active, also after it has heard of none for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

from config.server import ServerConfig
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.broker.controller.cluster import registration_request
from tests.broker.metadata.room import CLUSTER_ID, Room, open_room

OTHER_ID = 2
SESSION_MS = 9_000
CHECK_INTERVAL_MS = SESSION_MS // 8


async def open_controller(root: Path) -> Room:
    """The active controller that others can reach."""
    config = ServerConfig(offsets_topic_replication_factor=1, broker_session_timeout_ms=SESSION_MS)
    return await open_room(root, config, is_alone=False)


async def join(room: Room) -> int:
    """Register the other broker and have it unfenced. Returns its epoch."""
    epoch = (await room.local.register_broker(registration_request(OTHER_ID, cluster_id=CLUSTER_ID))).broker_epoch
    await heartbeat(room, epoch)
    return epoch


async def heartbeat(room: Room, epoch: int) -> None:
    offset = room.quorum.end_offset
    await room.local.broker_heartbeat(BrokerHeartbeatRequest(broker_id=OTHER_ID, broker_epoch=epoch, current_metadata_offset=offset))


async def pass_silently(room: Room, ms: int) -> None:
    """Time in which the other broker says nothing."""
    for _ in range(ms // CHECK_INTERVAL_MS + 1):
        room.clock.advance(CHECK_INTERVAL_MS)
        for _ in range(20):  # what the check appends is committed in later turns
            await asyncio.sleep(0)


def is_fenced(room: Room) -> bool:
    return room.cache.brokers[OTHER_ID].is_fenced


async def test_a_broker_that_came_back_by_a_heartbeat_after_all_were_silent_is_fenced_when_it_falls_silent_again(tmp_path: Path) -> None:
    room = await open_controller(tmp_path)
    epoch = await join(room)
    await pass_silently(room, 3 * SESSION_MS)
    assert is_fenced(room)
    await heartbeat(room, epoch)
    assert not is_fenced(room)

    await pass_silently(room, SESSION_MS)

    assert is_fenced(room)
    await room.close()


async def test_a_controller_that_begins_while_all_brokers_are_fenced_watches_those_that_come_back(tmp_path: Path) -> None:
    before = await open_controller(tmp_path)
    epoch = await join(before)
    await pass_silently(before, SESSION_MS)
    assert is_fenced(before)
    await before.close()
    room = await open_controller(tmp_path)
    await heartbeat(room, epoch)
    assert not is_fenced(room)

    await pass_silently(room, SESSION_MS)

    assert is_fenced(room)
    await room.close()


async def test_the_watch_ends_with_the_leadership(tmp_path: Path) -> None:
    room = await open_controller(tmp_path)
    await join(room)

    room.local.handle_leader_change(OTHER_ID, room.quorum.epoch + 1)
    await pass_silently(room, 3 * SESSION_MS)

    assert not is_fenced(room)
    await room.close()
