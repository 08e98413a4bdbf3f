"""Listeners, advertised addresses and quorum voters: the properties whose text has a grammar of its own. Pure parsing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from config.properties import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX = 65_535

_ENDPOINT = r"([^:/]+)://(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-%._]*)):([0-9]{1,5})"
_VOTER = r"([0-9]{1,10})@(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-%._]+)):([0-9]{1,5})"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener. An empty host listens on every address; port 0 lets the system choose (then advertise what it chose)."""

    listener_name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Voter:
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
        match = re.fullmatch(_VOTER, text)
        if match is None or int(match[4]) > PORT_MAX or int(match[1]) >= 2**31:
            raise ConfigError(key, text, "each entry must have the form {id}@{host}:{port}")
        voters.append(Voter(int(match[1]), match[2] or match[3], int(match[4])))
    return tuple(voters)


def parse_host_and_port(key: str, text: str) -> tuple[str, int]:
    """`localhost:9093` or `[::1]:9093`. Raises ConfigError."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > PORT_MAX:
        raise ConfigError(key, text, "expected {host}:{port}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_connection_overrides(key: str, text: str) -> dict[str, int]:
    """`host1:100,127.0.0.1:200` as host → count. Raises ConfigError."""
    overrides = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,9}", count):
            raise ConfigError(key, text, "expected host:count pairs separated by commas")
        overrides[host] = int(count)
    return overrides


def _parse_endpoint(key: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = re.fullmatch(_ENDPOINT, text)
    if match is None:
        raise ConfigError(key, text, "expected {listener name}://{host}:{port}")
    name, port = match[1].upper(), int(match[4])
    if port > PORT_MAX:
        raise ConfigError(key, text, f"a port is at most {PORT_MAX}")
    if name not in protocols:
        raise ConfigError(key, text, f"no security protocol defined for listener {name} in listener.security.protocol.map")
    return Endpoint(name, match[2] or match[3], port, protocols[name])


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
    return "IPv4" if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host) else "name"
