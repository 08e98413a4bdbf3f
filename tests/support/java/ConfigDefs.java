import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * What Apache Kafka declares and accepts. Prints every broker property, then "---", then every topic property as name, type, default,
 * validator and whether it is internal, with tabs between; then, after another "---", "ok" or "refused" for each line of the
 * file args[0], which holds a name, a tab and a value, set over the settings of args[1..] (name=value).
 */
public class ConfigDefs {
    public static void main(String[] args) throws Exception {
        print(KafkaConfig.configDef());
        print(LogConfig.configDefCopy());
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8)) {
            Properties settings = new Properties();
            for (int i = 1; i < args.length; i++) {
                String[] setting = args[i].split("=", 2);
                settings.setProperty(setting[0], setting[1]);
            }
            String[] tried = line.split("\t", 2);
            settings.setProperty(tried[0], tried[1]);
            System.out.println(isAccepted(settings) ? "ok" : "refused");
        }
    }

    private static void print(ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "required";
            System.out.println(String.join("\t", key.name, key.type.name(), String.valueOf(value), String.valueOf(key.validator),
                String.valueOf(key.internalConfig)));
        }
        System.out.println("---");
    }

    private static boolean isAccepted(Properties settings) {
        try {
            new LogConfig(new KafkaConfig(settings, false).extractLogConfigMap());
            return true;
        } catch (Exception e) {
            return false;
        }
    }
}
