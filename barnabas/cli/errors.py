"""What a client command ends with when it is not done: one line for a person, and the exit code that a script reads."""

from __future__ import annotations

from protocol.errors import ErrorCode

DONE, FAILED, USAGE, NO_BROKER, UNHEALTHY, INTERRUPTED = 0, 1, 2, 3, 4, 130

CLOSED = "it closes the connection, as a broker does that wants a login or TLS; --command-config says how to log in"
"""Where nothing else is known: librdkafka has no error for it, and the wire's client has only seen the end."""


class CommandError(Exception):
    """`str()` is the line to print: what is wrong and what to do."""

    exit_code = FAILED


class RefusedError(CommandError):
    """The cluster, a setting or a person said no, or a part of the work failed."""


class NotLetInError(RefusedError):
    """A broker refuses the login, or one side does not trust the other's certificate; `why` in the broker's own words."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"{address} does not let us in: {why}; --command-config says how to log in")
        self.why = why


class NotUnderstoodError(CommandError):
    """An argument, a name in a file or a combination of options has no meaning."""

    exit_code = USAGE


class NoBrokerError(CommandError):
    """No broker answers."""

    exit_code = NO_BROKER


def check(code: int, message: str | None = None, *, of: str = "") -> None:
    """What an answer of the wire says of a thing. Raises RefusedError unless it is NONE."""
    if code != ErrorCode.NONE:
        raise RefusedError(f"{of}: {in_words(code, message)}" if of else in_words(code, message))


def in_words(code: int, message: str | None = None) -> str:
    """The error's name, and what a broker says of it."""
    return f"{ErrorCode(code).name}: {message or ''}".rstrip(": ")
