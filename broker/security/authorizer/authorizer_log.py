"""AuthorizerLog: Kafka's authorizer log (kafka.authorizer.logger), with a budget.

A denial is a line of INFO, a right that was granted one of DEBUG, what only filters an answer one of TRACE. Whoever is denied may ask again
and again, so the lines of INFO are limited: a principal has LINES_PER_PRINCIPAL of them in INTERVAL_MS, all principals together LINES_MAX.
At the end of the interval one line tells how many more there were, and of which principals.

Source: StandardAuthorizerData.logAuditMessage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.audit import audit_message
from broker.security.authorizer.decision import Decision

if TYPE_CHECKING:
    from broker.loop.clock import Clock

TRACE = 5
INTERVAL_MS = 60_000
LINES_PER_PRINCIPAL = 10
LINES_MAX = 60
PRINCIPALS_MAX = 50
"""Principals that the line about omitted denials names; the rest are counted together."""
PRINCIPAL_CHARACTERS_MAX = 128
OTHERS = "others"

log = logging.getLogger("barnabas.authorizer")


class AuthorizerLog:
    """The budget of one node's listeners of one kind. It begins with the first denial of an interval."""

    __slots__ = ("_clock", "_omitted", "_written", "_written_count")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[str, int] = {}
        self._omitted: dict[str, int] = {}
        self._written_count = 0

    @staticmethod
    def is_verbose() -> bool:
        """Whether rights that were granted are logged too."""
        return log.isEnabledFor(logging.DEBUG)

    def note(
        self,
        decision: Decision,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        request: str,
        *,
        is_logged: bool,
        count: int,
    ) -> None:
        """Log a decision about a request. `is_logged` and `count` as Access.allows has them."""
        level = TRACE if not is_logged else logging.DEBUG if decision.is_allowed else logging.INFO
        if not log.isEnabledFor(level) or (level == logging.INFO and self._omits(principal)):
            return
        line = audit_message(
            decision,
            principal=principal,
            host=host,
            operation=operation,
            resource_type=resource_type,
            resource_name=name,
            request=request,
            reference_count=count,
        )
        log.log(level, "%s", line)

    def _omits(self, principal: str) -> bool:
        """Whether the denial is left out, and counted, because the budget is used up."""
        if not self._written_count:
            self._clock.call_later(INTERVAL_MS, self._end_interval)
        written = self._written.get(principal, 0)
        if written < LINES_PER_PRINCIPAL and self._written_count < LINES_MAX:
            self._written[principal] = written + 1
            self._written_count += 1
            return False
        named = principal[:PRINCIPAL_CHARACTERS_MAX]
        if named not in self._omitted and len(self._omitted) >= PRINCIPALS_MAX:
            named = OTHERS
        self._omitted[named] = self._omitted.get(named, 0) + 1
        return True

    def _end_interval(self) -> None:
        omitted, self._omitted = self._omitted, {}
        self._written, self._written_count = {}, 0
        if omitted:
            told = ", ".join(f"{principal}: {count}" for principal, count in omitted.items())
            log.info("%d more denials were left out in the last %d s (%s)", sum(omitted.values()), INTERVAL_MS // 1000, told)
