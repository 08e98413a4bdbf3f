"""`barnabas produce` at Barnabas and at Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from tests.barnabas.cli.conftest import Command

READ = ("-e", "-f", "%p %k=%s %h\\n")


@pytest.fixture
def topic(command: Command, topic_name: str) -> str:
    command.done("topic", "create", topic_name, "-p", "3", "-c", "max.message.bytes=2000", "-c", "retention.ms=-1")
    return topic_name


def produced(command: Command, topic: str) -> list[str]:
    return command.done("consume", topic, *READ).out.splitlines()


def test_line_is_a_record_with_key_headers_and_partition(command: Command, topic: str) -> None:
    command.done("produce", topic, "-p", "1", "-K", "\\t", "-H", "from=a=b", "-H", "bare", stdin="k\tv\tw\nno key\n")

    assert produced(command, topic) == ["1 k=v\tw from=a=b,bare=NULL", "1 NULL=no key from=a=b,bare=NULL"]


def test_null_is_told_from_empty(command: Command, topic: str) -> None:
    command.done("produce", topic, "-p", "0", "-K", ":", "-Z", stdin="k:\n:v\n")
    command.done("produce", topic, "-p", "0", "-K", ":", stdin="k:\n")

    assert produced(command, topic) == ["0 k=NULL ", "0 NULL=v ", "0 k= "]


def test_records_come_from_files_with_any_delimiter(command: Command, topic: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a\nb\0c")
    two.write_bytes(b"d\0")

    command.done("topic", "produce", topic, "-k", "all", "-p", "2", "-D", "\\x00", "-z", "zstd", str(one), str(two))

    assert command.done("consume", topic, "-e", "-f", "%k:%s;").raw == b"all:a\nb;all:c;all:d;"


def test_json_that_consume_wrote_is_read_back_byte_for_byte(command: Command, topic: str, topic_name: str) -> None:
    lines = (
        '{"key": null, "value": null, "partition": 0, "timestamp": 1700000000001}\n'
        '{"key": "", "value": "", "partition": 1, "timestamp": 1700000000002, "headers": [{"key": "h", "value": null}]}\n'
        '{"key_base64": "gP8=", "value_base64": "AAEC/w==", "partition": 2, "timestamp": 1700000000003,'
        ' "headers": [{"key": "h", "value_base64": "/w=="}, {"key": "h", "value": "é\\n"}]}\n'
    )
    command.done("produce", topic, "--json", stdin=lines)
    written = command.done("consume", topic, "-e", "--json")
    command.done("topic", "create", f"{topic}-copy", "-p", "3", "-c", "retention.ms=-1")
    command.done("produce", f"{topic}-copy", "--json", stdin=written.raw)

    copied = command.done("consume", f"{topic}-copy", "-e", "--json")

    assert sorted(copied.out.replace("-copy", "").splitlines()) == sorted(written.out.splitlines())
    assert b'"value_base64":"AAEC/w=="' in written.raw and '"value":"é\\n"' in written.out and '"timestamp":1700000000003' in written.out


def test_what_is_not_delivered_is_counted(command: Command, topic: str) -> None:
    refused = command("produce", topic, "-p", "0", "-X", "batch.num.messages=1", stdin="fits\n" + "x" * 3_000 + "\n")

    assert refused.code == 1 and "MESSAGE_TOO_LARGE" in refused.err
    assert "(1 were delivered)" in refused.err
    assert produced(command, topic) == ["0 NULL=fits "]


def test_line_that_is_no_record_is_named_and_ends_it(command: Command, topic: str) -> None:
    refused = command("produce", topic, "--json", stdin='{"value": "a", "partition": 0}\n{"value": 1}\n{"value": "c"}\n')

    assert refused.code == 1 and "record 2: value is a text or null (1 were delivered)" in refused.err
    assert produced(command, topic) == ["0 NULL=a "]


def test_broker_that_dies_meanwhile_is_told(barnabas_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with barnabas.Broker(topics=["orders"]) as broker:

        def lines(*of_files: object) -> Iterator[bytes]:
            broker.kill()
            yield b"one"

        monkeypatch.setattr("barnabas.cli.produce.produce._lines", lines)

        refused = barnabas_command("produce", "orders", "-b", broker.bootstrap_servers, "--timeout", "0.5")

    assert refused.code == 3 and "1 of 1 records are not delivered" in refused.err


def test_no_topic_is_made_by_mistake(command: Command, topic_name: str) -> None:
    assert command("produce", topic_name, stdin="x\n").code == 1
    assert command("produce", topic_name, "--json", "-k", "x").code == 2
    assert command.done("topic", "list", topic_name, "-o", "json").data == []
    command.done("produce", topic_name, "--allow-auto-topic-creation", stdin="x\n")
    assert command.done("topic", "list", topic_name, "-o", "json").data[0]["records"] == 1
