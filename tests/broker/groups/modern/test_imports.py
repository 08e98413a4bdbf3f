"""The first heartbeat of a KIP-848 group imports what such groups need, in turns of the loop."""

from __future__ import annotations

import subprocess
import sys
from types import GeneratorType

from broker.handlers import consumer_group_heartbeat
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.stored.metadata_records import FeatureLevelRecord
from tests.broker.groups.harness import GroupHandlers
from tests.broker.groups.modern.consumers import Consumers
from tests.support.services import request_context
from tests.support.turns import started

PROGRAM = """
import sys
import broker.groups.coordinator, broker.groups.shard, broker.handlers.consumer_group_heartbeat
from broker.groups.modern.imports import import_all
before = set(sys.modules)
counts = []
for _ in import_all():
    counts.append(len({name for name in sys.modules if name.startswith(("broker.", "protocol."))} - before))
    before = set(sys.modules)
import broker.groups.modern.manager
print(max(counts), len(set(sys.modules) - before))
"""


def test_no_step_imports_several_modules_and_none_is_left_out():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)

    most, left_out = map(int, done.stdout.split())
    assert most <= 2  # a module, and its package
    assert left_out == 0


def test_first_heartbeat_goes_in_turns_and_the_next_is_answered_at_once():
    handlers = GroupHandlers(Consumers())
    handlers.script.metadata.apply_committed([FeatureLevelRecord(name="group.version", feature_level=1)])
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    handle = consumer_group_heartbeat.build(handlers.services)
    context = request_context(0, 1)

    first = handle(context, request)
    assert isinstance(first, GeneratorType)
    assert started(first).take().member_epoch == 2
    assert handle(context, request).member_epoch == 2
