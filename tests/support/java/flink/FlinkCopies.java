import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.kafka.sink.HeldSink;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job that copies a topic's values to another topic, exactly once, in a MiniCluster of this JVM. One JSON line per
 * command on standard input and one per answer on standard output: start (bootstrap, input, output, prefix, naming,
 * checkpoints, and restore, the checkpoint to begin with); hold (commits wait from now on), held (answered when one waits),
 * release, fail (the waiting one fails, and Flink restarts the job by itself), cancel, stop (with a savepoint, after which
 * nothing is uncommitted).
 */
public class FlinkCopies {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PARALLELISM = 2;
    private static final Duration CHECKPOINT_INTERVAL = Duration.ofMillis(300);
    private static final long TIMEOUT_MS = 90_000;

    private static JobClient job;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line));
            } catch (Throwable e) {
                e.printStackTrace();
                answer.put("error", e.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0); // Flink's threads are no daemons
    }

    private static void run(JsonNode command) throws Exception {
        switch (command.get("op").asText()) {
            case "start" -> job = start(command);
            case "hold" -> HeldSink.Gate.close();
            case "held" -> HeldSink.Gate.awaitCommit(TIMEOUT_MS);
            case "release" -> HeldSink.Gate.open();
            case "fail" -> HeldSink.Gate.fail();
            case "cancel" -> {
                job.cancel().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
                job.getJobExecutionResult().handle((result, error) -> null).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            }
            case "stop" -> job.stopWithSavepoint(false, command.get("savepoints").asText(), SavepointFormatType.CANONICAL)
                .get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            default -> throw new IllegalArgumentException("unknown command " + command.get("op"));
        }
    }

    private static JobClient start(JsonNode command) throws Exception {
        Configuration config = new Configuration();
        config.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, CHECKPOINT_INTERVAL);
        config.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, command.get("checkpoints").asText());
        config.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION, ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        config.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        config.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 20);
        config.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, CHECKPOINT_INTERVAL);
        if (command.hasNonNull("restore")) {
            config.set(StateRecoveryOptions.SAVEPOINT_PATH, command.get("restore").asText());
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, config);
        String bootstrap = command.get("bootstrap").asText();
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(command.get("input").asText())
            .setGroupId(command.get("prefix").asText())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").uid("source")
            .sinkTo(sink(command, bootstrap)).uid("sink");
        return environment.executeAsync("copy");
    }

    private static HeldSink sink(JsonNode command, String bootstrap) {
        Properties producerConfig = new Properties();
        producerConfig.put("bootstrap.servers", bootstrap);
        producerConfig.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        producerConfig.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        producerConfig.put("transaction.timeout.ms", "600000"); // Flink's default is above transaction.max.timeout.ms
        KafkaRecordSerializationSchema<String> serializer = KafkaRecordSerializationSchema.<String>builder()
            .setTopic(command.get("output").asText())
            .setValueSerializationSchema(new SimpleStringSchema())
            .build();
        TransactionNamingStrategy naming = TransactionNamingStrategy.valueOf(command.get("naming").asText());
        return new HeldSink(producerConfig, command.get("prefix").asText(), serializer, naming);
    }
}
