"""RaftExchange: handles other replicas' requests, and their answers to this replica's requests.

It is created at the first of them: a quorum of one exchanges no messages, and its start need not load them all.
"""

from __future__ import annotations

from typing import Any

from broker.quorum.raft import Outgoing, Raft
from broker.quorum.raft_requests import RaftRequests
from broker.quorum.raft_responses import RaftResponses
from broker.quorum.voter_handlers import VoterHandlers
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest


class RaftExchange:
    """Owner: RaftReplica."""

    def __init__(self, raft: Raft) -> None:
        self.requests = RaftRequests(raft)
        self.responses = RaftResponses(raft)
        self.voters = VoterHandlers(raft)
        self.responses.on_api_versions = self.voters.api_versions_answered

    def handle_request(self, token: Any, message: Any, version: int, listener_name: str, now_ms: int) -> None:
        """Answer a peer's or a client's request, now or later; `token` identifies the request."""
        kind = type(message)
        if kind is AddRaftVoterRequest:
            self.voters.add(token, message, version, now_ms)
        elif kind is RemoveRaftVoterRequest:
            self.voters.remove(token, message, version, now_ms)
        elif kind is UpdateRaftVoterRequest:
            self.voters.update(token, message, listener_name, now_ms)
        else:
            self.requests.handle(token, message, version, listener_name, now_ms)

    def handle_response(self, outgoing: Outgoing, response: Any | None, now_ms: int) -> None:
        self.responses.handle(outgoing, response, now_ms)
