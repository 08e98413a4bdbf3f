package kafka.server;

import barnabas.suites.RunningCluster;
import barnabas.suites.RunningController;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;
import kafka.integration.KafkaServerTestHarness;
import kafka.utils.Logging;
import kafka.utils.TestInfoUtils;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Stands before Kafka's class of this name on the class path, the base of the tests of Kafka's core, which starts brokers
 * inside the JVM. The brokers of this one are processes of their own. It has what IntegrationTestHarness needs.
 */
public abstract class QuorumTestHarness implements Logging {
    private TestInfo testInfo;
    private RunningCluster cluster;
    private String logIdent;

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public scala.collection.Seq<Properties> kraftControllerConfigs(TestInfo testInfo) {
        return seq(List.of(new Properties()));
    }

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils.maybeGroupProtocolSpecified(testInfo);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        return maybeGroupProtocolSpecified().get();
    }

    @BeforeEach
    public void setUp(TestInfo testInfo) {
        this.testInfo = testInfo;
        List<KafkaConfig> configs = new ArrayList<>(CollectionConverters.asJava(((KafkaServerTestHarness) this).configs()));
        String level = TestInfoUtils.isTransactionV2Enabled(testInfo) ? "2" : "1";
        cluster = new RunningCluster(configs, List.of("transaction.version=" + level));
    }

    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        KafkaBroker broker = cluster.brokers().get(config.brokerId());
        if (startup)
            broker.startup();
        return broker;
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    /** Of which tests ask the ids of topics. */
    public ControllerServer controllerServer() {
        return RunningController.of(cluster.brokers().get(0));
    }

    /** No test may look into the controllers. */
    public scala.collection.Seq<ControllerServer> controllerServers() {
        return seq(List.of());
    }

    @AfterEach
    public void tearDown() {
        cluster.close();
    }

    private static <T> Seq<T> seq(List<T> list) {
        return CollectionConverters.asScala(list).toList();
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String ident) {
        logIdent = ident;
    }

    // -- parameters of tests -----------------------------------------------------------------------------------------

    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return Stream.of(Arguments.of("classic"), Arguments.of("consumer"));
    }

    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return Stream.of(Arguments.of("consumer"));
    }
}
