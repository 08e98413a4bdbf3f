import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * An idempotent Java producer for the crash tests: sends numbered records at a steady rate and prints one JSON line for
 * each acknowledgement. Arguments: bootstrap, topic, partitions, name, records per second, value size, in-flight limit.
 * Lines on standard input pause it (all that was sent is answered before it prints "paused") and resume it; the end of
 * the input ends it. Times are System.nanoTime, which on Linux is the clock of Python's time.monotonic_ns.
 */
public class AckedProducer {
    private static volatile boolean paused = true;
    private static volatile boolean closed = false;
    private static final Object PAUSE = new Object();

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        String name = args[3];
        long intervalNanos = 1_000_000_000L / Integer.parseInt(args[4]);
        int size = Integer.parseInt(args[5]);
        int limit = Integer.parseInt(args[6]);
        Semaphore inFlight = new Semaphore(limit);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(args[0]))) {
            Thread control = new Thread(AckedProducer::obey, "control");
            control.setDaemon(true);
            control.start();
            for (long number = 0; !closed; number++) {
                if (paused) {
                    waitForResume(producer, inFlight, limit);
                    if (closed) {
                        break;
                    }
                }
                inFlight.acquire();
                send(producer, topic, (int) (number % partitions), name + ":" + number, size, inFlight);
                java.util.concurrent.locks.LockSupport.parkNanos(intervalNanos);
            }
        }
    }

    private static Properties config(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "2");
        config.put("delivery.timeout.ms", "600000");
        config.put("max.block.ms", "600000");
        config.put("request.timeout.ms", "5000");
        config.put("reconnect.backoff.max.ms", "100");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        return config;
    }

    private static void send(
        KafkaProducer<byte[], byte[]> producer, String topic, int partition, String identity, int size, Semaphore inFlight
    ) {
        String value = (identity + ":").repeat(size / identity.length() + 1).substring(0, size);
        long invoked = System.nanoTime();
        producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.US_ASCII)), (metadata, error) -> {
            String outcome = error == null
                ? "\"offset\":" + metadata.offset()
                : "\"error\":\"" + error.getClass().getSimpleName() + "\"";
            System.out.println("{\"value\":\"" + identity + "\",\"partition\":" + partition + ",\"inv\":" + invoked
                + ",\"ret\":" + System.nanoTime() + "," + outcome + "}");
            inFlight.release();
        });
    }

    private static void obey() {
        try {
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                change(line.equals("pause"), false);
            }
        } catch (java.io.IOException e) {
            e.printStackTrace();
        }
        change(true, true);
    }

    private static void change(boolean toPaused, boolean toClosed) {
        synchronized (PAUSE) {
            paused = toPaused;
            closed = toClosed;
            PAUSE.notifyAll();
        }
    }

    private static void waitForResume(KafkaProducer<byte[], byte[]> producer, Semaphore inFlight, int limit) throws InterruptedException {
        producer.flush();
        // A flush may return before the last callback has printed its line.
        inFlight.acquire(limit);
        inFlight.release(limit);
        System.out.println("paused");
        System.out.flush();
        synchronized (PAUSE) {
            while (paused && !closed) {
                PAUSE.wait();
            }
        }
    }
}
