"""Values of each format, and what their schemas are, for tests."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message

ORDER_V1: Mapping[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
ORDER_V2: Mapping[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}


def avro(schema: Any, datum: Any) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(json.dumps(schema))), datum)
    return stream.getvalue()


def of_registry(number: int, value: bytes) -> bytes:
    """With Confluent's header."""
    return b"\0" + number.to_bytes(4, "big") + value


def shop_descriptors() -> bytes:
    """What protoc makes of this file, and of the files that it imports:

    syntax = "proto3"; package shop;
    message Empty {}
    message Order {
      message Line { string item = 1; uint64 count = 2; }
      enum Kind { NONE = 0; GIFT = 1; }
      int64 id = 1; optional string name = 2; repeated Line lines = 3; Kind kind = 4; map<string, int32> marks = 5;
      google.protobuf.Timestamp at = 6; Empty empty = 7; bytes raw = 8;
    }
    message Tree { repeated Tree branches = 1; }
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3", dependency=[TIMESTAMP_FILE])
    file.message_type.add(name="Empty")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    _add(line, "item", 1, field.TYPE_STRING)
    _add(line, "count", 2, field.TYPE_UINT64)
    kind = order.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="GIFT", number=1)
    marks = order.nested_type.add(name="MarksEntry")
    marks.options.map_entry = True
    _add(marks, "key", 1, field.TYPE_STRING)
    _add(marks, "value", 2, field.TYPE_INT32)
    order.oneof_decl.add(name="_name")
    _add(order, "id", 1, field.TYPE_INT64)
    _add(order, "name", 2, field.TYPE_STRING, proto3_optional=True, oneof_index=0)
    _add(order, "lines", 3, field.TYPE_MESSAGE, type_name=".shop.Order.Line", label=field.LABEL_REPEATED)
    _add(order, "kind", 4, field.TYPE_ENUM, type_name=".shop.Order.Kind")
    _add(order, "marks", 5, field.TYPE_MESSAGE, type_name=".shop.Order.MarksEntry", label=field.LABEL_REPEATED)
    _add(order, "at", 6, field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    _add(order, "empty", 7, field.TYPE_MESSAGE, type_name=".shop.Empty")
    _add(order, "raw", 8, field.TYPE_BYTES)
    tree = file.message_type.add(name="Tree")
    _add(tree, "branches", 1, field.TYPE_MESSAGE, type_name=".shop.Tree", label=field.LABEL_REPEATED)
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return descriptor_pb2.FileDescriptorSet(file=[imported, file]).SerializeToString()


TIMESTAMP_FILE = "google/protobuf/timestamp.proto"


def shop_message(name: str, **fields: Any) -> Message:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(shop_descriptors()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))(**fields)


def write_schemas(folder: Path) -> None:
    """1.avsc and 2.avsc, two versions of Order; shop.desc; order.ddl."""
    (folder / "1.avsc").write_text(json.dumps(ORDER_V1))
    (folder / "2.avsc").write_text(json.dumps(ORDER_V2))
    (folder / "shop.desc").write_bytes(shop_descriptors())
    (folder / "order.ddl").write_text("id BIGINT,\nname STRING\n")


def _add(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: int, **more: Any) -> None:
    message.field.add(**{"label": descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, **more}, name=name, number=number, type=kind)
