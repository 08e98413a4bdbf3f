package barnabas.suites;

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import kafka.cluster.Partition;
import kafka.coordinator.transaction.CoordinatorEpochAndTxnMetadata;
import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.coordinator.transaction.TransactionStateManager;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;
import scala.util.Either;
import scala.util.Right;

/**
 * What a test holds in its hands as one of Kafka's brokers, while the broker is another process. What tests read in a
 * broker's insides is asked over the wire. The insides are Kafka's classes made without their constructors, which would
 * start a broker; what no test here reads of them is null.
 */
public class RunningBroker extends BrokerServer {
    private RunningCluster cluster;
    private KafkaConfig config;
    private boolean isRunning;
    private Metadata metadata;
    private Apis apis;
    private Logs logs;
    private Replicas replicas;

    private RunningBroker() {
        super(null); // is not called
    }

    static RunningBroker of(RunningCluster cluster, KafkaConfig config) {
        RunningBroker broker = made(RunningBroker.class);
        broker.cluster = cluster;
        broker.config = config;
        broker.metadata = made(Metadata.class);
        broker.metadata.broker = broker;
        broker.apis = made(Apis.class);
        broker.logs = made(Logs.class);
        broker.logs.broker = broker;
        broker.replicas = made(Replicas.class);
        broker.replicas.broker = broker;
        return broker;
    }

    static <T> T made(Class<T> type) {
        try {
            Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return type.cast(((sun.misc.Unsafe) field.get(null)).allocateInstance(type));
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    @Override
    public void startup() {
        cluster.start(config.brokerId());
        isRunning = true;
    }

    void markStarted() {
        isRunning = true;
    }

    @Override
    public void shutdown() {
        shutdown(Duration.ofMinutes(5));
    }

    @Override
    public void shutdown(Duration timeout) {
        if (isRunning)
            cluster.stop(config.brokerId());
        isRunning = false;
    }

    @Override
    public void awaitShutdown() {
    }

    @Override
    public boolean isShutdown() {
        return !isRunning;
    }

    @Override
    public BrokerState brokerState() {
        return isRunning ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
    }

    @Override
    public KafkaConfig config() {
        return config;
    }

    @Override
    public int boundPort(ListenerName listener) {
        return cluster.port(config.brokerId(), listener.value());
    }

    @Override
    public SocketServer socketServer() {
        Sockets sockets = made(Sockets.class);
        sockets.broker = this;
        return sockets;
    }

    @Override
    public Option<Plugin<Authorizer>> authorizerPlugin() {
        return Option.apply(Plugin.wrapInstance(new AuthorizerOverTheWire(), null, "authorizer.class.name"));
    }

    @Override
    public KRaftMetadataCache metadataCache() {
        return metadata;
    }

    @Override
    public KafkaApis dataPlaneRequestProcessor() {
        return apis;
    }

    @Override
    public LogManager logManager() {
        return logs;
    }

    @Override
    public ReplicaManager replicaManager() {
        return replicas;
    }

    @Override
    public TransactionCoordinator transactionCoordinator() {
        Transactions transactions = made(Transactions.class);
        transactions.ids = made(TransactionalIds.class);
        transactions.ids.broker = this;
        return transactions;
    }

    /** Tests take nothing of it but the configs of `__consumer_offsets`, which they then create. */
    @Override
    public GroupCoordinator groupCoordinator() {
        Class<?>[] types = {GroupCoordinator.class};
        return (GroupCoordinator) Proxy.newProxyInstance(getClass().getClassLoader(), types, (proxy, method, arguments) -> {
            if (!method.getName().equals("groupMetadataTopicConfigs"))
                throw new UnsupportedOperationException(method.toString());
            Properties configs = new Properties();
            configs.put("cleanup.policy", "compact");
            configs.put("compression.type", "producer");
            configs.put("segment.bytes", "104857600");
            return configs;
        });
    }

    Map<String, Uuid> topicIds() {
        return ask(admin -> {
            Map<String, Uuid> ids = new HashMap<>();
            for (TopicListing topic : admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get())
                ids.put(topic.name(), topic.topicId());
            return ids;
        });
    }

    private <T> T ask(Question<T> question) {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", cluster.bootstrapServers()))) {
            return question.answer(admin);
        } catch (ExecutionException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private interface Question<T> {
        T answer(Admin admin) throws ExecutionException, InterruptedException;
    }

    /** Kafka's id of this broker: in the cluster, ids count from 1. */
    private int nodeId() {
        return config.brokerId() + 1;
    }

    private boolean leads(TopicPartition partition) {
        return isRunning && metadata.leader(partition.topic(), partition.partition()).equals(Optional.of(config.brokerId()));
    }

    private Log log(TopicPartition partition) {
        Log log = made(Log.class);
        log.broker = this;
        log.partition = partition;
        return log;
    }

    private static class Sockets extends SocketServer {
        private RunningBroker broker;

        private Sockets() {
            super(null, null, null, null, null, null, null);
        }

        @Override
        public int boundPort(ListenerName listener) {
            return broker.boundPort(listener);
        }
    }

    /** What tests ask of the authorizer is what an administrator may ask of the cluster. */
    private class AuthorizerOverTheWire implements Authorizer {
        @Override
        public List<? extends CompletionStage<AclCreateResult>> createAcls(AuthorizableRequestContext context, List<AclBinding> bindings) {
            ask(admin -> admin.createAcls(bindings).all().get());
            return bindings.stream().map(binding -> CompletableFuture.completedFuture(AclCreateResult.SUCCESS)).toList();
        }

        @Override
        public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
            AuthorizableRequestContext context, List<AclBindingFilter> filters) {
            ask(admin -> admin.deleteAcls(filters).all().get());
            return filters.stream().map(filter -> CompletableFuture.completedFuture(new AclDeleteResult(List.of()))).toList();
        }

        @Override
        public Iterable<AclBinding> acls(AclBindingFilter filter) {
            return ask(admin -> admin.describeAcls(filter).values().get());
        }

        @Override
        public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void configure(Map<String, ?> configs) {
        }

        @Override
        public void close() {
        }
    }

    private static class Metadata extends KRaftMetadataCache {
        private RunningBroker broker;

        private Metadata() {
            super(0, null);
        }

        Optional<Integer> leader(String topic, int partition) {
            Optional<List<Integer>> leaders = broker.cluster.leaders(broker.config.brokerId(), topic);
            return leaders.filter(known -> partition < known.size()).map(known -> known.get(partition));
        }

        @Override
        public Optional<Integer> numPartitions(String topic) {
            return broker.cluster.leaders(broker.config.brokerId(), topic).map(List::size);
        }

        @Override
        public Optional<LeaderAndIsr> getLeaderAndIsr(String topic, int partition) {
            return leader(topic, partition).map(leader -> new LeaderAndIsr(leader, List.of()));
        }

        /** Brokers know each other when the start returns. */
        @Override
        public boolean hasAliveBroker(int id) {
            return broker.cluster.brokers().get(id).isRunning;
        }
    }

    private static class Apis extends KafkaApis {
        private Apis() {
            super(null, null, null, null, null, null, null, 0, null, null, null, null, null, null, null, null, null, null, null, null, null,
                null, null);
        }

        @Override
        public boolean isConsumerGroupProtocolEnabled() {
            return true;
        }
    }

    private static class Logs extends LogManager {
        private RunningBroker broker;

        private Logs() {
            super(null, null, null, null, null, 0, 0, 0, 0, 0, 0, null, 0, null, null, null, null, false, 0, null);
        }

        @Override
        public ProducerStateManagerConfig producerStateManagerConfig() {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(broker.nodeId()));
            Config found = broker.ask(admin -> admin.describeConfigs(List.of(resource)).all().get().get(resource));
            return new ProducerStateManagerConfig(Integer.parseInt(found.get("producer.id.expiration.ms").value()), true);
        }

        @Override
        public Option<UnifiedLog> getLog(TopicPartition partition, boolean isFuture) {
            return Option.apply(broker.log(partition));
        }
    }

    private static class Replicas extends ReplicaManager {
        private RunningBroker broker;

        private Replicas() {
            super(null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                null);
        }

        @Override
        public Option<UnifiedLog> localLog(TopicPartition partition) {
            return Option.apply(broker.log(partition));
        }

        @Override
        public Option<Partition> onlinePartition(TopicPartition partition) {
            Replica replica = made(Replica.class);
            replica.broker = broker;
            replica.name = partition;
            return Option.apply(replica);
        }
    }

    private static class Replica extends Partition {
        private RunningBroker broker;
        private TopicPartition name;

        private Replica() {
            super(null, 0L, 0, null, null, null, null, null, null, null, null);
        }

        @Override
        public Option<UnifiedLog> leaderLogIfLocal() {
            return broker.leads(name) ? Option.apply(broker.log(name)) : Option.empty();
        }
    }

    private static class Log extends UnifiedLog {
        private RunningBroker broker;
        private TopicPartition partition;

        private Log() throws java.io.IOException {
            super(0, null, null, 0, null, null, null, false, null);
        }

        @Override
        public long logStartOffset() {
            Map<TopicPartition, OffsetSpec> asked = Map.of(partition, OffsetSpec.earliest());
            return broker.ask(admin -> admin.listOffsets(asked).partitionResult(partition).get().offset());
        }

        @Override
        public ProducerStateManager producerStateManager() {
            Producers producers = made(Producers.class);
            producers.broker = broker;
            producers.partition = partition;
            return producers;
        }
    }

    private static class Producers extends ProducerStateManager {
        private RunningBroker broker;
        private TopicPartition partition;

        private Producers() throws java.io.IOException {
            super(null, null, 0, null, null);
        }

        @Override
        public Map<Long, ProducerStateEntry> activeProducers() {
            DescribeProducersOptions here = new DescribeProducersOptions().brokerId(broker.nodeId());
            Map<Long, ProducerStateEntry> producers = new HashMap<>();
            for (ProducerState each : broker.ask(
                admin -> admin.describeProducers(List.of(partition), here).partitionResult(partition).get().activeProducers()))
                producers.put(each.producerId(), new ProducerStateEntry(each.producerId(), (short) each.producerEpoch(),
                    each.coordinatorEpoch().orElse(-1), each.lastTimestamp(), each.currentTransactionStartOffset()));
            return producers;
        }
    }

    private static class Transactions extends TransactionCoordinator {
        private TransactionalIds ids;

        private Transactions() {
            super(null, null, null, null, null, null, null);
        }

        @Override
        public TransactionStateManager transactionManager() {
            return ids;
        }
    }

    private static class TransactionalIds extends TransactionStateManager {
        private RunningBroker broker;

        private TransactionalIds() {
            super(0, null, null, null, null, null, null);
        }

        @Override
        public Either<Errors, Option<CoordinatorEpochAndTxnMetadata>> getTransactionState(String transactionalId) {
            TransactionalId id = made(TransactionalId.class);
            id.broker = broker;
            id.name = transactionalId;
            return new Right<>(Option.apply(new CoordinatorEpochAndTxnMetadata(0, id)));
        }
    }

    private static class TransactionalId extends TransactionMetadata {
        private RunningBroker broker;
        private String name;

        private TransactionalId() {
            super(null, 0, 0, 0, (short) 0, (short) 0, 0, null, null, 0, 0, null);
        }

        @Override
        public <T> T inLock(Supplier<T> change) {
            return change.get();
        }

        @Override
        public short producerEpoch() {
            return (short) broker.ask(admin -> admin.describeTransactions(List.of(name)).description(name).get()).producerEpoch();
        }

        /** By so many producers that take the id over from each other. */
        @Override
        public void setProducerEpoch(short epoch) {
            broker.cluster.raiseEpoch(name, epoch);
        }
    }
}
