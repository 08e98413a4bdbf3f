"""Control records: the keys and values of batches with the control bit, which brokers write and clients never see.

Source: org.apache.kafka.common.record.ControlRecordType and the message definitions of KIP-98, KIP-595, KIP-630 and KIP-853.
"""

from __future__ import annotations

from ...codec import decode
from ...errors import DecodeError
from ...records import ControlRecordType
from ...schema import Array, Int16, Int32, Int64, Uuid, message, since, struct
from ...uuids import ZERO_UUID
from .version_prefix import VERSION


@message(versions=(0, 0), flexible=None)
class ControlRecordTypeSchema:
    """Key of every control record, after its version as an int16."""

    type: Int16 = 0


@message(versions=(0, 0), flexible=None)
class EndTxnMarker:
    """Value of ABORT and COMMIT, after its version as an int16."""

    coordinator_epoch: Int32 = 0


@struct
class Voter:
    voter_id: Int32 = 0
    voter_directory_id: Uuid = since(1, default=ZERO_UUID)


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage:
    version: Int16 = 0
    leader_id: Int32 = 0
    voters: Array[Voter] = []
    granting_voters: Array[Voter] = []


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord:
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord:
    version: Int16 = 0


@message(versions=(0, 0), flexible=0)
class KRaftVersionRecord:
    version: Int16 = 0
    k_raft_version: Int16 = 0


CONTROL_RECORD_KEY_VERSION = 0


def decode_control_key(buffer: bytes | memoryview) -> ControlRecordType:
    """Returns the type that a control record's key names; a key of a newer version is read as the one known here."""
    if len(buffer) < VERSION.size or VERSION.unpack_from(buffer)[0] < CONTROL_RECORD_KEY_VERSION:
        raise DecodeError("malformed key of a control record")
    key, _ = decode(ControlRecordTypeSchema, CONTROL_RECORD_KEY_VERSION, buffer, VERSION.size)
    return ControlRecordType(key.type)
