"""AssignReplicasToDirs (key 73) on controller listeners. Serves v0.

Behaviour: a broker tells in which log directories its replicas are (KIP-858). NOT_CONTROLLER where this node does not lead the metadata
quorum; the answer comes once the records are committed.

Source: ControllerApis.handleAssignReplicasToDirs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.context import RequestContext
from broker.handlers.told_counts import check_told, check_told_count
from broker.services import ControllerServices, Handler
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

REPLICAS_MAX = 20_000
"""Of one request, whose records are one batch of the metadata log. Kafka's brokers send 2,250 at most."""


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> Coroutine[Any, Any, Any]:
        check_told(directories=request.directories)
        check_told_count("topics", sum(len(directory.topics) for directory in request.directories), REPLICAS_MAX)
        replicas_count = sum(len(topic.partitions) for directory in request.directories for topic in directory.topics)
        check_told_count("replicas", replicas_count, REPLICAS_MAX)
        return services.controller.assign_replicas_to_dirs(request)

    return handle
