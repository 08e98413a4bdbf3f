from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.producer_ids import ProducerIdManager
from broker.handlers.produce_fetch import init_producer_id
from broker.loop.deferred import Deferred
from broker.metadata.image import ProducerIdBlock
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.metadata.room import Room, context, open_room
from tests.broker.transactions.test_coordinator import Coordinator
from tests.support.services import services


async def _ask(room: Room, version: int = 4, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**({"transactional_id": None, "transaction_timeout_ms": 1} | fields))
    answer: Any = init_producer_id.build(room.services)(context(version), request)
    if not isinstance(answer, Deferred):
        return answer
    there: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.when_done(there.set_result)
    return await there


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
    ],
)
async def test_what_is_refused(tmp_path: Path, fields: dict[str, Any], error: ErrorCode) -> None:
    room = await open_room(tmp_path)

    with pytest.raises(KafkaError) as refused:
        await _ask(room, **fields)
    answer = init_producer_id.error_response(InitProducerIdRequest(), refused.value)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


async def test_a_controller_out_of_reach_makes_the_client_try_again() -> None:
    async def allocate() -> ProducerIdBlock:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    ids = ProducerIdManager(allocate)
    handle = init_producer_id.build(services(controller=SimpleNamespace(producer_ids=ids)))
    answer = handle(context(4), InitProducerIdRequest(transactional_id=None))
    with pytest.raises(KafkaError) as refused:
        await ids.next()
    await asyncio.sleep(0)

    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answer.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-5, -5), (-2, 0), (0, -2), (5, 5)])
async def test_an_id_sent_along_is_ignored(tmp_path: Path, producer_id: int, producer_epoch: int) -> None:
    room = await open_room(tmp_path)

    answer = await _ask(room, producer_id=producer_id, producer_epoch=producer_epoch)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, 0)


class Transactional:
    """The handler over a coordinator that leads the only partition of `__transaction_state`."""

    def __init__(self, **settings: Any) -> None:
        self.coordinator = Coordinator(**settings)
        controller = SimpleNamespace(producer_ids=None)
        self._handle = init_producer_id.build(services(transaction_coordinator=self.coordinator.served, controller=controller))

    def ask(self, version: int, **fields: Any) -> tuple[ErrorCode, int, int]:
        """The answer's code, producer id and epoch, as a client of that version reads it."""
        request = InitProducerIdRequest(**({"transactional_id": "t", "transaction_timeout_ms": 60_000} | fields))
        answer = self._handle(context(version), decode(InitProducerIdRequest, version, encode(request, version))[0])
        response = decode(InitProducerIdResponse, version, encode(answer.value, version))[0]
        return ErrorCode(response.error_code), response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_each_instance_of_a_transactional_id_gets_a_higher_epoch(version: int) -> None:
    room = Transactional()

    assert [room.ask(version), room.ask(version)] == [(ErrorCode.NONE, 1000, 0), (ErrorCode.NONE, 1000, 1)]


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_in_a_code_that_it_knows(version: int, code: ErrorCode) -> None:
    room = Transactional()
    room.ask(version)
    room.ask(version)

    assert room.ask(version, producer_id=1000, producer_epoch=0) == (code, -1, -1)


@pytest.mark.parametrize(
    ("version", "fields", "code"),
    [
        (5, {"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (5, {"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (6, {"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (6, {"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_a_coordinator_refuses(version: int, fields: dict[str, Any], code: ErrorCode) -> None:
    assert Transactional().ask(version, **fields) == (code, -1, -1)


def test_a_transaction_of_two_phase_commit_has_no_timeout() -> None:
    room = Transactional(is_two_phase_commit_enabled=True)

    assert room.ask(6, enable2_pc=True, transaction_timeout_ms=0) == (ErrorCode.NONE, 1000, 0)
    assert room.coordinator.served.describe("t").timeout_ms == 2**31 - 1
