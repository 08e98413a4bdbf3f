"""DescribeConfigs (key 32) on controller listeners. Serves v1–v4.

Behaviour: as brokers answer it, for this node's id. A node that is a controller only describes its own configs and loggers so.

Source: ControllerApis.handleDescribeConfigsRequest (KIP-919).
"""

from __future__ import annotations

from broker.handlers.configs.describe_configs import error_response, handler
from broker.handlers.services import ControllerServices, Handler

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    return handler(services.metadata, services.config)
