"""`barnabas consume`: the records of topics, as text."""
