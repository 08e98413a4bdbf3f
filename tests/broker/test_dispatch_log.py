"""A handler that fails unexpectedly: a traceback for whoever mends it, and no flood of them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.dispatch import KafkaApis
from broker.loop.turns import Turns
from broker.network.context import ConnectionFacts, ListenerFacts
from protocol import codec
from protocol.messages.metadata import MetadataRequest
from tests.broker.replication.world import World
from tests.support.wire import frame

METADATA_KEY = 3


def test_tracebacks_that_a_client_causes_again_and_again_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    broken = world.services()._replace(metadata=None)  # type: ignore[arg-type]
    apis = KafkaApis(broken, Turns(lambda callback: callback(), world.clock.monotonic_us))
    request = frame(METADATA_KEY, 9, codec.encode(MetadataRequest(topics=None), 9), correlation_id=1)

    for _ in range(100):
        apis.handle(memoryview(request), ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1"))
    world.clock.advance(60_000)

    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == 10
    assert tracebacks[0].levelno == logging.ERROR
    assert tracebacks[0].getMessage().startswith("request failed api=Metadata version=9 error=AttributeError client=127.0.0.1 client_id=")
    assert caplog.messages[-1] == "Metadata failed: 90 more lines were left out in the last 60 s"
