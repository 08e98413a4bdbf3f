"""A sentence about each property, for DescribeConfigs and for people. Imported when first asked for, not at the start.

A property either does something here (or stops the start), or it is listed with the reason why it has no effect, and its sentence
says so. tests/config/test_docs.py holds the lists to the code that reads the settings.
"""

from __future__ import annotations

from functools import cache

from config.listener_properties import PREFIX, has_effect_for_listener
from config.topic import TOPIC_PROPERTIES

# What it is, and why it has no effect here: whole families, the longest prefix first.
_FAMILIES_WITHOUT_EFFECT = (
    ("follower.fetch.last.tiered", "Tiered storage", "it is not supported"),
    ("group.share.", "Share groups", "they are not supported yet"),
    ("group.streams.", "Streams groups", "they are not supported yet"),
    ("listener.name.", "A setting of one listener", "listeners have no such setting of their own"),
    ("local.retention.", "Tiered storage", "it is not supported"),
    ("remote.", "Tiered storage", "it is not supported"),
    ("rlmm.config.", "Tiered storage", "it is not supported"),
    ("rsm.config.", "Tiered storage", "it is not supported"),
    ("sasl.kerberos.", "Kerberos", "GSSAPI is not supported"),
    ("sasl.login.", "How a node gets its own credentials", "no class is loaded for that"),
    ("sasl.oauthbearer.", "OAUTHBEARER by assertions", "a node that logs in to others by OAUTHBEARER has a client's id and secret"),
    ("share.coordinator.", "Share groups", "they are not supported yet"),
)

# The same for single properties: the reason after `=`, then name and what it is.
_WITHOUT_EFFECT = """
= one loop serves all, without threads to size
background.threads  Kafka's thread count for background work
group.coordinator.background.threads  Kafka's thread count for group work
group.coordinator.threads  Kafka's thread count for the group coordinator
num.io.threads  Kafka's thread count for requests
num.network.threads  Kafka's thread count for sockets
num.recovery.threads.per.data.dir  Kafka's thread count for recovery
= requests do not queue: a connection's next one is begun when its turn comes, and max.connections bounds the connections
queued.max.requests  Kafka's request queue
= what waits is found by what it waits for, and nothing is left behind to purge
delete.records.purgatory.purge.interval.requests  Kafka's purgatory housekeeping
fetch.purgatory.purge.interval.requests  Kafka's purgatory housekeeping
producer.purgatory.purge.interval.requests  Kafka's purgatory housekeeping
share.fetch.purgatory.purge.interval.requests  Kafka's purgatory housekeeping
= OpenSSL has no such choice
ssl.keymanager.algorithm  Java's key manager
ssl.protocol  Java's SSLContext; ssl.enabled.protocols bounds the versions
ssl.secure.random.implementation  Java's source of random numbers
ssl.trustmanager.algorithm  Java's trust manager
= it has to belong to a listener and a mechanism
sasl.jaas.config  The login module of a client; a listener's has the prefix of listener and mechanism
sasl.login.callback.handler.class  Where a client's token of OAUTHBEARER comes from; a listener's has the prefix of listener and mechanism
= a login's credentials are those of its sasl.jaas.config
sasl.client.callback.handler.class  A Java class that finds the credentials of a login to another node
= handlers are those of listeners and mechanisms, with their prefix
sasl.server.callback.handler.class  A Java class that checks credentials
= committed offsets are loaded in small pieces, between which requests are served
offsets.load.buffer.size  Bytes read at a time when committed offsets are loaded
= the coordinator appends at once
group.coordinator.append.linger.ms  How long the coordinator gathers records before it appends them, -1 to decide by itself
group.coordinator.cached.buffer.max.bytes  Largest append buffer that the coordinator keeps
= segments grow as they are written
preallocate  Whether a new segment's file is allocated at its full size
= records are appended at once, and those that come during a flush are flushed together
controller.quorum.append.linger.ms  How long the quorum's leader gathers records before it flushes them
= the system sizes the buffer
replica.socket.receive.buffer.bytes  Socket receive buffer of replication
= transactional ids are loaded in small pieces, between which requests are served
transaction.state.log.load.buffer.size  Bytes read at a time when transactions are loaded
= authentication is not supported yet
connection.failed.authentication.delay.ms  Wait before a connection that failed to authenticate is closed
connections.max.reauth.ms  Longest session before a SASL client must authenticate again, 0 for no limit
principal.builder.class  A Java class
security.providers  Java security providers
= all listeners open when the broker is ready
= deleted metadata files go at once
internal.metadata.delete.delay.millis  How long a deleted metadata file is kept
= metadata.log.segment.bytes counts
internal.metadata.log.segment.bytes  Segment size of the metadata log, for tests
= the controller bounds a change by its records
internal.metadata.max.batch.size.in.bytes  Largest batch of the metadata log
= the controller writes what changes and nothing else
metadata.max.idle.interval.ms  Time between the no-op records of an idle controller, 0 for none
= metrics are plain counters, served by barnabas.metrics.listener
controller.performance.always.log.threshold.ms  Controller events slower than this are always logged
controller.performance.sample.period.ms  Time between logs of the controller's event times
kafka.metrics.polling.interval.secs  Interval of Kafka's metrics reporters
kafka.metrics.reporters  Java metrics reporters
metric.reporters  Java metrics reporters
metrics.num.samples  Kafka's metrics sampling
metrics.recording.level  Kafka's metrics sampling
metrics.sample.window.ms  Kafka's metrics sampling
= there is nothing unfinished to offer
unstable.feature.versions.enable  Whether unfinished feature versions are allowed
"""

_SENTENCES = """
add.partitions.to.txn.retry.backoff.max.ms  Longest wait of an added partition for the markers of the transaction before.
add.partitions.to.txn.retry.backoff.ms  Wait before a coordinator is asked again to add a partition to a transaction.
advertised.listeners  Addresses that clients are told to connect to, where they differ from listeners.
alter.config.policy.class.name  A Java class that may refuse config changes; setting it stops the start, for it cannot be loaded.
alter.log.dirs.replication.quota.window.num  Samples kept for the throttle of moves between log directories.
alter.log.dirs.replication.quota.window.size.seconds  Seconds per sample of the throttle of moves between log directories.
authorizer.class.name  The authorizer: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or none; another class stops the start.
auto.create.topics.enable  Whether asking for a topic that does not exist creates it.
auto.leader.rebalance.enable  Whether leadership returns to preferred replicas by itself.
barnabas.authentication.timeout.ms  Time within which a client must have shown who it is; later, its connection is closed.
barnabas.auto.format  Whether an empty log directory is formatted at the first start instead of asking for `barnabas format`.
barnabas.busy.poll.us  Microseconds of waiting for the next request without sleep, where requests come at that pace; 0 never waits.
barnabas.fast.fencing  Whether a node counts as gone once its connection ended and its address refuses two more; else timeouts tell.
barnabas.fast.fencing.silence.ms  Time after which a node that answers no other counts as gone; 0 leaves it to timeouts.
barnabas.frame.deadline.ms  Time within which a request that has begun to arrive must be whole; later, the connection is closed.
barnabas.max.connections  Upper limit of connections where max.connections is higher.
barnabas.max.connections.per.ip  Upper limit of connections from one address where max.connections.per.ip is higher.
barnabas.metrics.lag.series.max  Series about groups and partitions, as kafka_exporter has them, that a broker exposes at most; 0 for none.
barnabas.metrics.listener  host:port on which Prometheus metrics are served over HTTP; empty serves none.
barnabas.queued.max.request.bytes  Bytes of requests held at once, over all connections, where queued.max.request.bytes is -1.
barnabas.record.validation  `header` trusts a batch's header once its CRC holds; `full` walks every record before the append.
barnabas.request.bytes.max  Bytes of one client's request, unless it is a Produce; a connection that announces more is closed.
barnabas.request.entries.max  Array elements and tagged fields of a request, in a Fetch half more; a connection that sends more is closed.
broker.heartbeat.interval.ms  Time between a broker's heartbeats to the controller.
broker.id  The older name of node.id; if both are set they must agree.
broker.rack  The rack of this broker, for spreading replicas and for fetching from the nearest.
broker.session.timeout.ms  Time without heartbeats after which the controller fences a broker.
cleanup.policy  What happens to old segments: delete them, compact them by key, both, or neither.
client.quota.callback.class  A Java class for client quotas; setting it stops the start, for it cannot be loaded.
compression.gzip.level  Level at which the broker compresses with gzip, -1 for the library's default.
compression.lz4.level  Level at which the broker compresses with lz4.
compression.type  Codec in which a topic is stored; `producer` keeps what the producer chose.
compression.zstd.level  Level at which the broker compresses with zstd.
config.providers  Sources of indirect config values; setting it stops the start, for they are not supported.
connection.failed.authentication.delay.ms  Time after which a failed login is answered and its connection closed.
connections.max.idle.ms  Idle time after which a connection is closed.
connections.max.reauth.ms  Longest session of a client that logged in by SASL, until it has to log in again; 0 sets no end.
controlled.shutdown.enable  Whether a stopping broker hands its leaderships over first.
controller.listener.names  Listeners that serve the controller quorum; clients are not told of them.
controller.quorum.auto.join.enable  Whether a controller adds itself to a dynamic quorum.
controller.quorum.bootstrap.servers  Addresses at which the controller quorum is found.
controller.quorum.election.backoff.max.ms  Longest wait before a new election after a lost one.
controller.quorum.election.timeout.ms  Time without hearing of a leader before an election.
controller.quorum.fetch.max.bytes  Bytes of the metadata log that a node asks the leader for at once.
controller.quorum.fetch.snapshot.max.bytes  Bytes of a metadata snapshot that a node asks the leader for at once.
controller.quorum.fetch.timeout.ms  Time without a fetch from the leader before a follower becomes a candidate.
controller.quorum.request.timeout.ms  Longest wait for an answer within the quorum.
controller.quorum.retry.backoff.ms  Wait before a request within the quorum is retried.
controller.quorum.voters  The quorum's members as id@host:port.
controller.quota.window.num  Windows over which a client may save the partitions that its controller_mutation_rate allows.
controller.quota.window.size.seconds  Seconds of such a window.
controller.socket.timeout.ms  Longest wait for an answer from the controller.
cordoned.log.dirs  Log directories that get no new partitions, `*` for all; what is in them stays.
create.topic.policy.class.name  A Java class that may refuse topics; setting it stops the start, for it cannot be loaded.
default.replication.factor  Replicas of a topic that is created without saying how many.
delegation.token.expiry.check.interval.ms  Time between removals of delegation tokens whose time is over.
delegation.token.expiry.time.ms  Time after which a delegation token ends unless it is renewed.
delegation.token.max.lifetime.ms  Time after which a delegation token ends, however often it is renewed.
delegation.token.secret.key  What delegation tokens are made from, the same on all nodes; unset, there are none.
delete.retention.ms  How long a compacted topic keeps the tombstones of deleted keys.
delete.topic.enable  Whether topics can be deleted.
early.start.listeners  Listeners that accept connections before the ACLs are loaded; unset, those of the controller.
fetch.max.bytes  Most bytes in one fetch response, whatever the client asks for.
file.delete.delay.ms  How long a deleted segment's file is kept under its .deleted name.
flush.messages  Records after which a partition is flushed to disk; 1 makes every acknowledged record durable, by group commit.
flush.ms  Longest time that a record stays unflushed.
follower.replication.throttled.replicas  Followers whose replication is throttled: `*`, or partition:broker pairs.
group.consumer.assignment.interval.ms  Shortest time between two assignments of a consumer group; members that come within it share one.
group.consumer.assignors  Assignors of the consumer group protocol, the default first: uniform and range are here.
group.consumer.heartbeat.interval.ms  Heartbeat interval that members of a consumer group are told.
group.consumer.max.assignment.interval.ms  Longest group.consumer.assignment.interval.ms that a group may set.
group.consumer.max.heartbeat.interval.ms  Longest heartbeat interval that a group may set.
group.consumer.max.session.timeout.ms  Longest session timeout that a group may set.
group.consumer.max.size  Most members of one consumer group.
group.consumer.migration.policy  Which way groups go between the classic and the consumer protocol while they have members.
group.consumer.min.assignment.interval.ms  Shortest group.consumer.assignment.interval.ms that a group may set.
group.consumer.min.heartbeat.interval.ms  Shortest heartbeat interval that a group may set.
group.consumer.min.session.timeout.ms  Shortest session timeout that a group may set.
group.consumer.regex.refresh.interval.ms  Time after which the topics that a group's regular expressions match are looked for again.
group.consumer.session.timeout.ms  Time without heartbeats after which a member of a consumer group is removed.
group.coordinator.rebalance.protocols  Group protocols that are offered: without consumer there are no groups of KIP-848.
group.initial.rebalance.delay.ms  How long an empty group waits for more members before its first rebalance.
group.max.session.timeout.ms  Longest session timeout that a classic member may ask for.
group.max.size  Most members of one classic group.
group.min.session.timeout.ms  Shortest session timeout that a classic member may ask for.
index.interval.bytes  Bytes of records between entries of a segment's offset index.
initial.broker.registration.timeout.ms  How long a starting broker tries to be registered.
inter.broker.listener.name  The listener that brokers use among themselves; it must be an advertised one.
internal.segment.bytes  Segment size below what segment.bytes allows, for tests.
leader.imbalance.check.interval.seconds  Time between checks whether preferred replicas lead.
leader.replication.throttled.replicas  Leaders whose replication is throttled: `*`, or partition:broker pairs.
listener.security.protocol.map  The security protocol of each listener name; here PLAINTEXT alone is served.
listeners  Addresses to listen on, as name://host:port; an empty host is every address.
log.cleaner.backoff.ms  How long the cleaner sleeps when there is nothing to clean.
log.cleaner.dedupe.buffer.size  Memory for the cleaner's map of keys.
log.cleaner.enable  Whether compacted topics are cleaned.
log.cleaner.io.buffer.load.factor  How full the cleaner's map of keys may get.
log.cleaner.io.buffer.size  Memory for the cleaner's reads and writes.
log.cleaner.io.max.bytes.per.second  Limit of the cleaner's reads and writes.
log.cleaner.threads  How many logs are cleaned at once.
log.dir  The log directory, where log.dirs is not set.
log.dir.failure.timeout.ms  How long a broker stays up when it cannot tell the controller of a failed log directory.
log.dirs  Directories that hold the logs.
log.flush.offset.checkpoint.interval.ms  Time between checkpoints of how far logs are flushed, which bounds recovery after a crash.
log.flush.scheduler.interval.ms  Time between checks for records to flush, at most 1000; flush.ms where log.flush.interval.ms is not set.
log.flush.start.offset.checkpoint.interval.ms  Longest time between checkpoints of the logs' start offsets; the others write them too.
log.initial.task.delay.ms  Wait after the start before the first retention and the first checkpoints of logs.
log.retention.check.interval.ms  Time between checks for segments to delete.
log.retention.hours  Hours a segment is kept, where log.retention.ms and log.retention.minutes are not set.
log.retention.minutes  Minutes a segment is kept, where log.retention.ms is not set.
log.roll.hours  Hours after which a new segment is begun, where log.roll.ms is not set.
log.roll.jitter.hours  Random hours by which rolling is brought forward, where log.roll.jitter.ms is not set.
max.compaction.lag.ms  Longest time that a record stays uncompacted.
max.connection.creation.rate  Most new connections a second; more wait to be accepted.
max.connections  Most connections at once; more wait to be accepted.
max.connections.per.ip  Most connections at once from one address; more are closed as they come.
max.connections.per.ip.overrides  Limits of single addresses in place of max.connections.per.ip, as host:count.
max.incremental.fetch.session.cache.slots  Most fetch sessions kept at once.
max.message.bytes  Largest record batch.
max.request.partition.size.limit  Most partitions in one answer to DescribeTopicPartitions.
message.timestamp.after.max.ms  How far ahead of the broker's clock a record's timestamp may be.
message.timestamp.before.max.ms  How far behind the broker's clock a record's timestamp may be.
message.timestamp.type  Whose time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).
metadata.log.dir  Directory of the metadata log; the first of log.dirs where it is not set.
metadata.log.max.record.bytes.between.snapshots  Bytes of metadata records after which a snapshot is written.
metadata.log.max.snapshot.interval.ms  Longest time between metadata snapshots, 0 for no limit.
metadata.log.segment.bytes  Segment size of the metadata log.
metadata.log.segment.ms  Time after which the metadata log begins a new segment.
metadata.max.retention.bytes  Bytes of metadata log and snapshots that are kept.
metadata.max.retention.ms  How long metadata log and snapshots are kept.
min.cleanable.dirty.ratio  Share of a compacted log that must be uncompacted before it is cleaned.
min.compaction.lag.ms  Shortest time that a record stays uncompacted.
min.insync.replicas  Replicas that must have a record before acks=all is answered.
node.id  This node's id in the cluster.
num.partitions  Partitions of a topic that is created without saying how many.
num.replica.alter.log.dirs.threads  How many replicas are copied at a time to other log directories; by default one for each directory.
num.replica.fetchers  How many fetchers a follower runs for each leader.
offset.metadata.max.bytes  Longest metadata text of a committed offset.
offsets.commit.timeout.ms  Longest wait for a commit to reach its replicas.
offsets.retention.check.interval.ms  Time between checks for expired offsets.
offsets.retention.minutes  Minutes that a group's offsets outlive its last member.
offsets.topic.compression.codec  Codec of __consumer_offsets, by its number in the batch format.
offsets.topic.num.partitions  Partitions of __consumer_offsets.
offsets.topic.replication.factor  Replicas of __consumer_offsets.
offsets.topic.segment.bytes  Segment size of __consumer_offsets; at least 1048576, as segment.bytes.
process.roles  What this node is: broker, controller, or both.
producer.id.expiration.check.interval.ms  Time between checks for expired producer ids.
producer.id.expiration.ms  How long a partition remembers an idle producer.
queued.max.request.bytes  Bytes of requests held at once, over all connections; -1 leaves it to barnabas.queued.max.request.bytes.
quota.window.num  Windows over which the rates of client quotas are averaged.
quota.window.size.seconds  Seconds of such a window.
remote.log.storage.system.enable  Tiered storage; setting it stops the start, for it is not supported.
remote.storage.enable  Tiered storage of a topic; setting it is refused, for it is not supported.
replica.fetch.backoff.ms  How long a follower waits after a failed fetch.
replica.fetch.max.bytes  Bytes a follower asks for in each partition.
replica.fetch.min.bytes  Bytes a follower's fetch waits for.
replica.fetch.response.max.bytes  Bytes a follower asks for in one response.
replica.fetch.wait.max.ms  Longest wait of a follower's fetch.
replica.high.watermark.checkpoint.interval.ms  Longest time between checkpoints of high watermarks; the others write them too.
replica.lag.time.max.ms  How long a follower may lag before it leaves the in-sync replicas.
replica.selector.class  Who serves consumers: with org.apache.kafka.common.replica.RackAwareReplicaSelector a replica in their rack.
replica.socket.timeout.ms  Longest wait for a leader's answer.
replication.quota.window.num  Samples kept for replication throttles.
replication.quota.window.size.seconds  Seconds per sample of replication throttles.
request.timeout.ms  Longest wait for another broker's answer about a transaction, and of a transaction's end for followers.
retention.bytes  Bytes of a partition that are kept, -1 for no limit.
retention.ms  How long a segment is kept, -1 for no limit.
sasl.enabled.mechanisms  SASL mechanisms of a listener. The default, GSSAPI, stops the start, for it is not supported.
sasl.login.connect.timeout.ms  Longest wait for the provider of tokens; unset, with the next, 10 seconds (Kafka: no limit).
sasl.login.read.timeout.ms  Longest wait for a part of its answer; the longer of the two counts for both.
sasl.login.refresh.buffer.seconds  How long before its end a node's token is replaced at the latest.
sasl.login.refresh.min.period.seconds  How long a new token is kept at least.
sasl.login.refresh.window.factor  The part of a token's time after which it is replaced.
sasl.login.refresh.window.jitter  The random part that is added to that.
sasl.login.retry.backoff.max.ms  Longest time over which a failed fetch of a token is tried again.
sasl.login.retry.backoff.ms  Wait before the first new try.
sasl.mechanism.controller.protocol  Mechanism by which this node logs in to controllers; GSSAPI, the default, stops the start.
sasl.mechanism.inter.broker.protocol  Mechanism by which this broker logs in to others; GSSAPI, the default, stops the start.
sasl.oauthbearer.assertion.claim.iss  Setting it refuses a node's login by OAUTHBEARER: assertions are not supported.
sasl.oauthbearer.assertion.file  As sasl.oauthbearer.assertion.claim.iss.
sasl.oauthbearer.client.credentials.client.id  The name by which this node gets its tokens; or clientId in sasl.jaas.config.
sasl.oauthbearer.client.credentials.client.secret  The secret with it; or clientSecret in sasl.jaas.config.
sasl.oauthbearer.clock.skew.seconds  Seconds by which the clocks of this broker and of the provider may differ.
sasl.oauthbearer.expected.audience  Audiences of tokens, of which each has to have one; unset, tokens with an audience are refused.
sasl.oauthbearer.expected.issuer  The issuer that tokens have to name; unset, any.
sasl.oauthbearer.jwks.endpoint.refresh.ms  Time between fetches of the provider's keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms  Longest time over which a failed fetch of the keys is tried again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms  Wait before the first new try.
sasl.oauthbearer.jwks.endpoint.url  Where the provider's keys are, by https: or file:; OAUTHBEARER does not start without.
sasl.oauthbearer.jwt.retriever.class  Kafka's DefaultJwtRetriever, ClientCredentialsJwtRetriever or FileJwtRetriever.
sasl.oauthbearer.jwt.validator.class  Kafka's own validators; another class stops the start, for it cannot be loaded.
sasl.oauthbearer.scope  The scope that this node asks for; or scope in sasl.jaas.config.
sasl.oauthbearer.scope.claim.name  The claim of a token that has its scopes.
sasl.oauthbearer.sub.claim.name  The claim of a token that names its principal.
sasl.oauthbearer.token.endpoint.url  Where this node gets its tokens, by https:, or file: for one that somebody else replaces.
sasl.server.max.receive.size  Bytes of a request before its client is logged in.
security.inter.broker.protocol  The name of the listener that brokers use among themselves, where inter.broker.listener.name is not set.
segment.bytes  Size at which a new segment is begun.
segment.index.bytes  Size of a segment's offset index.
segment.jitter.ms  Random time by which rolling is brought forward, so that segments do not all roll at once.
segment.ms  Age at which a new segment is begun.
server.max.startup.time.ms  Longest wait of a start for the metadata quorum and the controller, 2^31 and more for no limit.
socket.connection.setup.timeout.max.ms  Longest wait for a connection to another node, after several attempts.
socket.connection.setup.timeout.ms  Wait for a connection to another node, at the first attempt.
socket.listen.backlog.size  Connections that the system holds before they are accepted; the default is 1024 (Kafka: 50).
socket.receive.buffer.bytes  Socket receive buffer. -1, the default (Kafka: 102400), leaves it to the system, whose tuning is faster.
socket.request.max.bytes  Largest request.
socket.send.buffer.bytes  Send buffer of a consumer's socket, by default 262144 (Kafka: 102400, of all sockets). -1 leaves it to the system.
ssl.allow.dn.changes  Whether the changed key store of a running listener may have another distinguished name.
ssl.allow.san.changes  Whether it may lack alternative names that the old one has.
ssl.cipher.suites  Cipher suites by Java's names; empty takes OpenSSL's.
ssl.client.auth  Whether clients need a certificate: required, requested or none. A SASL_SSL listener takes it with its own prefix only.
ssl.enabled.protocols  TLSv1.2 and TLSv1.3, or one of them.
ssl.endpoint.identification.algorithm  https checks the host name of the node that is connected to; empty does not.
ssl.engine.factory.class  A Java class that makes TLS engines; setting it stops the start, for it cannot be loaded.
ssl.key.password  Password of the private key.
ssl.keystore.certificate.chain  The certificates of ssl.keystore.key, as PEM text.
ssl.keystore.key  The private key as PEM text, PKCS8.
ssl.keystore.location  File with the private key and its certificates.
ssl.keystore.password  Password of that file.
ssl.keystore.type  PEM, PKCS12 or JKS; the type JKS reads PKCS12, too.
ssl.principal.mapping.rules  Rules that make the name of a principal out of the distinguished name of a certificate.
ssl.provider  A Java security provider; setting it stops the start.
ssl.truststore.certificates  The trusted certificates, as PEM text.
ssl.truststore.location  File with the certificates that are trusted.
ssl.truststore.password  Password of that file.
ssl.truststore.type  PEM, PKCS12 or JKS.
telemetry.max.bytes  Largest push of client metrics, as it is sent.
transaction.abort.timed.out.transaction.cleanup.interval.ms  Time between checks for transactions that timed out.
transaction.max.timeout.ms  Longest timeout that a transaction may ask for.
transaction.partition.verification.enable  Whether the first batch of a transaction waits for the coordinator to know the partition.
transaction.remove.expired.transaction.cleanup.interval.ms  Time between checks for expired transactional ids.
transaction.state.log.min.isr  Replicas of __transaction_state that must have a record.
transaction.state.log.num.partitions  Partitions of __transaction_state.
transaction.state.log.replication.factor  Replicas of __transaction_state.
transaction.state.log.segment.bytes  Segment size of __transaction_state; at least 1048576, as segment.bytes.
transaction.two.phase.commit.enable  Whether transactions may have no timeout (InitProducerId 6, KIP-939).
transactional.id.expiration.ms  How long an idle transactional id is remembered.
unclean.leader.election.enable  Whether a replica that is not in sync may lead, at the price of records.
unclean.leader.election.interval.ms  Time between checks for partitions without a leader where unclean elections are allowed.
unstable.api.versions.enable  Whether InitProducerId 6 is served, which Kafka calls unfinished.
"""


@cache
def documentation(name: str) -> str:
    """The sentence about property `name`, a broker's or a topic's. KeyError when there is none."""
    for known_name in (name, _topic_names().get(name, name)):
        sentence = _sentences().get(known_name)
        if sentence is not None:
            return sentence
        found = _find_without_effect(known_name)
        if found is not None:
            return f"{found[0]}; accepted, without effect: {found[1]}."
    raise KeyError(name)


def has_effect(name: str) -> bool:
    """Whether setting the property `name`, a broker's or a topic's, changes anything here; also what merely stops the start does."""
    return all(each in _sentences() or _find_without_effect(each) is None for each in (name, _topic_names().get(name, name)))


def _find_without_effect(name: str) -> tuple[str, str] | None:
    """What the property is, and why it has no effect; None when it has one, or is not known."""
    if name.startswith(PREFIX) and has_effect_for_listener(name):
        return None
    found = _without_effect().get(name)
    if found is not None:
        return found
    return next(((what, why) for prefix, what, why in _FAMILIES_WITHOUT_EFFECT if name.startswith(prefix)), None)


@cache
def _sentences() -> dict[str, str]:
    return dict(line.split("  ", maxsplit=1) for line in _SENTENCES.splitlines() if line)


@cache
def _without_effect() -> dict[str, tuple[str, str]]:
    found = {}
    why = ""
    for line in filter(None, _WITHOUT_EFFECT.splitlines()):
        name, separator, what = line.partition("  ")
        if separator:
            found[name] = (what, why)
        else:
            why = line.removeprefix("= ")
    return found


@cache
def _topic_names() -> dict[str, str]:
    """Broker property → the topic property that it is the default of: `log.segment.bytes` means what `segment.bytes` means."""
    return {synonym: known.name for known in TOPIC_PROPERTIES.values() for synonym in known.synonyms}
