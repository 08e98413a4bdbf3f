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
    && PIP_CONSTRAINT=/src/constraints.txt /opt/barnabas/bin/pip install --no-cache-dir --compile . \
    && /opt/barnabas/bin/python -m compileall -q /opt/barnabas/lib

FROM python:3.12-slim
COPY --from=build /opt/barnabas /opt/barnabas
RUN groupadd --system --gid 1000 barnabas \
    && useradd --system --uid 1000 --gid barnabas --home-dir /var/lib/barnabas --create-home barnabas \
    && install -d -o barnabas -g barnabas /var/lib/barnabas/data

# Clients on the host come by localhost:9092, other containers by this one's name and port 19092. Where 9092 is published as another
# port, set KAFKA_ADVERTISED_LISTENERS to the address that clients dial. ${HOSTNAME} is filled in at the start, by the shell.
ENV PATH=/opt/barnabas/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KAFKA_LOG_DIRS=/var/lib/barnabas/data \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092,INTERNAL://0.0.0.0:19092 \
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT \
    KAFKA_BARNABAS_METRICS_LISTENER=0.0.0.0:9404

USER barnabas
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas/data
EXPOSE 9092 19092 9404
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9092), 2).close()"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/bin/sh", "-c", "export KAFKA_ADVERTISED_LISTENERS=\"${KAFKA_ADVERTISED_LISTENERS:-PLAINTEXT://localhost:9092,INTERNAL://$(hostname):19092}\" && exec barnabas \"$@\"", "barnabas"]
CMD ["serve"]
