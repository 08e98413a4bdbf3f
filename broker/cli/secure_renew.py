"""`barnabas secure renew DIR`: new keys and certificates of the nodes, by the same authority; with --authority by another one.

DIR is that of `secure init` or of `cluster up --secure`: ca.pem, and keys/ or node-N/keys/. A certificate keeps its name and hosts. Files
are replaced whole. Running nodes look at theirs once a minute, and take them up for new connections.

Another authority comes in three steps, as in Kafka, so that at any time all nodes trust each other's certificates:

    trust    ca-new.pem and ca-new.key are made; nodes and clients trust both authorities: ca.pem and the clients' files have both
    change   the nodes' certificates are made anew, by the new authority
    drop     the old authority is trusted no more; ca.pem and ca.key are the new one's

Between two of them each node must have looked. Each step may be given again; one that was interrupted is completed so.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.authority import Authority, AuthorityError, KeyPair, common_name, hosts_of, read_certificate
from broker.cli.client_files import escape
from broker.cli.secured_folder import AUTHORITY_FILE, AUTHORITY_KEY_FILE, AUTHORITY_NAME, KEYS_DIRECTORY, is_host
from broker.server.listener_security import REFRESH_MS
from storage.errors import StorageError
from storage.files import replace_file, sync_directory

if TYPE_CHECKING:
    import argparse

    from cryptography import x509

NEW_AUTHORITY_FILE, NEW_AUTHORITY_KEY_FILE = "ca-new.pem", "ca-new.key"
STEPS = ("trust", "change", "drop")
LOOK_S = REFRESH_MS / 1000 + 10
"""After so long every running node has looked at its files."""
TRUSTED = "ssl.truststore.certificates="
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class RenewError(Exception):
    """Nothing was renewed; `str()` is the line to print."""


def renew(arguments: list[str]) -> int:
    """Make the files, and say what was made; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        folder = Folder(Path(options.directory).absolute(), options.ca_key, int(time.time() * 1000))
        for host in options.host:
            if not is_host(host):
                raise RenewError(f"--host {host} is neither a host's name nor an address")
        if options.authority is None:
            folder.renew(options.host)
        elif options.authority == "trust":
            folder.trust()
        elif options.authority == "change":
            folder.change(options.host, waits=not options.at_once)
        else:
            folder.drop(waits=not options.at_once)
    except (RenewError, StorageError, OSError) as e:
        print(f"barnabas secure renew: {e}", file=sys.stderr)
        return 1
    return 0


class Folder:
    """A secured folder's authority and the nodes' keys. Says on standard output what it has done."""

    def __init__(self, directory: Path, authority_key: str | None, now_ms: int) -> None:
        """Raises RenewError where there is none."""
        self._directory = directory
        self._authority_key = directory / AUTHORITY_KEY_FILE if authority_key is None else Path(authority_key)
        self._trusted = directory / AUTHORITY_FILE
        self._new, self._new_key = directory / NEW_AUTHORITY_FILE, directory / NEW_AUTHORITY_KEY_FILE
        self._now_ms = now_ms
        if not self._trusted.is_file() or not self._key_files():
            raise RenewError(
                f"{directory} has no {AUTHORITY_FILE} with nodes' keys: `secure init` and `cluster up --secure` make such a folder"
            )

    def renew(self, hosts: Sequence[str]) -> None:
        """New certificates by the same authority."""
        if self._new.exists():
            raise RenewError("the authority is being replaced: --authority change makes new certificates, and --authority drop ends that")
        self._sign(self._authority(self._trusted, self._authority_key), hosts)

    def trust(self) -> None:
        """Another authority beside the present one."""
        if not self._new.exists():
            made = Authority(AUTHORITY_NAME, self._now_ms).pair
            replace_file(self._new_key, made.key.encode())
            replace_file(self._new, made.certificate.encode())
        self._put_trust([*self._others(), self._new.read_text()])
        print(f"both authorities are in {self._trusted} and in the clients' files: give your clients theirs, and other machines that file")
        print(f"next, once all nodes have looked: barnabas secure renew {self._directory} --authority change")

    def change(self, hosts: Sequence[str], *, waits: bool) -> None:
        """New certificates by the new authority."""
        if not self._new.exists():
            raise RenewError("there is no new authority yet: --authority trust makes it")
        if waits:
            self._wait_for(self._trusted)
        self._sign(self._authority(self._new, self._new_key), hosts)
        print(f"next, once all nodes have looked: barnabas secure renew {self._directory} --authority drop")

    def drop(self, *, waits: bool) -> None:
        """Trust the new authority alone."""
        if not self._new.exists():
            raise RenewError("there is no new authority: --authority trust makes it, then --authority change")
        has_key = self._new_key.exists()
        authority = self._authority(self._new, self._new_key if has_key else self._authority_key)
        for path in self._key_files():
            if not authority.has_signed(_read(path)):
                raise RenewError(f"{path} is by the old authority: --authority change comes before")
            if waits:
                self._wait_for(path)
        of_others = [each for each in self._others() if common_name(read_certificate(each)) != AUTHORITY_NAME]
        self._put_trust([*of_others, authority.pair.certificate])
        replace_file(self._authority_key, authority.pair.key.encode())
        self._new_key.unlink(missing_ok=True)
        sync_directory(self._directory)
        self._new.unlink()
        print(f"the new authority is the only one in {self._trusted} and in the clients' files; {self._authority_key} is its key")

    def _key_files(self) -> list[Path]:
        return sorted([*self._directory.glob(f"{KEYS_DIRECTORY}/*.pem"), *self._directory.glob(f"node-*/{KEYS_DIRECTORY}/*.pem")])

    def _authority(self, certificate: Path, key: Path) -> Authority:
        if not key.exists():
            raise RenewError(f"{key} is not there: --ca-key says where the authority's private key is kept")
        try:
            return Authority("", self._now_ms, KeyPair(key.read_text(), certificate.read_text()))
        except AuthorityError as e:
            raise RenewError(f"{certificate} and {key} {e}") from e

    def _sign(self, authority: Authority, hosts: Sequence[str]) -> None:
        """All new certificates are made before the first file is replaced."""
        made = {}
        for path in self._key_files():
            try:
                made[path] = authority.renew(_read(path), hosts)
            except AuthorityError as e:
                raise RenewError(f"{path} {e}") from e
        for path, pair in made.items():
            replace_file(path, (pair.key + pair.certificate).encode())
            certificate = read_certificate(pair.certificate)
            print(f"{path}: for {', '.join(hosts_of(certificate))} until {certificate.not_valid_after_utc:%Y-%m-%d}")
        print("Running nodes take them up within a minute, others at their next start.")

    def _others(self) -> list[str]:
        """The certificates in ca.pem that are not the new authority's."""
        new = self._new.read_text().strip()
        return [each for each in _CERTIFICATE.findall(self._trusted.read_text()) if each.strip() != new]

    def _put_trust(self, trusted: Sequence[str]) -> None:
        """In ca.pem, and in the files of those clients that trust what was there."""
        before, certificates = self._trusted.read_text(), "".join(f"{each.strip()}\n" for each in trusted)
        for path in self._directory.glob("*.properties"):
            text = path.read_text()
            changed = text.replace(TRUSTED + escape(before) + "\n", TRUSTED + escape(certificates) + "\n")
            if changed != text:
                replace_file(path, changed.encode())
        if before != certificates:
            replace_file(self._trusted, certificates.encode())
            self._trusted.chmod(0o644)

    def _wait_for(self, path: Path) -> None:
        """Raises RenewError while there may be a running node that has not looked at the file since it was changed."""
        left_s = path.stat().st_mtime + LOOK_S - time.time()
        if left_s > 0:
            when = f"give this command again in {left_s:.0f} s, or with --at-once if no node runs"
            raise RenewError(f"{path} has just been changed, and running nodes look at it once a minute: {when}")


def _read(path: Path) -> x509.Certificate:
    try:
        return read_certificate(path.read_text())
    except AuthorityError as e:
        raise RenewError(f"{path} {e}") from e


def _parser() -> argparse.ArgumentParser:
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(prog="barnabas secure renew", description="Make new keys and certificates of the nodes in a secured directory.")
    add = parser.add_argument
    add("directory", metavar="DIR", help="of `secure init`, or of `cluster up --secure`")
    add("--host", action="append", default=[], metavar="NAME", help="a further name or address by which clients reach the nodes")
    add("--ca-key", metavar="FILE", help=f"the authority's private key, if it is kept elsewhere (default: DIR/{AUTHORITY_KEY_FILE})")
    add("--authority", choices=STEPS, help="a step towards another authority: trust both, change the certificates, drop the old one")
    add("--at-once", action="store_true", help="do not ask that a minute has passed since the last step: no node runs")
    return parser
