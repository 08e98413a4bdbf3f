package org.apache.kafka.common.test;

import barnabas.suites.RunningBroker;
import barnabas.suites.RunningCluster;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.TransactionVersion;

/**
 * Stands before Kafka's class of this name on the class path, which starts brokers inside the JVM. The brokers of this
 * one are processes of their own. EmbeddedKafkaCluster of Kafka Streams and of Connect, and ClusterInstance, stand on it.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> properties = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            properties.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            return this; // how the quorum begins is not what is tested here
        }

        public KafkaClusterTestKit build() {
            List<KafkaConfig> configs = new ArrayList<>();
            for (TestKitNode node : nodes.brokerNodes().values()) {
                Map<String, Object> settings = new HashMap<>(properties);
                settings.putAll(node.propertyOverrides());
                settings.putIfAbsent("unstable.api.versions.enable", "true");
                settings.putIfAbsent("unstable.feature.versions.enable", "true");
                settings.put("node.id", Integer.toString(node.id()));
                settings.put("process.roles", "broker");
                settings.put("log.dirs", nodes.baseDirectory());
                settings.put("controller.listener.names", "CONTROLLER");
                settings.put("controller.quorum.voters", "1000@localhost:1");
                settings.put("listeners", "PLAINTEXT://localhost:0");
                settings.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
                configs.add(new KafkaConfig(settings, false));
            }
            return new KafkaClusterTestKit(nodes, new RunningCluster(configs, features()));
        }

        private List<String> features() {
            List<String> features = new ArrayList<>();
            for (ApiMessageAndVersion each : nodes.bootstrapMetadata().records())
                if (each.message() instanceof FeatureLevelRecord record && record.name().equals(TransactionVersion.FEATURE_NAME))
                    features.add(record.name() + "=" + record.featureLevel());
            return features;
        }
    }

    private final TestKitNodes nodes;
    private final RunningCluster cluster;
    private final MockFaultHandler faults = new MockFaultHandler("none comes from another process");

    private KafkaClusterTestKit(TestKitNodes nodes, RunningCluster cluster) {
        this.nodes = nodes;
        this.cluster = cluster;
    }

    public void format() {
    }

    public void startup() {
        cluster.startAll();
    }

    /** They are when `startup` returns. */
    public void waitForReadyBrokers() {
    }

    public Admin admin() {
        return admin(Map.of());
    }

    public Admin admin(Map<String, Object> configs) {
        Map<String, Object> properties = new HashMap<>(configs);
        properties.putIfAbsent(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers());
        return Admin.create(properties);
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public Map<Integer, BrokerServer> brokers() {
        Map<Integer, BrokerServer> brokers = new TreeMap<>();
        for (RunningBroker broker : cluster.brokers())
            brokers.put(broker.config().brokerId(), broker);
        return brokers;
    }

    /** No test may look into the controller. */
    public Map<Integer, ControllerServer> controllers() {
        return Map.of();
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return faults;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() {
        cluster.close();
    }
}
