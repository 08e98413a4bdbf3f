"""One host's side of the simulated network, in the shape that the broker takes its network in (broker/network/sockets.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.network.listening_sockets import ListenError
from broker.network.sockets import Acceptor, Network, ProtocolFactory, SocketOptions
from broker.network.transport_layer import StreamLayer
from tests.simulation.network import SimulatedNetwork
from tests.support.doubles import stands_for


@stands_for(Network)
class NodeNetwork:
    """The network as `host` sees it. `disk` has os's file calls, where a node's files are simulated too."""

    def __init__(self, network: SimulatedNetwork, host: str, disk: Any = None) -> None:
        self._network = network
        self._host = host
        self._files = {} if disk is None else {"pread": disk.pread}

    def make_acceptor(self, who: str, options: SocketOptions) -> Acceptor:
        return SimulatedAcceptor(self._network, self._host, who)

    def make_layer(self, transport: asyncio.Transport) -> StreamLayer:
        return StreamLayer(transport, self._network.loop, **self._files)

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Any, Any]:
        return await self._network.connect(self._host, host, port, protocol_factory)


@stands_for(Acceptor)
class SimulatedAcceptor:
    """Connections are refused until `start`."""

    def __init__(self, network: SimulatedNetwork, host: str, who: str) -> None:
        self._network = network
        self._host = host
        self._who = who
        self.port = 0
        self._is_started = False
        self._protocol_factory: ProtocolFactory | None = None

    def bind(self, host: str | None, port: int) -> None:
        self.port = port or self._network.draw_port()

    def listen(self) -> None:
        """Nothing can take the address between this and `start`."""

    async def start(self, protocol_factory: ProtocolFactory) -> None:
        try:
            self._network.listen(self._host, self.port, protocol_factory)
        except OSError as error:
            raise ListenError(f"{self._who}: can't listen on {self._host}:{self.port}: {error.strerror}") from error
        self._is_started = True
        self._protocol_factory = protocol_factory

    def pause(self) -> None:
        """Refuses connections, which come again."""
        self.stop()

    def resume(self) -> None:
        if not self._is_started and self._protocol_factory is not None:
            self._network.listen(self._host, self.port, self._protocol_factory)
            self._is_started = True

    def stop(self) -> None:
        if self._is_started:
            self._network.stop_listening(self._host, self.port)
            self._is_started = False
