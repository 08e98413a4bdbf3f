"""ConnectionRates: how many new connections a second the broker, each listener and each IP address may have.

For each connection an acceptor calls `record`, waits for the time that it returns, and then calls `record_address`. So a connection that is
over the broker's or its listener's rate waits; the listener for connections between brokers, where it is not the only one, has no part in
the broker's rate. A connection that is over its address's rate is closed after the throttle time, and then counts nowhere.

Throttle times are at most one window.

Source: kafka.network.ConnectionQuotas (its rates; the counts of connections are in broker/network/listeners.py), ConnectionQuotaEntity.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.security.quotas.addresses import find_address
from broker.security.quotas.client_sensors import IDLE_SENSOR_EXPIRY_MS, SENSORS_MAX
from broker.security.quotas.quota_metrics import SOCKET_SERVER_METRICS, THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT, QuotaMetric
from broker.security.quotas.rate import Rate
from broker.security.quotas.sampled_sum import Average

UNLIMITED = float(2**31 - 1)
"""The default of max.connection.creation.rate and of an address's quota."""


class _ListenerRate:
    __slots__ = ("address_throttle_time", "limit", "rate", "throttle_time")

    def __init__(self, window_ms: int, windows_count: int) -> None:
        self.rate = Rate(window_ms, windows_count)
        self.limit = UNLIMITED
        self.throttle_time = Average(THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT)
        self.address_throttle_time = Average(THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT)


class _AddressRate:
    __slots__ = ("last_record_ms", "rate")

    def __init__(self, window_ms: int, windows_count: int) -> None:
        self.rate = Rate(window_ms, windows_count)
        self.last_record_ms = 0


class ConnectionRates:
    """`window_ms` and `windows_count` are quota.window.size.seconds and quota.window.num. `is_enabled` says whether any rate is limited."""

    def __init__(self, *, window_ms: int, windows_count: int, inter_broker_listener: str) -> None:
        self._window_ms = window_ms
        self._windows_count = windows_count
        self._inter_broker_listener = inter_broker_listener
        self._broker_rate = Rate(window_ms, windows_count)
        self._broker_limit = UNLIMITED
        self._listeners: dict[str, _ListenerRate] = {}
        self._default_address_limit = UNLIMITED
        self._address_limits: dict[str, float] = {}
        self._addresses: dict[str, _AddressRate] = {}
        self.is_enabled = False

    def add_listener(self, name: str) -> None:
        self._listeners.setdefault(name, _ListenerRate(self._window_ms, self._windows_count))

    def set_broker_limit(self, limit: float | None) -> None:
        """The broker's max.connection.creation.rate; None is without a limit."""
        self._broker_limit = UNLIMITED if limit is None else limit
        self._note_limits()

    def set_listener_limit(self, name: str, limit: float | None) -> None:
        """The listener's max.connection.creation.rate; None is without a limit."""
        self._listeners[name].limit = UNLIMITED if limit is None else limit
        self._note_limits()

    def set_address_limit(self, address: str | None, limit: float | None) -> None:
        """connection_creation_rate of `address`, or of all that have none of their own if that is None. A `limit` of None removes it.
        Raises ValueError for what is no address."""
        if address is None:
            self._default_address_limit = UNLIMITED if limit is None else limit
        else:
            found = find_address(address)
            if found is None:
                raise ValueError(f"{address} is no IP address")
            if limit is None:
                self._address_limits.pop(found, None)
            else:
                self._address_limits[found] = limit
        self._note_limits()

    def address_limit(self, address: str) -> float:
        """`address` as `find_address` writes it."""
        return self._address_limits.get(address, self._default_address_limit)

    def record(self, listener_name: str, now_ms: int) -> int:
        """Counts a new connection, and returns for how many ms the listener then has to wait with it."""
        listener = self._listeners[listener_name]
        wait_ms = self._throttle_time_ms(listener.rate, listener.limit, now_ms)
        if not self._is_protected(listener_name):
            wait_ms = max(wait_ms, self._throttle_time_ms(self._broker_rate, self._broker_limit, now_ms))
        if wait_ms:
            listener.throttle_time.record(wait_ms, now_ms)
        return wait_ms

    def record_address(self, listener_name: str, address: str, now_ms: int) -> int:
        """Counts the connection for its `address`, as the socket tells it. Returns 0, or after how many ms it must be closed."""
        name = find_address(address) or address
        limit = self.address_limit(name)
        if limit == UNLIMITED:
            return 0
        rate = self._address_rate(name, now_ms)
        throttle_time_ms = self._throttle_time_ms(rate, limit, now_ms)
        if throttle_time_ms:
            rate.record(-1, now_ms)
            listener = self._listeners[listener_name]
            listener.address_throttle_time.record(throttle_time_ms, now_ms)
            listener.rate.record(-1, now_ms)
            if not self._is_protected(listener_name):
                self._broker_rate.record(-1, now_ms)
        return throttle_time_ms

    def expire(self, now_ms: int) -> None:
        """Forget the addresses that did not connect for an hour."""
        for address in [name for name, each in self._addresses.items() if now_ms - each.last_record_ms > IDLE_SENSOR_EXPIRY_MS]:
            del self._addresses[address]

    def metrics(self, now_ms: int) -> Iterator[QuotaMetric]:
        """Yields the rates, and the average throttle times of each listener."""
        yield QuotaMetric(SOCKET_SERVER_METRICS, "broker-connection-accept-rate", {}, self._broker_rate.per_second(now_ms))
        for name, listener in self._listeners.items():
            tags = {"listener": name}
            yield QuotaMetric(SOCKET_SERVER_METRICS, "connection-accept-rate", tags, listener.rate.per_second(now_ms))
            throttle_time, of_addresses = listener.throttle_time.measure(now_ms), listener.address_throttle_time.measure(now_ms)
            yield QuotaMetric(SOCKET_SERVER_METRICS, "connection-accept-throttle-time", tags, throttle_time)
            yield QuotaMetric(SOCKET_SERVER_METRICS, "ip-connection-accept-throttle-time", tags, of_addresses)
        for address, each in self._addresses.items():
            yield QuotaMetric(SOCKET_SERVER_METRICS, "connection-accept-rate", {"ip": address}, each.rate.per_second(now_ms))

    def _is_protected(self, listener_name: str) -> bool:
        return listener_name == self._inter_broker_listener and len(self._listeners) > 1

    def _address_rate(self, address: str, now_ms: int) -> Rate:
        found = self._addresses.get(address)
        if found is None:
            if len(self._addresses) >= SENSORS_MAX:
                idlest = sorted(self._addresses, key=lambda name: self._addresses[name].last_record_ms)
                for name in idlest[: SENSORS_MAX // 2]:
                    del self._addresses[name]
            found = self._addresses[address] = _AddressRate(self._window_ms, self._windows_count)
        found.last_record_ms = now_ms
        return found.rate

    def _throttle_time_ms(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        return min(rate.throttle_time_ms(limit, now_ms), self._window_ms)

    def _note_limits(self) -> None:
        limits = (self._broker_limit, self._default_address_limit, *(each.limit for each in self._listeners.values()))
        self.is_enabled = bool(self._address_limits) or any(limit != UNLIMITED for limit in limits)
