"""Where clients find a broker that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.server.server import Broker


def advertised_address(broker: Broker, listener_name: str) -> tuple[str, int]:
    """Host and port of a listener, as clients are told them. Where the port is the system's choice, the one that it chose."""
    endpoint = next(each for each in broker.config.client_advertised_listeners if each.listener_name == listener_name)
    return endpoint.host, endpoint.port or next(listener.port for listener in broker.listeners if listener.name == listener_name)
