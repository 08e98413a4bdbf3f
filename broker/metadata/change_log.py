"""The log lines about changes of the cluster: topics created and deleted, partitions added, configs altered, and refused requests.

Each line names the client (principal, host, client id) and the way of the request. A committed change is logged even if its client has
disconnected. Clients can cause any number of changes, so a LimitedLog bounds the lines.

Kafka logs the same at INFO in ReplicationControlManager and ConfigurationControlManager, without the client.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.metadata.cluster_state import RESOURCE_BROKER, RESOURCE_TOPIC
from broker.metadata.config_entries import is_secret_of_broker
from broker.observability.limited_log import EVENT_LINES_MAX, LimitedLog
from broker.observability.log_fields import Fields
from protocol.errors import ErrorCode, KafkaError
from protocol.uuids import uuid_to_text

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.network.context import RequestContext
    from protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        AlterClientQuotasResponseEntryData,
        OpData,
    )
    from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
    from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from protocol.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
    from protocol.messages.delete_topics import DeleteTopicsResponse
    from protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

log = logging.getLogger("barnabas.cluster")

LOOKED_AT_CONFIGS_MAX = 100
"""Settings that a line may name, more than it has room for. A resource may come with 90,000 of them."""

HIDDEN = "(redacted)"
"""In place of a secret, as in Kafka (ConfigurationControlManager.replay)."""

_SET = 0
_OPERATION_SIGNS = {0: "=", 2: "+=", 3: "-="}  # SET, APPEND, SUBTRACT; DELETE has no value


class ChangeLog:
    """Called by the ControllerClient and the AutoTopicCreator once the outcome is known."""

    def __init__(self, clock: Clock) -> None:
        self._log = LimitedLog(log, clock, lines_max=EVENT_LINES_MAX)

    def topics_created(self, request: CreateTopicsRequest, response: CreateTopicsResponse, client: RequestContext | None) -> None:
        asked_for: dict[str, CreatableTopic] = {topic.name: topic for topic in request.topics}
        for result in response.topics:
            if result.error_code:
                self._refused("topic not created", result.error_code, result.error_message, client, topic=result.name)
            elif not request.validate_only and not self._log.omits("topic created"):
                configs = ",".join(f"{config.name}={config.value}" for config in asked_for[result.name].configs)
                self.topic_created(result, client, "explicit", configs=configs or None)

    def topic_created(self, result: CreatableTopicResult, client: RequestContext | None, how: str, **facts: Any) -> None:
        """`how` is explicit, auto (a client asked for metadata of a missing topic) or internal (a coordinator needs it)."""
        described = Fields(
            topic=result.name,
            id=uuid_to_text(result.topic_id),
            partitions=result.num_partitions,
            replication_factor=result.replication_factor,
            **facts,
            how=how,
            **_client_fields(client),
        )
        self._log.info("topic created", "topic created %s", described)

    def topic_not_created(self, name: str, error: ErrorCode, reason: str | None, client: RequestContext | None, how: str) -> None:
        """An automatic creation failed: its client only learns that the topic is unknown, so the reason is logged."""
        facts = Fields(topic=name, how=how, error=error.name, reason=reason, **_client_fields(client))
        self._log.warning("automatic creation failed", "topic not created %s", facts)

    def topics_deleted(self, response: DeleteTopicsResponse, client: RequestContext | None) -> None:
        for result in response.responses:
            if self._log.omits("topic not deleted" if result.error_code else "topic deleted"):
                continue
            topic_id = uuid_to_text(result.topic_id) if any(result.topic_id) else None
            if result.error_code:
                self._refused("topic not deleted", result.error_code, result.error_message, client, topic=result.name, id=topic_id)
            else:
                self._log.info("topic deleted", "topic deleted %s", Fields(topic=result.name, id=topic_id, **_client_fields(client)))

    def partitions_added(self, request: CreatePartitionsRequest, response: CreatePartitionsResponse, client: RequestContext | None) -> None:
        counts = {topic.name: topic.count for topic in request.topics}
        for result in response.results:
            if result.error_code:
                self._refused("partitions not added", result.error_code, result.error_message, client, topic=result.name)
            elif not request.validate_only and not self._log.omits("partitions added"):
                facts = Fields(topic=result.name, partitions=counts.get(result.name), **_client_fields(client))
                self._log.info("partitions added", "partitions added %s", facts)

    def configs_altered(
        self,
        request: IncrementalAlterConfigsRequest | AlterConfigsRequest,
        response: IncrementalAlterConfigsResponse | AlterConfigsResponse,
        client: RequestContext | None,
    ) -> None:
        resources: list[Any] = list(request.resources)
        results: list[Any] = list(response.responses)
        for resource, result in zip(resources, results, strict=True):
            if result.error_code:
                if not self._log.omits("config not changed"):
                    # Only the names: a refused value may be a password.
                    facts = {**_resource(result), "configs": ",".join(config.name for config in resource.configs[:LOOKED_AT_CONFIGS_MAX])}
                    self._refused("config not changed", result.error_code, result.error_message, client, **facts)
            elif not request.validate_only and not self._log.omits("config changed"):
                described = Fields(**_resource(result), changes=_changes(resource), **_client_fields(client))
                self._log.info("config changed", "config changed %s", described)

    def client_quotas_altered(self, request: AlterClientQuotasRequest, response: AlterClientQuotasResponse, client: RequestContext) -> None:
        entries: list[Any] = list(request.entries) if len(request.entries) == len(response.entries) else []  # else one was named twice
        for index, result in enumerate(response.entries):
            if result.error_code:
                if not self._log.omits("client quotas not changed"):
                    self._refused("client quotas not changed", result.error_code, result.error_message, client, entity=_entity(result))
            elif not request.validate_only and not self._log.omits("client quotas changed"):
                changes = ",".join(map(_quota_change, entries[index].ops[:LOOKED_AT_CONFIGS_MAX])) if entries else None
                described = Fields(entity=_entity(result), changes=changes, **_client_fields(client))
                self._log.info("client quotas changed", "client quotas changed %s", described)

    def scram_credentials_altered(
        self, request: AlterUserScramCredentialsRequest, response: AlterUserScramCredentialsResponse, client: RequestContext
    ) -> None:
        deleted = {deletion.name for deletion in request.deletions}
        for result in response.results:
            if result.error_code:
                self._refused("SCRAM credential not changed", result.error_code, result.error_message, client, user=result.user)
            else:
                what = "SCRAM credential removed" if result.user in deleted else "SCRAM credential set"
                if not self._log.omits(what):
                    self._log.info(what, "%s %s", what, Fields(user=result.user, **_client_fields(client)))

    def delegation_token_changed(self, what: str, records: Sequence[Any], response: Any, client: RequestContext) -> None:
        """`what` is created, renewed or expired. The token's HMAC is a password, and told nowhere."""
        if response.error_code:
            self._refused(f"delegation token not {what}", response.error_code, None, client)
            return
        for record in records:
            if not self._log.omits(f"delegation token {what}"):
                described = Fields(token_id=record.token_id, owner=getattr(record, "owner", None), **_client_fields(client))
                self._log.info(f"delegation token {what}", "delegation token %s %s", what, described)

    def request_refused(self, what: str, error: KafkaError, client: RequestContext | None) -> None:
        """Log a request that was refused as a whole. `what` is a constant of this program, no text of a client."""
        self._refused(what, error.code, error.message, client)

    def _refused(self, what: str, error_code: int, reason: str | None, client: RequestContext | None, **facts: Any) -> None:
        if self._log.omits(what):
            return
        described = Fields(**facts, error=ErrorCode(error_code).name, reason=reason or None, **_client_fields(client))
        self._log.info(what, "%s %s", what, described)


def _client_fields(client: RequestContext | None) -> dict[str, Any]:
    if client is None:
        return {}
    return {"principal": client.connection.principal, "client": client.connection.client_host, "client_id": client.client_id}


def _resource(result: Any) -> dict[str, Any]:
    if result.resource_type == RESOURCE_TOPIC:
        return {"topic": result.resource_name}
    return {"resource_type": result.resource_type, "resource": result.resource_name}


def _entity(result: AlterClientQuotasResponseEntryData) -> str:
    return ",".join(f"{part.entity_type}={'<default>' if part.entity_name is None else part.entity_name}" for part in result.entity)


def _quota_change(op: OpData) -> str:
    return f"{op.key} removed" if op.remove else f"{op.key}={op.value:.15g}"


def _changes(resource: Any) -> str:
    is_of_broker = resource.resource_type == RESOURCE_BROKER
    return ",".join(_change(config, is_of_broker) for config in resource.configs[:LOOKED_AT_CONFIGS_MAX])


def _change(config: Any, is_of_broker: bool) -> str:
    """Formats one change. AlterConfigs has no operations: it sets every config that it names. Only brokers have secrets."""
    operation = getattr(config, "config_operation", _SET)
    if operation not in _OPERATION_SIGNS:
        return f"{config.name} deleted"
    value = HIDDEN if is_of_broker and is_secret_of_broker(config.name) else config.value
    return f"{config.name}{_OPERATION_SIGNS[operation]}{value}"
