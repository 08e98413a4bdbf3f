"""The listening sockets of one address: bound early, listening late.

`bind` comes before the slow parts of a start, so that a used port ends the start at once. It does not listen yet, because the kernel would
accept connections that are not served. Between the two calls another process may bind the same port (SO_REUSEADDR allows it as long as no
socket listens), so `listen` may still fail. We call it ourselves, because uvloop ignores that error and leaves a server without a listening
socket.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence

BACKLOG = 1024  # connections the kernel holds for us before accept
FREE_PORT_TRIES_MAX = 20  # for port 0 and several addresses, whose first one's port may be taken on another

# Errors of IPv6 on a machine without IPv6, or without the address: IPv4 is used there.
_FAMILY_IS_MISSING = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT)

Configure = Callable[[socket.socket], None]


class ListenError(Exception):
    """Listening on an address failed; the message is one line for the operator."""


class ListeningSockets:
    """One socket for each address that the host resolves to, all on the same port. `who` names the listener in errors.

    `configure` sets further options on each before it is bound. Owned by a listener, which closes it."""

    def __init__(self, who: str, *, configure: Configure = lambda bound: None) -> None:
        self.port = 0  # the real one, once bound: a configured port 0 asks the kernel for a free one
        self.sockets: list[socket.socket] = []
        self._who = who
        self._configure = configure
        self._address = ""

    def bind(self, host: str | None, port: int) -> None:
        """Bind every address of `host`, without listening. Raises ListenError. Blocks for the resolver."""
        self._address = f"{host or '*'}:{port}"
        addresses = resolve(host, port)
        for tries_left in reversed(range(FREE_PORT_TRIES_MAX)):
            try:
                self._bind_all(addresses, port)
                return
            except OSError as e:
                self.close()
                has_other_ports = port == 0 and len(addresses) > 1
                if e.errno != errno.EADDRINUSE or not has_other_ports or not tries_left:
                    raise self._refusal(e) from e

    def listen(self, backlog: int = BACKLOG) -> None:
        """Let the kernel accept connections from now on; up to `backlog` wait to be taken. Raises ListenError."""
        for bound in self.sockets:
            try:
                bound.listen(backlog)
            except OSError as e:
                raise self._refusal(e) from e

    def close(self) -> None:
        """Free the addresses."""
        for bound in self.sockets:
            bound.close()
        self.sockets.clear()
        self.port = 0

    def _bind_all(self, addresses: Sequence[tuple[socket.AddressFamily, str]], port: int) -> None:
        for family, address in addresses:
            try:
                self._bind_one(family, address, self.port or port)
            except OSError as e:
                if family == socket.AF_INET6 and self.sockets and e.errno in _FAMILY_IS_MISSING:
                    continue
                raise

    def _bind_one(self, family: socket.AddressFamily, address: str, port: int) -> None:
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._configure(bound)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((address, port))
        except OSError:
            bound.close()
            raise
        bound.setblocking(False)
        self.port = bound.getsockname()[1]
        self.sockets.append(bound)

    def _refusal(self, error: OSError) -> ListenError:
        return ListenError(f"{self._who}: can't listen on {self._address}: {error.strerror or error}")


def resolve(host: str | None, port: int) -> Sequence[tuple[socket.AddressFamily, str]]:
    """The addresses of `host`, IPv4 first; None and "" are all interfaces. Raises ListenError."""
    if not host:
        return [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    try:
        # As bytes, an ASCII name is not encoded by IDNA's rules, whose tables take a millisecond to load.
        name = host.encode("ascii") if host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as e:
        raise ListenError(f"can't resolve host {host!r}: {e.strerror or e}") from e
    addresses = {(family, address[0]): None for family, _, _, _, address in found if family in (socket.AF_INET, socket.AF_INET6)}
    return sorted(((family, str(address)) for family, address in addresses), key=lambda item: item[0] != socket.AF_INET)
