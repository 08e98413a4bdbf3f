"""The words of client quotas, in requests and in the metadata log: types of entities, keys of quotas, and how a filter matches.

Source: org.apache.kafka.common.quota.ClientQuotaEntity, DescribeClientQuotasRequest, org.apache.kafka.server.config.QuotaConfig.
"""

from __future__ import annotations

from enum import IntEnum

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
"""Types of an entity's parts. A part whose name is null is the default of its type."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
"""Quotas of users and client ids: bytes a second, percent of one thread's time, partitions created or deleted a second."""

CONNECTION_CREATION_RATE = "connection_creation_rate"
"""The quota of IP addresses: new connections a second."""


class MatchType(IntEnum):
    """How a component of a DescribeClientQuotas filter matches a part of an entity."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""
