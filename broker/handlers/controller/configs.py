"""DescribeConfigs and IncrementalAlterConfigs on controller listeners, which include a controller's own configs and loggers (KIP-919).

DescribeConfigs (key 32): as brokers answer it, for this node's id. A node that is a controller only describes its own configs and loggers.

IncrementalAlterConfigs (key 44):
- Configs of topics and brokers are changed by the active controller.
- Broker loggers, by this node's id: changed here by who has CLUSTER_ACTION on the cluster, also where this node does not lead, and
  forgotten when the process ends. Their answers come after the others.

Source: ControllerApis.handleDescribeConfigsRequest, handleIncrementalAlterConfigs.
"""

from __future__ import annotations

from broker.handlers.configs import describe_configs, incremental_alter_configs
from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse


def build_describe_configs(services: ControllerServices) -> Handler:
    return describe_configs.handler(services.metadata, services.config)


def build_incremental_alter_configs(services: ControllerServices) -> Handler:
    controller = services.controller

    async def with_loggers(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        from broker.handlers.configs.logger_changes import changed_loggers, without_loggers

        changed = changed_loggers(request, services.metadata.node_id, context.access, AclOperation.CLUSTER_ACTION, checks_form=False)
        rest = without_loggers(request)
        response = await controller.incremental_alter_configs(rest, context) if rest.resources else IncrementalAlterConfigsResponse()
        return IncrementalAlterConfigsResponse(responses=[*response.responses, *changed])

    return incremental_alter_configs.handler(controller.incremental_alter_configs, with_loggers)
