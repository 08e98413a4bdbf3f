"""Stand-ins for two modules of Python's library that a broker would load and never use.

asyncio and uvloop import `ssl`, whether or not a listener speaks TLS: 4.4 MB of an idle broker's 31, most of it OpenSSL, and 20 ms of a
start. pathlib imports `urllib.parse` for Path.as_uri, and that imports `ipaddress`: 0.4 MB.

Neither can be told not to, so while the context is entered an import finds a stand-in, with the names that these importers take at once.
- Another name is taken from the real module, which is loaded for it and replaces the stand-in: a newer uvloop that wants more costs
  memory and nothing else.
- After the context `import ssl` loads the real module. Only what was imported within keeps the stand-in: asyncio and uvloop offer no TLS
  of their own. A broker with a TLS listener must therefore either enter this with other names, or do its TLS by ssl.SSLObject.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def _without_tls(*_arguments: object, **_options: object) -> Any:
    raise RuntimeError("asyncio and uvloop were loaded without TLS (broker/cli/stand_ins.py)")


def _quote_from_bytes(*arguments: Any, **options: Any) -> str:
    quote: Callable[..., str] = import_module("urllib.parse").quote_from_bytes
    return quote(*arguments, **options)


_STOOD_IN: Mapping[str, Mapping[str, Any]] = {
    # uvloop/includes/stdlib.pxi, asyncio/sslproto.py. The numbers are OpenSSL's.
    "ssl": {
        **{name: type(name, (), {"__init__": _without_tls}) for name in ("MemoryBIO", "SSLContext")},
        **{
            name: type(name, (OSError,), {})
            for name in ("CertificateError", "SSLError", "SSLSyscallError", "SSLWantReadError", "SSLZeroReturnError")
        },
        "SSL_ERROR_SYSCALL": 5,
        "SSL_ERROR_WANT_READ": 2,
        "SSL_ERROR_WANT_WRITE": 3,
        "create_default_context": _without_tls,
    },
    "urllib.parse": {"quote_from_bytes": _quote_from_bytes},
}


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # the import system asks modules for some that they need not have
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def stand_ins() -> Iterator[None]:
    """What is imported within gets stand-ins, but of modules that are loaded already."""
    placed = []
    for name, attributes in _STOOD_IN.items():
        if name not in sys.modules:
            stand_in = sys.modules[name] = _StandIn(name)
            vars(stand_in).update(attributes)
            placed.append(stand_in)
    try:
        yield
    finally:
        for stand_in in placed:
            if sys.modules.get(stand_in.__name__) is stand_in:
                del sys.modules[stand_in.__name__]
