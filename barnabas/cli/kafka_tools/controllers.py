"""How a tool reaches what it asks: brokers, or by --bootstrap-controller the controllers (KIP-919)."""

from __future__ import annotations

import argparse
import functools
from typing import Any, NoReturn

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, NoBrokerError, check
from barnabas.cli.kafka_tools.run import settings_of
from barnabas.cli.settings import Settings
from broker.cli.wire_client import WireClient
from config.endpoints import address_text
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS = 1, 2
"""DescribeCluster's endpoint_type."""


def connect(options: argparse.Namespace, settings: Settings | None = None) -> Connection:
    """By `settings`, or those of the options. Raises CommandError, ConfigError."""
    kind = Connection if options.bootstrap_controller is None else ControllerConnection
    return kind(settings or settings_of(options))


class ControllerConnection(Connection):
    """Of controllers: what is asked of none in particular goes to the one that leads. librdkafka has no part in it."""

    def wire(self, broker_id: int | None = None, *, address: str = "") -> WireClient:
        """A connection to that controller, or to the one that leads. Raises CommandError."""
        if broker_id is None:
            broker_id = self.cluster.controller_id
            if broker_id < 0:
                raise CommandError(f"no controller leads the quorum that {self.settings.address} is of")
        return super().wire(broker_id, address=address)

    @functools.cached_property
    def cluster(self) -> DescribeClusterResponse:
        """Its controllers, as the first one told them that answers. Raises CommandError."""
        answer: DescribeClusterResponse = super().wire().request(DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS))
        check(answer.error_code, answer.error_message)
        return answer

    def metadata(self) -> NoReturn:
        """Raises CommandError."""
        raise CommandError("controllers do not answer that: --bootstrap-server HOST:PORT of a broker")

    @property
    def admin(self) -> Any:
        """Raises CommandError."""
        return self.metadata()

    def _address_of(self, broker_id: int) -> str:
        found = [address_text(each.host, each.port) for each in self.cluster.brokers if each.broker_id == broker_id]
        if not found:
            raise NoBrokerError(f"controller {broker_id} is not there")
        return found[0]


def node_ids(connection: Connection) -> list[int]:
    """Of the brokers, or of the controllers. Raises CommandError."""
    if isinstance(connection, ControllerConnection):
        return sorted(each.broker_id for each in connection.cluster.brokers)
    return sorted(connection.metadata().brokers)
