"""Clusters whose sessions are long, so that only the notice of silence fences: nodes that hang must be missed, and nobody else.

HungWorld has nodes that hang, one after the other. CutLinksWorld has links that break while every node answers somebody, and observers that
stand still.
"""

from __future__ import annotations

import asyncio
import random

from tests.simulation.directed_worlds import RESTART_MAX_S, ScriptedNemesis, ScriptedWorld
from tests.simulation.node import Node
from tests.simulation.shapes import Shape, apart, combined

MISSED_MAX_S = 2.5  # after it began to hang; barnabas.fast.fencing.silence.ms, and an election where it was the active controller
CUT_S = (2.0, 3.4)  # less than tests/simulation/fencing_watch.py waits
PAUSE_S = (2.0, 4.0)
LONG_MS = 60_000
ROUNDS_COUNT = 3


class _Nemesis(ScriptedNemesis):
    """What both scripts know."""

    def _fenced(self) -> list[str] | None:
        """The brokers that the active controller has fenced; None while it is not known, or not all have been there."""
        publisher = self._watch.publishers.get(self._watch.controller_host or "")
        brokers = {} if publisher is None else publisher._cache.state.brokers
        if len(brokers) < len(self._brokers):
            return None
        return [node.host for node in self._brokers if brokers[node.node_id].is_fenced]

    async def _until_all_are_there(self) -> bool:
        return await self._until(lambda: self._fenced() == [], RESTART_MAX_S)


class HungNemesis(_Nemesis):
    """Each broker or the active controller hangs for a while, and is missed."""

    async def _attempt(self) -> bool:
        if not await self._until_all_are_there():
            return False
        controller = next(node for node in self._nodes if node.host == self._watch.controller_host)
        others = [node for node in self._brokers if node is not controller]
        for hung in (self._draw.choice(others), controller):
            await asyncio.sleep(self._draw.uniform(1.5, 2.5))  # all have asked each other
            hung.pause()
            if not await self._until(lambda hung=hung: self._is_missed(hung), MISSED_MAX_S):  # type: ignore[misc]
                self._history.find("never-missed", (hung.host, self._watch.controller_host, self._fenced()))
            hung.resume()
            if not await self._until_all_are_there():
                return False
        return True

    def _is_missed(self, hung: Node) -> bool:
        if hung.host == self._watch.controller_host:
            return False
        return not hung.is_broker or hung.host in (self._fenced() or ())


class CutLinksNemesis(_Nemesis):
    """A link breaks, or those of a broker to all other brokers while the controller reaches it; or observers stand still."""

    async def _attempt(self) -> bool:
        if not await self._until_all_are_there():
            return False
        for _ in range(ROUNDS_COUNT):
            await asyncio.sleep(self._draw.uniform(1.5, 2.5))
            epoch = self._watch.controller_epoch
            await self._cut_some()
            if self._fenced() != [] or self._watch.controller_epoch != epoch:
                self._history.find("fenced-unjustly", (self._fenced(), epoch, self._watch.controller_epoch))
            observer = self._draw.choice([node for node in self._brokers if node.host != self._watch.controller_host])
            observer.pause()
            await asyncio.sleep(self._draw.uniform(*PAUSE_S))
            observer.resume()
            if not set(self._fenced() or ()) <= {observer.host} or not await self._until_all_are_there():
                self._history.find("fenced-unjustly", (self._fenced(), observer.host))
        return True

    async def _cut_some(self) -> None:
        accused, *others = self._draw.sample(self._brokers, len(self._brokers))
        if any(not node.is_broker for node in self._nodes):
            others = others[: self._draw.randint(1, len(others))]
        else:
            others = others[:1]  # the active controller may be the other one, and be the only one that reaches it
        await self._cut([pair for each in others for pair in ((accused.host, each.host), (each.host, accused.host))], CUT_S)


class SilenceNoticedWorld(ScriptedWorld):
    """Three brokers; controllers are in their processes, or apart."""

    SILENCE_SHARE = 1.0

    @property
    def _are_votes_fixed(self) -> bool:
        """They are; but who comes and goes is not fenced again for a while, and FencingWatch would miss that."""
        return False

    def _draw_shape(self, draw: random.Random) -> Shape:
        return draw.choice((combined(3), apart(3)))

    def _draw_settings(self) -> dict[str, str]:
        long_ms = str(LONG_MS)
        return {**super()._draw_settings(), "broker.session.timeout.ms": long_ms, "controller.quorum.fetch.timeout.ms": long_ms}


class HungWorld(SilenceNoticedWorld):
    NEMESIS = HungNemesis


class CutLinksWorld(SilenceNoticedWorld):
    NEMESIS = CutLinksNemesis
