"""The metadata quorum: the raft core (KIP-595), its log, and what drives both."""
