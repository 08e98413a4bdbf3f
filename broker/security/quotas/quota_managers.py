"""QuotaManagers: all quotas of clients on one node, kept as the cluster's metadata says.

Source: kafka.server.QuotaFactory.QuotaManagers, kafka.server.metadata.ClientQuotaMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from broker.loop.cpu_time import CpuMeter, standing_meter
from broker.security.quotas.client_quota_manager import ClientQuotaManager, RequestQuotaManager
from broker.security.quotas.client_quotas import ClientQuota, ClientQuotas
from broker.security.quotas.client_sensors import ClientSensors
from broker.security.quotas.connection_rates import ConnectionRates
from broker.security.quotas.controller_mutation_quota import ControllerMutationQuotaManager
from broker.security.quotas.quota_limits import ABSENT, QuotaScope
from broker.security.quotas.quota_metrics import FETCH, PRODUCE, QuotaMetric
from protocol.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)


class QuotaManagers:
    """The arguments are quota.window.size.seconds and quota.window.num, in ms and as a count, and those of controller.quota. for
    mutations; `cpu_meter` is the loop's."""

    def __init__(
        self,
        *,
        window_ms: int,
        windows_count: int,
        controller_window_ms: int,
        controller_windows_count: int,
        inter_broker_listener: str = "",
        cpu_meter: CpuMeter | None = None,
    ) -> None:
        self.produce = ClientQuotaManager(PRODUCE, window_ms=window_ms, windows_count=windows_count)
        self.fetch = ClientQuotaManager(FETCH, window_ms=window_ms, windows_count=windows_count)
        self.request = RequestQuotaManager(window_ms=window_ms, windows_count=windows_count)
        self.controller_mutation = ControllerMutationQuotaManager(window_ms=controller_window_ms, windows_count=controller_windows_count)
        self.connection_rates = ConnectionRates(
            window_ms=window_ms, windows_count=windows_count, inter_broker_listener=inter_broker_listener
        )
        self.cpu_meter = cpu_meter or standing_meter()
        """Measures what requests take of the loop while any client's time is limited."""
        self.is_enabled = False
        """Whether the requests of any client are limited. Test it before all else, once a request."""
        self._by_key: dict[str, ClientSensors[Any]] = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.controller_mutation,
        }

    def update(self, entity: Iterable[tuple[str, str | None]], key: str, limit: float | None) -> bool:
        """Sets the quota `key` of `entity`, which is its parts as types and names, None for the default; a `limit` of None removes it.
        Returns False for an entity or a key that means nothing here, which is ignored as by Kafka."""
        parts = dict(entity)
        if IP in parts:
            if key != CONNECTION_CREATION_RATE:
                return False
            try:
                self.connection_rates.set_address_limit(parts[IP], limit)
            except ValueError:
                return False
            return True
        manager = self._by_key.get(key)
        scope = QuotaScope(parts.get(USER, ABSENT), parts.get(CLIENT_ID, ABSENT))
        if manager is None or scope == QuotaScope(ABSENT, ABSENT):
            return False
        manager.set_limit(scope, limit)
        self.cpu_meter.is_on = self.request.is_enabled
        self.is_enabled = any(each.is_enabled for each in self._by_key.values())
        return True

    def follow(self, changed: Iterable[ClientQuota], quotas: ClientQuotas) -> list[ClientQuota]:
        """Sets the limits of what has changed in the metadata's `quotas`. Returns what was ignored."""
        return [quota for quota in changed if not self.update(quota.entity, quota.key, quotas.find(quota.entity, quota.key))]

    def expire(self, now_ms: int) -> None:
        """Drop what was measured of clients that were idle for an hour."""
        for manager in self._by_key.values():
            manager.expire(now_ms)
        self.connection_rates.expire(now_ms)

    def metrics(self, now_ms: int) -> Iterator[QuotaMetric]:
        """Yields all metrics of quotas."""
        for each in (self.produce, self.fetch, self.request, self.controller_mutation):
            yield from each.metrics(now_ms)
        if self.connection_rates.is_enabled:
            yield from self.connection_rates.metrics(now_ms)


UNLIMITED_QUOTAS = QuotaManagers(window_ms=1000, windows_count=11, controller_window_ms=1000, controller_windows_count=11)
"""Of which none is ever set."""
