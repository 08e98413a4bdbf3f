#!/bin/sh
# Apache Kafka's tools by their names in its image, /opt/kafka/bin/kafka-topics.sh and the like: links to this file.
# The commands of kafka-storage, format and random-uuid, are `barnabas`' own.
case "${0##*/} $1" in
    "kafka-storage.sh format" | "kafka-storage.sh random-uuid") exec barnabas "$@" ;;
    *) exec barnabas kafka-tool "${0##*/}" "$@" ;;
esac
