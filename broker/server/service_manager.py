"""What systemd is told of a broker that it started as a service of Type=notify: when it serves, and when it begins to stop.

Source: sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names; a leading @ stands for a name without a file.
"""

from __future__ import annotations

import contextlib
import os
import socket

READY, STOPPING = b"READY=1", b"STOPPING=1"


def notify(state: bytes) -> None:
    """Tell the service manager; does nothing without one. One that does not hear it ends the service by its own time limit."""
    name = os.environ.get("NOTIFY_SOCKET")
    if name:
        address = f"\0{name[1:]}" if name.startswith("@") else name
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state, address)
