"""`barnabas transaction`: a command a file."""
