"""`barnabas cluster info` and `health`; up and status are in broker/cli/."""
