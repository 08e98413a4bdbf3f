"""The modules that KIP-848 groups need, imported with the first heartbeat of one: a module between two turns of the loop, for all of them
take 30 to 40 ms. A broker without such groups never pays for them.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module

MODULES = (
    "broker.groups.assignors.specification",
    "broker.groups.modern.member",
    "broker.groups.modern.group",
    "broker.groups.modern.reconciliation",
    "protocol.messages.stored.consumer_group_records",
    "broker.groups.modern.records",
    "broker.groups.modern.subscriptions",
    "protocol.xxh3",
    "broker.groups.modern.topics",
    "broker.groups.modern.target",
    "broker.groups.modern.outcome",
    "broker.groups.modern.assignments",
    "broker.groups.modern.progress",
    "broker.groups.modern.requests",
    "broker.groups.modern.migration",
    "broker.groups.modern.conversions",
    "broker.groups.modern.classic_members",
    "broker.groups.modern.departures",
    "broker.groups.modern.late_answers",
    "broker.groups.modern.member_timers",
    "broker.groups.modern.topic_patterns",
    "broker.groups.modern.regular_expressions",
    "broker.groups.modern.settings",
    "broker.groups.modern.jobs",
    "broker.groups.modern.store",
    "broker.groups.modern.manager",
)
"""Each after those that it imports."""


def import_all() -> Generator[None, None, None]:
    """A module at a time."""
    for module in MODULES:
        import_module(module)
        yield
