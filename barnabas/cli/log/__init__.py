"""`barnabas log`: what is in the files of a data folder, Barnabas's or Apache Kafka's, read without a broker and never written to."""
