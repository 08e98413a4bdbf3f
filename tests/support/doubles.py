"""Doubles that cannot drift: a class that stands for another one has its methods' names and parameters, checked where it is defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import TypeVar

Double = TypeVar("Double", bound=type)


def stands_for(*kinds: type, own: Collection[str] = ()) -> Callable[[Double], Double]:
    """Class decorator: every public member but those in `own`, which tests alone call, is one of `kinds`' and is called alike."""

    def check(double: Double) -> Double:
        for name, member in vars(double).items():
            if name.startswith("_") or name in own:
                continue
            real = next((vars(base)[name] for kind in kinds for base in kind.__mro__ if name in vars(base)), None)
            names = " or ".join(kind.__name__ for kind in kinds)
            if real is None:
                raise TypeError(f"{double.__name__}.{name} stands for nothing: {names} has no {name}")
            if inspect.isfunction(member) and _parameters(member) != _parameters(real):
                raise TypeError(f"{double.__name__}.{name}{inspect.signature(member)} is not called as {names}.{name}")
        return double

    return check


def _parameters(function: object) -> list[tuple[str, object, bool]]:
    if not inspect.isfunction(function):
        return []
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default is inspect.Parameter.empty) for each in parameters]
