package org.apache.flink.connector.kafka.sink;

import java.io.IOException;
import java.util.Collection;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.connector.base.DeliveryGuarantee;

/**
 * Flink's KafkaSink with EXACTLY_ONCE, whose commits can be held: a checkpoint is then complete, its records are flushed, and
 * their transactions are open. In the sink's own package, since its constructor is visible there alone.
 */
public class HeldSink extends KafkaSink<String> {
    public HeldSink(
            Properties producerConfig, String prefix, KafkaRecordSerializationSchema<String> serializer, TransactionNamingStrategy naming) {
        super(DeliveryGuarantee.EXACTLY_ONCE, producerConfig, prefix, serializer, naming);
    }

    @Override
    public Committer<KafkaCommittable> createCommitter(CommitterInitContext context) {
        return new HeldCommitter(super.createCommitter(context));
    }

    /** The gate before the commits of all jobs in this JVM. Open at first. */
    public static final class Gate {
        private enum State { OPEN, CLOSED, BROKEN }

        private static State state = State.OPEN;
        private static int waiting;

        public static synchronized void close() {
            state = State.CLOSED;
        }

        public static synchronized void open() {
            state = State.OPEN;
            Gate.class.notifyAll();
        }

        /** Commits that wait, and those that come, fail, until one of them has failed. */
        public static synchronized void fail() {
            state = State.BROKEN;
            Gate.class.notifyAll();
        }

        /** Returns when a commit waits. */
        public static synchronized void awaitCommit(long timeoutMs) throws InterruptedException, TimeoutException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            while (waiting == 0) {
                long leftMs = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (leftMs <= 0) {
                    throw new TimeoutException("no commit within " + timeoutMs + " ms");
                }
                Gate.class.wait(leftMs);
            }
        }

        private static synchronized void pass() throws IOException, InterruptedException {
            waiting++;
            Gate.class.notifyAll();
            try {
                while (state == State.CLOSED) {
                    Gate.class.wait();
                }
            } finally {
                waiting--;
            }
            if (state == State.BROKEN) {
                state = State.OPEN;
                throw new IOException("the test lets this commit fail");
            }
        }
    }

    private record HeldCommitter(Committer<KafkaCommittable> inner) implements Committer<KafkaCommittable> {
        @Override
        public void commit(Collection<CommitRequest<KafkaCommittable>> requests) throws IOException, InterruptedException {
            Gate.pass();
            inner.commit(requests);
        }

        @Override
        public void close() throws Exception {
            inner.close();
        }
    }
}
