"""PeriodicElections: the elections that an active controller makes periodically.

Preferred replicas are elected (auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds), and unclean elections are tried for
partitions without a leader (unclean.leader.election.interval.ms). A cluster of one broker needs neither.

Source: QuorumController.registerElectPreferred, registerElectUnclean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.controller.controller_result import Steps
from broker.loop.clock import Clock, Timer

if TYPE_CHECKING:
    from broker.controller.controller import Controller


class PeriodicElections:
    """One epoch of this node's leadership. Owner: LocalController, whose `run` appends the records that steps yield."""

    def __init__(self, controller: Controller, clock: Clock, run: Callable[[Steps[Any]], None]) -> None:
        self._controller = controller
        self._clock = clock
        self._run = run
        self._timers: dict[str, Timer] = {}

    def begin(self) -> None:
        config = self._controller.config
        elections = self._controller.elections
        if config.auto_leader_rebalance_enable:
            self._repeat("balance", config.leader_imbalance_check_interval_seconds * 1_000, elections.balance)
        self._repeat("unclean", config.unclean_leader_election_interval_ms, elections.elect_unclean)

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _repeat(self, name: str, interval_ms: int, work: Callable[[], Steps[None]]) -> None:
        def do() -> None:
            self._timers[name] = self._clock.call_later(interval_ms, do)
            if len(self._controller.state.brokers) > 1:
                self._run(work())

        self._timers[name] = self._clock.call_later(interval_ms, do)
