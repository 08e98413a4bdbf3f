"""The broker-wide budget for request bytes: granted as they arrive, fairly by address and by connection.

These bytes count: received bytes of unfinished frames; frames that requests still use (they wait for earlier requests, for a check in the
worker, or are handled in slices); copies of small waiting frames; and answers that the peer has not taken. A frame's declared size does not
count. (Kafka's SimpleMemoryPool reserves the declared size, so that a few declarations block everyone.)

Below half of the limit no connection has to wait. Above it, memory is short until the held bytes fall to three eighths:
- Connections continue to read while they hold no more than their share: the limit divided by the addresses that hold anything, and each
address's part divided by its connections. So a connection that sends a hundred megabytes slowly waits, and one that sends a single megabyte
does not.
- The last quarter is reserved for connections that hold at most MODEST_SIZE, so that usual requests are read.
- The connection that has waited longest continues to read all the same until its frame is complete: otherwise none might ever finish.
- A connection whose peer does not send (or take) PROGRESS_MIN between two sweeps, or nothing at all while it waits, is stalled. While
others wait, `sweep` closes stalled ones, beginning with the address that holds most, until memory is not short any more.

At most the limit is held, plus what arrives before readers have stopped: one read (a megabyte), 8 KiB for each connection that has just
begun a frame, and the rest of the one frame that is read all the same (below socket.request.max.bytes).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from protocol.framing import POOLED_BUFFER_SIZE, FrameBuffer

MODEST_SIZE = POOLED_BUFFER_SIZE  # bytes: a batch of a client's usual maximum and its request; less where the limit is below 64 of them
PROGRESS_MIN = 64 * 1024
"""Bytes between two sweeps, a second; with less, a large frame would miss its deadline. Who holds no more than this is left alone."""

# The levels of memory shortage. Each begins above its part of the limit, in 32nds, and ends below a lower one, so that changes, which visit
# all holders, are rare.
PLENTY, SHORT, SCARCE, NONE = range(4)
_BEGINS_32NDS = (0, 16, 24, 32)
_ENDS_32NDS = (0, 12, 20, 30)
_KEPT_8THS_MAX = 1
"""Part of the limit that requests in progress may hold when nothing is left: with more, it is their turn to end, not a frame's to grow."""


class Holder(Protocol):
    """The part of a connection that the RequestMemory uses."""

    @property
    def address(self) -> str:
        """The peer's address."""

    @property
    def awaits_peer(self) -> bool:
        """Whether its bytes are held until its peer acts: it reads an answer, or lets a request end for which another waits."""

    @property
    def has_unread_bytes(self) -> bool:
        """Whether its peer has sent what was not read yet."""

    def report_memory(self) -> None:
        """Call `hold` with what is held now."""

    def pause_for_memory(self) -> None:
        """Stop reading until `memory_available`."""

    def memory_available(self) -> None:
        """Resume reading; called once after `pause_for_memory`."""

    def close_for_memory(self, held_size: int) -> None:
        """Close the connection: it is stalled while others wait."""


class _Address:
    """The bytes that all connections from one address hold."""

    __slots__ = ("connections_count", "held_size", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.held_size = 0
        self.connections_count = 0


class _Account:
    """The bytes that one connection holds. `holder` is None after it was closed; frames that its requests use may outlive it."""

    __slots__ = ("address", "held_size", "holder", "is_closing", "is_receiving", "kept_size", "swept_size")

    def __init__(self, holder: Holder, address: _Address) -> None:
        self.holder: Holder | None = holder
        self.address = address
        self.held_size = 0  # as the holder reports
        self.kept_size = 0  # in frames that requests refer to
        self.is_receiving = False  # within a frame, of which it takes more
        self.is_closing = False
        self.swept_size: int | None = None  # at the last sweep, if it could go on since

    @property
    def size(self) -> int:
        return self.held_size + self.kept_size

    def has_stalled(self, is_paused: bool) -> bool:
        """Whether its peer sent (or took) less than PROGRESS_MIN since the last sweep, or nothing while paused. Call it once a sweep."""
        before, self.swept_size = self.swept_size, self.size
        if before is None or self.is_closing or self.holder is None or self.size <= PROGRESS_MIN:
            return False
        if is_paused:
            return not self.holder.has_unread_bytes
        return abs(self.size - before) < PROGRESS_MIN and (self.is_receiving or self.holder.awaits_peer)


class RequestMemory:
    """Counts what each connection holds, in bytes, and decides which may read. Owned by the connection registry."""

    def __init__(self, limit: int, call_threadsafe: Callable[..., Any]) -> None:
        """`call_threadsafe(callback, argument)` calls back in a turn of the loop; the last reference to a frame may be a thread's."""
        self.limit = limit
        self.held_size = 0
        self._modest_size = min(MODEST_SIZE, limit // 64)
        self._begins: list[float] = [*(limit * part // 32 for part in _BEGINS_32NDS), math.inf]
        self._ends = [limit * part // 32 for part in _ENDS_32NDS]
        self._call_threadsafe = call_threadsafe
        self._accounts: dict[Holder, _Account] = {}
        self._addresses: dict[str, _Address] = {}
        self._kept: dict[int, tuple[weakref.ref[FrameBuffer], _Account, int]] = {}  # by the reference's identity
        self._kept_size = 0
        self._paused: dict[_Account, None] = {}  # ordered: the longest wait ends first; empty while there is plenty
        self._head: _Account | None = None  # the longest waiting one, which reads all the same
        self._level = PLENTY

    @property
    def waiting_count(self) -> int:
        """Connections that wait for memory."""
        return len(self._paused)

    def hold(self, holder: Holder, size: int, *, is_receiving: bool) -> None:
        """Set the bytes that `holder` holds to `size`. `is_receiving` means that they are of an unfinished frame."""
        account = self._accounts.get(holder)
        if account is None:
            if not size:
                return
            account = self._open(holder)
        change = size - account.held_size
        account.held_size = size
        account.is_receiving = is_receiving
        if account is self._head and change < 0:
            self._head = None
        self._count(account, change)

    def keep(self, holder: Holder, buffer: FrameBuffer) -> None:
        """Count `buffer`, a frame of `holder`, until nothing refers to it."""
        account = self._accounts.get(holder) or self._open(holder)
        size = len(buffer)
        reference = weakref.ref(buffer, self._buffer_gone)
        self._kept[id(reference)] = (reference, account, size)
        self._kept_size += size
        account.kept_size += size
        self._count(account, size)

    def forget(self, holder: Holder) -> None:
        """Remove a closed connection. Bytes that its requests still use count until they are released."""
        account = self._accounts.pop(holder, None)
        if account is None:
            return
        self._paused.pop(account, None)
        if account is self._head:
            self._head = None
        account.holder = None
        account.is_receiving = False
        account.address.connections_count -= 1
        released, account.held_size = account.held_size, 0
        self._count(account, -released)

    def sweep(self) -> None:
        """Close stalled connections while others wait, and decide again which may read. Called about once a second."""
        if self._level == PLENTY:
            return
        for holder in list(self._accounts):
            holder.report_memory()
        stalled = [account for account in self._accounts.values() if account.has_stalled(account in self._paused)]
        if self._paused:
            self._close_greediest(stalled)
        self._pause_or_resume_all()

    # -- who may read ---------------------------------------------------------------------------------------------

    def _count(self, account: _Account, change: int) -> None:
        self.held_size += change
        account.address.held_size += change
        if not account.size:
            self._drop(account)
        level = self._level
        if self.held_size > self._begins[level + 1] or (level and self.held_size <= self._ends[level]):
            self._change_level()
        elif level:
            if change > 0 and account.is_receiving and account not in self._paused and not self._is_entitled(account):
                self._pause(account)
            self._resume_next()

    def _change_level(self) -> None:
        while self.held_size > self._begins[self._level + 1]:
            self._level += 1
        while self._level and self.held_size <= self._ends[self._level]:
            self._level -= 1
        self._pause_or_resume_all()

    def _is_entitled(self, account: _Account) -> bool:
        if self._level == PLENTY or account is self._head:
            return True
        if self._level == NONE:
            return False
        if account.size <= self._modest_size:
            return True
        return self._level == SHORT and account.size <= self.limit // len(self._addresses) // account.address.connections_count

    def _pause_or_resume_all(self) -> None:
        """Pause the connections that are not entitled to read, and resume those that are."""
        for account in self._accounts.values():
            is_entitled = self._is_entitled(account)
            if account in self._paused:
                if is_entitled:
                    self._resume(account)
            elif account.is_receiving and not is_entitled:
                self._pause(account)
        self._resume_next()

    def _resume_next(self) -> None:
        if self._paused and self._head is None and (self._level < NONE or self._kept_size <= self.limit * _KEPT_8THS_MAX // 8):
            self._head = next(iter(self._paused))
            self._resume(self._head)

    def _pause(self, account: _Account) -> None:
        assert account.holder is not None, "only open connections receive"
        self._paused[account] = None
        account.swept_size = None
        account.holder.pause_for_memory()

    def _resume(self, account: _Account) -> None:
        assert account.holder is not None, "a closed connection waits for nothing"
        del self._paused[account]
        account.holder.memory_available()

    def _close_greediest(self, stalled: list[_Account]) -> None:
        """Close stalled connections until memory is not short any more, counting all their bytes as released."""
        excess = self.held_size - self._ends[SHORT]
        stalled.sort(key=lambda account: (account.address.held_size, account.size), reverse=True)
        for account in stalled:
            if excess <= 0:
                return
            assert account.holder is not None
            excess -= account.size
            account.is_closing = True
            account.holder.close_for_memory(account.size)

    # -- accounts -------------------------------------------------------------------------------------------------

    def _open(self, holder: Holder) -> _Account:
        name = holder.address
        address = self._addresses.get(name)
        if address is None:
            address = self._addresses[name] = _Address(name)
        address.connections_count += 1
        account = self._accounts[holder] = _Account(holder, address)
        return account

    def _drop(self, account: _Account) -> None:
        """Remove an account without bytes."""
        if account.holder is not None:
            del self._accounts[account.holder]
            account.address.connections_count -= 1
            if account in self._paused:
                self._resume(account)
            if account is self._head:
                self._head = None
        address = account.address
        if not address.connections_count and not address.held_size:
            self._addresses.pop(address.name, None)

    def _buffer_gone(self, reference: weakref.ref[FrameBuffer]) -> None:
        """Called when a frame is freed, in any thread at any time: the rest is done in a turn of the loop."""
        try:
            self._call_threadsafe(self._release, id(reference))
        except RuntimeError:
            pass  # the loop is closed

    def _release(self, reference_id: int) -> None:
        _, account, size = self._kept.pop(reference_id)
        self._kept_size -= size
        account.kept_size -= size
        self._count(account, -size)
