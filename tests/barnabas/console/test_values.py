"""Values by their schemas: of files and of a registry that answers, is slow, is away, or answers nonsense."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from barnabas.cli.errors import NoBrokerError, RefusedError
from barnabas.cli.schemas.avro import AvroCodec
from barnabas.cli.schemas.registry import Registry
from barnabas.cli.settings import SchemaSettings
from barnabas.console.lookups import AGAIN_S, FAILED_MAX, Lookups
from barnabas.console.values import NO_REGISTRY, Value, Values
from tests.support.ports import free_port
from tests.support.schema_registry import SchemaRegistry

COLOR = {"type": "enum", "name": "Color", "namespace": "shop", "symbols": ["RED", "GREEN"]}
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop", "doc": "What was ordered.",
    "fields": [{"name": "sku", "type": "string"}, {"name": "color", "type": COLOR}],
}  # fmt: skip
LIST = {"type": "record", "name": "List", "fields": [{"name": "next", "type": ["null", "List"]}]}
AVRO, PROTOBUF, JSON, RECURSIVE, BROKEN, UNKNOWN_KIND = 1, 2, 3, 4, 5, 6


def framed(number: int, rest: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + rest


def order(sku: str, color: str = "GREEN") -> bytes:
    return AvroCodec([json.dumps(ORDER)]).encode(json.dumps({"sku": sku, "color": color}).encode())


def schemas() -> dict[int, dict[str, Any]]:
    file = descriptor_pb2.FileDescriptorProto(name="line.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Line").field.add(name="count", number=1, type=5, label=1)
    return {
        AVRO: {"schema": json.dumps(ORDER)},
        PROTOBUF: {"schema": base64.b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"},
        JSON: {"schema": '{"title": "Free"}', "schemaType": "JSON"},
        RECURSIVE: {"schema": json.dumps(LIST)},
        BROKEN: {"schema": '{"type": "record"}'},
        UNKNOWN_KIND: {"schema": "x", "schemaType": "XML"},
    }


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(schemas(), login="me:secret") as running:
        yield running


def values_of(registry: SchemaRegistry, **more: Any) -> Values:
    return Values(SchemaSettings(registry.url, "me:secret", **more), 10)


def test_framed_values_are_json_with_their_schemas(registry: SchemaRegistry) -> None:
    values = values_of(registry)

    def read(data: bytes | None) -> tuple[Any, str, str, int | None]:
        value = values.read("any", "value", data)
        assert value.schema is not None and value.data is not None and not value.why, value
        return json.loads(value.data), value.schema.kind, value.schema.name, value.schema.number

    assert read(framed(AVRO, order("über"))) == ({"sku": "über", "color": "GREEN"}, "Avro", "shop.Order", AVRO)
    assert read(framed(PROTOBUF, b"\0\x08\x07")) == ({"count": 7}, "Protobuf", "shop.Line", PROTOBUF)
    assert read(framed(JSON, b'{"a": 1}')) == ({"a": 1}, "JSON Schema", "Free", JSON)
    found = values.read("any", "key", framed(PROTOBUF, b"\0\x08\x07")).schema
    assert found is not None and found.text == "message Order {}"  # as it was written, not the descriptors
    asked = len(registry.asked)
    assert read(framed(AVRO, order("x")))[0]["sku"] == "x" and len(registry.asked) == asked


def test_what_is_not_of_its_schema_stays_as_it_is_and_says_why(registry: SchemaRegistry) -> None:
    values = values_of(registry)

    for data in (None, b"", b"plain", b'{"a": 1}', b"\0\0\0", (7).to_bytes(8, "big")):
        assert values.read("any", "value", data) == Value(data)
    for data, why, is_trouble in (
        (framed(99, b"x"), "has no schema 99", False),
        (framed(AVRO, b"\xff"), "no Avro of its schema", False),
        (framed(AVRO, order("x") + b"x"), "1 bytes are left over", False),
        (framed(PROTOBUF, b"\0\xff"), "no Protobuf of its schema", False),
        (framed(PROTOBUF, b"\x02\x0e"), "has no message [7]", True),
        (framed(RECURSIVE, b"\x02" * 1_000_000), "no Avro of its schema", False),
        (framed(BROKEN, b"x"), "no Avro schema", True),
        (framed(UNKNOWN_KIND, b"x"), "is XML", True),
        (framed(AVRO, b"x" * 5_000_000), "too long", False),
    ):
        value = values.read("any", "value", data)
        assert (value.data, value.schema, value.is_trouble) == (data, None, is_trouble) and why in value.why and "\n" not in value.why


def test_files_are_for_their_topics(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    values = Values(SchemaSettings(value_files={"orders": str(path), "lost": str(tmp_path / "lost.avsc")}), 10)

    read = values.read("orders", "value", order("book"))
    assert read.schema is not None and (read.schema.name, read.schema.number) == ("shop.Order", None) and b'"book"' in (read.data or b"")
    assert values.read("orders", "key", order("book")) == values.read("other", "value", order("book")) == Value(order("book"))
    lost = values.read("lost", "value", order("book"))
    assert lost.is_trouble and "lost.avsc" in lost.why
    assert (
        values.read("other", "value", framed(AVRO, b"x")).why == NO_REGISTRY
        and not values.read("other", "value", framed(AVRO, b"x")).is_trouble
    )


def test_missing_library_is_named_with_the_remedy(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "barnabas.cli.schemas.avro", raising=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    values = values_of(registry)

    value = values.read("any", "value", framed(AVRO, order("x")))

    assert value == Value(framed(AVRO, order("x")), None, "fastavro is not installed: pip install 'barnabas[schemas]'", True)
    assert values.read("any", "value", framed(JSON, b"{}")).schema is not None


class Clock:
    """Steps when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_slow_registry_holds_up_one_for_a_moment_and_others_not_at_all(registry: SchemaRegistry) -> None:
    lookups = Lookups(Registry(registry.url, 60, "me:secret"), wait_s=0.05)
    registry.is_open.clear()

    with pytest.raises(NoBrokerError, match="has not answered yet"):
        lookups.get(AVRO)
    for number in (AVRO, JSON):
        with pytest.raises(NoBrokerError, match="has not answered yet"):
            lookups.get(number)
    assert registry.asked == [f"/schemas/ids/{AVRO}"]
    registry.is_open.set()
    for thread in threading.enumerate():
        if thread.name == "schema registry":
            thread.join()
    found = lookups.get(AVRO)
    assert found is not None and found.number == AVRO


def test_registry_that_is_away_is_left_alone_for_a_while() -> None:
    clock, port = Clock(), free_port()
    lookups = Lookups(Registry(f"http://127.0.0.1:{port}", 10), wait_s=60, clock=clock)
    with pytest.raises(NoBrokerError, match="does not answer"):
        lookups.get(AVRO)
    with SchemaRegistry(schemas(), port=port) as registry:
        with pytest.raises(NoBrokerError, match="does not answer"):
            lookups.get(AVRO)
        assert registry.asked == []
        clock.now_s += AGAIN_S
        assert lookups.get(AVRO) is not None


def test_ids_that_nobody_knows_are_asked_for_a_few_times_only(registry: SchemaRegistry) -> None:
    clock = Clock()
    lookups = Lookups(Registry(registry.url, 10, "me:secret"), wait_s=60, clock=clock)

    for _ in range(3):
        assert lookups.get(1_000) is None
    assert len(registry.asked) == 1
    for number in range(1_001, 1_000 + FAILED_MAX):
        assert lookups.get(number) is None
    with pytest.raises(RefusedError, match="it is asked for others in some seconds"):
        lookups.get(2_000)
    assert len(registry.asked) == FAILED_MAX
    clock.now_s += AGAIN_S
    assert lookups.get(AVRO) is not None


def test_registry_that_does_not_let_us_in_is_one_sentence_without_the_login(registry: SchemaRegistry) -> None:
    wrong = Values(SchemaSettings(registry.url, "me:other-secret"), 10)

    value = wrong.read("any", "value", framed(AVRO, order("x")))

    assert value.is_trouble and "401" in value.why and "other-secret" not in value.why and "me:" not in value.why
    assert "it is http://HOST:PORT" in Values(SchemaSettings("no url"), 10).read("any", "value", framed(AVRO, b"x")).why
