"""Avro and Protobuf in `consume` and `produce`: keys and values as JSON, by a schema registry or by files.

It needs pip install 'barnabas[schemas]', when it is used.
"""
