"""What became of each thing that a command was to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.cli.errors import CommandError, NoBrokerError, RefusedError, in_words
from barnabas.cli.output import Column, Output
from protocol.errors import ErrorCode


class Outcome(NamedTuple):
    """`what` became of the thing with this name."""

    name: str
    what: str
    is_done: bool
    is_unreachable: bool = False

    @classmethod
    def of(cls, name: str, answer: Any, done: str) -> Outcome:
        """`answer` is an error of a Connection, or anything else when it is done."""
        if isinstance(answer, CommandError):
            return cls(name, str(answer), is_done=False, is_unreachable=isinstance(answer, NoBrokerError))
        return cls(name, done, is_done=True)

    @classmethod
    def of_wire(cls, name: str, code: int, message: str | None, done: str) -> Outcome:
        """By the error code of an answer of the wire."""
        return cls(name, done, is_done=True) if code == ErrorCode.NONE else cls(name, in_words(code, message), is_done=False)


def report(output: Output, kind: str, outcomes: Sequence[Outcome]) -> None:
    """Print what is done. Raises RefusedError that names what is not, or NoBrokerError if that was the reason for all."""
    rows = [{kind: each.name, "outcome": each.what, "is_done": each.is_done} for each in outcomes]
    shown = rows if output.is_data else [row for row in rows if row["is_done"]]
    if shown:
        output.rows(shown, (Column(kind, kind.upper()), Column("outcome", "OUTCOME")))
    failed = [each for each in outcomes if not each.is_done]
    if failed:
        error = NoBrokerError if all(each.is_unreachable for each in failed) else RefusedError
        raise error("; ".join(f"{each.name}: {each.what}" for each in failed))


def report_nothing(output: Output, text: str) -> None:
    """There was nothing to do, which `text` says to a person."""
    if output.is_data:
        output.data([])
    output.line(text)
