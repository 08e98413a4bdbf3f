"""`barnabas secure renew`: new certificates, and another authority in three steps, in a folder and under a running broker."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509

from broker.cli.authority import CERTIFICATE_DAYS, Authority, AuthorityError, KeyPair, common_name, hosts_of, read_certificate
from config.loading import read_properties
from tests.broker.test_secure_command import Secured, librdkafka
from tests.support.commands import run_here
from tests.support.ports import neighbours

DAY_MS = 86_400_000


def renew(directory: Path, *words: str) -> str:
    """What it says; on one line of standard error if it fails."""
    done = run_here("secure", "renew", str(directory), *words)
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    assert len(done.stderr.splitlines()) <= 1
    return done.stdout + done.stderr


def init(directory: Path, *words: str) -> None:
    done = run_here("secure", "init", str(directory), *words)
    assert done.returncode == 0, done.stderr


def certificates(directory: Path) -> dict[str, x509.Certificate]:
    """Of the nodes, by file."""
    return {str(path.relative_to(directory)): read_certificate(path.read_text()) for path in sorted(directory.rglob("keys/*.pem"))}


class Running:
    """A broker of `secure init`, and what tells it to look at its files: an alteration that changes nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node = Secured(directory)
        self.host, _, port = read_properties(directory / "client.properties")["bootstrap.servers"].partition(":")
        self.port = int(port)

    def look(self) -> None:
        location = "listener.name.sasl_ssl.ssl.truststore.location"
        entry = ConfigEntry(location, str(self.directory / "ca.pem"), incremental_operation=AlterConfigOpType.SET)
        admin = AdminClient(librdkafka(self.directory, "client"))
        (future,) = admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])]).values()
        future.result(30)

    def shown(self) -> x509.Certificate:
        return read_certificate(ssl.get_server_certificate((self.host, self.port), timeout=30))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    directory = tmp_path / "made"
    init(directory, "--port", str(neighbours(2)))
    broker = Running(directory)
    broker.node.start()
    yield broker
    broker.node.stop()


def trusts(directory: Path, running: Running) -> bool:
    """Whether who trusts the ca.pem in `directory` alone trusts the broker."""
    try:
        ssl.get_server_certificate((running.host, running.port), ca_certs=str(directory / "ca.pem"), timeout=30)
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_every_node_has_new_keys_of_the_same_name_for_its_hosts_and_further_ones(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    init(directory, "--nodes", "2", "--host", "one.example", "--host", "two.example")
    before, authority = certificates(directory), (directory / "ca.pem").read_text()

    said = renew(directory, "--host", "other.example", "--host", "10.0.0.7")

    after = certificates(directory)
    assert list(after) == ["node-1/keys/node.pem", "node-1/keys/server.pem", "node-2/keys/node.pem", "node-2/keys/server.pem"]
    for name, old in before.items():
        new = after[name]
        assert new.public_key() != old.public_key() and new.serial_number != old.serial_number
        assert new.subject == old.subject
        assert hosts_of(new) == [*hosts_of(old), "other.example", "10.0.0.7"]
        assert [each.value for each in new.extensions if isinstance(each.value, x509.ExtendedKeyUsage)] == [
            each.value for each in old.extensions if isinstance(each.value, x509.ExtendedKeyUsage)
        ]
        assert f"{directory / name}: for {', '.join(hosts_of(new))} until {new.not_valid_after_utc:%Y-%m-%d}" in said
        new.verify_directly_issued_by(read_certificate(authority))
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    assert (directory / "ca.pem").read_text() == authority
    assert "PRIVATE" not in said


def test_a_running_broker_takes_up_new_certificates(running: Running) -> None:
    before = running.shown()

    renew(running.directory)
    running.look()

    assert before != running.shown() == certificates(running.directory)["keys/server.pem"]
    assert trusts(running.directory, running)


def test_another_authority_comes_in_three_steps_while_a_client_is_at_work(running: Running, tmp_path: Path) -> None:
    directory, old = running.directory, tmp_path / "old"
    old.mkdir()
    (old / "ca.pem").write_text((directory / "ca.pem").read_text())
    assert run_here("secure", "add-user", "alice", "--write", "orders", "--directory", str(directory)).returncode == 0
    assert "--authority trust makes it" in renew(directory, "--authority", "change")
    assert "--authority change\n" in renew(directory, "--authority", "trust")
    both = (directory / "ca.pem").read_text()
    assert both.count("BEGIN CERTIFICATE") == 2
    assert read_properties(directory / "alice.properties")["ssl.truststore.certificates"] == both
    errors: list[KafkaError | None] = []
    producer = Producer({**librdkafka(directory, "client"), "acks": "all"})

    def send() -> None:
        producer.produce("orders", b"v", on_delivery=lambda error, message: errors.append(error))
        assert producer.flush(30) == 0

    running.look()
    send()
    assert "running nodes look at it once a minute" in renew(directory, "--authority", "change")
    assert "is by the old authority: --authority change comes before" in renew(directory, "--authority", "drop", "--at-once")
    assert "the authority is being replaced" in renew(directory)

    renew(directory, "--authority", "change", "--at-once")
    running.look()
    send()
    assert (trusts(directory, running), trusts(old, running)) == (True, False)
    assert "running nodes look at it once a minute" in renew(directory, "--authority", "drop")

    renew(directory, "--authority", "drop", "--at-once")
    running.look()
    send()
    running.node.stop()
    running.node.start()
    send()
    assert (errors, trusts(directory, running), trusts(old, running)) == ([None] * 4, True, False)
    for name in ("client", "alice"):
        assert read_properties(directory / f"{name}.properties")["ssl.truststore.certificates"] == (directory / "ca.pem").read_text()
        assert stat.S_IMODE((directory / f"{name}.properties").stat().st_mode) == 0o600
        assert len(Producer(librdkafka(directory, name)).list_topics(timeout=30).brokers) == 1
    assert stat.S_IMODE((directory / "ca.key").stat().st_mode) == 0o600
    assert not list(directory.glob("ca-new.*"))
    renew(directory)
    assert certificates(directory)["keys/server.pem"].issuer == read_certificate((directory / "ca.pem").read_text()).subject


def test_an_interrupted_step_is_completed_when_it_is_given_again(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    init(directory)
    renew(directory, "--authority", "trust")
    trusted = (directory / "ca.pem").read_text()
    renew(directory, "--authority", "trust")
    assert (directory / "ca.pem").read_text() == trusted
    renew(directory, "--authority", "change", "--at-once")
    (directory / "ca.key").write_text((directory / "ca-new.key").read_text())  # as after a power cut within `drop`
    (directory / "ca-new.key").unlink()

    renew(directory, "--authority", "drop", "--at-once")

    assert (directory / "ca.pem").read_text().count("BEGIN CERTIFICATE") == 1
    renew(directory)
    certificates(directory)["keys/node.pem"].verify_directly_issued_by(read_certificate((directory / "ca.pem").read_text()))


def test_certificates_that_somebody_added_to_the_trusted_ones_stay(tmp_path: Path) -> None:
    directory, other = tmp_path / "made", Authority("of somebody", 0).pair.certificate
    init(directory)
    (directory / "ca.pem").write_text((directory / "ca.pem").read_text() + other)
    for words in (["trust"], ["change", "--at-once"], ["drop", "--at-once"]):
        renew(directory, "--authority", *words)

    kept = (directory / "ca.pem").read_text()

    assert kept.count("BEGIN CERTIFICATE") == 2 and other in kept


@pytest.mark.parametrize(("words", "why"), [
    (["--host", "a b"], "neither a host's name nor an address"),
    (["--ca-key", "nowhere"], "nowhere is not there: --ca-key says where"),
    (["--ca-key", "ca.pem"], "has no private key in PEM without a password"),
    (["--ca-key", "keys/node.pem"], "are not of one pair"),
])  # fmt: skip
def test_what_cannot_be_is_one_line_and_changes_nothing(
    tmp_path: Path, words: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "made"
    init(directory)
    monkeypatch.chdir(directory)
    before = certificates(directory)

    assert why in renew(directory, *words)

    assert certificates(directory) == before


def test_a_folder_without_keys_is_told(tmp_path: Path) -> None:
    assert renew(tmp_path) == (
        f"barnabas secure renew: {tmp_path} has no ca.pem with nodes' keys: `secure init` and `cluster up --secure` make such a folder\n"
    )


def test_no_certificate_outlives_its_authority() -> None:
    pair = Authority("CA", 0).pair
    end_ms = int(read_certificate(pair.certificate).not_valid_after_utc.timestamp() * 1000)
    late = Authority("", end_ms - 10 * DAY_MS, KeyPair(pair.key, pair.certificate))

    signed = read_certificate(late.sign("localhost", ["localhost"]).certificate)

    assert CERTIFICATE_DAYS > 10
    assert signed.not_valid_after_utc == read_certificate(pair.certificate).not_valid_after_utc
    assert (common_name(signed), late.has_signed(signed), Authority("CA", 0).has_signed(signed)) == ("localhost", True, False)
    with pytest.raises(AuthorityError, match="was not made by barnabas secure"):
        late.renew(read_certificate(pair.certificate), ())
