"""Keys and values that are JSON, Avro or Protobuf as typed columns, and what cannot be decoded with its reason.

`naming.py` reads `avro:order.avsc` and its like, `decode.py` adds the columns to a DataFrame. JSON is decoded by Spark alone; Avro and
Protobuf by fastavro and protobuf in Spark's Python workers: Spark's own from_avro and from_protobuf need a JAR each, know one writer's
schema, and have no reason for what they cannot decode.
"""
