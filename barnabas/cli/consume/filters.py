"""Which records are shown: by key, header, regular expression, and JMESPath on what is in them."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from barnabas.cli.errors import NotUnderstoodError

Filter = Callable[[Any], bool]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("filters").add_argument
    add("--key", metavar="KEY", help="only records with this key")
    add("--header", action="append", default=[], metavar="NAME[=VALUE]", help="only records with this header")
    add("--grep", metavar="REGEX", help="only records in whose key or value it is found")
    add("--filter", metavar="JMESPATH", help="only records of which it is true, as in 'value.count > `2`': docs/cli.md")
    add("--invert", action="store_true", help="only records that the filters would leave out")


def make_filter(options: argparse.Namespace) -> Filter | None:
    """None if all records are shown. Raises NotUnderstoodError."""
    filters: list[Filter] = []
    if options.key is not None:
        key = options.key.encode()
        filters.append(lambda message: message.key() == key)
    filters += [_header(text) for text in options.header]
    if options.grep is not None:
        filters.append(_grep(options.grep))
    if options.filter is not None:
        filters.append(_jmespath(options.filter))
    if not filters:
        return None
    if options.invert:
        return lambda message: not all(each(message) for each in filters)
    return filters[0] if len(filters) == 1 else lambda message: all(each(message) for each in filters)


def _header(text: str) -> Filter:
    name, equals, wished = text.partition("=")
    value = wished.encode()
    return lambda message: any(key == name and (not equals or found == value) for key, found in message.headers() or ())


def _grep(text: str) -> Filter:
    try:
        search = re.compile(text.encode()).search
    except re.error as e:
        raise NotUnderstoodError(f"{text!r} is no regular expression: {e}") from e
    return lambda message: search(message.value() or b"") is not None or search(message.key() or b"") is not None


def _jmespath(text: str) -> Filter:
    """Unlike jq's, its expressions end, and read no environment. False, null and what is empty leave a record out."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        search = jmespath.compile(text).search
    except (JMESPathError, ValueError) as e:
        raise NotUnderstoodError(f"{text!r} is no JMESPath: {' '.join(str(e).split())}") from e

    def shows(message: Any) -> bool:
        try:
            found = search(_document(message))
        except (JMESPathError, TypeError, ValueError):
            return False  # a function that is not for such a value
        return not (found is None or found is False or found in ("", [], {}))  # as in JMESPath, 0 is true

    return shows


def _document(message: Any) -> dict[str, Any]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _content(message.key()),
        "value": _content(message.value()),
        "headers": {name: _content(value) for name, value in message.headers() or ()},
    }


def _content(data: bytes | None) -> Any:
    """What it is as JSON, else its text; what is no UTF-8 with `\\xff` for its bytes."""
    if data is None:
        return None
    text = data.decode(errors="backslashreplace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or brackets in brackets as only an attack has them
        return text
