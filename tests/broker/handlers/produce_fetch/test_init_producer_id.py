from __future__ import annotations

import asyncio
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import init_producer_id
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.metadata.room import Room, context, open_room


async def _ask(room: Room, version: int = 4, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**({"transactional_id": None, "transaction_timeout_ms": 1} | fields))
    answer: Any = init_producer_id.build(room.services)(context(version), request)
    return await answer if isawaitable(answer) else answer


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)

    answers = [await _ask(room, version) for _ in range(3)]

    assert [(answer.producer_id, answer.producer_epoch, answer.error_code) for answer in answers] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert decode(InitProducerIdResponse, version, encode(answers[2], version))[0] == answers[2]


async def test_ids_stay_unique_over_blocks_and_concurrent_requests(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    answers = await asyncio.gather(*[_ask(room) for _ in range(2500)])

    assert len({answer.producer_id for answer in answers}) == 2500
    assert room.cache.state.next_producer_id == 3000


async def test_ids_are_not_handed_out_again_after_a_kill(tmp_path: Path) -> None:
    first = await _ask(await open_room(tmp_path))

    again = await _ask(await open_room(tmp_path))

    assert (first.producer_id, again.producer_id) == (0, 1000)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": -1, "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "tx"}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_is_refused(tmp_path: Path, fields: dict[str, Any], error: ErrorCode) -> None:
    room = await open_room(tmp_path)

    with pytest.raises(KafkaError) as refused:
        await _ask(room, **fields)
    answer = init_producer_id.error_response(InitProducerIdRequest(), refused.value)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


def test_a_controller_out_of_reach_makes_the_client_try_again() -> None:
    answer = init_producer_id.error_response(InitProducerIdRequest(), KafkaError(ErrorCode.NOT_CONTROLLER))

    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-5, -5), (-2, 0), (0, -2), (5, 5)])
async def test_an_id_sent_along_is_ignored(tmp_path: Path, producer_id: int, producer_epoch: int) -> None:
    room = await open_room(tmp_path)

    answer = await _ask(room, producer_id=producer_id, producer_epoch=producer_epoch)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, 0)
