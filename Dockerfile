# Barnabas in a container. The steps are the README's: a virtual environment, pip install, barnabas serve.
#   docker build -t barnabas . && docker run -p 9092:9092 barnabas

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY barnabas barnabas
COPY broker broker
COPY config config
COPY pipeline pipeline
COPY protocol protocol
COPY storage storage
RUN python -m venv /opt/barnabas \
    && PIP_CONSTRAINT=/src/constraints.txt /opt/barnabas/bin/pip install --no-cache-dir --compile '.[console]' \
    && /opt/barnabas/bin/python -m compileall -q /opt/barnabas/lib \
    && cp config/container.properties config/entrypoint.sh config/kafka-tool.sh /opt/barnabas/

FROM python:3.12-slim
# Health checks of compose files call nc, which Apache Kafka's image has.
RUN apt-get update && apt-get install -y --no-install-recommends netcat-openbsd && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/barnabas /opt/barnabas
RUN groupadd --system --gid 1000 barnabas \
    && useradd --system --uid 1000 --gid barnabas --home-dir /var/lib/barnabas --create-home barnabas \
    && install -d -o barnabas -g barnabas /var/lib/kafka/data /etc/kafka/secrets /mnt/shared/config \
    && install -d -o barnabas -g barnabas /tmp/kraft-combined-logs /tmp/kafka-logs \
    && install -d /etc/kafka/docker /opt/kafka/bin && ln -s /opt/barnabas/entrypoint.sh /etc/kafka/docker/run \
    && for tool in acls broker-api-versions configs console-consumer console-producer consumer-groups get-offsets metadata-quorum storage topics; do \
        ln -s /opt/barnabas/kafka-tool.sh /opt/kafka/bin/kafka-$tool.sh; done

# Folders, also those in /tmp at which volumes are mounted, the user's id and the default CLUSTER_ID are those of Apache Kafka's image, so
# that its compose files and volumes serve here. Settings come from a mounted server.properties, or else from container.properties, where `serve` is given no --config, and from KAFKA_…
# variables, which are the user's alone: one that is set here could not be told from one that the user has set.
ENV PATH=/opt/barnabas/bin:/opt/kafka/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CLUSTER_ID=5L6g3nShT-eMCtK--X86sw \
    BARNABAS_DEFAULTS=/opt/barnabas/container.properties \
    BARNABAS_MOUNTED=/mnt/shared/config/server.properties

USER barnabas
WORKDIR /var/lib/barnabas
VOLUME /var/lib/kafka/data
EXPOSE 9092 19092 9404
HEALTHCHECK --interval=5s --timeout=5s --start-period=5s --retries=3 CMD ["barnabas", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/barnabas/entrypoint.sh"]
CMD ["serve"]
