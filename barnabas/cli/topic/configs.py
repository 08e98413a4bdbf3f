"""`key=value` of settings, as arguments have them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cli.errors import NotUnderstoodError


def parse_configs(words: Iterable[str]) -> dict[str, str]:
    """Raises NotUnderstoodError."""
    configs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise NotUnderstoodError(f"{word!r} is no setting: it is KEY=VALUE")
        configs[key] = value
    return configs
