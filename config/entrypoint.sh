#!/bin/sh
# The container's first process. Apache Kafka's image runs the program that it is told to run; so does this one, and whatever is no program
# is a command of `barnabas`. Compose files also call this script by its name in Apache's image, /etc/kafka/docker/run.
case "${1-}" in
    "") exec barnabas serve ;;
    */* | sh | bash) exec "$@" ;;
    *) exec barnabas "$@" ;;
esac
