"""A controller registers once for each start, with the addresses that are advertised, and tries again until a leader takes it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from broker.cluster.controller_registration import RETRY_MS, ControllerRegistrar, advertised_endpoints
from broker.controller.channel import ControllerChannel
from broker.metadata.features import SUPPORTED
from config.server_rules import server_config
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

INCARNATION = bytes(15) + b"\x09"


@stands_for(ControllerChannel)
class Channel:
    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[ControllerRegistrationRequest] = []

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        self.asked.append(request)
        if len(self.asked) <= self.refusals:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return ControllerRegistrationResponse()


async def let_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_registers_with_its_advertised_address_until_it_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = server_config(
        {
            "process.roles": "controller",
            "node.id": "3",
            "listeners": "CONTROLLER://:0",
            "advertised.listeners": "CONTROLLER://three.example:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "one.example:9093",
        }
    )
    channel: Any = Channel(refusals=2)
    clock = ManualClock()
    registrar = ControllerRegistrar(
        channel, clock, node_id=3, incarnation_id=INCARNATION, endpoints=advertised_endpoints(config, {"CONTROLLER": 19093})
    )

    registrar.start()
    for _ in range(5):
        await let_run()
        clock.advance(RETRY_MS)
    await registrar.stop()

    assert len(channel.asked) == 3
    assert len(caplog.records) == 1, "the same reason is logged once: it may stay for long"
    request = channel.asked[-1]
    assert (request.controller_id, request.incarnation_id) == (3, INCARNATION)
    assert [(each.name, each.host, each.port, each.security_protocol) for each in request.listeners] == [
        ("CONTROLLER", "three.example", 19093, 0)
    ]
    assert {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features} == dict(SUPPORTED)


async def test_it_stops_also_while_nobody_takes_it() -> None:
    channel: Any = Channel(refusals=100)
    registrar = ControllerRegistrar(channel, ManualClock(), node_id=3, incarnation_id=INCARNATION, endpoints=())
    registrar.start()
    await let_run()

    await registrar.stop()

    assert len(channel.asked) == 1
