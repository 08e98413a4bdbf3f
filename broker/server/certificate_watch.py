"""CertificateWatch: says when the certificates of this node's listeners end: a line a day in the last 30 days, and a gauge.

A broker does not stop when one has ended: its clients do. Kafka says nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from broker.loop.clock import Clock, Timer
from broker.observability.log_fields import Fields
from broker.observability.metrics import Metrics
from broker.security.tls.certificate import Certificate

log = logging.getLogger("barnabas.security")

DAY_MS = 86_400_000
WARNED_DAYS = 30
GAUGE = "barnabas_security_certificate_seconds_left"


class CertificateWatch:
    """Of one node. `note` says what a listener has; the days are those of the start."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._end_ms: dict[str, int] = {}
        self._timer: Timer | None = None
        text = "How long the certificate of a listener, and those of its authorities that it shows, still hold; negative if one has ended."
        metrics.add_gauge(GAUGE, text, self._seconds_left, ("listener",))

    def note(self, listener_name: str, chain: Iterable[Certificate]) -> None:
        """The chain that a listener shows from now on. The first that ends counts. The same again is no news."""
        end_ms = min(certificate.not_after_ms for certificate in chain)
        if self._end_ms.get(listener_name) != end_ms:
            self._end_ms[listener_name] = end_ms
            self._warn(listener_name)
        if self._timer is None:
            self._timer = self._clock.call_later(DAY_MS, self._warn_of_all)

    def close(self) -> None:
        """Warn no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _warn_of_all(self) -> None:
        self._timer = self._clock.call_later(DAY_MS, self._warn_of_all)
        for listener_name in self._end_ms:
            self._warn(listener_name)

    def _warn(self, listener_name: str) -> None:
        left_ms = self._end_ms[listener_name] - self._clock.now_ms()
        if left_ms < 0:
            log.error("the certificate of a listener has ended, clients refuse it %s", Fields(listener=listener_name))
        elif left_ms < WARNED_DAYS * DAY_MS:
            log.warning(
                "the certificate of a listener ends soon, `barnabas secure renew` makes another %s",
                Fields(listener=listener_name, days=left_ms // DAY_MS),
            )

    def _seconds_left(self) -> list[tuple[tuple[str, ...], float]]:
        now_ms = self._clock.now_ms()
        return [((listener_name,), (end_ms - now_ms) / 1000) for listener_name, end_ms in self._end_ms.items()]
