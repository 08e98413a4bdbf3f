"""Spark and Kafka's protocol without a JAR.

This runs in processes that are not ours: Spark's driver and its Python workers, where a module of the user's may be called `protocol` or
`config`. So it reaches our folders as parts of `barnabas` alone, by relative imports. In a checkout `barnabas/protocol` is a link to
`protocol/`, in a wheel it is the folder itself.
"""
