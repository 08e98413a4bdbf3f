import java.util.Arrays;
import kafka.Kafka;
import kafka.tools.StorageTool;

/**
 * Formats by Kafka's own tool and starts the server, in one JVM: another one for the tool takes a second of CPU. Arguments: the server's
 * properties, and the words of `kafka-storage`.
 */
public class FormattedKafka {
    public static void main(String[] args) {
        int status = StorageTool.execute(Arrays.copyOfRange(args, 1, args.length), System.out);
        if (status != 0) {
            System.exit(status);
        }
        Kafka.main(new String[] {args[0]});
    }
}
