"""`barnabas user`: a command a file; SCRAM credentials of users (KIP-554)."""
