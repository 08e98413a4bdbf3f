"""Lines that are made, not read: a template with fields between double braces. Nothing in it is evaluated.

{{i}} number of the record, from 1; {{now}} milliseconds since 1970; {{uuid}}; {{int 1 100}} and {{float 0 1}} between two numbers;
{{choice red green}} one of the words; {{text 20}} so many letters and digits.
"""

from __future__ import annotations

import itertools
import random
import re
import string
import time
import uuid
from collections.abc import Callable, Iterator

from barnabas.cli.errors import NotUnderstoodError

Make = Callable[[int], str]
"""What a field is for the record of that number."""

FIELDS = ("i", "now", "uuid", "int FROM TO", "float FROM TO", "choice WORD…", "text LENGTH")
LENGTH_MAX = 1 << 20
_FIELD = re.compile(r"\{\{([^{}]*)\}\}")
_CHARACTERS = string.ascii_letters + string.digits


def template_lines(text: str) -> Iterator[bytes]:
    """Lines without an end. Raises NotUnderstoodError at the call, not at the first line."""
    between = _FIELD.split(text)  # at odd places what was in the braces
    pieces = [_field(each) if index % 2 else _constant(each) for index, each in enumerate(between)]
    return ("".join(piece(number) for piece in pieces).encode() for number in itertools.count(1))


def _constant(text: str) -> Make:
    if "{{" in text:
        raise NotUnderstoodError(f"template: {text[text.index('{{') :]!r} is no field; {_known()}")
    return lambda number: text


def _field(text: str) -> Make:
    name, *words = text.split() or [""]
    try:
        match name, words:
            case "i", []:
                return str
            case "now", []:
                return lambda number: str(time.time_ns() // 1_000_000)
            case "uuid", []:
                return lambda number: str(uuid.uuid4())
            case "int", [_, _]:
                first, last = map(int, words)
                if first <= last:
                    return lambda number: str(random.randint(first, last))
            case "float", [_, _]:
                low, high = map(float, words)
                return lambda number: f"{random.uniform(low, high):.6g}"
            case "choice", [_, *_]:
                return lambda number: random.choice(words)
            case "text", [_]:
                length = int(words[0])
                if 0 <= length <= LENGTH_MAX:
                    return lambda number: "".join(random.choices(_CHARACTERS, k=length))
    except ValueError:
        pass  # no number: the field is refused as any other
    raise NotUnderstoodError(f"template: {{{{{text}}}}} is no field; {_known()}")


def _known() -> str:
    return "there are " + ", ".join(f"{{{{{each}}}}}" for each in FIELDS)
