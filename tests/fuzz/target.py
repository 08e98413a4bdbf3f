"""The broker under fuzzing: as for an attack, with a controller listener beside that of clients."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from protocol.apis import ListenerKind, apis_of
from protocol.messages.describe_cluster import DescribeClusterRequest
from tests.attack.memory_attacks import SMALL_MEMORY
from tests.attack.target import AttackedBroker, quiet_port
from tests.fuzz.inputs import ORDERS
from tests.support.wire import WireClient

FLOODER_ADDRESS = "127.0.0.10"
FLOOD_LIMIT = 20
CONNECTIONS_MAX = 1_000  # of an address that is no flooder's


class FuzzedBroker(AttackedBroker):
    """Its connections are limited for one address, and its memory for requests is small, so that floods meet both limits."""

    def __init__(self, directory: Path, *, with_stacks: bool = False) -> None:
        others = ",".join(f"127.0.0.{number}:{CONNECTIONS_MAX}" for number in (1, 9))
        super().__init__(directory, with_stacks=with_stacks)
        self.controller_port = quiet_port()
        listeners = f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}"
        self.settings |= {
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{self.host}:{self.controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "max.connections.per.ip": str(FLOOD_LIMIT),
            "max.connections.per.ip.overrides": others,
            **SMALL_MEMORY,
        }

    def port_of(self, listener: ListenerKind) -> int:
        return self.controller_port if listener is ListenerKind.CONTROLLER else self.port

    def cluster_id(self) -> str:
        with WireClient(self.host, self.port) as client:
            cluster_id: str = client.request(DescribeClusterRequest(), 0).cluster_id
            return cluster_id

    def open(self) -> None:
        super().open()
        for api in apis_of(ListenerKind.CONTROLLER).values():
            if api.key not in ORDERS:
                with WireClient(self.host, self.controller_port) as client, suppress(EOFError):
                    client.request(api.request_class(), api.max_version)
