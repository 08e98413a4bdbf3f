"""Mutations: counts the partitions that one request creates or deletes for its client's quota, and tells the client to wait.

Source: ControllerApis (controllerMutationQuotaRecorderFor), ReplicationControlManager (applyPartitionChangeQuota), KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from broker.security.quotas.controller_mutation_quota import ControllerMutationQuotaManager
from protocol.errors import ErrorCode, KafkaError


class Throttleable(Protocol):
    """A response."""

    throttle_time_ms: int


Response = TypeVar("Response", bound=Throttleable)


class Uncounted:
    """For requests without a quota."""

    def count(self, partitions_count: int) -> None:
        """Raises KafkaError THROTTLING_QUOTA_EXCEEDED for what the quota does not allow now."""

    def tell(self, response: Response) -> Response:
        """Returns the response, in which it sets for how long the client is throttled."""
        return response


UNCOUNTED = Uncounted()


class Mutations(Uncounted):
    """`is_strict` refuses what is over the quota; else it is done, and throttled afterwards."""

    def __init__(
        self, quotas: ControllerMutationQuotaManager, user: str, client_id: str, monotonic_ms: Callable[[], int], *, is_strict: bool
    ) -> None:
        self._quotas = quotas
        self._client = user, client_id
        self._monotonic_ms = monotonic_ms
        self._quota = quotas.quota_of(user, client_id, monotonic_ms(), is_strict=is_strict)

    def count(self, partitions_count: int) -> None:
        if not self._quota.record(partitions_count, self._monotonic_ms()):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def tell(self, response: Response) -> Response:
        now_ms = self._monotonic_ms()
        throttle_time_ms = self._quota.throttle_time_ms(now_ms)
        if throttle_time_ms:
            told: Any = response
            told.throttle_time_ms = throttle_time_ms
            self._quotas.get(*self._client, now_ms).record_throttle_time(throttle_time_ms, now_ms)
        return response
