"""Listeners, advertised addresses and quorum voters: the properties whose text has a grammar of its own. Pure parsing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from config.properties import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX = 65_535

_HOST_PUNCTUATION = frozenset("-._%")


class Endpoint(NamedTuple):
    """One listener. An empty host listens on every address; port 0 lets the system choose (then advertise what it chose)."""

    listener_name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.listener_name}://{address_text(self.host, self.port)}"


def address_text(host: str, port: int) -> str:
    """As in bootstrap.servers: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Voter(NamedTuple):
    """One member of controller.quorum.voters."""

    node_id: int
    host: str
    port: int


def parse_endpoints(key: str, texts: tuple[str, ...], protocols: Mapping[str, str], *, with_distinct_ports: bool) -> tuple[Endpoint, ...]:
    """`PLAINTEXT://localhost:9092,INTERNAL://:19092` as endpoints. Names are upper-cased and unique. Raises ConfigError."""
    endpoints = tuple(_parse_endpoint(key, text, protocols) for text in texts)
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(key, ",".join(texts), "each listener must have a different name")
    if with_distinct_ports:
        _require_distinct_ports(key, texts, endpoints)
    return endpoints


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    """`PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT` as listener name → security protocol. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not separator or not name:
            raise ConfigError(key, text, "expected name:protocol pairs separated by commas")
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(key, text, f"unknown security protocol {protocol}; it must be one of {', '.join(SECURITY_PROTOCOLS)}")
        if name in protocols:
            raise ConfigError(key, text, f"listener {name} is mapped twice")
        protocols[name] = protocol
    return protocols


def parse_voters(key: str, texts: tuple[str, ...]) -> tuple[Voter, ...]:
    """`1@localhost:9093,2@other:9093` as voters. Raises ConfigError."""
    voters = []
    for text in texts:
        node_id, _, address = text.partition("@")
        host_and_port = _split_address(address)
        if host_and_port is None or not host_and_port[0] or not _is_number(node_id, 2**31 - 1):
            raise ConfigError(key, text, "each entry must have the form {id}@{host}:{port}")
        voters.append(Voter(int(node_id), *host_and_port))
    return tuple(voters)


def parse_host_and_port(key: str, text: str) -> tuple[str, int]:
    """`localhost:9093` or `[::1]:9093`. Raises ConfigError."""
    host_and_port = _split_address(text)
    if host_and_port is None or not host_and_port[0]:
        raise ConfigError(key, text, "expected {host}:{port}")
    return host_and_port


def parse_connection_overrides(key: str, text: str) -> dict[str, int]:
    """`host1:100,127.0.0.1:200` as host → count. Raises ConfigError."""
    overrides = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not _is_number(count, 2**31 - 1):
            raise ConfigError(key, text, "expected host:count pairs separated by commas")
        overrides[host] = int(count)
    return overrides


def _parse_endpoint(key: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = text.partition("://")
    host_and_port = _split_address(address)
    if not separator or not name or host_and_port is None:
        raise ConfigError(key, text, f"expected {{listener name}}://{{host}}:{{port}} with a port of at most {PORT_MAX}")
    name = name.upper()
    if name not in protocols:
        raise ConfigError(key, text, f"no security protocol defined for listener {name} in listener.security.protocol.map")
    return Endpoint(name, *host_and_port, protocols[name])


def _split_address(text: str) -> tuple[str, int] | None:
    """Host (perhaps empty, brackets of an IPv6 address removed) and port; None for anything else."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        is_host = ":" in host and all(character in "0123456789abcdefABCDEF:.%" for character in host.partition("%")[0])
    else:
        is_host = all(character.isascii() and (character.isalnum() or character in _HOST_PUNCTUATION) for character in host)
    if not separator or not is_host or not _is_number(port, PORT_MAX):
        return None
    return host, int(port)


def _is_number(text: str, maximum: int) -> bool:
    return len(text) <= 10 and text.isascii() and text.isdigit() and int(text) <= maximum


def _require_distinct_ports(key: str, texts: tuple[str, ...], endpoints: tuple[Endpoint, ...]) -> None:
    """One port may serve two listeners only when one is on an IPv4 and the other on an IPv6 address (KIP-797)."""
    families_by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            families_by_port.setdefault(endpoint.port, []).append(_family(endpoint.host))
    for port, families in families_by_port.items():
        if len(families) > 1 and sorted(families) != ["IPv4", "IPv6"]:
            raise ConfigError(key, ",".join(texts), f"each listener must have a different port; {port} is used twice")


def _family(host: str) -> str:
    if ":" in host:
        return "IPv6"
    parts = host.split(".")
    return "IPv4" if len(parts) == 4 and all(part.isdigit() for part in parts) else "name"
