"""Avro and Protobuf values as what Arrow takes, and the reasons of those that are neither. Without Spark."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from barnabas.spark.errors import BrokerError, OptionError
from barnabas.spark.formats import registry
from barnabas.spark.formats.decode import BatchDecoder, open_decoder
from barnabas.spark.formats.naming import read_format
from barnabas.spark.formats.values import UndecodableError, ValueDecoder
from tests.barnabas.spark.formats.encoded import ORDER_V1, ORDER_V2, avro, of_registry, shop_message, write_schemas


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    write_schemas(tmp_path)
    return tmp_path


def opened(text: str, **options: Any) -> ValueDecoder:
    """As a task has it."""
    decoder: ValueDecoder = pickle.loads(pickle.dumps(open_decoder(read_format(text), "value", **options)))
    return decoder


def reason(decoder: ValueDecoder, value: bytes) -> str:
    with pytest.raises(UndecodableError) as refused:
        decoder.decode(value)
    return str(refused.value)


def decoded(schema: Any, datum: Any, folder: Path) -> Any:
    """The datum, written as Avro and read as a column."""
    (folder / "any.avsc").write_text(json.dumps(schema))
    decoder = opened(f"avro:{folder / 'any.avsc'}")
    return pa.array([decoder.decode(avro(schema, datum))], decoder.type).to_pylist()[0]


def test_avro_types_become_columns(tmp_path: Path) -> None:
    fields: list[tuple[str, Any, Any, Any]] = [
        ("a", "int", 1, 1),
        ("b", ["null", {"type": "array", "items": "string"}], ["x"], ["x"]),
        ("c", {"type": "map", "values": {"type": "map", "values": "long"}}, {"k": {"n": 2}}, [("k", [("n", 2)])]),
        ("d", {"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]}, "UP", "UP"),
        ("e", {"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
        ("f", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("12.50"), Decimal("12.50")),
        ("g", {"type": "int", "logicalType": "date"}, date(2026, 3, 1), date(2026, 3, 1)),
        ("h", {"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        ("i", {"type": "long", "logicalType": "time-micros"}, time(1, 0, 0, 7), 3_600_000_007),
        ("j", ["null", "int", "long"], 2**40, 2**40),
        ("k", ["null", "string", {"type": "record", "name": "R", "fields": [{"name": "x", "type": "E"}]}], {"x": "UP"}, None),
        ("l", {"type": "record", "name": "Nothing", "fields": []}, {}, True),
    ]
    schema = {"type": "record", "name": "All", "fields": [{"name": name, "type": kind} for name, kind, _, _ in fields]}

    found = decoded(schema, {name: datum for name, _, datum, _ in fields}, tmp_path)

    assert found.pop("k") == {"member0": None, "member1": {"x": "UP"}}
    assert found == {name: column for name, _, _, column in fields if name != "k"}


def test_avro_that_is_cut_or_too_long_has_a_reason(schemas: Path) -> None:
    decoder = opened(f"avro:{schemas / '2.avsc'}")
    whole = avro(ORDER_V2, {"id": 7, "name": "a"})

    assert decoder.decode(whole) == {"id": 7, "name": "a"}
    assert all(reason(decoder, whole[:size]).startswith("not Avro of its schema: ") for size in range(len(whole)))
    assert reason(decoder, whole + b"!") == "not Avro of its schema: 1 bytes are left over"


def test_a_value_s_own_schema_is_found_by_its_id_and_read_as_the_newest(schemas: Path) -> None:
    decoder = opened(f"confluent-avro:{schemas}")

    assert decoder.decode(of_registry(1, avro(ORDER_V1, {"id": 7}))) == {"id": 7, "name": None}
    assert decoder.decode(of_registry(2, avro(ORDER_V2, {"id": 7, "name": "a"}))) == {"id": 7, "name": "a"}
    assert reason(decoder, of_registry(3, b"")) == "its schema 3 is unknown"
    assert reason(decoder, b"\1abcde") == "it begins with byte 1, and a registry's format with 0"
    assert reason(decoder, b"\0abc") == "it has 4 bytes, and a registry's format begins with 5"
    older = opened(f"confluent-avro:{schemas}#{schemas / '1.avsc'}")
    assert older.decode(of_registry(2, avro(ORDER_V2, {"id": 7, "name": "a"}))) == {"id": 7}


class FakeRegistry(BaseHTTPRequestHandler):
    """Serves a registry's two paths; what is asked is noted."""

    answers: ClassVar[dict[str, Any]] = {
        "/api/schemas/ids/1": {"schema": json.dumps(ORDER_V1)},
        "/api/schemas/ids/2": {"schema": json.dumps(ORDER_V2)},
        "/api/schemas/ids/3": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
        "/api/schemas/ids/4": {
            "schema": json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "Number"}]}),
            "references": [{"name": "Number", "subject": "number", "version": 5}],
        },
        "/api/subjects/number/versions/5": {"schema": json.dumps({"type": "fixed", "name": "Number", "size": 1})},
        "/api/subjects/orders-value/versions/latest": {"schema": json.dumps(ORDER_V2), "version": 2, "id": 2},
    }
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        found = self.answers.get(self.path)
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"error_code": 40403}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeRegistry)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    FakeRegistry.asked.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}/api"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_is_asked_once_for_each_schema(registry_url: str) -> None:
    decoder = opened(f"confluent-avro:{registry_url}", topic="orders", registry_login="me:secret")

    for _ in range(3):
        assert decoder.decode(of_registry(1, avro(ORDER_V1, {"id": 7}))) == {"id": 7, "name": None}
    assert reason(decoder, of_registry(9, b"")) == reason(decoder, of_registry(9, b"")) == "its schema 9 is unknown"
    assert reason(decoder, of_registry(3, b"")) == "its schema 3 is unknown"
    assert reason(decoder, of_registry(4, b"a")).startswith("not Avro of its schema: SchemaResolutionError")
    paths = [path.removeprefix("/api") for path, _ in FakeRegistry.asked]
    assert paths == [
        "/subjects/orders-value/versions/latest",
        *("/schemas/ids/1", "/schemas/ids/9", "/schemas/ids/3", "/schemas/ids/4", "/subjects/number/versions/5"),
    ]
    assert {login for _, login in FakeRegistry.asked} == {"Basic bWU6c2VjcmV0"}


def test_a_registry_that_is_away_fails_the_task_and_makes_no_dead_letter(registry_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = open_decoder(read_format(f"confluent-avro:{registry_url}#orders-value"), "value")
    monkeypatch.setattr(registry, "RETRY_S", 0.0)
    monkeypatch.setattr(FakeRegistry, "answers", {"/api/schemas/ids/7": {"no": "schema"}})

    with pytest.raises(BrokerError, match=r"has answered /schemas/ids/7 with no schema$"):
        decoder.decode(of_registry(7, b""))


def test_protobuf_messages_become_columns(schemas: Path) -> None:
    decoder = opened(f"protobuf:{schemas / 'shop.desc'}#shop.Order")
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    order = shop_message("Order", id=7, lines=[{"item": "book", "count": 2**64 - 1}], kind="GIFT", marks={"a": 1}, at=at, empty={})

    found = pa.array([decoder.decode(order.SerializeToString()), decoder.decode(b"")], decoder.type).to_pylist()

    assert found[0] == {
        "id": 7,
        "name": None,
        "lines": [{"item": "book", "count": Decimal(2**64 - 1)}],
        "kind": "GIFT",
        "marks": [("a", 1)],
        "at": at,
        "empty": True,
        "raw": b"",
    }
    assert found[1] == {"id": 0, "name": None, "lines": [], "kind": "NONE", "marks": [], "at": None, "empty": None, "raw": b""}
    assert reason(decoder, b"\x08").startswith("not Protobuf of its message: ")
    assert reason(decoder, b"\x32\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01").startswith("a value is out of its range: ")


def test_a_registry_s_protobuf_has_the_message_s_place(schemas: Path) -> None:
    decoder = opened(f"confluent-protobuf:{schemas / 'shop.desc'}#shop.Order")
    nested = opened(f"confluent-protobuf:{schemas / 'shop.desc'}#shop.Order.Line")
    first = opened(f"confluent-protobuf:{schemas / 'shop.desc'}#shop.Empty")

    assert decoder.decode(of_registry(1, b"\x02\x02\x08\x07"))["id"] == 7
    assert nested.decode(of_registry(1, b"\x04\x02\x00\x10\x05"))["count"] == 5
    assert first.decode(of_registry(1, b"\x00")) is True
    assert (
        reason(decoder, of_registry(1, b"\x00\x08\x07")) == "another message than shop.Order of its file: the one at (0,), and not at (1,)"
    )
    for cut in (b"", b"\x02", b"\x02\x80", b"\xff" * 9):
        assert reason(decoder, of_registry(1, cut)).startswith("not a registry's format: ")


def test_one_value_out_of_range_leaves_the_others_of_its_batch(schemas: Path) -> None:
    """A decimal that its own schema forbids: only Arrow sees that."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    (schemas / "price.avsc").write_text(json.dumps(schema))
    decoder = BatchDecoder("value", opened(f"avro:{schemas / 'price.avsc'}"), "price")
    values = [avro(schema, Decimal("1.25")), avro({**schema, "precision": 12}, Decimal("1234567.25")), None, b"", avro(schema, Decimal(3))]

    (batch,) = decoder(iter([pa.record_batch({"value": pa.array(values, pa.binary())})]))

    assert batch.column("price").to_pylist() == [Decimal("1.25"), None, None, None, Decimal(3)]
    problems = batch.column("problem").to_pylist()
    assert problems[1].startswith("value: a value is out of its type's range: ")
    assert problems[3].startswith("value: not Avro of its schema: ")
    assert [problems[0], problems[2], problems[4]] == [None, None, None]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("xml:a", "'xml:a' is no format: it is one of json, confluent-json, avro, confluent-avro, protobuf, confluent-protobuf, a colon"),
        ("avro:", "'avro:' is no format"),
        ("avro:http://localhost:1", "only confluent-avro takes its schemas from a registry"),
        ("protobuf:{}/shop.desc", "names no message: it is protobuf:FILE#MESSAGE"),
        ("json:{}/order.ddl#x", "json has nothing after its file"),
        ("avro:{}/none.avsc", "none.avsc cannot be read: No such file or directory"),
        ("avro:{}/order.ddl", "order.ddl: no Avro schema: JSONDecodeError"),
        ("avro:{}/shop.desc", "shop.desc is not UTF-8"),
        ("avro:{}/tree.avsc", "Tree contains itself, and a column cannot"),
        ("protobuf:{}/order.ddl#shop.Order", "no descriptor set, as protoc"),
        ("protobuf:{}/shop.desc#Order", "there is no message Order in the descriptor set; it has google.protobuf.Timestamp, shop.Empty"),
        ("protobuf:{}/shop.desc#shop.Tree", "shop.Tree contains itself, and a column cannot"),
        ("confluent-avro:{}/none", "has no file like 1.avsc"),
        ("confluent-avro:{}#orders-value", "a folder has no subjects"),
        ("confluent-avro:http://", "is no URL of a schema registry"),
        (
            "confluent-avro:http://localhost:1",
            "needs the subject whose newest schema the column has, such as http://localhost:1#orders-value",
        ),
    ],
)
def test_what_is_no_format_is_one_sentence(text: str, sentence: str, schemas: Path) -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "branches", "type": {"type": "array", "items": "Tree"}}]}
    (schemas / "tree.avsc").write_text(json.dumps(tree))

    with pytest.raises(OptionError) as refused:
        opened(text.format(schemas))

    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_subject_that_the_registry_lacks_is_one_sentence(registry_url: str) -> None:
    with pytest.raises(OptionError, match=r"has no Avro schema of the subject payments-value; name another after #$"):
        opened(f"confluent-avro:{registry_url}", topic="payments")
