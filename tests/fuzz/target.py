"""The broker under fuzzing: as for an attack, with a controller listener beside that of clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from protocol.apis import ListenerKind, apis_of
from protocol.messages.describe_cluster import DescribeClusterRequest
from tests.attack.campaign import Door
from tests.attack.guard import ADMIN, CONTROLLER, Guard, Way, stay_outside
from tests.attack.memory_attacks import SMALL_MEMORY
from tests.attack.target import AttackedBroker, quiet_port
from tests.fuzz.inputs import ORDERS
from tests.support.secured import USER
from tests.support.wire import WireClient

FLOODER_ADDRESS = "127.0.0.10"
FLOOD_LIMIT = 20
FAILURE_DELAY_MS = 1
"""A hundred times less than by default: most inputs of strangers end their connection."""
CONNECTIONS_MAX = 1_000  # of an address that is no flooder's


class FuzzedBroker(AttackedBroker):
    """Its connections are limited for one address, and its memory for requests is small, so that floods meet both limits."""

    def __init__(self, directory: Path, *, with_stacks: bool = False, guard: Guard | None = None) -> None:
        others = ",".join(f"127.0.0.{number}:{CONNECTIONS_MAX}" for number in (1, 9))
        super().__init__(directory, with_stacks=with_stacks, guard=guard)
        self.controller_port = quiet_port() if guard is None else guard.port(CONTROLLER)
        if guard is None:
            self.settings |= {
                "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@{self.host}:{self.controller_port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
        else:
            self.settings |= {"connection.failed.authentication.delay.ms": str(FAILURE_DELAY_MS)}
        self.settings |= {"max.connections.per.ip": str(FLOOD_LIMIT), "max.connections.per.ip.overrides": others, **SMALL_MEMORY}

    def ways(self, listener: ListenerKind, door: Door) -> Iterator[Way]:
        """How connections come to a listener, one after another. Who is logged in is in turn a user with rights and a super user."""
        is_controller = listener is ListenerKind.CONTROLLER
        if self.guard is None:
            return itertools.repeat(Way(listener.value, self.controller_port if is_controller else self.port, stay_outside))
        if door is Door.STRANGERS:
            return self.guard.strangers(CONTROLLER) if is_controller else self.guard.strangers()
        protocol = CONTROLLER if is_controller else "SASL_SSL"
        return itertools.cycle([self.guard.logged_in(protocol, user) for user in (USER, ADMIN)])

    def cluster_id(self) -> str:
        with WireClient(self.host, self.port) as client:
            cluster_id: str = client.request(DescribeClusterRequest(), 0).cluster_id
            return cluster_id

    def open(self) -> None:
        super().open()
        enter = None if self.guard is None else self.guard.logged_in(CONTROLLER, ADMIN).enter
        for api in apis_of(ListenerKind.CONTROLLER).values():
            if api.key not in ORDERS:
                with WireClient(self.host, self.controller_port, enter=enter) as client, suppress(EOFError):
                    client.request(api.request_class(), api.max_version)
