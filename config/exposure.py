"""What a configuration leaves open to other machines: listeners that let in anyone, passwords in clear, the metrics.

Kafka says nothing of these. Each kind is one line, whatever the number of listeners, and none for what only this machine reaches.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from contextlib import suppress

from config.endpoints import Endpoint
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from config.server import ServerConfig

_log = logging.getLogger("barnabas.security")

ANYONE = "other machines reach listeners that let in anyone, without authentication: %s"
NO_CERTIFICATE = "other machines reach SSL listeners that let in clients without a certificate (ssl.client.auth is not required): %s"
CLEAR_PASSWORDS = "other machines reach listeners on which PLAIN sends passwords in clear (SASL_PLAINTEXT; use SASL_SSL): %s"
METRICS = "other machines reach the metrics, which let in anyone: barnabas.metrics.listener=%s"


def log_exposure(config: ServerConfig) -> None:
    """Warn of what is open to other machines. A setting that is wrong is told by the start."""
    open_listeners = [endpoint for endpoint in config.listeners if not is_of_this_machine(endpoint.host)]
    _warn(ANYONE, (each for each in open_listeners if each.security_protocol == "PLAINTEXT"))
    with suppress(ConfigError):
        _warn(
            NO_CERTIFICATE, (each for each in open_listeners if each.security_protocol == "SSL" and not _requires_certificate(config, each))
        )
        _warn(CLEAR_PASSWORDS, (each for each in open_listeners if each.security_protocol == "SASL_PLAINTEXT" and _has_plain(config, each)))
    metrics = config.metrics_address
    if metrics is not None and not is_of_this_machine(metrics[0]):
        _log.warning(METRICS, config.barnabas_metrics_listener)


def is_of_this_machine(host: str) -> bool:
    """Whether only this machine reaches what is bound to `host`. An empty host is every address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _warn(line: str, endpoints: Iterable[Endpoint]) -> None:
    names = ", ".join(map(str, endpoints))
    if names:
        _log.warning(line, names)


def _requires_certificate(config: ServerConfig, endpoint: Endpoint) -> bool:
    return ListenerSettings(config.texts, endpoint.listener_name).value("ssl.client.auth") == "required"


def _has_plain(config: ServerConfig, endpoint: Endpoint) -> bool:
    return "PLAIN" in (ListenerSettings(config.texts, endpoint.listener_name).value("sasl.enabled.mechanisms") or ())  # type: ignore[operator]
