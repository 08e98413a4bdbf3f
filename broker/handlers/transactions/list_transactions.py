"""ListTransactions (key 66): the transactional ids that this broker coordinates. Serves v0–v2.

Behaviour:
- Every id whose partition of `__transaction_state` this broker leads, as far as its state is committed, if all filters let it through and
the client may DESCRIBE it. COORDINATOR_LOAD_IN_PROGRESS while a partition is loading; COORDINATOR_NOT_AVAILABLE.
- Names of states are as in the answer, upper and lower case count. Those that are no state are told in unknown_state_filters; a filter
with no other name lets nothing through.
- An id without a transaction has lasted longer than any duration, as in Kafka.

Version notes:
- v1: duration_filter, milliseconds since the transaction began, which must be more; a negative one lets all through (KIP-994).
- v2: transactional_id_pattern, a regular expression in RE2's syntax for the whole id, INVALID_REGULAR_EXPRESSION if it is none; null and
an empty one let all through (KIP-1152). An id of more than 255 characters matches none.

Source: KafkaApis.handleListTransactionsRequest, TransactionStateManager.listTransactionStates (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import ELEMENTS_AT_ONCE, Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.transactions.descriptions import TransactionFilter, states_of
from config.safe_patterns import PatternError, SafePattern
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from broker.transactions.coordinator import TransactionCoordinator


def build(services: Services) -> Handler:
    coordinator = services.transaction_coordinator
    assert coordinator is not None, "the API is served where there is a coordinator"

    def handle(context: RequestContext, request: ListTransactionsRequest) -> Any:
        return at_once_or_in_turns(_answer(coordinator, context.access, request), ELEMENTS_AT_ONCE)

    return handle


def _answer(coordinator: TransactionCoordinator, access: Access, request: ListTransactionsRequest) -> Work:
    states, unknown = states_of(request.state_filters)
    pattern = _pattern_of(request.transactional_id_pattern)
    wanted = TransactionFilter(
        states,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        None if pattern is None else pattern.matches,
    )
    listed: list[TransactionState] = []
    for each in coordinator.list_transactions(wanted):
        if each is not None and access.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id):
            listed.append(
                TransactionState(transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state)
            )
        yield
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _pattern_of(text: str | None) -> SafePattern | None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    try:
        return SafePattern(text) if text else None
    except PatternError as e:
        message = f"Transaction ID pattern `{text}` is not a valid regular expression: {e}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from e


def error_response(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)
