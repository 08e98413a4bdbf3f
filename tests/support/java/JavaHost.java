import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's Java clients and command line tools behind one JSON line per command on standard input and one per answer on
 * standard output. Commands: produce, consume, tool. One JVM serves a whole test run, because starting one for each tool
 * would take longer than all the tests.
 */
public class JavaHost {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The status of the running tool's first exit: some tools catch what `exit` throws here and exit once more. */
    private static Integer exitStatus;

    /** Thrown where a tool would end the process. */
    private static final class ToolExit extends Error {
        ToolExit(int status) {
            super("exit " + status, null, false, false);
        }
    }

    private static void exitTool(int status) {
        if (exitStatus == null) {
            exitStatus = status;
        }
        throw new ToolExit(status);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Exit.setExitProcedure((status, message) -> exitTool(status));
        Exit.setHaltProcedure((status, message) -> exitTool(status));
        Exit.setShutdownHookAdder((name, hook) -> { });
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer;
            try {
                answer = run(JSON.readTree(line));
            } catch (Throwable e) {
                answer = JSON.createObjectNode().put("error", e.toString());
                e.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static ObjectNode run(JsonNode command) throws Exception {
        switch (command.get("op").asText()) {
            case "produce":
                return produce(command);
            case "consume":
                return consume(command);
            case "tool":
                return tool(command);
            default:
                throw new IllegalArgumentException("unknown command " + command.get("op"));
        }
    }

    private static ObjectNode produce(JsonNode command) throws Exception {
        ArrayNode offsets = JSON.createArrayNode();
        ByteArraySerializer serializer = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties(command), serializer, serializer)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : command.get("records")) {
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                ProducerRecord<byte[], byte[]> toSend = new ProducerRecord<>(
                    command.get("topic").asText(), record.get("partition").asInt(), timestamp, bytes(record.get("key")), bytes(record.get("value")));
                for (JsonNode header : record.get("headers")) {
                    toSend.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(toSend));
            }
            for (Future<RecordMetadata> one : sent) {
                offsets.add(one.get().offset());
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("offsets", offsets);
        return answer;
    }

    /** Reads every partition of a topic from the beginning until it has `count` records or `timeout_ms` went by. */
    private static ObjectNode consume(JsonNode command) throws Exception {
        ArrayNode records = JSON.createArrayNode();
        int count = command.get("count").asInt();
        long deadline = System.nanoTime() + command.get("timeout_ms").asLong() * 1_000_000L;
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties(command), deserializer, deserializer)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(command.get("topic").asText()).forEach(p -> partitions.add(new TopicPartition(p.topic(), p.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    records.add(describe(record));
                }
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("records", records);
        return answer;
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode described = JSON.createObjectNode();
        described.put("partition", record.partition()).put("offset", record.offset()).put("timestamp", record.timestamp());
        described.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = described.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return described;
    }

    /** Runs a tool's main method with its own standard streams; answers with its exit status and what it printed. */
    private static ObjectNode tool(JsonNode command) throws Exception {
        Class<?> tool = Class.forName(command.get("main").asText());
        resetCounter(tool);
        String[] arguments = JSON.convertValue(command.get("args"), String[].class);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        InputStream in = System.in;
        PrintStream out = System.out;
        PrintStream err = System.err;
        exitStatus = null;
        try {
            System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof ToolExit)) {
                throw e;
            }
        } finally {
            System.out.flush();
            System.err.flush();
            System.setIn(in);
            System.setOut(out);
            System.setErr(err);
        }
        ObjectNode answer = JSON.createObjectNode().put("status", exitStatus == null ? 0 : exitStatus);
        answer.put("stdout", printed.toString(StandardCharsets.UTF_8)).put("stderr", complained.toString(StandardCharsets.UTF_8));
        return answer;
    }

    /** ConsoleConsumer counts its messages in a static field, which would end the second run in this JVM at once. */
    private static void resetCounter(Class<?> tool) throws Exception {
        for (Field field : tool.getDeclaredFields()) {
            if (field.getName().equals("messageCount")) {
                field.setAccessible(true);
                field.setInt(null, 0);
            }
        }
    }

    private static Properties properties(JsonNode command) {
        Properties properties = new Properties();
        command.get("config").properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
