"""The `barnabas` command: arguments, exit codes, and one line on stderr for what a person can mend."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli.formatter import parse_voters
from broker.cli.main import main
from broker.cli.serve_arguments import ServeOptions, UsageError, parse_arguments
from broker.metadata.snapshot import read_bootstrap_records
from broker.server.formatting import FormatError, format_directories, new_id
from config.server_rules import server_config
from protocol.messages.stored.metadata_records import UserScramCredentialRecord
from protocol.sasl import scram
from protocol.sasl.scram import ScramMechanism
from protocol.uuids import uuid_from_text, uuid_to_text
from storage.meta_properties import read_meta_properties

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def format_arguments(directory: Path, *more: str) -> list[str]:
    return ["format", "--cluster-id", CLUSTER_ID, "--override", f"log.dirs={directory}", *more]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["no-such-command"], "barnabas: unknown command 'no-such-command'; barnabas --help lists them"),
        (["serve", "--no-such-option"], "barnabas serve: unknown argument --no-such-option; barnabas serve --help says more"),
        (["serve", "--config"], "barnabas serve: --config needs a value; barnabas serve --help says more"),
        (["serve", "a", "b"], "barnabas serve: unknown argument b; barnabas serve --help says more"),
        (["serve", "--log-level", "loud"], "barnabas serve: --log-level loud is none of"),
        (["serve", "--log-level"], "barnabas serve: --log-level needs a value"),
        (["serve", "--log-format=xml"], "barnabas serve: --log-format xml is none of"),
        (["health", "--no-such-option"], "barnabas health: unknown argument --no-such-option; barnabas health --help says more"),
        (["cluster", "down"], "barnabas cluster: unknown command 'down'; barnabas cluster --help lists them"),
        (
            ["cluster", "up", "--broker", "x"],
            "barnabas cluster up: argument --brokers: 'x' is not a number from 1 to 100; barnabas cluster up --",
        ),
        (["cluster", "status", "--x"], "barnabas cluster status: unrecognized arguments: --x; barnabas cluster status --help says more"),
        (["format"], "barnabas format: the following arguments are required: --cluster-id/-t; barnabas format --help says more"),
        (["random-uuid", "x"], "barnabas random-uuid: unrecognized arguments: x; barnabas random-uuid --help says more"),
    ],
)
def test_bad_usage_exits_with_2_and_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as e:  # argparse
        status = int(e.code or 0)

    errors = capsys.readouterr().err
    assert status == 2 and errors.startswith(line) and errors.count("\n") == 1 and errors.endswith("\n")


def test_no_command_at_all_is_bad_usage_and_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: barnabas" in capsys.readouterr().err


def test_a_port_beside_listeners_is_refused_as_one_of_them_would_be_lost() -> None:
    for words in (["--ephemeral", "--port", "9"], ["--port", "9"]):
        with pytest.raises(UsageError, match="--port 9 would be lost beside --override listeners"):
            parse_arguments([*words, "--override", "listeners=PLAINTEXT://localhost:0"])


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("barnabas 0.")


def test_a_wrong_setting_is_one_line_and_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--override", "num.partitions=0"]) == 1
    assert capsys.readouterr().err == "barnabas: Invalid value 0 for configuration num.partitions: Value must be at least 1\n"


def test_serve_takes_the_file_as_kafka_server_start_does() -> None:
    assert parse_arguments(["f.properties", "--override", "a=1", "--override=b=2"]) == ServeOptions("f.properties", ["a=1", "b=2"])
    assert parse_arguments(["--config=f", "--override", "a=x=y"]) == ServeOptions("f", ["a=x=y"])
    with pytest.raises(UsageError):
        parse_arguments(["--override"])


def test_serve_takes_level_and_format_of_the_log() -> None:
    assert parse_arguments(["--log-level", "DEBUG", "--log-format=json"]) == ServeOptions(log_level=logging.DEBUG, log_format="json")


def test_serve_takes_a_port_and_a_directory_for_a_test() -> None:
    assert parse_arguments(["--port=0", "--override", "a=1"]) == ServeOptions(overrides=["a=1"], port=0)
    assert parse_arguments(["--ephemeral", "--port", "9"]) == ServeOptions(port=9, ephemeral_directory="")
    assert parse_arguments(["--ephemeral=/a/b"]) == ServeOptions(ephemeral_directory="/a/b")


def test_serve_reads_its_arguments_without_argparse() -> None:
    code = (
        "import sys, broker.cli.format; from broker.cli.main import main; "
        "main(['serve', '--override', 'x']); sys.exit('argparse' in sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=Path(__file__).parents[2], timeout=30, check=False)

    assert finished.returncode == 0


def test_format_gives_each_directory_the_cluster_and_an_identity_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "one", tmp_path / "two"

    assert main(["format", "-t", CLUSTER_ID, "--standalone", "--override", f"log.dirs={first},{second}", "--override", "node.id=7"]) == 0

    identities = [read_meta_properties(directory) for directory in (first, second)]
    assert [(each.cluster_id, each.node_id) for each in identities if each] == [(CLUSTER_ID, 7)] * 2
    assert len({each.directory_id for each in identities if each}) == 2
    assert f"Formatting data directory {second} with metadata.version 4.0-IV3." in capsys.readouterr().out


def test_format_refuses_a_formatted_directory_unless_told_to_ignore_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(format_arguments(tmp_path))
    before = read_meta_properties(tmp_path)

    assert main(format_arguments(tmp_path)) == 1
    assert main(format_arguments(tmp_path, "--ignore-formatted")) == 0

    assert read_meta_properties(tmp_path) == before
    captured = capsys.readouterr()
    assert "is already formatted" in captured.err and "All of the log directories are already formatted." in captured.out


def test_format_refuses_a_directory_of_another_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(format_arguments(tmp_path))

    assert main(format_arguments(tmp_path, "--ignore-formatted", "--override", "node.id=9")) == 1
    assert "belongs to node 1" in capsys.readouterr().err


@pytest.mark.parametrize("cluster_id", ["MkU3OEVBNTcwNTJENDM2Qk", "my-cluster", " with = and \\"])
def test_any_text_is_a_cluster_id_and_kept_as_it_is(tmp_path: Path, cluster_id: str) -> None:
    """The first one is that of many container examples. tests/peers/test_format.py asks Kafka's tool."""
    assert main(["format", "-t", cluster_id, "--override", f"log.dirs={tmp_path}"]) == 0

    identity = read_meta_properties(tmp_path)
    assert identity is not None and identity.cluster_id == cluster_id


def test_format_refuses_the_cluster_id_of_a_variable_that_is_not_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "-t", "", "--override", f"log.dirs={tmp_path / 'd'}"]) == 1
    assert "the cluster id is empty" in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_random_uuid_prints_what_kafka_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["random-uuid"]) == 0

    text = capsys.readouterr().out.strip()
    assert len(text) == 22 and len(uuid_from_text(text)) == 16


def test_new_ids_never_start_with_a_dash() -> None:
    draws = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x01" * 16])

    assert not uuid_to_text(new_id(lambda _count: next(draws))).startswith("-")


def test_format_makes_the_metadata_directory_too(tmp_path: Path) -> None:
    config = server_config({"log.dirs": str(tmp_path / "logs"), "metadata.log.dir": str(tmp_path / "meta")})
    draws = iter([b"a" * 16, b"b" * 16])

    formatted = format_directories(config, CLUSTER_ID, ignore_formatted=False, random_bytes=lambda _count: next(draws))

    assert formatted == [tmp_path / "meta", tmp_path / "logs"]


@pytest.mark.parametrize(
    ("voters", "why"),
    [
        ("", "No voters given."),
        ("localhost:9093", "No @ found"),
        ("@localhost:9093", "Invalid @ at beginning"),
        ("a@localhost:9093:JEXY6aqzQY-32P5TStzaFg", "Failed to parse node id"),
        ("-1@localhost:9093:JEXY6aqzQY-32P5TStzaFg", "Invalid negative node id"),
        ("1@", "No hostname found"),
        ("1@[::1:9093:JEXY6aqzQY-32P5TStzaFg", "no right bracket"),
        ("1@localhost", "No colon following hostname"),
        ("1@[::1]9093", "Port section must start"),
        ("1@localhost:9093", "No colon following port"),
        ("1@localhost:x:JEXY6aqzQY-32P5TStzaFg", "Failed to parse port"),
        ("1@localhost:70000:JEXY6aqzQY-32P5TStzaFg", "Invalid port 70000"),
        ("1@localhost:9093:x", "Failed to parse directory ID"),
        ("1@a:9093:JEXY6aqzQY-32P5TStzaFg,1@b:9093:JEXY6aqzQY-32P5TStzaFg", "Node id 1 was specified more than once."),
    ],
)
def test_voters_that_cannot_be_read_are_refused_as_kafka_does(voters: str, why: str) -> None:
    with pytest.raises(FormatError, match=re.escape(why)):
        parse_voters(voters, "CONTROLLER")


def test_voters_are_read_with_their_directories() -> None:
    text = " 2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A, 1@localhost:9093:JEXY6aqzQY-32P5TStzaFg"

    voters = parse_voters(text, "CONTROLLER")

    assert [voter.endpoints["CONTROLLER"] for voter in voters] == [("localhost", 9093), ("::1", 9094)]
    assert [voter.key.directory_id for voter in voters][1] == uuid_from_text("MvDxzVmcRsaTz33bUuRU6A")


def test_a_feature_that_is_not_here_cannot_be_finalized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(format_arguments(tmp_path / "d", "--feature", "share.version=1")) == 1
    assert "share.version 1 is not supported" in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_format_adds_scram_users_to_what_the_cluster_begins_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = ("SCRAM-SHA-256=[name=alice,password=alice-secret]", "SCRAM-SHA-512=[name=bob,password=bob-secret,iterations=8192]")

    assert main(format_arguments(tmp_path / "d", *(word for user in users for word in ("--add-scram", user)))) == 0

    records = [record for record in read_bootstrap_records(tmp_path / "d") if isinstance(record, UserScramCredentialRecord)]
    assert [(record.name, record.mechanism, record.iterations) for record in records] == [("alice", 1, 4096), ("bob", 2, 8192)]
    salted = scram.salted_password(ScramMechanism.SCRAM_SHA_256, "alice-secret", records[0].salt, 4096)
    assert records[0].server_key == scram.server_key(ScramMechanism.SCRAM_SHA_256, salted)
    printed = capsys.readouterr()
    assert "UserScramCredentialRecord(name='alice', mechanism=1, salt=[hidden]" in printed.out
    assert "-secret" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--add-scram", "SCRAM-SHA-1=[name=a,password=hush]"], "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        (
            ["-S", "SCRAM-SHA-256=[name=a,password=hush,iterations=9]"],
            "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_256",
        ),
        (
            ["-S", "SCRAM-SHA-256=[name=a,password=hush]", "--release-version", "3.4"],
            "SCRAM is only supported in metadata.version 3.5-IV2 or later.",
        ),
    ],
)
def test_format_refuses_a_scram_user_by_a_line_and_writes_nothing(
    more: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(format_arguments(tmp_path / "d", *more)) == 1

    assert capsys.readouterr().err == f"barnabas format: {line}\n"
    assert not (tmp_path / "d").exists()
