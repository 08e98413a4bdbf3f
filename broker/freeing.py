"""Memory of long requests is freed in pieces: freed at once, 190,000 elements take 10 to 50 ms.

What a work in turns (broker/turns.py) has collected goes by `emptied` when the work is done with it. What a work holds that is abandoned,
because its connection is gone, or that has failed, would go with its frames: `Leftovers` keeps that, to be freed later.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, MutableMapping
from sys import getrefcount
from traceback import walk_tb
from types import FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

from protocol.codec_in_turns import clear_arrays_in_turns
from protocol.schema import Message

FREED_PER_PIECE = 512
"""Elements of a list or dict that are freed between two yields: 50 µs."""

_REFERENCES_TO_OURS = 2
"""To a value that nobody else has: the variable's and getrefcount's own."""


def emptied(*containers: list[Any] | MutableMapping[Any, Any]) -> Generator[None, None, None]:
    """Empties what a long request has collected."""
    for container in containers:
        while container:
            if isinstance(container, list):
                del container[-FREED_PER_PIECE:]
            else:
                for _ in range(min(FREED_PER_PIECE, len(container))):
                    container.popitem()
            yield


def frames_of_work(work: Generator[Any, Any, Any]) -> Iterator[FrameType]:
    """Of the generator, and of those that it goes on with."""
    generator: Any = work
    while type(generator) is GeneratorType and generator.gi_frame is not None:
        yield generator.gi_frame
        generator = generator.gi_yieldfrom


def frames_of_error(error: BaseException) -> Iterator[FrameType]:
    """Those that the error, its cause and the errors during whose handling it was raised have passed."""
    errors: list[BaseException | None] = [error]
    seen: set[int] = set()
    while errors:
        each = errors.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            errors += [each.__cause__, each.__context__]
            for frame, _ in walk_tb(each.__traceback__):
                yield frame


class Leftovers:
    """What these frames and values hold that takes long to be freed: large lists and dicts, messages, and those in objects, tuples and the
    closures of functions.

    Made before they are let go of; afterwards `freed` says what is left to do. What others hold as well is left alone."""

    __slots__ = ("_containers", "_owners")

    def __init__(self, frames: Iterable[FrameType] = (), values: Iterable[Any] = ()) -> None:
        self._containers: dict[int, Any] = {}
        self._owners: dict[int, Any] = {}
        for frame in frames:
            self._note(frame.f_locals.values())
        self._note(values)

    def freed(self) -> Generator[None, None, None] | None:
        """Work that frees everything, or None if there is nothing. Nobody has the frames or values any more."""
        while self._owners:
            _, owner = self._owners.popitem()
            if getrefcount(owner) <= _REFERENCES_TO_OURS:
                self._note(_values_of(owner))
            del owner  # and what only it held is ours alone
        mappings: list[MutableMapping[Any, Any]] = []
        holders: list[Any] = []
        while self._containers:
            _, container = self._containers.popitem()
            if getrefcount(container) <= _REFERENCES_TO_OURS:
                (mappings if isinstance(container, MutableMapping) else holders).append(container)
            del container
        return _freed(mappings, holders) if mappings or holders else None

    def _note(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, Message) or _is_large(value):
                self._containers[id(value)] = value
            elif type(value) is tuple or hasattr(value, "__dict__") or hasattr(value, "__slots__"):
                self._owners[id(value)] = value


def _is_large(value: Any) -> bool:
    """Of a list of messages, which may have arrays, the length says nothing."""
    if type(value) is list:
        return len(value) > FREED_PER_PIECE or bool(value and isinstance(value[0], Message))
    return isinstance(value, MutableMapping) and len(value) > FREED_PER_PIECE


def _values_of(owner: Any) -> Iterable[Any]:
    if isinstance(owner, tuple):
        return owner
    if isinstance(owner, FunctionType):
        return _closed_over(owner)
    if isinstance(owner, MethodType):
        return [owner.__self__]
    values = [getattr(owner, name, None) for each in type(owner).__mro__ for name in getattr(each, "__slots__", ())]
    return values + [*getattr(owner, "__dict__", {}).values()]


def _closed_over(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable has no value, or none any more
            pass


def _freed(mappings: list[MutableMapping[Any, Any]], holders: list[Any]) -> Generator[None, None, None]:
    yield from emptied(*mappings)
    yield from clear_arrays_in_turns(*holders)
