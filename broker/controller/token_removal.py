"""TokenRemoval: an active controller removes delegation tokens whose time is over, every delegation.token.expiry.check.interval.ms.

Source: QuorumController.registerExpireDelegationTokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.controller.controller_result import Steps
from broker.loop.clock import Clock, Timer

if TYPE_CHECKING:
    from broker.controller.controller import Controller


class TokenRemoval:
    """One epoch of this node's leadership. Owner: LocalController, whose `run` appends the records that steps yield."""

    def __init__(self, controller: Controller, clock: Clock, run: Callable[[Steps[Any]], None]) -> None:
        self._controller = controller
        self._clock = clock
        self._run = run
        self._timer: Timer | None = None

    def begin(self) -> None:
        self._timer = self._clock.call_later(self._controller.config.delegation_token_expiry_check_interval_ms, self._check)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self.begin()
        if self._controller.state.tokens.by_id:
            self._run(self._controller.tokens.remove_expired(self._clock.now_ms()))
