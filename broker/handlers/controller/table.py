"""The APIs of controller listeners. Most handlers are a single call of the metadata quorum's replica in this node, or of the controller.

Requests to the controller are answered with NOT_CONTROLLER if this node does not lead the metadata quorum; otherwise when their records are
committed. A forwarded request (KIP-590) is answered as its client would be.

Source: ControllerApis, KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.apis import Api
from protocol.errors import KafkaError

Build = Callable[[ControllerServices], Handler]
Call = Callable[[Any, Any, RequestContext], Coroutine[Any, Any, Any]]
"""What to ask the ControllerChannel, given the request."""
ErrorResponse = Callable[[Any, KafkaError], Any]

QUORUM = frozenset(
    (
        "fetch",  # a replica of the metadata log fetches from its leader; parked while there is nothing for it
        "fetch_snapshot",  # a replica that is far behind fetches a part of a snapshot (KIP-630)
        "vote",  # a vote or a pre-vote (KIP-996) for a candidate
        "begin_quorum_epoch",  # a new leader announces itself
        "end_quorum_epoch",  # the leader resigns and names its successors
        "add_raft_voter",
        "remove_raft_voter",
        "update_raft_voter",  # a voter reports its addresses and its versions to the leader (KIP-853)
    )
)
"""Answered by the quorum's replica in this node."""

CONTROLLER: dict[str, Call] = {
    # Requests of brokers and controllers.
    "broker_registration": lambda controller, request, context: controller.register_broker(request, context),
    "broker_heartbeat": lambda controller, request, context: controller.broker_heartbeat(request, context),
    "controller_registration": lambda controller, request, context: controller.register_controller(request),  # KIP-919
    "alter_partition": lambda controller, request, context: controller.alter_partition(request),
    "assign_replicas_to_dirs": lambda controller, request, context: controller.assign_replicas_to_dirs(request),  # KIP-858
    "allocate_producer_ids": lambda controller, request, context: controller.allocate_producer_ids(request),
    # Requests of clients, which brokers forward.
    "alter_client_quotas": lambda controller, request, context: controller.alter_client_quotas(request, context),
    "alter_user_scram_credentials": lambda controller, request, context: controller.alter_user_scram_credentials(request, context),
    "create_partitions": lambda controller, request, context: controller.create_partitions(request, context),
    "delete_topics": lambda controller, request, context: controller.delete_topics(request, context.api_version, context),
    "alter_partition_reassignments": lambda controller, request, context: controller.alter_partition_reassignments(request, context),
    "unregister_broker": lambda controller, request, context: controller.unregister_broker(request, context),
    "update_features": lambda controller, request, context: controller.update_features(request, context),
}
"""One call of the controller."""

SAME_AS_CLIENTS = frozenset(
    (
        "alter_configs",
        "create_acls",
        "create_delegation_token",
        "delete_acls",
        "describe_acls",
        "expire_delegation_token",
        "renew_delegation_token",
        "sasl_authenticate",
        "sasl_handshake",
    )
)
"""Built by the module that client listeners use."""

OWN_MODULES = {
    "api_versions": "other_apis",
    "create_topics": "other_apis",
    "describe_cluster": "describe_cluster",
    "describe_configs": "configs",
    "describe_quorum": "other_apis",
    "elect_leaders": "other_apis",
    "envelope": "envelope",
    "incremental_alter_configs": "configs",
    "list_partition_reassignments": "other_apis",
}
"""Where more than a call is needed: the file of this folder whose function `build_<stem>` builds the handler."""

WITH_THE_RESPONSE_OF_CLIENTS = frozenset(
    (
        "alter_client_quotas",
        "alter_configs",
        "alter_partition_reassignments",
        "alter_user_scram_credentials",
        "create_acls",
        "create_partitions",
        "create_topics",
        "delete_acls",
        "delete_topics",
        "describe_configs",
        "elect_leaders",
        "incremental_alter_configs",
        "list_partition_reassignments",
        "unregister_broker",
    )
)
"""Their whole-request errors go where the client's module puts them; those of others into the response's own error code."""


def build(services: ControllerServices, api: Api) -> tuple[Handler, ErrorResponse | None]:
    """Returns the handler of an API, and the function that builds a response from an error of the whole request."""
    error_response = None
    if api.stem in WITH_THE_RESPONSE_OF_CLIENTS:
        error_response = import_module(f"broker.handlers.{api.family}.{api.stem}").error_response
    return _handler(services, api), error_response


def _handler(services: ControllerServices, api: Api) -> Handler:
    stem = api.stem
    if stem in QUORUM:
        return _of_the_quorum(services)
    if stem in CONTROLLER:
        return _of_the_controller(services, CONTROLLER[stem])
    if stem in SAME_AS_CLIENTS:
        built: Handler = import_module(f"broker.handlers.{api.family}.{stem}").build(services)
        return built
    build: Build = getattr(import_module(f"broker.handlers.controller.{OWN_MODULES[stem]}"), f"build_{stem}")
    return build(services)


def _of_the_quorum(services: ControllerServices) -> Handler:
    return lambda context, request: services.ask_quorum(request, context.api_version, context.connection.listener.name)


def _of_the_controller(services: ControllerServices, call: Call) -> Handler:
    return lambda context, request: call(services.controller, request, context)
