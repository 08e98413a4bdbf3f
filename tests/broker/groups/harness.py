"""The group handlers over a Transcript's coordinator: `call` answers one request as a client of that version would read it."""

from __future__ import annotations

from typing import Any

from broker.cluster.controller_client import ControllerClient
from broker.loop.deferred import Deferred
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.settings import TransactionSettings
from protocol.apis import APIS
from protocol.codec import decode, encode
from protocol.messages.stored.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from tests.broker.coordination.memory_log import MemoryLog
from tests.broker.groups.transcript import Transcript
from tests.broker.transactions.room import FIRST_PRODUCER_ID, HeldMarkers
from tests.support.doubles import stands_for
from tests.support.services import request_context, services
from tests.support.turns import started


@stands_for(ControllerClient)
class TopicCreator:
    """Stands in for the ControllerClient: remembers which internal topics were asked for."""

    def __init__(self) -> None:
        self.asked_for: list[str] = []

    def ensure_internal_topic(self, name: str) -> None:
        self.asked_for.append(name)


class GroupHandlers:
    """See the module's docstring. The node, 1, is registered at host:9092 for the listener PLAINTEXT."""

    def __init__(self, script: Transcript | None = None) -> None:
        self.script = script or Transcript()
        self.creator = TopicCreator()
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="host", port=9092, security_protocol=0)
        self.script.metadata.apply_committed([RegisterBrokerRecord(broker_id=1, end_points=[endpoint], rack=None, fenced=False)])
        self.services = services(
            clock=self.script.clock,
            metadata=self.script.metadata,
            controller=self.creator,
            group_coordinator=self.script.coordinator,
            transaction_coordinator=self._make_transaction_coordinator(),
        )

    def _make_transaction_coordinator(self) -> TransactionCoordinator:
        """It has no partition of `__transaction_state`."""
        return TransactionCoordinator(
            TransactionSettings(),
            MemoryLog(),
            self.script.clock,
            node_id=1,
            next_producer_id=lambda: FIRST_PRODUCER_ID,
            marker_sender=HeldMarkers(),
            transaction_version=lambda: 2,
        )

    def send(self, module: Any, version: int, request: Any, *, listener: str = "PLAINTEXT") -> Any:
        """What the handler returns, perhaps a Deferred."""
        context = request_context(0, version, listener_name=listener, now_ms=self.script.clock.now_ms())
        return module.build(self.services)(context, request)

    def call(self, module: Any, version: int, request: Any, **facts: Any) -> Any:
        """The answer, which must be there, after a trip over the wire in this version."""
        outcome = started(self.send(module, version, request, **facts))
        if isinstance(outcome, Deferred):
            assert outcome.is_done, "the request still waits"
            outcome = outcome.value
        return over_the_wire(outcome, version)


def over_the_wire(response: Any, version: int) -> Any:
    return decode(type(response), version, encode(response, version))[0]


def versions(api_key: int) -> range:
    """All versions that are served."""
    api = APIS[api_key]
    return range(api.min_version, api.max_version + 1)
