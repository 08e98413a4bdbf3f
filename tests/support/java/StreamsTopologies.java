import java.time.Duration;
import java.util.Arrays;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * The programs of the Kafka Streams tests, by name. Their topics are called "application id-part"; keys and values are text.
 * A result begins with the word that says which part of the program it is from, if there are several.
 */
final class StreamsTopologies {
    private final StreamsBuilder builder = new StreamsBuilder();
    private final String application;

    private StreamsTopologies(String application) {
        this.application = application;
    }

    static Topology build(String name, String application) {
        StreamsTopologies topologies = new StreamsTopologies(application);
        switch (name) {
            case "word-count":
                topologies.wordCount();
                break;
            case "stream-joins":
                topologies.streamJoins();
                break;
            case "table-joins":
                topologies.tableJoins();
                break;
            case "windows":
                topologies.windows();
                break;
            case "collect":
                topologies.collect();
                break;
            default:
                throw new IllegalArgumentException("unknown topology " + name);
        }
        return topologies.builder.build();
    }

    private String topic(String part) {
        return application + "-" + part;
    }

    private KStream<String, String> stream(String part) {
        return builder.stream(topic(part));
    }

    private void toOutput(KStream<String, String> results) {
        results.to(topic("output"), Produced.with(Serdes.String(), Serdes.String()));
    }

    /** How often each word of "lines" was there so far. */
    private void wordCount() {
        KTable<String, Long> counts = stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"));
        toOutput(counts.toStream().mapValues(count -> count.toString()));
    }

    /** Records of "left" and "right" with the same key that are no more than 100 ms apart. */
    private void streamJoins() {
        KStream<String, String> left = stream("left");
        KStream<String, String> right = stream("right");
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(100), Duration.ofMillis(100));
        toOutput(left.join(right, (a, b) -> "inner " + a + " " + b, windows, joined("inner")));
        toOutput(left.leftJoin(right, (a, b) -> "left " + a + " " + b, windows, joined("left")));
        toOutput(left.outerJoin(right, (a, b) -> "outer " + a + " " + b, windows, joined("outer")));
    }

    private static StreamJoined<String, String, String> joined(String name) {
        return StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName(name).withStoreName(name);
    }

    /**
     * "clicks" with the table "users" of the same key, "scores" with "users" as tables, "orders" with the user and "clicks" with the
     * country that the first word of the value names. "countries" is a global table.
     */
    private void tableJoins() {
        KStream<String, String> clicks = stream("clicks");
        KTable<String, String> users = builder.table(topic("users"), Materialized.as("users"));
        KTable<String, String> scores = builder.table(topic("scores"), Materialized.as("scores"));
        KTable<String, String> orders = builder.table(topic("orders"), Materialized.as("orders"));
        GlobalKTable<String, String> countries = builder.globalTable(topic("countries"), Materialized.as("countries"));
        toOutput(clicks.join(users, (click, user) -> "inner " + click + " " + user));
        toOutput(clicks.leftJoin(users, (click, user) -> "left " + click + " " + user));
        toOutput(clicks.leftJoin(countries, (key, click) -> firstWord(click), (click, country) -> "global " + click + " " + country));
        toOutput(scores.outerJoin(users, (score, user) -> "outer " + score + " " + user).toStream());
        toOutput(orders
            .join(users, StreamsTopologies::firstWord, (order, user) -> "foreign " + order + " " + user, TableJoined.as("of-user"))
            .toStream());
    }

    private static String firstWord(String text) {
        return text.split(" ")[0];
    }

    /** How many records of "events" there are for the key that a record's value is, in windows of each kind. */
    private void windows() {
        KGroupedStream<String, String> events = stream("events")
            .map((key, value) -> KeyValue.pair(value, value))
            .groupByKey(Grouped.with("by-value", Serdes.String(), Serdes.String()));
        Duration second = Duration.ofSeconds(1);
        Duration day = Duration.ofDays(1);
        TimeWindows tumbling = TimeWindows.ofSizeAndGrace(second, day);
        toOutput(described("tumbling", events.windowedBy(tumbling).count(Named.as("tumbling"), Materialized.as("tumbling"))));
        TimeWindows hopping = TimeWindows.ofSizeAndGrace(second, day).advanceBy(Duration.ofMillis(500));
        toOutput(described("hopping", events.windowedBy(hopping).count(Named.as("hopping"), Materialized.as("hopping"))));
        SlidingWindows sliding = SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(200), day);
        toOutput(described("sliding", events.windowedBy(sliding).count(Named.as("sliding"), Materialized.as("sliding"))));
        SessionWindows session = SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(300), day);
        toOutput(described("session", events.windowedBy(session).count(Named.as("session"), Materialized.as("session"))));
        KTable<Windowed<String>, Long> last = events.windowedBy(TimeWindows.ofSizeAndGrace(second, Duration.ofHours(1)))
            .count(Named.as("closed"), Materialized.as("closed"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("until-closed"));
        toOutput(described("closed", last));
    }

    /** The key says which window it is: "kind key start end", in milliseconds. */
    private static KStream<String, String> described(String kind, KTable<Windowed<String>, Long> counts) {
        return counts.toStream((key, count) -> kind + " " + key.key() + " " + key.window().start() + " " + key.window().end())
            .mapValues(count -> count == null ? null : count.toString());
    }

    /** The set of the numbers that were seen of each group. A record of "numbers" is "group number"; seen twice it changes nothing. */
    private void collect() {
        KTable<String, String> collected = stream("numbers")
            .groupBy((key, value) -> firstWord(value), Grouped.as("by-group"))
            .aggregate(() -> "", (group, value, numbers) -> with(numbers, value.split(" ")[1]), Materialized.as("collected"));
        toOutput(collected.toStream());
    }

    private static String with(String numbers, String number) {
        TreeSet<Integer> all = Arrays.stream(numbers.split(" ")).filter(each -> !each.isEmpty()).map(Integer::valueOf)
            .collect(Collectors.toCollection(TreeSet::new));
        all.add(Integer.valueOf(number));
        return all.stream().map(String::valueOf).collect(Collectors.joining(" "));
    }
}
