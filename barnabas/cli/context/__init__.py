"""`barnabas context`: a command a file."""
