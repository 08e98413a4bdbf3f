"""`barnabas produce` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.cli.produce import produce
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


def test_format_of_consume_is_read_back(command: Command, topic: str) -> None:
    form = "%p %T %k:%v{hex} %h\\n"
    lines = "1 1700000000001 k:00ff a=b,c=\n2 1700000000002 : \n"
    command.done("produce", topic, "-f", form, stdin=lines)

    assert sorted(command.done("consume", topic, "-e", "-f", form).out.splitlines()) == lines.splitlines()
    command.done("produce", topic, "-p", "0", "-Z", "-H", "all=x", "-f", "[%t/%o %k=%s];", stdin="[t/7 =v];[t/8 k=];")
    assert command.done("consume", topic, "-p", "0", "-e", "-f", "%k=%s %h;").out == "NULL=v all=x;k=NULL all=x;"


@pytest.mark.parametrize(
    ("form", "line", "why"),
    [
        ("%k:%v", "none\n", "there is no ':' after %k"), ("%p %v", "x v\n", "partition is a number, not 'x'"),
        ("%v{hex}", "0g\n", "value is no hex"), ("<%v", "v\n", "it does not begin with '<'"),
    ],
)  # fmt: skip
def test_line_that_is_not_of_the_format(command: Command, topic: str, form: str, line: str, why: str) -> None:
    refused = command("produce", topic, "-f", form, stdin=line)

    assert refused.code == 1 and why in refused.err and refused.err.count("\n") == 1


@pytest.mark.parametrize("words", [("-f", "%k%v"), ("-f", "%v %s"), ("-f", "%x"), ("-f", "%o\\n"), ("-f", "%v;", "-D", "|"),
                                   ("-f", "%v", "-k", "x"),
                                   ("-f", "%p{hex}"), ("--template", "{{x}}"), ("--template", "{{int 2 1}}"), ("--template", "{{int a b}}"),
                                   ("--template", "{{i"), ("--template", "x", "file"), ("--rate", "0"), ("-n", "0")])  # fmt: skip
def test_words_that_say_nothing(barnabas_command: Command, words: tuple[str, ...]) -> None:
    refused = barnabas_command("produce", "orders", "-b", "127.0.0.1:1", *words)

    assert refused.code == 2 and refused.err.count("\n") == 1


def test_template_makes_records(command: Command, topic: str) -> None:
    template = (
        '{{choice a b}}:{"id": {{i}}, "n": {"x": {{int 1 3}}}, "f": {{float 0 1}}, "at": {{now}}, "u": "{{uuid}}", "t": "{{text 4}}"}'
    )
    command.done("produce", topic, "--template", template, "-K", ":", "-n", "5", "-p", "0", "--rate", "10000")

    written = [json.loads(line) for line in command.done("consume", topic, "-e", "--json").out.splitlines()]
    values = [json.loads(each["value"]) for each in written]
    assert [each["id"] for each in values] == [1, 2, 3, 4, 5] and {each["key"] for each in written} <= {"a", "b"}
    assert all(each["n"]["x"] in (1, 2, 3) and 0 <= each["f"] <= 1 and len(each["t"]) == 4 for each in values)
    assert len({each["u"] for each in values}) == 5 and all(
        abs(each["at"] - line["timestamp"]) < 60_000 for each, line in zip(values, written, strict=True)
    )


def test_rate_waits_until_a_record_is_due(barnabas_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    sent_s: list[float] = []

    class Clock:
        time_ns = staticmethod(time.time_ns)

        @staticmethod
        def monotonic() -> float:
            nonlocal now_s
            now_s += 0.001
            return now_s

    send = produce.Delivery.send

    def seen(self: produce.Delivery, *line: Any) -> None:
        sent_s.append(now_s)
        send(self, *line)

    monkeypatch.setattr(produce, "time", Clock)
    monkeypatch.setattr(produce.Delivery, "send", seen)
    with barnabas.Broker(topics=["orders"]) as broker:
        barnabas_command.done("produce", "orders", "-b", broker.bootstrap_servers, "--rate", "100", stdin="x\n" * 4)

    assert [round(each - sent_s[0], 2) for each in sent_s] == [0.0, 0.01, 0.02, 0.03]


def test_no_topic_is_made_by_mistake(command: Command, topic_name: str) -> None:
    assert command("produce", topic_name, stdin="x\n").code == 1
    assert command("produce", topic_name, "--json", "-k", "x").code == 2
    assert command.done("topic", "list", topic_name, "-o", "json").data == []
    command.done("produce", topic_name, "--allow-auto-topic-creation", stdin="x\n")
    assert command.done("topic", "list", topic_name, "-o", "json").data[0]["records"] == 1
