"""`barnabas consume` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.barnabas.cli.conftest import Command, fill
from tests.support.installed import CHECKOUT
from tests.support.process import ServerProcess

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def numbers_topic(server_process: ServerProcess) -> str:
    """Two partitions: 0, 2, 4 with the keys a, b, a, and 1, 3, 5. A record a second, from 2023-11-14T22:13:20 on."""
    client = {"bootstrap.servers": server_process.bootstrap}
    admin = AdminClient(client)
    made = admin.create_topics([NewTopic("numbers-of-consume", 2, config={"retention.ms": "-1"})])
    made["numbers-of-consume"].result(30)
    producer = Producer(client)
    for number in range(6):
        key, time_ms = "axbyaz"[number], T0_MS + number * 1_000
        producer.produce("numbers-of-consume", str(number), key, number % 2, timestamp=time_ms, headers={"n": f"{number}"})
    assert producer.flush(30) == 0
    return "numbers-of-consume"


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (("-e",), "012345"), (("-o", "start", "-e"), "012345"), (("-o", "end", "-e"), ""),
        (("-o", "1", "-e"), "2345"), (("-o", "+2", "-e"), "45"), (("-o", "-1", "-e"), "45"), (("-o", "99", "-e"), ""),
        (("-o", "1:2"), "23"), (("-o", ":1"), "01"), (("-o", "-2:-1"), "23"),
        (("-o", "@2023-11-14T22:13:23", "-e"), "345"), (("-o", "@1700000001:@1700000003"), "12"),
        (("-o", "@2023-11-14T22:13:21:@2023-11-14T22:13:23"), "12"), (("-o", "@2099-01-01:end",), ""),
        (("-p", "1", "-e"), "135"), (("--tail", "2"), "45"), (("--tail", "100"), "012345"), (("--tail", "2", "-p", "0"), "24"),
        (("-e", "--key", "a"), "04"), (("-e", "--header", "n=3"), "3"), (("-e", "--header", "m"), ""),
        (("-e", "--grep", "^[xyb2]$"), "123"), (("-e", "--key", "a", "--invert"), "1235"),
    ],
)  # fmt: skip
def test_which_records_are_printed(command: Command, numbers_topic: str, words: tuple[str, ...], numbers: str) -> None:
    assert sorted(command.done("consume", numbers_topic, *words).out.split()) == [*numbers]


def test_number_of_records_ends_it(command: Command, numbers_topic: str) -> None:
    assert len(command.done("consume", numbers_topic, "-n", "4").out.split()) == 4


def test_format_of_kcat_and_rpk(command: Command, numbers_topic: str) -> None:
    text = "%t %p %o %k %s %v %K %S %V %T %d %h %h{%k:%v;} %H %i %e %k{hex} %v{base64} %%\\x41\\t|%R"
    line = command.done("consume", numbers_topic, "-p", "1", "-o", "1:2", "-f", text)

    head = f"{numbers_topic} 1 1 y 3 3 1 1 1 {T0_MS + 3_000} {T0_MS + 3_000} n=3 n:3; 1 1 0 79 Mw== %A\t|".encode()
    assert line.raw == head + (1).to_bytes(4, "big")


@pytest.mark.parametrize("text", ["%x", "%Q", "%k{no}", "%p{hex}", "%", "%h{%z}"])
def test_format_without_a_meaning_is_refused(command: Command, text: str) -> None:
    refused = command("consume", "any", "-f", text)

    assert refused.code == 2 and "format" in refused.err


def test_null_is_not_empty(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    command.done("produce", topic_name, "--json", stdin='{"key": "", "value": null}\n{"key": null, "value": ""}\n')

    assert command.done("consume", topic_name, "-e").out == "NULL\n\n"
    assert command.done("consume", topic_name, "-e", "-f", "%k|%s|%S\\n").out == "|NULL|-1\nNULL||0\n"
    assert command.done("consume", topic_name, "-e", "--output", "hex").out == " NULL\nNULL \n"
    lines = command.done("consume", topic_name, "-e", "-J").out.splitlines()
    assert [line[line.index('"key"') :] for line in lines] == [
        '"key":"","value":null,"headers":[]}',
        '"key":null,"value":"","headers":[]}',
    ]


def test_only_what_is_committed_is_read_and_an_open_transaction_is_no_wait(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    for value, ends in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic_name, value)
        producer.flush(10)
        ends(30)
    producer.begin_transaction()
    producer.produce(topic_name, "open")
    producer.flush(10)

    assert command.done("consume", topic_name, "-e").out == "committed\n"
    assert command.done("consume", topic_name, "-e", "-X", "isolation.level=read_uncommitted").out == "aborted\ncommitted\nopen\n"
    producer.abort_transaction(30)


def test_group_goes_on_after_what_was_printed(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    fill(command, topic_name, [(0, "a"), (0, "b"), (0, "c")])
    group = f"of-{topic_name}"

    assert command.done("consume", topic_name, "--group", group, "-n", "2").out == "a\nb\n"
    assert command.done("consume", topic_name, "-g", group, "-n", "1").out == "c\n"
    assert command("consume", topic_name, "-g", group, "-o", "5").code == 2


def test_properties_of_other_clients_do_not_make_it_commit(command: Command, numbers_topic: str) -> None:
    command.done("consume", numbers_topic, "-e", "-X", "enable.auto.commit=true", "-X", "group.id=mine", "-X", "auto.commit.interval.ms=1")

    assert not {"mine", "barnabas-consume"} & {each["group"] for each in command.done("group", "list", "-o", "json").data}


def test_reading_makes_no_topic_and_says_what_is_wrong(command: Command, numbers_topic: str, topic_name: str) -> None:
    missing = command("consume", f"{topic_name}-not", "-e")

    assert missing.code == 1 and "there is no topic" in missing.err
    assert command.done("topic", "list", f"{topic_name}-not", "-o", "json").data == []
    assert command("consume", numbers_topic, "-p", "9").code == 2
    assert command("consume", numbers_topic, "-o", "yesterday").code == 2
    assert command("consume", numbers_topic, "--tail", "0").code == 2
    assert command("consume", numbers_topic, "--grep", "(").code == 2
    assert len(command.done("consume", f"{numbers_topic[:-1]}.", "-r", "-e").out.split()) == 6
    assert command("consume", "no such", "-r", "-e").code == 1


def test_terminal_gets_no_orders_of_a_value(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    command.done("produce", topic_name, "-D", "\\x00", stdin=b"\x1b[2J\xff\tb\n\r\x07")
    main, other = pty.openpty()
    arguments = [sys.executable, "-m", "barnabas", "consume", topic_name, "-e", "-b", command.bootstrap]

    subprocess.run(arguments, cwd=CHECKOUT, stdout=other, timeout=60, check=True)
    os.close(other)

    assert os.read(main, 1_000) == b"\\x1b[2J\\xff\tb\r\n\\r\\x07\r\n"
    os.close(main)
    assert command.done("consume", topic_name, "-e").raw == b"\x1b[2J\xff\tb\n\r\x07\n"


def test_jmespath_filters_by_what_is_in_records(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    values = ['{"count": 1}', '{"count": 3}', "text", '{"count": "many"}', '{"zero": 0, "no": false, "none": []}', "[" * 200_000]
    command.done("produce", topic_name, "-H", "source=shop", stdin="\n".join(values))

    def shown(expression: str, *words: str) -> list[str]:
        return command.done("consume", topic_name, "-e", "--filter", expression, *words).out.splitlines()

    assert shown("value.count > `2`") == values[1:2] and shown("value == 'text'") == ["text"]
    assert shown("value.count > `2`", "--invert") == [values[0], *values[2:]]
    assert shown("offset == `0` && headers.source == 'shop'") == values[:1]
    assert shown("abs(value.count) > `0`") == values[:2], "a function that is not for a text leaves it out"
    assert shown("value.zero") == values[4:5] and shown("value.no || value.none") == [], "0 is true, as JMESPath has it"
    assert command("consume", topic_name, "-e", "--filter", "value.[").code == 2
