import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Instances of Kafka Streams programs behind one JSON line per command on standard input and one per answer on standard
 * output. Commands: start, describe, store, close. An instance is known by its name; a JVM may have several of them.
 */
public class StreamsHost {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Instance> INSTANCES = new HashMap<>();

    /** One instance with what it told of itself. */
    private static final class Instance implements StateRestoreListener {
        final KafkaStreams streams;
        final Map<String, Long> restored = new ConcurrentHashMap<>();
        volatile Throwable failure;

        Instance(JsonNode command) {
            Properties properties = new Properties();
            command.get("config").properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
            String application = properties.getProperty(StreamsConfig.APPLICATION_ID_CONFIG);
            streams = new KafkaStreams(StreamsTopologies.build(command.get("topology").asText(), application), properties);
            streams.setGlobalStateRestoreListener(this);
            streams.setUncaughtExceptionHandler(error -> {
                failure = error;
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
        }

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) { }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            restored.merge(store, count, Long::sum);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), answer);
            } catch (Throwable e) {
                answer.put("error", e.toString());
                e.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(JsonNode command, ObjectNode answer) {
        String name = command.get("name").asText();
        switch (command.get("op").asText()) {
            case "start":
                Instance started = new Instance(command);
                INSTANCES.put(name, started);
                started.streams.start();
                break;
            case "describe":
                describe(INSTANCES.get(name), answer);
                break;
            case "store":
                store(INSTANCES.get(name).streams, command.get("store").asText(), answer.putObject("entries"));
                break;
            case "close":
                close(INSTANCES.remove(name).streams, command);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.get("op"));
        }
    }

    private static void describe(Instance instance, ObjectNode answer) {
        answer.put("state", instance.streams.state().toString());
        answer.put("failure", instance.failure == null ? null : messages(instance.failure));
        ArrayNode active = answer.putArray("active");
        ArrayNode standby = answer.putArray("standby");
        for (ThreadMetadata thread : instance.streams.metadataForLocalThreads()) {
            thread.activeTasks().stream().map(TaskMetadata::taskId).sorted().forEach(task -> active.add(task.toString()));
            thread.standbyTasks().stream().map(TaskMetadata::taskId).sorted().forEach(task -> standby.add(task.toString()));
        }
        ObjectNode restored = answer.putObject("restored");
        new TreeMap<>(instance.restored).forEach(restored::put);
        ObjectNode lags = answer.putObject("lags");
        instance.streams.allLocalStorePartitionLags().forEach((store, partitions) ->
            lags.put(store, partitions.values().stream().mapToLong(lag -> lag.offsetLag()).sum()));
    }

    /** What an exception says, and what those say that caused it. */
    private static String messages(Throwable error) {
        return error + (error.getCause() == null ? "" : "; " + messages(error.getCause()));
    }

    private static void store(KafkaStreams streams, String name, ObjectNode entries) {
        StoreQueryParameters<ReadOnlyKeyValueStore<String, Object>> query =
            StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.<String, Object>keyValueStore()).enableStaleStores();
        try (KeyValueIterator<String, Object> all = streams.store(query).all()) {
            while (all.hasNext()) {
                KeyValue<String, Object> entry = all.next();
                entries.put(entry.key, entry.value.toString());
            }
        }
    }

    /** Ends an instance. It stays in its group until its session ends unless it is told to leave; with "clean" its state is wiped from the disk. */
    private static void close(KafkaStreams streams, JsonNode command) {
        GroupMembershipOperation operation =
            command.get("leave").asBoolean() ? GroupMembershipOperation.LEAVE_GROUP : GroupMembershipOperation.REMAIN_IN_GROUP;
        if (!streams.close(CloseOptions.timeout(Duration.ofSeconds(30)).withGroupMembershipOperation(operation))) {
            throw new IllegalStateException("the instance did not end in time");
        }
        if (command.get("clean").asBoolean()) {
            streams.cleanUp();
        }
    }
}
