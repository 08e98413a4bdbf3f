"""The keys and certificates of files/, made by files/make.sh, as settings."""

from __future__ import annotations

import importlib.util
import ssl
from pathlib import Path
from typing import Any

from broker.security.tls.context import client_context, server_context
from broker.security.tls.files import read_store_file
from broker.security.tls.settings import TlsSettings
from tests.support.requirements import needs

FILES = Path(__file__).parent / "files"
STORE_PASSWORD = "store-secret"
KEY_PASSWORD = "key-secret"

needs_cryptography = needs(None if importlib.util.find_spec("cryptography") else "missing: the package cryptography; run `make install`")


def text(name: str) -> str:
    return (FILES / name).read_text()


def path(name: str) -> str:
    return str(FILES / name)


def server_settings(**changes: Any) -> TlsSettings:
    """PEM in properties: the server's key of P-256, its certificate and the intermediate one, and the CA for clients."""
    return TlsSettings(**{**pem_key("server"), **pem_trust("ca"), **changes})


def client_settings(**changes: Any) -> TlsSettings:
    """Trusts the CA, and has no key."""
    return TlsSettings(**{**pem_trust("ca"), **changes})


def pem_key(name: str) -> dict[str, Any]:
    return {"keystore_type": "PEM", "keystore_key": text(f"{name}.key"), "keystore_certificate_chain": text(f"{name}.pem")}


def pem_trust(name: str) -> dict[str, Any]:
    return {"truststore_type": "PEM", "truststore_certificates": text(f"{name}.pem")}


def server(**changes: Any) -> ssl.SSLContext:
    return server_context(server_settings(**changes), read_store_file)


def client(**changes: Any) -> ssl.SSLContext:
    return client_context(client_settings(**changes), read_store_file)
