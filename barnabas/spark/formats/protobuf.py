"""Protobuf values by a descriptor set, which `protoc --include_imports --descriptor_set_out=FILE` makes of .proto files.

A field is a column of its name. An enum is a string, an unsigned number the next larger signed one or a decimal; Timestamp is a timestamp,
a wrapper such as Int64Value a nullable column, Struct and Value are JSON as text. A field that knows whether it is set is null if it
isn't, any other has its default. A message without fields is true where it is set, since Parquet has no column for it.

With Confluent's wire format the message's place in its file follows the schema's id. The id itself does not matter: the descriptor set
is the schema, and Protobuf ignores what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from .values import SchemaError, UndecodableError, split_header

UNSIGNED_64 = pa.decimal128(20, 0)
SCALARS: Mapping[int, pa.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: UNSIGNED_64,
    FieldDescriptor.TYPE_FIXED64: UNSIGNED_64,
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
}
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
AS_JSON = frozenset(("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"))
TIMESTAMP = "google.protobuf.Timestamp"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VARINT_SIZE_MAX = 5
NESTED_MAX = 100
"""Levels of a message's place, as protoc itself takes no deeper ones."""

Convert = Callable[[Any], Any]


class Converted(NamedTuple):
    """A type, and how protobuf's value becomes what Arrow takes for it."""

    type: pa.DataType
    convert: Convert


class ProtobufDecoder:
    def __init__(self, descriptors: bytes, message: str, *, is_confluent: bool) -> None:
        """`descriptors` is a FileDescriptorSet. Raises SchemaError."""
        self._state = (descriptors, message, is_confluent)
        self._parse()

    def _parse(self) -> None:
        descriptors, message, self._is_confluent = self._state
        descriptor = _find(descriptors, message)
        self._class = message_factory.GetMessageClass(descriptor)
        self._place = place_of(descriptor)
        self.type, self._convert = _message(descriptor, ())

    def __getstate__(self) -> dict[str, Any]:
        return {"state": self._state}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._state = state["state"]
        self._parse()

    type: pa.DataType

    def decode(self, value: bytes) -> Any:
        if self._is_confluent:
            _, value = split_header(value)
            place, value = split_place(value)
            if place != self._place:
                raise UndecodableError(f"another message than {self._state[1]} of its file: the one at {place}, and not at {self._place}")
        message = self._class()
        try:
            message.ParseFromString(value)
        except DecodeError as e:
            raise UndecodableError(f"not Protobuf of its message: {e}") from e
        if not message.IsInitialized():
            raise UndecodableError(f"not Protobuf of its message: {', '.join(message.FindInitializationErrors())} is missing")
        try:
            return self._convert(message)
        except (OverflowError, ValueError, json_format.Error) as e:
            raise UndecodableError(f"a value is out of its range: {e}") from e


def place_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Its number among the messages of its file; of a nested one those of the outer ones first."""
    if descriptor.containing_type is not None:
        siblings = list(descriptor.containing_type.nested_types)
        return (*place_of(descriptor.containing_type), siblings.index(descriptor))
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    return ([message.name for message in file.message_type].index(descriptor.name),)


def split_place(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """The place as Confluent writes it, a count and that many numbers, in zigzag; the count 0 stands for the first message."""
    position = 0
    numbers: list[int] = []
    count = 1
    while len(numbers) < count + 1:
        number, position = _varint(value, position)
        if not numbers:
            count = number
            if not 0 <= count <= NESTED_MAX:
                raise UndecodableError(f"not a registry's format: it has a message's place of {count} numbers")
        numbers.append(number)
    return tuple(numbers[1:]) or (0,), value[position:]


def _varint(value: bytes, position: int) -> tuple[int, int]:
    """A zigzag number, and where the next byte is."""
    raw = 0
    for size in range(VARINT_SIZE_MAX):
        if position + size >= len(value):
            break
        byte = value[position + size]
        raw |= (byte & 0x7F) << (7 * size)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + size + 1
    raise UndecodableError("not a registry's format: a message's place is cut off")


def _find(descriptors: bytes, message: str) -> Descriptor:
    """The message's descriptor in a pool of its own, so that two sets do not meet."""
    files, pool = descriptor_pb2.FileDescriptorSet(), descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except KeyError as e:
        names = ", ".join(sorted(_names(files))[:20])
        raise SchemaError(f"there is no message {message} in the descriptor set; it has {names or 'none'}") from e
    except (DecodeError, TypeError) as e:
        raise SchemaError(f"no descriptor set, as protoc --include_imports --descriptor_set_out makes it: {e}") from e


def _names(files: descriptor_pb2.FileDescriptorSet) -> Iterator[str]:
    for file in files.file:
        for message in file.message_type:
            yield f"{file.package}.{message.name}" if file.package else message.name


def _message(descriptor: Descriptor, inside: tuple[str, ...]) -> Converted:
    name = descriptor.full_name
    if name == TIMESTAMP:
        return Converted(pa.timestamp("us", tz="UTC"), _timestamp)
    if name in WRAPPERS:
        value = _single(descriptor.fields_by_name["value"], inside)
        return Converted(value.type, lambda message: value.convert(message.value))
    if name in AS_JSON:
        return Converted(pa.string(), lambda message: json_format.MessageToJson(message, indent=None))
    if name in inside:
        raise SchemaError(f"{name} contains itself, and a column cannot")
    if not descriptor.fields:
        return Converted(pa.bool_(), lambda message: True)
    fields = [(field, _field(field, (*inside, name))) for field in descriptor.fields]
    kind = pa.struct([pa.field(field.name, each.type) for field, each in fields])

    def convert(message: Message) -> Any:
        return {
            field.name: None if field.has_presence and not message.HasField(field.name) else each.convert(getattr(message, field.name))
            for field, each in fields
        }

    return Converted(kind, convert)


def _field(field: FieldDescriptor, inside: tuple[str, ...]) -> Converted:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key = _single(field.message_type.fields_by_name["key"], inside)
        value = _single(field.message_type.fields_by_name["value"], inside)
        return Converted(pa.map_(key.type, value.type), lambda items: [(key.convert(each), value.convert(items[each])) for each in items])
    single = _single(field, inside)
    if field.is_repeated:
        return Converted(pa.list_(single.type), lambda items: [single.convert(item) for item in items])
    return single


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> Converted:
    if field.message_type is not None:
        return _message(field.message_type, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return Converted(pa.string(), lambda number: names.get(number, str(number)))
    kind = SCALARS[field.type]
    return Converted(kind, Decimal if kind is UNSIGNED_64 else lambda value: value)


def _timestamp(message: Any) -> datetime:
    """In microseconds; OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
