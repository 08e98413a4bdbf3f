"""Keys and values of records as JSON, by their schemas, before records are filtered and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.cli.errors import RefusedError
from barnabas.cli.schemas.codec import Codec, NotOfSchemaError
from barnabas.cli.schemas.options import Codecs


class Decoding:
    """What cannot be decoded stays as it is, and is counted. Null stays null."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self._failed = 0
        self._first = ""

    def apply(self, messages: Sequence[Any]) -> None:
        """Raises CommandError."""
        for message in messages:
            if self._codecs.key is not None:
                self._decode(message, self._codecs.key, message.key(), message.set_key)
            if self._codecs.value is not None:
                self._decode(message, self._codecs.value, message.value(), message.set_value)

    def check(self) -> None:
        """Raises RefusedError if something could not be decoded."""
        if self._failed:
            raise RefusedError(f"{self._failed} keys or values are shown as they are, since they are not of their schema; {self._first}")

    def _decode(self, message: Any, codec: Codec, data: bytes | None, put: Callable[[bytes], None]) -> None:
        if data is None:
            return
        try:
            put(codec.decode(data))
        except NotOfSchemaError as e:
            self._failed += 1
            self._first = self._first or f"the first at {message.topic()}-{message.partition()}, offset {message.offset()}: {e}"
