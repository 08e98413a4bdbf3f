"""`barnabas produce`: records from lines, into a topic."""
