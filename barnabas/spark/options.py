"""Texts of options as numbers and truths."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import OptionError


def number(options: Mapping[str, str], key: str, lowest: int) -> int | None:
    """A whole number, `lowest` or more; None if it is not set. Raises OptionError."""
    text = options.get(key)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < lowest:
        raise OptionError(f"{key} is {text!r}: it is a whole number, {lowest} or more")
    return int(text)


def truth(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Raises OptionError for what is neither true nor false."""
    text = options.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{key} is {text!r}: it is true or false")
    return text == "true"
