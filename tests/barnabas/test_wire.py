"""Answers to `barnabas.Broker`'s own requests."""

from __future__ import annotations

import socket
import struct

import pytest

from barnabas._wire import exchange


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1])
def test_an_answer_is_as_large_as_it_may_be(size: int) -> None:
    """CVE-2026-10142 of kafka-python: whoever answered in a broker's place had the client wait for 2 GB."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(struct.pack(">ii", size, 1))

        with pytest.raises(OSError, match=f"an answer of {size} bytes"):
            exchange(here, 18, 0, b"")
