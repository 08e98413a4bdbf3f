"""Contexts, and which of several addresses counts."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path

import pytest

from barnabas.cli.contexts import read_contexts
from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.settings import Settings, resolve
from tests.barnabas.cli.conftest import Command


def settings(*, environ: dict[str, str] | None = None, **given: object) -> Settings:
    defaults = {"properties": [], "command_config": "", "bootstrap_server": "", "context": "", "timeout": 10.0}
    return resolve(argparse.Namespace(**{**defaults, **given}), environ or {})


def test_context_is_remembered_chosen_and_forgotten(barnabas_command: Command) -> None:
    command = barnabas_command
    command.done("context", "add", "one", "-b", "one:9092")
    command.done("context", "add", "two", "-b", "two:9092", "--read-only", "-X", 'client.id=a "b"\\')

    assert [(each["name"], each["is_current"], each["read_only"]) for each in command.done("context", "list", "-o", "json").data] == [
        ("one", True, False),
        ("two", False, True),
    ]
    command.done("config", "use-context", "two")
    assert command.done("context", "show", "-o", "json").data["properties"] == {"client.id": 'a "b"\\'}
    command.done("context", "remove", "two")
    assert command("context", "show").code == 1


def test_file_is_for_its_user_alone(barnabas_command: Command, tmp_path: Path) -> None:
    barnabas_command.done("context", "add", "one", "-b", "one:9092")

    path = tmp_path / "config" / "barnabas" / "config.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_context_of_that_name_is_replaced_only_when_told(barnabas_command: Command) -> None:
    barnabas_command.done("context", "add", "one", "-b", "one:9092")

    assert barnabas_command("context", "add", "one", "-b", "other:9092").code == 1
    barnabas_command.done("context", "add", "one", "-b", "other:9092", "--replace")
    assert read_contexts().get("one").bootstrap_servers == "other:9092"


def test_current_context_gives_its_login_to_no_other_address(barnabas_command: Command) -> None:
    barnabas_command.done("context", "add", "one", "-b", "one:9092", "-X", "sasl.username=me", "--read-only")

    mine, other = settings(), settings(bootstrap_server="other:1")
    named = settings(bootstrap_server="other:1", context="one")

    assert (mine.address, mine.librdkafka["sasl.username"], mine.is_read_only) == ("one:9092", "me", True)
    assert (other.address, dict(other.librdkafka), other.is_read_only) == ("other:1", {"bootstrap.servers": "other:1"}, False)
    assert (named.address, named.librdkafka["sasl.username"], named.is_read_only) == ("other:1", "me", True)


def test_nearer_address_counts(barnabas_command: Command, tmp_path: Path) -> None:
    barnabas_command.done("context", "add", "one", "-b", "context:1")
    environ = {"BARNABAS_BOOTSTRAP_SERVER": "environment:1"}
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:1\n")

    assert settings().address == "context:1"
    assert settings(environ=environ).address == "environment:1"
    assert settings(environ={"BARNABAS_BOOTSTRAP_SERVERS": "environment:2"}).address == "environment:2"
    assert settings(environ=environ, command_config=str(path)).address == "file:1"
    assert settings(environ=environ, command_config=str(path), properties=["bootstrap.servers=x:1"]).address == "x:1"
    assert settings(properties=["bootstrap.servers=x:1"], bootstrap_server="option:1").address == "option:1"
    barnabas_command.done("context", "remove", "one")
    assert settings().address == "localhost:9092"


def test_schemas_are_the_contexts_and_their_login_is_in_its_file(barnabas_command: Command, tmp_path: Path) -> None:
    java, librdkafka = tmp_path / "java.properties", tmp_path / "librdkafka.properties"
    for file, more in ((java, "ssl.keystore.type=PEM\n"), (librdkafka, "socket.timeout.ms=7000\n")):
        file.write_text(f"bootstrap.servers=one:9092\nbasic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=me:secret\n{more}")
    words = ("--schema-registry", "http://registry:8081", "--value-schema", "a.b=x.avsc", "--key-schema", "a.b=y.desc#shop.Key")
    barnabas_command.done("context", "add", "one", "-F", str(java), *words)

    mine, other = settings(), settings(bootstrap_server="other:1")
    shown = barnabas_command.done("context", "show", "one", "-o", "json")

    assert (mine.schemas.registry, mine.schemas.login) == ("http://registry:8081", "me:secret")
    assert mine.schemas.value_files == {"a.b": str(Path("x.avsc").absolute())}
    assert mine.schemas.key_files == {"a.b": f"{Path('y.desc').absolute()}#shop.Key"}
    assert mine.unread == () and "secret" not in repr(mine.schemas) + repr(dict(mine.librdkafka)) + shown.out
    assert shown.data["schema_registry"] == "http://registry:8081" and shown.data["value_schemas"].keys() == {"a.b"}
    assert f"value_schemas     a.b={Path('x.avsc').absolute()}\n" in barnabas_command.done("context", "show", "one").out
    assert (other.schemas.registry, other.schemas.login, dict(other.schemas.value_files)) == ("", "", {})
    file = settings(command_config=str(librdkafka))
    assert file.schemas.login == "me:secret" and dict(file.librdkafka) == {"bootstrap.servers": "one:9092", "socket.timeout.ms": "7000"}
    for wrong in (("--schema-registry", "registry:8081"), ("--schema-registry", "http://me:secret@registry"), ("--value-schema", "a.avsc")):
        refused = barnabas_command("context", "add", "two", "-b", "two:9092", *wrong)
        assert refused.code == 2 and refused.err.count("\n") == 1 and "secret" not in refused.err


def test_unknown_context_names_those_that_are_there(barnabas_command: Command) -> None:
    barnabas_command.done("context", "add", "one", "-b", "one:9092")

    with pytest.raises(RefusedError, match=r"no context 'two'.*there: one"):
        settings(environ={"BARNABAS_CONTEXT": "two"})


@pytest.mark.parametrize("text", ["contexts = 1", "[contexts.a]\nhost = 'x'", "[contexts.a]\nread_only = 'false'", "= broken"])
def test_file_that_says_something_else_is_refused(barnabas_command: Command, tmp_path: Path, text: str) -> None:
    path = tmp_path / "config" / "barnabas" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)

    with pytest.raises(NotUnderstoodError, match=r"config\.toml"):
        read_contexts()


def test_password_is_taken_from_no_argument(barnabas_command: Command) -> None:
    refused = barnabas_command("topic", "list", "-X", "sasl.password=secret")

    assert refused.code == 2 and "secret" not in refused.err and "--command-config" in refused.err
