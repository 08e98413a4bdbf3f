"""What the operations of a transaction coordinator answer, and what they need to be told."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from broker.transactions.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode


class ProducerAnswer(NamedTuple):
    """The answer to InitProducerId and EndTxn."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Need(Enum):
    """What a decision lacks. The operation decides again when it is there, from the state that holds then."""

    PRODUCER_ID = "a producer id that was never used"
    END_OF_TRANSACTION = "the end of the transaction before, whose markers are being written"
