"""The names of formats: `KIND:WHERE`, for Protobuf `KIND:FILE#MESSAGE`.

| format | WHERE |
| --- | --- |
| json | a file with a schema in Spark's DDL (`id BIGINT, name STRING`), or in Spark's JSON |
| avro | a file with the schema by which all values were written |
| protobuf | a file that `protoc --include_imports --descriptor_set_out` made, and the message's full name |
| confluent-json, confluent-protobuf | the same; each value begins with 0 and a schema's id (for Protobuf the message's place too) |
| confluent-avro | the URL of a schema registry, or a folder with a file ID.avsc for each id; after `#` the subject, or a file with the schema that the column has |
"""  # noqa: E501 (a table)

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import OptionError

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
CONFLUENT = "confluent-"
KINDS = tuple(prefix + kind for kind in (JSON, AVRO, PROTOBUF) for prefix in ("", CONFLUENT))


@dataclass(frozen=True, slots=True)
class FormatName:
    """`kind` is json, avro or protobuf; `what` is the part after #, empty without one."""

    kind: str
    is_confluent: bool
    where: str
    what: str

    @property
    def is_of_registry(self) -> bool:
        return self.where.startswith(("http://", "https://"))


def read_format(text: str) -> FormatName:
    """OptionError for what is none. Opens no file."""
    kind, _, rest = text.partition(":")
    where, _, what = rest.partition("#")
    if kind not in KINDS or not where:
        raise OptionError(f"{text!r} is no format: it is one of {', '.join(KINDS)}, a colon and a schema's file, such as avro:order.avsc")
    name = FormatName(kind.removeprefix(CONFLUENT), kind.startswith(CONFLUENT), where, what)
    if name.is_of_registry and (name.kind, name.is_confluent) != (AVRO, True):
        raise OptionError(f"{text!r}: only confluent-avro takes its schemas from a registry, {kind} takes them from a file")
    if name.kind == PROTOBUF and not what:
        raise OptionError(f"{text!r} names no message: it is {kind}:FILE#MESSAGE, such as {kind}:shop.desc#shop.Order")
    if what and name.kind != PROTOBUF and (name.kind, name.is_confluent) != (AVRO, True):
        raise OptionError(f"{text!r}: {kind} has nothing after its file")
    return name


def read_file(path: str) -> bytes:
    """OptionError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise OptionError(f"the schema {path} cannot be read: {e.strerror}") from e
