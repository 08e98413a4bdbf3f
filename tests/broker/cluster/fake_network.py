"""A network of addresses that are closed, open or silent; it notes each connection that is asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from broker.network.sockets import Acceptor, Network, SocketOptions
from broker.network.transport_layer import TransportLayer
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

REFUSED = ConnectionRefusedError(111, "Connection refused")
SILENT = None


class Accepted:
    """The transport of a connection to an open address."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


@stands_for(Network, own=("answers", "asked", "accepted"))
class FakeNetwork:
    """`answers` are the outcomes of the next connections, the last of them that of all further ones."""

    def __init__(self, clock: ManualClock, *answers: OSError | Accepted | None) -> None:
        self._clock = clock
        self.answers = deque(answers)
        self.asked: list[tuple[str, int, int]] = []  # host, port and when

    def make_acceptor(self, who: str, options: SocketOptions) -> Acceptor:
        raise AssertionError("nothing listens on this network")

    def make_layer(self, transport: asyncio.Transport) -> TransportLayer:
        raise AssertionError("nothing is written on this network")

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Any, Any]:
        self.asked.append((host, port, self._clock.monotonic_ms()))
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if answer is SILENT:
            await asyncio.Event().wait()
        if isinstance(answer, OSError):
            raise answer
        return answer, protocol_factory()


async def let_time_pass(clock: ManualClock, ms: int) -> None:
    """Everything runs that can, each 10 ms."""
    for _ in range(max(1, ms // 10)):
        for _ in range(10):
            await asyncio.sleep(0)
        clock.advance(10)
    for _ in range(10):
        await asyncio.sleep(0)
