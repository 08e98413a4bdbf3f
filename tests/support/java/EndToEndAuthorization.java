import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetCommitCallback;
import org.apache.kafka.clients.consumer.RetriableCommitFailedException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ClusterResource;
import org.apache.kafka.common.ClusterResourceListener;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.DelegationTokenAuthorizationException;
import org.apache.kafka.common.errors.GroupAuthorizationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/**
 * The steps of Kafka's EndToEndAuthorizationTest and its kin, and of BaseConsumerTest, against brokers that run elsewhere. A test here has
 * the name of Kafka's, and topics and groups of its own instead of brokers of its own; the user's ACLs are removed before each.
 *
 * <p>The argument is a file of properties: how clients connect as `client.…` (the user under test), `super.…`, `second.…`, `owner.…` and
 * others; `principal` of the user; `protocol` of groups; `tests`, the kinds that are asked for, and `only`, names of tests; with `tokens` (own, requested) the user logs in by a
 * delegation token. Prints "ok NAME", or "failed NAME: why" with
 * the stack on standard error. "stop N" asks for the end of broker N, and is answered by a line on standard input.
 */
class EndToEndAuthorization {
    interface Body { void run() throws Exception; }

    static final Properties settings = new Properties();
    static final List<AutoCloseable> open = new ArrayList<>();
    static final Scanner answers = new Scanner(System.in);
    static Admin superuser;
    static String protocol, principal, topic, topic2, group, prefix;
    static TopicPartition tp, tp2;
    static int barriers;
    static Set<String> wanted;

    public static void main(String[] arguments) throws Exception {
        try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) { settings.load(reader); }
        protocol = settings.getProperty("protocol");
        principal = settings.getProperty("principal");
        wanted = new HashSet<>(Arrays.asList(settings.getProperty("only", "").split(",")));
        wanted.remove("");
        superuser = Admin.create(config("super"));
        if (settings.containsKey("tokens")) takeTokens(settings.getProperty("tokens").equals("requested"));
        for (String kind : settings.getProperty("tests").split(",")) {
            switch (kind) {
                case "authorization" -> authorization();
                case "two" -> test("testTwoConsumersWithDifferentSaslCredentials", EndToEndAuthorization::twoConsumers);
                case "token" -> test("testCreateUserWithDelegationToken", EndToEndAuthorization::createUser);
                case "owner" -> owner();
                case "consumer" -> consumer();
                default -> throw new IllegalArgumentException(kind);
            }
        }
        superuser.close();
        System.exit(0);
    }

    /** As configureSecurityAfterServersStart of the tests of tokens: the user, and the administrator as "supertoken", log in by tokens. */
    static void takeTokens(boolean areRequested) throws Exception {
        var owner = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, settings.getProperty("ownersName"));
        if (areRequested) {
            var resource = new ResourcePattern(ResourceType.USER, owner.toString(), PatternType.LITERAL);
            String requester = "User:" + settings.getProperty("requestersName");
            for (var operation : List.of(AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS)) {
                create(new AclBinding(resource, new AccessControlEntry(requester, "*", operation, AclPermissionType.ALLOW)));
            }
        }
        var options = areRequested ? new CreateDelegationTokenOptions().owner(owner) : new CreateDelegationTokenOptions();
        try (var admin = Admin.create(config(areRequested ? "requester" : "client"))) {
            var token = admin.createDelegationToken(options).delegationToken().get();
            assertEquals(owner, token.tokenInfo().owner());
            assertEquals(settings.getProperty(areRequested ? "requestersName" : "ownersName"), token.tokenInfo().tokenRequester().getName());
            settings.setProperty("client.sasl.jaas.config", login(token));
        }
        config("super").forEach((name, value) -> settings.setProperty("supertoken." + name, value.toString()));
        settings.setProperty("supertoken.sasl.jaas.config", login(superuser.createDelegationToken().delegationToken().get()));
        barrier();
    }

    static String login(DelegationToken token) {
        return "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + token.tokenInfo().tokenId() + "\" password=\""
            + token.hmacAsBase64String() + "\" tokenauth=\"true\";";
    }

    static void authorization() {
        test("testProduceConsumeViaAssign", () -> {
            setAclsAndProduce(tp);
            var consumer = assigned(tp);
            consumeRecords(consumer, 0, topic);
        });
        test("testProduceConsumeViaSubscribe", () -> {
            setAclsAndProduce(tp);
            consumeRecords(subscribed(topic), 0, topic);
        });
        test("testProduceConsumeWithWildcardAcls", () -> produceConsumeWith("*", "*", PatternType.LITERAL));
        test("testProduceConsumeWithPrefixedAcls", () -> produceConsumeWith(prefix + "e2e", prefix + "gr", PatternType.PREFIXED));
        test("testProduceConsumeTopicAutoCreateTopicCreateAcl", () -> {
            setAclsAndProduce(tp2);
            consumeRecords(assigned(tp2), 0, topic2);
        });
        for (boolean isIdempotent : new boolean[] {true, false}) {
            String suffix = "." + isIdempotent;
            if (protocol.equals("classic")) {
                test("testNoDescribeProduceOrConsumeWithoutTopicDescribeAcl" + suffix, () -> withoutDescribe(isIdempotent));
            }
            test("testNoProduceWithDescribeAcl" + suffix, () -> {
                create(acl(ResourceType.TOPIC, topic, AclOperation.DESCRIBE));
                var producer = producer(Map.of("enable.idempotence", "" + isIdempotent));
                if (isIdempotent) {
                    assertThrows(KafkaException.class, () -> send(producer, tp));
                } else {
                    assertEquals(Set.of(topic), assertThrows(TopicAuthorizationException.class, () -> send(producer, tp)).unauthorizedTopics());
                }
            });
        }
        test("testNoConsumeWithoutDescribeAclViaAssign", () -> {
            withoutDescribeSetup();
            var consumer = assigned(tp);
            assertThrows(KafkaException.class, () -> consumeRecords(consumer, 0, topic));
        });
        test("testNoConsumeWithoutDescribeAclViaSubscribe", () -> {
            withoutDescribeSetup();
            var consumer = subscribed(topic);
            assertThrows(TopicAuthorizationException.class, () -> consumeRecords(consumer, 0, topic));
            setReadAndWriteAcls(tp);
            consumer.subscribe(List.of(topic, topic2));
            assertThrows(TopicAuthorizationException.class, () -> consumeRecords(consumer, 0, topic));
            consumer.subscribe(List.of(topic));
            consumeIgnoringAuthorizationExceptions(consumer, 0, topic, protocol.equals("classic") ? 1 : Integer.MAX_VALUE);
        });
        test("testNoConsumeWithDescribeAclViaAssign", () -> {
            withDescribeSetup();
            var consumer = assigned(tp);
            assertEquals(Set.of(topic), assertThrows(TopicAuthorizationException.class, () -> consumeRecords(consumer, 0, topic)).unauthorizedTopics());
        });
        test("testNoConsumeWithDescribeAclViaSubscribe", () -> {
            withDescribeSetup();
            var consumer = subscribed(topic);
            assertEquals(Set.of(topic), assertThrows(TopicAuthorizationException.class, () -> consumeRecords(consumer, 0, topic)).unauthorizedTopics());
        });
        test("testNoGroupAcl", () -> {
            create(acl(ResourceType.TOPIC, topic, AclOperation.WRITE), acl(ResourceType.TOPIC, topic, AclOperation.CREATE), acl(ResourceType.TOPIC, topic, AclOperation.DESCRIBE));
            send(producer(Map.of()), tp);
            var consumer = assigned(tp);
            assertEquals(group, assertThrows(GroupAuthorizationException.class, () -> consumeRecords(consumer, 0, topic)).groupId());
        });
    }

    static void produceConsumeWith(String topics, String groups, PatternType pattern) throws Exception {
        var acls = new ArrayList<AclBinding>();
        for (var operation : List.of(AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.READ)) {
            acls.add(acl(ResourceType.TOPIC, topics, operation, pattern));
        }
        acls.add(acl(ResourceType.GROUP, groups, AclOperation.READ, pattern));
        create(acls.toArray(AclBinding[]::new));
        send(producer(Map.of()), tp);
        consumeRecords(subscribed(topic), 0, topic);
    }

    static void withoutDescribe(boolean isIdempotent) throws Exception {
        create(groupRead());
        var properties = Map.of("enable.idempotence", "" + isIdempotent);
        var producer = producer(properties);
        assertThrows(TopicAuthorizationException.class, () -> send(producer, tp));
        var consumer = assigned(tp);
        assertThrows(TopicAuthorizationException.class, () -> consumeRecords(consumer, 0, topic));
        var admin = keep(Admin.create(config("client")));
        assertCause(TopicAuthorizationException.class, () -> admin.describeTopics(Set.of(topic)).allTopicNames().get());

        setReadAndWriteAcls(tp2);
        // An idempotent producer is in FATAL_ERROR after the refusal.
        var producer2 = isIdempotent ? producer(properties) : producer;
        send(producer2, tp2);
        consumer.assign(List.of(tp2));
        consumeRecords(consumer, 0, topic2);
        assertEquals(1, admin.describeTopics(Set.of(topic, topic2)).topicNameValues().get(topic2).get().partitions().size());
        assertCause(TopicAuthorizationException.class, () -> admin.describeTopics(Set.of(topic)).allTopicNames().get());

        consumer.assign(List.of(tp, tp2));
        send(producer2, tp2);
        boolean[] wasConsumed = {false};
        assertThrows(TopicAuthorizationException.class, () -> {
            long end = System.currentTimeMillis() + 15_000;
            while (System.currentTimeMillis() < end) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty()) {
                    assertEquals(Set.of(tp2), records.partitions());
                    wasConsumed[0] = true;
                }
            }
        });
        setReadAndWriteAcls(tp);
        if (!wasConsumed[0]) consumeIgnoringAuthorizationExceptions(consumer, 1, topic2, 1);
        send(producer2, tp);
        consumeIgnoringAuthorizationExceptions(consumer, 0, topic, 1);
        var described = admin.describeTopics(Set.of(topic, topic2)).topicNameValues();
        assertEquals(1, described.get(topic).get().partitions().size());
        assertEquals(1, described.get(topic2).get().partitions().size());
    }

    static void withoutDescribeSetup() throws Exception {
        withDescribeSetup();
        remove(acl(ResourceType.TOPIC, topic, AclOperation.DESCRIBE), acl(ResourceType.TOPIC, topic, AclOperation.WRITE));
    }

    static void withDescribeSetup() throws Exception {
        create(acl(ResourceType.TOPIC, topic, AclOperation.WRITE), acl(ResourceType.TOPIC, topic, AclOperation.CREATE),
            acl(ResourceType.TOPIC, topic, AclOperation.DESCRIBE), groupRead());
        send(producer(Map.of()), tp);
    }

    static void twoConsumers() throws Exception {
        setAclsAndProduce(tp);
        var consumer1 = assigned(tp);
        var consumer2 = consumer("second", Map.of());
        consumer2.assign(List.of(tp));
        consumeRecords(consumer1, 0, topic);
        try {
            consumeRecords(consumer2, 0, topic);
            throw new AssertionError("consumer2 has no access to topic or group");
        } catch (TopicAuthorizationException e) {
            assertEquals(Set.of(topic), e.unauthorizedTopics());
        } catch (GroupAuthorizationException e) {
            assertEquals(group, e.groupId());
        }
    }

    /** By a token of the administrator's. */
    static void createUser() throws Exception {
        try (var admin = Admin.create(config("supertoken"))) {
            var credential = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
            var results = admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(prefix + "user", credential, "password")));
            assertEquals(1, results.values().size());
            results.values().get(prefix + "user").get();
        }
    }

    static void owner() throws Exception {
        var owner = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, settings.getProperty("ownersName"));
        var other = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, settings.getProperty("othersName"));
        test("testCreateTokenForOtherUserFails", () -> {
            try (var admin = Admin.create(config("requester"))) {
                assertCause(DelegationTokenAuthorizationException.class,
                    () -> admin.createDelegationToken(new CreateDelegationTokenOptions().owner(other)).delegationToken().get());
            }
        });
        test("testDescribeTokenForOtherUserFails", () -> {
            try (var stranger = Admin.create(config("second")); var admin = Admin.create(config("other"))) {
                admin.createDelegationToken().delegationToken().get();
                var tokens = stranger.describeDelegationToken(new DescribeDelegationTokenOptions().owners(List.of(other))).delegationTokens().get();
                assertEquals(List.of(), tokens);
            }
        });
        test("testDescribeTokenForOtherUserPasses", () -> {
            try (var admin = Admin.create(config("requester"))) {
                List<DelegationToken> tokens = List.of();
                for (int tries = 0; tokens.isEmpty() && tries < 100; tries++) {
                    tokens = admin.describeDelegationToken(new DescribeDelegationTokenOptions().owners(List.of(owner))).delegationTokens().get();
                }
                if (tokens.isEmpty()) throw new AssertionError("no token is described");
                for (var token : tokens) {
                    assertEquals(owner, token.tokenInfo().owner());
                    assertEquals(settings.getProperty("requestersName"), token.tokenInfo().tokenRequester().getName());
                }
            }
        });
    }

    // -- BaseConsumerTest, as a super user ---------------------------------------------------------------------------------------

    static void consumer() throws Exception {
        test("testSimpleConsumption", () -> {
            long start = System.currentTimeMillis();
            sendMany(producer("super", Map.of()), 10_000, start);
            var consumer = consumer("super", Map.of());
            assertEquals(0, consumer.assignment().size());
            consumer.assign(List.of(tp));
            assertEquals(1, consumer.assignment().size());
            consumer.seek(tp, 0);
            verifyMany(consumer, 10_000, start);
            var done = new AtomicInteger();
            consumer.commitAsync(new RetryCommitCallback(consumer, done));
            long end = System.currentTimeMillis() + 30_000;
            while (done.get() == 0 && System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(100));
            assertEquals(1, done.get());
            assertEquals(10_000L, consumer.committed(Set.of(tp)).get(tp).offset());
        });
        test("testClusterResourceListener", () -> {
            long start = System.currentTimeMillis();
            sendMany(producer("super", Map.of("key.serializer", Listening.class, "value.serializer", Listening.class)), 100, start);
            var consumer = consumer("super", Map.of("key.deserializer", Listening.class, "value.deserializer", Listening.class));
            consumer.subscribe(List.of(topic));
            verifyMany(consumer, 100, start);
            if (Listening.updates.get() < 2) throw new AssertionError("the cluster's id was told " + Listening.updates.get() + " times");
        });
        test("testCoordinatorFailover", () -> {
            var assignments = new AtomicInteger();
            var revocations = new AtomicInteger();
            var properties = new HashMap<>(Map.of("max.poll.interval.ms", "15000"));
            if (protocol.equals("classic")) properties.putAll(Map.of("session.timeout.ms", "5001", "heartbeat.interval.ms", "1000"));
            var consumer = consumer("super", properties);
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { assignments.incrementAndGet(); }
                @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) { revocations.incrementAndGet(); }
            });
            long end = System.currentTimeMillis() + 30_000;
            while (assignments.get() == 0 && System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(100));
            assertEquals(1, assignments.get());
            int partition = Math.abs(group.hashCode()) % consumer.partitionsFor("__consumer_offsets").size();
            PartitionInfo of = consumer.partitionsFor("__consumer_offsets").stream().filter(each -> each.partition() == partition).findFirst().get();
            System.out.println("stop " + of.leader().id());
            answers.nextLine();
            // Kafka's ensureNoRebalance: longer than a session.
            end = System.currentTimeMillis() + 6_000;
            while (System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(100));
            assertEquals(1, assignments.get());
            assertEquals(0, revocations.get());
        });
    }

    record RetryCommitCallback(Consumer<byte[], byte[]> consumer, AtomicInteger done) implements OffsetCommitCallback {
        @Override public void onComplete(Map<TopicPartition, OffsetAndMetadata> offsets, Exception error) {
            if (error instanceof RetriableCommitFailedException) {
                consumer.commitAsync(this);
            } else {
                if (error != null) error.printStackTrace();
                done.addAndGet(error == null ? 1 : 100);
            }
        }
    }

    public static class Listening implements Serializer<byte[]>, Deserializer<byte[]>, ClusterResourceListener {
        static final AtomicInteger updates = new AtomicInteger();
        @Override public byte[] serialize(String topic, byte[] data) { return data; }
        @Override public byte[] deserialize(String topic, byte[] data) { return data; }
        @Override public void onUpdate(ClusterResource resource) { updates.incrementAndGet(); }
        @Override public void configure(Map<String, ?> configs, boolean isKey) { }
        @Override public void close() { }
    }

    static void sendMany(KafkaProducer<byte[], byte[]> producer, int count, long start) throws Exception {
        var futures = new ArrayList<Future<RecordMetadata>>();
        for (int i = 0; i < count; i++) futures.add(producer.send(new ProducerRecord<>(topic, 0, start + i, bytes("key " + i), bytes("value " + i))));
        for (var future : futures) future.get();
    }

    static void verifyMany(Consumer<byte[], byte[]> consumer, int count, long start) {
        var records = read(consumer, count, 60_000);
        for (int i = 0; i < count; i++) {
            var record = records.get(i);
            assertEquals(tp, new TopicPartition(record.topic(), record.partition()));
            assertEquals((long) i, record.offset());
            assertEquals(start + i, record.timestamp());
            assertEquals("key " + i, new String(record.key(), StandardCharsets.UTF_8));
            assertEquals("value " + i, new String(record.value(), StandardCharsets.UTF_8));
        }
    }

    // -- steps -------------------------------------------------------------------------------------------------------------------

    static void test(String name, Body body) {
        if (!wanted.isEmpty() && !wanted.contains(name)) return;
        try {
            prefix = settings.getProperty("prefix") + "-" + name.replaceAll("[^a-zA-Z]", "") + "-" + protocol + "-" + barriers + "-";
            topic = prefix + "e2etopic";
            topic2 = prefix + "topic2";
            group = prefix + "group";
            tp = new TopicPartition(topic, 0);
            tp2 = new TopicPartition(topic2, 0);
            removeAllAcls();
            superuser.createTopics(List.of(new NewTopic(topic, 1, (short) 3))).all().get();
            barrier();
            body.run();
            System.out.println("ok " + name);
        } catch (Throwable e) {
            e.printStackTrace();
            System.out.println("failed " + name + ": " + e.toString().replace('\n', ' '));
        } finally {
            for (var each : open) {
                try { each.close(); } catch (Exception e) { e.printStackTrace(); }
            }
            open.clear();
        }
    }

    static void setAclsAndProduce(TopicPartition partition) throws Exception {
        setReadAndWriteAcls(partition);
        send(producer(Map.of()), partition);
    }

    static void setReadAndWriteAcls(TopicPartition partition) throws Exception {
        var acls = new ArrayList<AclBinding>();
        for (var operation : List.of(AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.READ)) {
            acls.add(acl(ResourceType.TOPIC, partition.topic(), operation));
        }
        acls.add(groupRead());
        create(acls.toArray(AclBinding[]::new));
    }

    static AclBinding groupRead() { return acl(ResourceType.GROUP, group, AclOperation.READ); }

    static AclBinding acl(ResourceType type, String name, AclOperation operation) { return acl(type, name, operation, PatternType.LITERAL); }

    static AclBinding acl(ResourceType type, String name, AclOperation operation, PatternType pattern) {
        return new AclBinding(new ResourcePattern(type, name, pattern), new AccessControlEntry(principal, "*", operation, AclPermissionType.ALLOW));
    }

    static void create(AclBinding... acls) throws Exception {
        superuser.createAcls(List.of(acls)).all().get();
        barrier();
    }

    static void remove(AclBinding... acls) throws Exception {
        superuser.deleteAcls(Arrays.stream(acls).map(AclBinding::toFilter).toList()).all().get();
        barrier();
    }

    static void removeAllAcls() throws Exception {
        var entry = new AccessControlEntryFilter(principal, null, AclOperation.ANY, AclPermissionType.ANY);
        superuser.deleteAcls(List.of(new AclBindingFilter(ResourcePatternFilter.ANY, entry))).all().get();
    }

    /** Returns when every broker has applied what was written before: a broker applies the metadata log in order. */
    static void barrier() throws Exception {
        String value = "" + (86_400_000 + ++barriers), name = "producer.id.expiration.ms";
        var operation = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        superuser.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.BROKER, ""), List.of(operation))).all().get();
        for (Node node : superuser.describeCluster().nodes().get()) {
            var resource = new ConfigResource(ConfigResource.Type.BROKER, node.idString());
            while (!value.equals(superuser.describeConfigs(Set.of(resource)).all().get().get(resource).get(name).value())) Thread.onSpinWait();
        }
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, ?> more) { return producer("client", more); }

    static KafkaProducer<byte[], byte[]> producer(String user, Map<String, ?> more) {
        var config = config(user);
        config.putAll(Map.of("acks", "all", "key.serializer", ByteArraySerializer.class.getName(), "value.serializer", ByteArraySerializer.class.getName()));
        config.putAll(more);
        return keep(new KafkaProducer<>(config));
    }

    static Consumer<byte[], byte[]> assigned(TopicPartition partition) {
        var consumer = consumer("client", Map.of());
        consumer.assign(List.of(partition));
        return consumer;
    }

    static Consumer<byte[], byte[]> subscribed(String name) {
        var consumer = consumer("client", Map.of());
        consumer.subscribe(List.of(name));
        return consumer;
    }

    static Consumer<byte[], byte[]> consumer(String user, Map<String, ?> more) {
        var config = config(user);
        config.putAll(Map.of("group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "metadata.max.age.ms", "1500", "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName()));
        config.putAll(more);
        return keep(new KafkaConsumer<>(config));
    }

    static Map<String, Object> config(String user) {
        var found = new HashMap<String, Object>();
        settings.forEach((name, value) -> {
            if (name.toString().startsWith(user + ".")) found.put(name.toString().substring(user.length() + 1), value);
        });
        return found;
    }

    static void send(KafkaProducer<byte[], byte[]> producer, TopicPartition partition) throws Exception {
        try {
            producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), bytes("0"), bytes("0"))).get();
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception cause ? cause : e;
        }
    }

    static void consumeRecords(Consumer<byte[], byte[]> consumer, long offset, String name) {
        var record = read(consumer, 1, 10_000).get(0);
        assertEquals(name, record.topic());
        assertEquals(0, record.partition());
        assertEquals(offset, record.offset());
    }

    static void consumeIgnoringAuthorizationExceptions(Consumer<byte[], byte[]> consumer, long offset, String name, int ignored) {
        for (int count = 0; ; count++) {
            try {
                consumeRecords(consumer, offset, name);
                return;
            } catch (TopicAuthorizationException e) {
                if (count >= ignored) throw e;
            }
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> read(Consumer<byte[], byte[]> consumer, int count, long timeoutMs) {
        var found = new ArrayList<ConsumerRecord<byte[], byte[]>>();
        long end = System.currentTimeMillis() + timeoutMs;
        while (found.size() < count && System.currentTimeMillis() < end) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            records.forEach(found::add);
        }
        if (found.size() < count) throw new AssertionError(found.size() + " of " + count + " records came in time");
        return found;
    }

    static <T extends AutoCloseable> T keep(T opened) {
        open.add(opened);
        return opened;
    }

    static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }

    static void assertEquals(Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError("expected " + expected + ", found " + found);
    }

    static <E extends Throwable> E assertThrows(Class<E> expected, Body body) {
        try {
            body.run();
        } catch (Throwable e) {
            if (expected.isInstance(e)) return expected.cast(e);
            throw new AssertionError("expected " + expected.getSimpleName() + ", found " + e, e);
        }
        throw new AssertionError("expected " + expected.getSimpleName() + ", nothing was thrown");
    }

    static void assertCause(Class<? extends Throwable> expected, Body body) {
        var e = assertThrows(ExecutionException.class, body);
        if (!expected.isInstance(e.getCause())) throw new AssertionError("expected " + expected.getSimpleName() + ", found " + e.getCause(), e);
    }
}
