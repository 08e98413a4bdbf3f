import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * What Java and Apache Kafka make of names and settings. A line is
 *   name HEX, the DER of a Name: X500Principal.getName();
 *   map BASE64 BASE64, the rules of ssl.principal.mapping.rules and a name: the principal's name;
 *   jaas BASE64, a value of sasl.jaas.config: the options, by name, each `name=value` with a NUL after it.
 * The answer is `=` and the text in base64, or `!` and the class of the exception.
 */
public class SecurityAnswers {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        try {
            String text = switch (words[0]) {
                case "name" -> new X500Principal(HexFormat.of().parseHex(words[1])).getName();
                case "map" -> SslPrincipalMapper.fromRules(decode(words[1])).getName(decode(words[2]));
                default -> options(decode(words[1]));
            };
            return "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
        } catch (Exception e) {
            return "!" + e.getClass().getSimpleName();
        }
    }

    private static String options(String jaas) {
        var context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(jaas)));
        var text = new StringBuilder();
        new TreeMap<String, Object>(context.configurationEntries().get(0).getOptions())
            .forEach((name, value) -> text.append(name).append('=').append(value).append('\0'));
        return text.toString();
    }

    private static String decode(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
