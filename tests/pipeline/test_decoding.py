"""Typed columns and dead letters: of DataFrames, and of archives as `barnabas pipeline archive --decode` writes them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

import barnabas.spark
from barnabas.spark.errors import OptionError
from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.cli import main
from pipeline.decoding import Decoding
from tests.barnabas.spark.formats.encoded import ORDER_V1, ORDER_V2, avro, of_registry, shop_message, write_schemas
from tests.clients.topics import create_topic
from tests.pipeline.spark_support import positions, produce, read_archive
from tests.support.messages import Message
from tests.support.process import ServerProcess
from tests.support.sources import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY_MS = 1_772_366_400_000
"""2026-03-01T12:00Z."""
DATE = "2026-03-01"
NOT_OF_THE_SCHEMA = "value: JSON, but not of the schema: not an object, or a field has another type"


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    folder = tmp_path / "schemas"
    folder.mkdir()
    write_schemas(folder)
    return folder


def rows(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    return spark.createDataFrame([(number, value) for number, value in enumerate(values)], "n INT, value BINARY").coalesce(1)


def dead_letters(folder: Path) -> pa.Table:
    """As a reader has them that knows nothing of Spark."""
    partitioning = ds.partitioning(pa.schema([("topic", pa.string()), ("day", pa.string())]), flavor="hive")
    return ds.dataset(folder / "_dead_letters", partitioning=partitioning).to_table()


def test_json_is_typed_and_what_is_none_has_a_reason(spark: SparkSession, schemas: Path) -> None:
    cases: list[tuple[bytes | None, tuple[int | None, str | None] | None, str | None]] = [
        (b'{"name":"a","id":7,"more":[1]}', (7, "a"), None),
        (b"{}", (None, None), None),
        (None, None, None),
        (b"", None, "value: not JSON"),
        (b'{"id":', None, "value: not JSON"),
        (b'{"id":"seven"}', None, NOT_OF_THE_SCHEMA),
        (b'{"id":99999999999999999999}', None, NOT_OF_THE_SCHEMA),
        (b"[1]", None, NOT_OF_THE_SCHEMA),
        (b"null", None, NOT_OF_THE_SCHEMA),
        (b'{"id":7,"name":"\xff"}', None, "value: not UTF-8"),
    ]

    typed = barnabas.spark.decode(rows(spark, [value for value, _, _ in cases]), "value", f"json:{schemas / 'order.ddl'}", into="order")

    found = typed.orderBy("n").collect()
    assert [(row.order and tuple(row.order), row.problem) for row in found] == [(order, problem) for _, order, problem in cases]
    assert [row.value for row in found] == [value for value, _, _ in cases]


def test_key_and_value_have_a_format_each_and_the_first_problem_stays(spark: SparkSession, schemas: Path) -> None:
    order = avro(ORDER_V2, {"id": 7, "name": "a"})
    table = [(b"\0\0\0\0\1{}", order), (b"{}", order), (b"\0\0\0\0\1{}", b""), (b"{}", b"")]
    pairs = spark.createDataFrame(table, "key BINARY, value BINARY").coalesce(1)

    typed = barnabas.spark.decode(pairs, "key", f"confluent-json:{schemas / 'order.ddl'}")
    typed = barnabas.spark.decode(typed, "value", f"avro:{schemas / '2.avsc'}")

    found = typed.collect()
    assert typed.columns == ["key", "value", "typed_key", "typed_value", "problem"]
    assert [(row.typed_key is not None, row.typed_value is not None) for row in found] == [
        (True, True),
        (False, True),
        (True, False),
        (False, False),
    ]
    problems = [row.problem and row.problem.split(":")[0] for row in found]
    assert problems == [None, "key", "value", "key"]


def test_a_stream_is_decoded(spark: SparkSession, schemas: Path, tmp_path: Path) -> None:
    """Of Protobuf, whose types reach nested columns of Spark."""
    order = shop_message("Order", id=7, lines=[{"item": "book", "count": 2}], marks={"a": 1}).SerializeToString()
    rows(spark, [order, b"\x08", None]).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("n INT, value BINARY").parquet(str(tmp_path / "rows"))

    typed = barnabas.spark.decode(stream, "value", f"protobuf:{schemas / 'shop.desc'}#shop.Order")
    query = typed.writeStream.format("memory").queryName("typed").trigger(availableNow=True).start()
    query.awaitTermination()

    found = spark.sql("SELECT typed_value.lines[0].item, typed_value.marks['a'], problem FROM typed ORDER BY n").collect()
    assert [tuple(row)[:2] for row in found] == [("book", 1), (None, None), (None, None)]
    assert [bool(row.problem) for row in found] == [False, True, False]


def test_the_example_of_the_documentation_runs(
    spark: SparkSession, schemas: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(schemas)
    (example,) = re.findall(r"^    import barnabas\.spark\n\n(?:    typed.*\n)+", (ROOT / "docs" / "pipeline.md").read_text(), re.MULTILINE)
    orders = rows(spark, [b'{"id":7,"name":"a"}', b"x"]).withColumnRenamed("n", "offset")

    exec(textwrap.dedent(example), {"orders": orders})

    shown = capsys.readouterr().out
    assert "|     0|  7|   a|" in shown and "value: not JSON" in shown


def test_what_cannot_be_decoded_so_is_refused(spark: SparkSession, schemas: Path) -> None:
    table = rows(spark, [b"{}"])
    (schemas / "wrong.ddl").write_text("id BIGINT name")

    with pytest.raises(OptionError, match="no column key of type binary to decode; the rows have n, value"):
        barnabas.spark.decode(table, "key", f"json:{schemas / 'order.ddl'}")
    with pytest.raises(OptionError, match="the rows have a column n already: name another one"):
        barnabas.spark.decode(table, "value", f"json:{schemas / 'order.ddl'}", into="n")
    with pytest.raises(OptionError, match=r"is neither Spark's DDL, such as id BIGINT, name STRING, nor Spark's JSON$"):
        barnabas.spark.decode(table, "value", f"json:{schemas / 'wrong.ddl'}")


def messages(values: list[bytes | None]) -> list[Message]:
    return [Message(number % 2, b"k", value, (("h", b"1"),), DAY_MS) for number, value in enumerate(values)]


@pytest.fixture
def topic(server: ServerProcess, topic_name: str) -> str:
    create_topic(server, topic_name, partitions=2, config={"retention.ms": "-1"})
    return topic_name


def test_a_record_is_archived_with_its_columns_or_as_a_dead_letter(
    spark: SparkSession, server: ServerProcess, topic: str, schemas: Path, tmp_path: Path
) -> None:
    """Of two writers' schemas; the second batch has no dead letter, the third nothing else."""
    good = [of_registry(1, avro(ORDER_V1, {"id": 0})), of_registry(2, avro(ORDER_V2, {"id": 1, "name": "a"})), None]
    bad = [b"nonsense", of_registry(9, b"\0")]
    decoding = Decoding.open({"value": f"confluent-avro:{schemas}"})
    job = ArchiveJob(server.bootstrap, ("subscribe", topic), str(tmp_path / "archive"), decoding=decoding)
    said: list[str] = []
    for values in ([*good, *bad], good[:1], bad[:1]):
        produce(server, topic, messages(values))
        archive(spark, job, stop=Stop(), say=said.append)

    table, letters = read_archive(tmp_path / "archive"), dead_letters(tmp_path / "archive")
    typed = {(row["partition"], row["offset"]): row["typed_value"] for row in table.to_pylist()}
    assert typed == {(0, 0): {"id": 0, "name": None}, (1, 0): {"id": 1, "name": "a"}, (0, 1): None, (0, 3): {"id": 0, "name": None}}
    assert "problem" not in table.column_names and table["value"].to_pylist().count(None) == 1
    assert positions(letters) == [(topic, 0, 2), (topic, 0, 4), (topic, 1, 1)]
    first = next(row for row in letters.to_pylist() if row["offset"] == 1)
    assert (first["value"], first["problem"]) == (bad[0], "value: it begins with byte 110, and a registry's format with 0")
    assert (first["key"], first["headers"], first["day"]) == (b"k", [{"key": "h", "value": b"1"}], DATE)
    lines = [re.sub(r" in [0-9.]+ s( [(].*[)])?|, [0-9.]+ s", "", line) for line in said if line.startswith(("batch", "done"))]
    assert lines == [
        *("batch 0: 5 records, 2 dead letters", "done: 5 records in 1 batches, 2 dead letters"),
        *("batch 1: 1 records", "done: 1 records in 1 batches"),
        *("batch 2: 1 records, 1 dead letter", "done: 1 records in 1 batches, 1 dead letter"),
    ]


def test_a_batch_that_is_run_again_has_its_dead_letters_once(
    spark: SparkSession, server: ServerProcess, topic: str, schemas: Path, tmp_path: Path
) -> None:
    """As after kill -9 before Spark has noted the batch's end. Without raw values."""
    target = tmp_path / "archive"
    decoding = Decoding.open({"value": f"json:{schemas / 'order.ddl'}"}, drops_raw=True)
    job = ArchiveJob(server.bootstrap, ("subscribe", topic), str(target), decoding=decoding)
    produce(server, topic, messages([b'{"id":3}', b"x", b"y"]))
    archive(spark, job, stop=Stop(), say=print)
    for name in ("0", ".0.crc"):
        (target / "_checkpoint" / "commits" / name).unlink()

    archive(spark, job, stop=Stop(), say=print)

    assert positions(dead_letters(target)) == [(topic, 0, 1), (topic, 1, 0)]
    table = read_archive(target)
    assert positions(table) == [(topic, 0, 0)]
    assert "value" not in table.column_names and table["typed_value"].to_pylist() == [{"id": 3, "name": None}]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["--decode", "value=avro:{}/none.avsc"], 1, "the schema {}/none.avsc cannot be read: No such file or directory"),
        (["--decode", "offset=json:x"], 2, "offset=json:x is not value=FORMAT or key=FORMAT"),
        (["--decode", "value=xml:x"], 2, "'xml:x' is no format"),
        (["--decode", "value=json:{}/order.ddl", "--decode", "value=json:{}/order.ddl"], 2, "--decode names a column twice"),
        (["--drop-raw"], 2, "--drop-raw leaves out the columns of --decode, and there is none"),
    ],
)
def test_the_command_names_what_is_wrong_before_it_starts_anything(
    arguments: list[str], exit_code: int, sentence: str, schemas: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["archive", "--topics", "orders", "--to", "archive", *(word.format(schemas) for word in arguments)]
    try:
        ended = main(line)
    except SystemExit as e:
        ended = int(str(e.code))

    said = capsys.readouterr()
    assert (ended, said.out) == (exit_code, "")
    assert sentence.format(schemas) in said.err
