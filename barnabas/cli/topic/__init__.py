"""`barnabas topic`: a command a file."""
