"""Avro and Protobuf by files and by a registry, which is a small server of HTTP here; records at both kinds of servers."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many
from google.protobuf import descriptor_pb2

from barnabas.cli.errors import CommandError, NotUnderstoodError
from barnabas.cli.schemas.avro import AvroCodec
from barnabas.cli.schemas.codec import NotOfSchemaError
from barnabas.cli.schemas.framed import FramedCodec
from barnabas.cli.schemas.protobuf import from_file
from barnabas.cli.schemas.registry import LOGIN, Registry
from tests.barnabas.cli.conftest import Command, fill
from tests.support.schema_registry import SchemaRegistry

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "item", "type": "shop.Item"}, {"name": "note", "type": ["null", "string"]}, {"name": "data", "type": "bytes"}],
}  # fmt: skip
LINE = '{"item": {"sku": "book"}, "note": {"string": "\u00fcber"}, "data": "\u00ff"}'


def proto() -> descriptor_pb2.FileDescriptorProto:
    """`message Order { string sku = 1; google.protobuf.Timestamp at = 2; message Line { int64 count = 1; } }` of the package shop."""
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="sku", number=1, type=9, label=1)
    order.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.nested_type.add(name="Line").field.add(name="count", number=1, type=3, label=1)
    return file


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its URL. Schema 1 is ITEM, 2 ORDER, 3 the Protobuf, 4 JSON Schema; the subjects are of any topic, by their beginning."""
    serialized = base64.b64encode(proto().SerializeToString()).decode()
    schemas: dict[int, dict[str, Any]] = {
        1: {"schema": json.dumps(ITEM)},
        2: {"schema": json.dumps(ORDER), "references": [{"name": "shop.Item", "subject": "item", "version": 1}]},
        3: {"schema": serialized, "schemaType": "PROTOBUF"},
        4: {"schema": "{}", "schemaType": "JSON"},
    }
    monkeypatch.setenv(LOGIN, "me:secret")
    with SchemaRegistry(schemas, {"item": 1, "avro": 2, "proto": 3, "json": 4}, login="me:secret") as running:
        yield running.url


def test_avro_is_json_there_and_back() -> None:
    codec = AvroCodec([json.dumps(ITEM), json.dumps(ORDER)])

    data = codec.encode(LINE.encode())

    assert data == b"\x08book\x02\x0a\xc3\xbcber\x02\xff" and json.loads(codec.decode(data)) == json.loads(LINE)
    assert "über" in codec.decode(data).decode()  # as a person reads it, and as a filter looks for it
    for odd in (b"", data + b"x", b"\x08bo"):
        with pytest.raises(NotOfSchemaError):
            codec.decode(odd)
    for text in (b"{}", b"no JSON", b'{"item": 7}'):
        with pytest.raises(NotOfSchemaError):
            codec.encode(text)
    with pytest.raises(NotUnderstoodError):
        AvroCodec(["{}"])


EVERY_TYPE = {
    "type": "record", "name": "Every", "namespace": "shop",
    "fields": [
        *({"name": f"a_{kind}", "type": kind} for kind in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")),
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "array", "type": {"type": "array", "items": ["null", "string", "Color"]}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "union", "type": ["null", "boolean", "long", "double", "bytes", {"type": "array", "items": "int"},
            {"type": "map", "values": "Four"},
            {"type": "record", "name": "Inner", "fields": [{"name": "key", "type": ["null", "string"]}]}]},
        {"name": "inner", "type": ["null", "Inner"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    ],
}  # fmt: skip
TREE = {
    "type": "record", "name": "Tree", "namespace": "shop",
    "fields": [
        {"name": "name", "type": "string"}, {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "by", "type": {"type": "map", "values": "Tree"}}, {"name": "next", "type": ["null", "Tree"]},
    ],
}  # fmt: skip


def test_avro_s_json_is_fastavro_s_for_every_type() -> None:
    random.seed(7)  # of fastavro's generator
    schema, codec = fastavro.parse_schema(EVERY_TYPE), AvroCodec([json.dumps(EVERY_TYPE)])
    for value in generate_many(schema, 40):
        data, out = io.BytesIO(), io.StringIO()
        fastavro.schemaless_writer(data, schema, value)
        data.seek(0)
        fastavro.json_writer(out, schema, [fastavro.schemaless_reader(data, schema, None)])

        assert json.loads(codec.decode(data.getvalue())) == json.loads(out.getvalue())


def test_avro_that_contains_itself_is_json_on_each_level() -> None:
    def tree(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "children": [], "by": {}, "next": None, **more}

    value = tree("a", children=[tree("b", by={"k": tree("c")}), tree("d")], next=tree("e", next=tree("f")))
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(TREE), value)

    value["next"] = {"shop.Tree": tree("e", next={"shop.Tree": tree("f")})}  # JSON names a union's branch
    assert json.loads(AvroCodec([json.dumps(TREE)]).decode(data.getvalue())) == value


def test_avro_s_json_is_what_the_bytes_say_and_no_more() -> None:
    """Of a union of two records alike, the one that was written; an array's blocks with sizes; and no enum's or union's negative number."""
    alike = [{"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]} for name in ("First", "Second")]
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}
    color = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}

    assert AvroCodec([json.dumps(alike)]).decode(b"\x02\x0a") == b'{"Second": {"x": 5}}'
    assert AvroCodec(['{"type": "array", "items": "int"}']).decode(b"\x03\x04\x02\x04\x02\x06\0") == b"[1, 2, 3]"
    assert AvroCodec([json.dumps(decimal)]).decode(b"\x06abc") == b'"abc"'
    odd_ones = ((color, b"\x01"), (color, b"\x04"), (alike, b"\x01\x0a"), (alike, b"\x04\x0a"), ("bytes", b"\x01x"), (TREE, b""))
    for schema, odd in odd_ones:
        with pytest.raises(NotOfSchemaError):
            AvroCodec([json.dumps(schema)]).decode(odd)


def test_avro_of_a_billion_records_without_a_byte_ends_soon() -> None:
    """Each definition has two of the one before."""
    texts = ['{"type": "record", "name": "R0", "fields": [{"name": "x", "type": "null"}]}']
    for number in range(1, 31):
        fields = [{"name": name, "type": f"R{number - 1}"} for name in "ab"]
        texts.append(json.dumps({"type": "record", "name": f"R{number}", "fields": fields}))

    assert json.loads(AvroCodec(texts[:2]).decode(b"")) == {"a": {"x": None}, "b": {"x": None}}
    with pytest.raises(NotOfSchemaError, match="more records"):
        AvroCodec(texts).decode(b"")


def test_protobuf_is_json_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "order.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[proto()]).SerializeToString())
    line = {"sku": "book", "at": "2026-01-31T10:00:00Z"}

    codec = from_file(path, "")

    assert json.loads(codec.decode(codec.encode(json.dumps(line).encode()))) == line
    nested = from_file(path, "shop.Order.Line")
    assert nested.encode(b'{"count": 2}') == b"\x08\x02"
    for text in (b'{"no": 1}', b"no JSON"):
        with pytest.raises(NotOfSchemaError):
            nested.encode(text)
    with pytest.raises(NotOfSchemaError):
        codec.decode(b"\xff\xff")
    with pytest.raises(NotUnderstoodError, match="has no message"):
        from_file(path, "shop.None")
    path.write_bytes(b"\xff")
    with pytest.raises(NotUnderstoodError):
        from_file(path, "")


def test_way_to_a_nested_message_is_followed(registry: str) -> None:
    codec = FramedCodec(Registry(registry, 10, "me:secret"), "proto-value")

    assert codec.encode(b'{"sku": "x"}') == b"\0\0\0\0\x03\0\x0a\x01x"
    # Two indexes, 0 and 0, as varints with a sign: Order.Line.
    assert json.loads(codec.decode(b"\0\0\0\0\x03\x04\x00\x00\x08\x05")) == {"count": "5"}
    for odd in (b"", b"\x01\0\0\0\x03", b"\0\0\0\0\x63", b"\0\0\0\0\x03\x04", b"\0\0\0\0\x03\x02\x01", b"\0\0\0\0\x03\x01\x00"):
        with pytest.raises(NotOfSchemaError):
            codec.decode(odd)


@pytest.mark.parametrize(("kind", "line"), [("avro", LINE), ("proto", '{"sku": "book"}'), ("json", '{"any": 1}')])
def test_records_go_by_the_registry(command: Command, registry: str, topic_name: str, kind: str, line: str) -> None:
    topic = f"{kind}-{topic_name}"
    by = ("--schema-registry", registry)
    command.done("topic", "create", topic)

    command.done("produce", topic, *by, "--json", stdin=json.dumps({"value": line}) + '\n{"key": "k", "value": null}\n')

    raw = command.done("consume", topic, "-n", "1", "--output", "hex").out.split()[1]
    assert raw.startswith(f"000000000{ {'avro': 2, 'proto': 3, 'json': 4}[kind] }")
    first, second = command.done("consume", topic, "-e", *by).out.splitlines()
    assert (json.loads(first), second) == (json.loads(line), "NULL")
    fill(command, topic, [(0, "plain")])
    mixed = command("consume", topic, "-e", "--json", *by)
    assert [json.loads(each)["value"] for each in mixed.out.splitlines()][1:] == [None, "plain"]
    assert mixed.code == 1 and "1 keys or values are shown as they are" in mixed.err and f"{topic}-0, offset 2" in mixed.err


def test_records_go_by_files(command: Command, topic_name: str, tmp_path: Path) -> None:
    avro, descriptors = tmp_path / "item.avsc", tmp_path / "order.desc"
    avro.write_text(json.dumps(ITEM))
    descriptors.write_bytes(descriptor_pb2.FileDescriptorSet(file=[proto()]).SerializeToString())
    by = ("--key-schema", str(avro), "--value-schema", f"{descriptors}#shop.Order.Line")
    command.done("topic", "create", topic_name)

    command.done("produce", topic_name, "-K", "\\t", *by, stdin='{"sku": "book"}\t{"count": 3}\n')

    (read,) = map(json.loads, command.done("consume", topic_name, "-e", "--json", *by, "--grep", "book").out.splitlines())
    assert (json.loads(read["key"]), json.loads(read["value"])) == ({"sku": "book"}, {"count": "3"})
    refused = command("produce", topic_name, "-K", ":", *by, stdin="{}:{}\n")
    assert refused.code == 1 and "record 1: not of the Avro schema" in refused.err and refused.err.count("\n") == 1


def test_registry_that_is_not_there_or_does_not_let_us_in(
    command: Command, registry: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.done("topic", "create", topic_name)

    def produced(url: str, *words: str) -> tuple[int, str]:
        result = command("produce", topic_name, "--schema-registry", url, *words, stdin="{}\n")
        return result.code, result.err

    assert produced(registry) == (1, f"barnabas produce: the schema registry has no subject {topic_name}-value\n")
    assert produced("http://127.0.0.1:1")[0] == 3
    assert produced("localhost:8081")[0] == produced("http://me:secret@localhost")[0] == 2
    assert command("consume", topic_name, "--registry-keys").code == command("consume", topic_name, "--value-schema", "no.avsc").code == 2
    monkeypatch.delenv(LOGIN)
    code, why = produced(registry)
    assert code == 1 and "401" in why


def test_registry_that_answers_nonsense_is_one_sentence_and_gets_the_login_alone(registry: str) -> None:
    with SchemaRegistry({}) as other, SchemaRegistry({}) as odd:
        for number, (status, body) in enumerate(
            (
                (200, b"no JSON"),
                (200, b"[" * 100_000),
                (200, b"7"),
                (200, b'{"schema": 7}'),
                (200, b'{"schema": "{}", "references": [7]}'),
                (200, b'{"schema": "{}", "references": [{"subject": "x", "version": "../../etc"}]}'),
                (200, b'{"schema": "{}", "references": 7}'),
                (500, b""),
                (302, other.url.encode()),
            )
        ):
            odd.answers[f"/schemas/ids/{number}"] = status, body
            with pytest.raises(CommandError) as refused:
                Registry(odd.url, 10, "me:secret").get(number)
            assert "the schema registry" in str(refused.value) and "\n" not in str(refused.value) and "secret" not in str(refused.value)
        assert set(odd.logins) == {"Basic bWU6c2VjcmV0"} and other.asked == []
