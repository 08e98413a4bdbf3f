"""What a node says of committed metadata that it does not serve yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.metadata.room import creation, open_room

WARNING = "clients of this cluster use transactions (__transaction_state exists)"


async def test_transactions_of_others_are_warned_of_once_and_after_each_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def warnings_count() -> int:
        return sum(record.getMessage().startswith(WARNING) for record in caplog.records)

    room = await open_room(tmp_path)
    await room.client.create_topics(creation("orders", 1, 1))
    assert warnings_count() == 0

    await room.client.create_topics(creation("__transaction_state", 1, 1))
    await room.client.create_topics(creation("payments", 1, 1))
    assert warnings_count() == 1

    await room.close()
    room = await open_room(tmp_path)
    await room.close()
    assert warnings_count() == 2
