package barnabas.suites;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;

/**
 * A cluster of brokers that are processes of their own (tests/suites/clusters.py), and the brokers of it. It ends when
 * it is closed, or with this JVM.
 */
public class RunningCluster implements AutoCloseable {
    /** Where the clusters come from: host:port. */
    public static final String ADDRESS = "barnabas.clusters";

    // Where nodes are, and which, is not the suite's to say. Users are told apart by ports that log in for them (login_proxy.py).
    private static final Set<String> OURS = Set.of(
        "node.id", "broker.id", "process.roles", "log.dir", "log.dirs", "metadata.log.dir", "listeners", "advertised.listeners",
        "listener.security.protocol.map", "principal.builder.class", "inter.broker.listener.name", "security.inter.broker.protocol",
        "controller.listener.names", "controller.quorum.voters", "controller.quorum.bootstrap.servers");
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Socket socket;
    private final BufferedReader answers;
    private final List<String> addresses = new ArrayList<>();
    private final List<Map<String, String>> listeners = new ArrayList<>();
    private final List<RunningBroker> brokers = new ArrayList<>();

    /** A broker for each of the configs, which have their places as ids. None of them runs. */
    public RunningCluster(List<KafkaConfig> configs, List<String> features) {
        String[] address = System.getProperty(ADDRESS).split(":");
        try {
            socket = new Socket(address[0], Integer.parseInt(address[1]));
            answers = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        List<Map<String, String>> settings = configs.stream().map(RunningCluster::settings).toList();
        JsonNode opened = ask("open", Map.of("settings", settings, "features", features, "users", users(configs.get(0))));
        opened.get("addresses").forEach(each -> addresses.add(each.asText()));
        opened.get("listeners").forEach(each -> listeners.add(JSON.convertValue(each, new TypeReference<Map<String, String>>() { })));
        configs.forEach(config -> brokers.add(RunningBroker.of(this, config)));
    }

    /** The user that the suite's principal builder makes of each listener's clients; none without such a class. */
    private static Map<String, String> users(KafkaConfig config) {
        Map<String, String> users = new HashMap<>();
        if (!config.originals().containsKey("principal.builder.class"))
            return users;
        KafkaPrincipalBuilder builder = config.getConfiguredInstance("principal.builder.class", KafkaPrincipalBuilder.class);
        for (String listener : config.originals().get("listeners").toString().split(",")) {
            String name = listener.split(":")[0];
            users.put(name, builder.build(new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), name)).getName());
        }
        return users;
    }

    private static Map<String, String> settings(KafkaConfig config) {
        Map<String, String> settings = new HashMap<>();
        config.originals().forEach((key, value) -> {
            if (!OURS.contains(key) && value != null)
                settings.put(key, value.toString());
        });
        return settings;
    }

    public List<RunningBroker> brokers() {
        return brokers;
    }

    public String bootstrapServers() {
        return String.join(",", addresses);
    }

    String address(int broker) {
        return addresses.get(broker);
    }

    /** The port of a listener with a user of its own, or else of the one that all have. */
    int port(int broker, String listener) {
        return Integer.parseInt(listeners.get(broker).getOrDefault(listener, address(broker)).split(":")[1]);
    }

    public void startAll() {
        ask("start", Map.of("brokers", brokers.stream().map(broker -> broker.config().brokerId()).toList()));
        brokers.forEach(RunningBroker::markStarted);
    }

    void start(int broker) {
        ask("start", Map.of("brokers", List.of(broker)));
    }

    void stop(int broker) {
        ask("stop", Map.of("broker", broker));
    }

    /** The leader of each partition, or -1, as the broker knows them; empty if it does not know the topic. */
    Optional<List<Integer>> leaders(int broker, String topic) {
        JsonNode found = ask("partitions", Map.of("broker", broker, "topic", topic)).get("leaders");
        if (found.isNull())
            return Optional.empty();
        List<Integer> leaders = new ArrayList<>();
        found.forEach(leader -> leaders.add(leader.asInt()));
        return Optional.of(leaders);
    }

    void raiseEpoch(String transactionalId, int epoch) {
        ask("raise_epoch", Map.of("transactional_id", transactionalId, "epoch", epoch));
    }

    private synchronized JsonNode ask(String op, Map<String, ?> arguments) {
        ObjectNode command = JSON.valueToTree(arguments);
        command.put("op", op);
        try {
            socket.getOutputStream().write((JSON.writeValueAsString(command) + "\n").getBytes(StandardCharsets.UTF_8));
            String line = answers.readLine();
            if (line == null)
                throw new IOException("no answer to " + command);
            JsonNode answer = JSON.readTree(line);
            if (answer.has("error"))
                throw new IllegalStateException(answer.get("error").asText());
            return answer;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
