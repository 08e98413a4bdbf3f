"""Decides whether one connection is read: only while nothing mutes it and its pipeline takes frames.

Several reasons may mute a connection at a time; reading resumes when the last one has ended. Kafka mutes a channel likewise while its
request is handled, throttled, or waits for memory (KafkaChannel.ChannelMuteState).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum

from broker.network.request_pipeline import RequestPipeline


class Mute(IntEnum):
    """The reasons to mute a connection. A stopped pipeline is another reason: a request waits for earlier ones, or the peer does not
    take its responses."""

    TURN = 1
    """Other connections first, until the next turn of the loop."""
    MEMORY = 2
    """All requests together hold as much memory as they may."""
    QUOTA = 3
    """Its client is over a quota, until a deadline."""
    END = 4
    """It will be closed, after a delay."""


class Reading:
    """Owned by its connection, which mutes and unmutes it. Calls the transport only when the result changes."""

    __slots__ = ("_monotonic_ms", "_mutes", "_pipeline", "_transport", "is_on", "partial_since_ms")

    def __init__(self, pipeline: RequestPipeline, monotonic_ms: Callable[[], int]) -> None:
        self._pipeline = pipeline
        self._monotonic_ms = monotonic_ms
        self._transport: asyncio.Transport | None = None
        self._mutes: dict[Mute, int] = {}  # each with its start (monotonic milliseconds)
        self.is_on = True
        """What the transport was last told."""
        self.partial_since_ms: int | None = None
        """When the first byte of an unfinished frame came, in monotonic milliseconds, without the time for which the connection was muted
        since: that was not the peer's fault."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Called when the connection is open; a transport begins to read by itself."""
        self._transport = transport

    def end(self) -> None:
        """Called when the connection closes: the transport is not called any more."""
        self._transport = None

    @property
    def is_muted(self) -> bool:
        return bool(self._mutes)

    def is_muted_for(self, reason: Mute) -> bool:
        return reason in self._mutes

    def mute(self, reason: Mute) -> None:
        """Stop reading until `unmute` with the same reason. Idempotent."""
        self._mutes.setdefault(reason, self._monotonic_ms())
        self.adjust()

    def unmute(self, reason: Mute) -> None:
        """End the reason. The caller then handles the frames that it still has, if any, and calls `adjust`."""
        since_ms = self._mutes.pop(reason, None)
        if since_ms is not None and self.partial_since_ms is not None:
            now_ms = self._monotonic_ms()
            self.partial_since_ms = min(now_ms, self.partial_since_ms + now_ms - since_ms)

    def adjust(self) -> None:
        """Resume or pause the transport if the result has changed."""
        transport = self._transport
        wants = not self._mutes and not self._pipeline.is_stopped
        if wants == self.is_on or transport is None or transport.is_closing():
            return
        self.is_on = wants
        if wants:
            transport.resume_reading()
        else:
            transport.pause_reading()
