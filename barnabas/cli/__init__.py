"""The client commands (`barnabas topic list`): a Kafka client for the command line, of this broker's and of Apache Kafka's clusters.

They run in the launcher's process and import broker/cli/ for the wire; nothing imports them but the launcher, when one of them is called.
"""
