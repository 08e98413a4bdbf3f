"""Measurements of a broker from outside: the rows of the performance table, against Barnabas and Apache Kafka alike.

Layers, lowest first: `clients` (programs that make load; any Kafka broker will do), `usage` (what a process costs),
`servers`, `session` and `cluster_session` (a running broker, or three, and what a measurement needs of it), `*_rows` (the measurements),
`rows` (the table of them), `campaign` (which broker, which row, how often), `report`, `comparison` (whether one of two lost),
`versus` (two commits), `profiling`. Nothing of the broker imports this package.
"""
