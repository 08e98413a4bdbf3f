import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import kafka.server.ClientRequestQuotaManager;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * What Apache Kafka's quota managers say to the commands of a file, one answer a line, into another file. Words are parted by tabs.
 *
 *   new KIND WINDOWS                  a manager of kind produce, request or mutation, with windows of a second; no answer
 *   limit USER CLIENT VALUE           * is the default, - is no part of the entity, a value of - removes the limit; no answer
 *   record USER CLIENT VALUE TIME_MS  the throttle time and the client's limit
 */
public class Quotas {
    private static final InetAddress HOST = InetAddress.getLoopbackAddress();

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader commands = new BufferedReader(new InputStreamReader(new FileInputStream(arguments[0]), StandardCharsets.UTF_8));
             PrintWriter answers = new PrintWriter(arguments[1], StandardCharsets.UTF_8)) {
            ClientQuotaManager manager = null;
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split("\t", -1);
                switch (words[0]) {
                    case "new" -> {
                        if (manager != null)
                            manager.shutdown();
                        manager = manager(words[1], new ClientQuotaManagerConfig(Integer.parseInt(words[2]), 1));
                    }
                    case "limit" -> manager.updateQuota(user(words[1]), clientId(words[2]), quota(words[3]));
                    case "record" -> answers.println(record(manager, words[1], words[2], Double.parseDouble(words[3]), Long.parseLong(words[4])));
                    default -> throw new IllegalArgumentException(line);
                }
            }
        }
        System.exit(0);
    }

    private static ClientQuotaManager manager(String kind, ClientQuotaManagerConfig config) {
        Metrics metrics = new Metrics();
        return switch (kind) {
            case "request" -> new ClientRequestQuotaManager(config, metrics, Time.SYSTEM, "", Optional.empty());
            case "mutation" -> new ControllerMutationQuotaManager(config, metrics, Time.SYSTEM, "", Optional.empty());
            default -> new ClientQuotaManager(config, metrics, QuotaType.PRODUCE, Time.SYSTEM, "");
        };
    }

    private static Optional<ConfigEntity> user(String name) {
        return switch (name) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default -> Optional.of(new ClientQuotaManager.UserEntity(Sanitizer.sanitize(name)));
        };
    }

    private static Optional<ConfigEntity> clientId(String name) {
        return switch (name) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default -> Optional.of(new ClientQuotaManager.ClientIdEntity(name));
        };
    }

    private static Optional<Quota> quota(String value) {
        return value.equals("-") ? Optional.empty() : Optional.of(Quota.upperBound(Double.parseDouble(value)));
    }

    private static String record(ClientQuotaManager manager, String user, String clientId, double value, long timeMs) {
        Session session = new Session(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user), HOST);
        int throttleTimeMs = manager.maybeRecordAndGetThrottleTimeMs(session, clientId, value, timeMs);
        return throttleTimeMs + " " + manager.quota(user, clientId).bound();
    }
}
