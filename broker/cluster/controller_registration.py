"""ControllerRegistrar: registers this node's controller with the active controller: its endpoints and supported features (KIP-919).

It does so once for each start, without making the start wait. Clients find the controllers by these records, and UpdateFeatures checks
their features.

Source: kafka.server.ControllerRegistrationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from broker.cluster.broker_lifecycle import SECURITY_PROTOCOLS
from broker.controller.channel import ControllerChannel
from broker.loop.clock import Clock, pause
from broker.metadata.features import registered_ranges
from config.endpoints import Endpoint
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener

logger = logging.getLogger("barnabas.lifecycle")

RETRY_MS = 500


def advertised_endpoints(config: ServerConfig, ports: Mapping[str, int]) -> list[Endpoint]:
    """Returns the advertised endpoints of the controller listeners, which listen on `ports`."""
    advertised = {endpoint.listener_name: endpoint for endpoint in (*config.listeners, *config.advertised_listeners)}
    found = (advertised[listener.listener_name] for listener in config.controller_listeners)
    return [each._replace(host=each.host or "localhost", port=each.port or ports[each.listener_name]) for each in found]


class ControllerRegistrar:
    """Owner: quorum_server.py. `endpoints` are the advertised controller listeners."""

    def __init__(
        self,
        channel: ControllerChannel,
        clock: Clock,
        *,
        node_id: int,
        incarnation_id: bytes,
        endpoints: Sequence[Endpoint],
        notices_silence: bool = False,
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation_id,
            listeners=[_listener(each) for each in endpoints],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in registered_ranges(notices_silence=notices_silence).items()
            ],
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._register())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _register(self) -> None:
        told: ErrorCode | None = None
        while True:
            try:
                await self._channel.register_controller(self._request)
                return
            except KafkaError as error:
                if error.code is not told:
                    logger.info("the registration of this controller is tried again: %s", error)
                    told = error.code
            await pause(self._clock, RETRY_MS)


def _listener(endpoint: Endpoint) -> Listener:
    protocol = SECURITY_PROTOCOLS[endpoint.security_protocol]
    return Listener(name=endpoint.listener_name, host=endpoint.host, port=endpoint.port, security_protocol=protocol)
