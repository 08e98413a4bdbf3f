import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's transactional producers behind one JSON line per command on standard input and one per answer on standard
 * output. Commands name a producer: open (config), init, begin, send (topic, partition, value), offset (topic,
 * partition, offset, group), commit, abort, close. A send is answered when the record is acknowledged.
 */
public class TransactionalProducers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line));
            } catch (Throwable e) {
                Throwable cause = e instanceof java.util.concurrent.ExecutionException ? e.getCause() : e;
                answer.put("error", cause.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        PRODUCERS.values().forEach(producer -> producer.close(Duration.ZERO));
    }

    private static void run(JsonNode command) throws Exception {
        String name = command.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.get(name);
        switch (command.get("op").asText()) {
            case "open" -> PRODUCERS.put(name, new KafkaProducer<>(properties(command), new ByteArraySerializer(), new ByteArraySerializer()));
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(
                command.get("topic").asText(), command.get("partition").asInt(), null, command.get("value").asText().getBytes(StandardCharsets.UTF_8))).get();
            case "offset" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(command.get("topic").asText(), command.get("partition").asInt()), new OffsetAndMetadata(command.get("offset").asLong())),
                new ConsumerGroupMetadata(command.get("group").asText()));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> PRODUCERS.remove(name).close(Duration.ZERO);
            default -> throw new IllegalArgumentException("unknown command " + command.get("op"));
        }
    }

    private static Properties properties(JsonNode command) {
        Properties properties = new Properties();
        command.get("config").properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }
}
