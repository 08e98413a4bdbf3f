"""Keys and values by their schemas, as JSON: by a file of their topic, or by the registry whose ids Confluent's serializers wrote.

Codecs are those of `consume`. What cannot be decoded stays as it is, with a sentence that says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.cli.errors import CommandError, NotUnderstoodError
from barnabas.cli.schemas.codec import NotOfSchemaError, SchemaCodec
from barnabas.cli.schemas.framed import FramedCodec, schema_id
from barnabas.cli.schemas.options import of_file
from barnabas.cli.schemas.registry import Registry
from barnabas.cli.settings import SchemaSettings
from barnabas.console.lookups import Lookups

REGISTRY_TIMEOUT_S = 5.0
SIZE_MAX = 4_000_000
"""Bytes that are decoded for a page or a search."""
NO_REGISTRY = (
    "no schema registry is known; barnabas console --schema-registry URL, or barnabas context add … --schema-registry URL, names one"
)


class Named(NamedTuple):
    """A schema as a page tells of it; `number` is None of a file. `text` is what a person has written, "" where that is not known."""

    kind: str
    name: str
    number: int | None
    text: str = ""


class Value(NamedTuple):
    """`data` are JSON if there is a `schema`, else as they are in the topic. `why` is a sentence: why they are not decoded;
    `is_trouble` if that is so for more than these."""

    data: bytes | None
    schema: Named | None = None
    why: str = ""
    is_trouble: bool = False


class Values:
    """Owns the codecs of one cluster. Any thread may read; the first one of a schema waits for the registry."""

    def __init__(self, settings: SchemaSettings, timeout_s: float) -> None:
        self._framed: FramedCodec | None = None
        self._why = NO_REGISTRY
        if settings.registry:
            try:
                registry = Registry(settings.registry, min(timeout_s, REGISTRY_TIMEOUT_S), settings.login)
                self._framed = FramedCodec(Lookups(registry), "")
            except NotUnderstoodError as e:  # of a context that may not be looked at: no reason not to show the others
                self._why = str(e)
        self._files = {"key": settings.key_files, "value": settings.value_files}
        self._of_files: dict[tuple[str, str], SchemaCodec | NotUnderstoodError] = {}

    @property
    def knows_some(self) -> bool:
        return self._framed is not None or any(self._files.values())

    def read(self, topic: str, part: str, data: bytes | None, size_max: int = SIZE_MAX) -> Value:
        """`part` is key or value."""
        file = self._files[part].get(topic)
        number = None if file is not None or not data else schema_id(data)
        if not data or (file is None and not number):  # registries count from 1: a small number in eight bytes is no schema's
            return Value(data)
        if len(data) > size_max:
            return Value(data, None, "it is too long to be decoded here")
        try:
            if file is not None:
                return self._by_file(topic, part, file, data)
            if self._framed is None:
                return Value(data, None, self._why, self._why != NO_REGISTRY)
            decoded = self._framed.read(data)
            schema, codec = decoded.schema, decoded.codec
            return Value(decoded.text, Named(codec.kind, codec.name, schema.number, schema.shown))
        except NotOfSchemaError as e:
            return Value(data, None, str(e))
        except CommandError as e:
            return Value(data, None, str(e), True)
        except ModuleNotFoundError as e:
            return Value(data, None, f"{(e.name or '').partition('.')[0]} is not installed: pip install 'barnabas[schemas]'", True)

    def apply(self, messages: Iterable[Any]) -> None:
        """Messages of librdkafka get the JSON in the place of their keys and values."""
        for message in messages:
            topic = message.topic()
            if (key := self.read(topic, "key", message.key())).schema is not None:
                message.set_key(key.data)
            if (value := self.read(topic, "value", message.value())).schema is not None:
                message.set_value(value.data)

    def _by_file(self, topic: str, part: str, file: str, data: bytes) -> Value:
        codec = self._of_files.get((topic, part))
        if codec is None:
            try:
                codec = of_file(file)
            except NotUnderstoodError as e:
                codec = e
            self._of_files[topic, part] = codec
        if isinstance(codec, NotUnderstoodError):
            raise codec
        return Value(codec.decode(data), Named(codec.kind, codec.name, None))
