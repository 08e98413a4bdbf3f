import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's Java consumers, any number in one JVM, each known by a number: a JSON line per command on standard input, one per answer on
 * standard output. A consumer does what it does between two polls by itself: its heartbeats go on.
 */
public class Consumers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Integer, Member> MEMBERS = new HashMap<>();

    /** One consumer, and what became of its partitions since the last poll: "assigned t-0 t-1", "revoked …", "lost …". */
    private static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> events = new ArrayList<>();

        Member(Properties config) {
            consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            note("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            note("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            note("lost", partitions);
        }

        private void note(String what, Collection<TopicPartition> partitions) {
            StringBuilder event = new StringBuilder(what);
            partitions.stream().map(TopicPartition::toString).sorted().forEach(name -> event.append(' ').append(name));
            events.add(event.toString());
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
        System.exit(0);
    }

    private static void run(JsonNode command, ObjectNode answer) throws Exception {
        int id = command.get("id").asInt();
        if (command.get("op").asText().equals("open")) {
            Properties config = new Properties();
            command.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
            MEMBERS.put(id, new Member(config));
            return;
        }
        Member member = MEMBERS.get(id);
        switch (command.get("op").asText()) {
            case "subscribe":
                subscribe(member, command);
                break;
            case "poll":
                poll(member, command.get("timeout_ms").asLong(), answer);
                break;
            case "commit":
                member.consumer.commitSync();
                break;
            case "commit async":
                commitAsync(member);
                break;
            case "seek":
                TopicPartition partition = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
                member.consumer.seek(partition, command.get("offset").asLong());
                break;
            case "describe":
                answer.put("member_id", member.consumer.groupMetadata().memberId());
                answer.put("epoch", member.consumer.groupMetadata().generationId());
                break;
            case "close":
                MEMBERS.remove(id);
                member.consumer.close(CloseOptions.groupMembershipOperation(
                    CloseOptions.GroupMembershipOperation.valueOf(command.get("membership").asText())));
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.get("op"));
        }
    }

    private static void subscribe(Member member, JsonNode command) {
        if (command.has("expression")) {
            member.consumer.subscribe(new SubscriptionPattern(command.get("expression").asText()), member);
        } else {
            member.consumer.subscribe(List.of(JSON.convertValue(command.get("topics"), String[].class)), member);
        }
    }

    private static void poll(Member member, long timeoutMs, ObjectNode answer) {
        ArrayNode records = answer.putArray("records");
        for (ConsumerRecord<byte[], byte[]> record : member.consumer.poll(Duration.ofMillis(timeoutMs))) {
            ObjectNode described = records.addObject().put("topic", record.topic()).put("partition", record.partition());
            described.put("offset", record.offset()).put("timestamp", record.timestamp());
            described.put("key", text(record.key())).put("value", text(record.value()));
        }
        ArrayNode assignment = answer.putArray("assignment");
        for (TopicPartition partition : member.consumer.assignment()) {
            assignment.addArray().add(partition.topic()).add(partition.partition());
        }
        ArrayNode events = answer.putArray("events");
        member.events.forEach(events::add);
        member.events.clear();
    }

    /** Returns when the callback was called, which the next call of the consumer does. */
    private static void commitAsync(Member member) throws Exception {
        List<Object> outcome = new ArrayList<>();
        member.consumer.commitAsync((offsets, error) -> outcome.add(error == null ? offsets : error));
        member.consumer.commitSync(Map.of());
        if (outcome.isEmpty()) {
            throw new IllegalStateException("the callback was not called");
        }
        if (outcome.get(0) instanceof Exception) {
            throw (Exception) outcome.get(0);
        }
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
