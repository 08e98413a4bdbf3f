"""Log directories as a table, without a broker: `spark.read.format("barnabas-log")`. Only reads, beneath a running broker too."""
