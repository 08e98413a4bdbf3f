import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * How Java and Apache Kafka write the name of a TLS client. A line is `name HEX`, the DER of a Name, or `map BASE64 BASE64`, the rules of
 * ssl.principal.mapping.rules and a name. The answer is `=` and the text in base64, or `!` and the class of the exception.
 */
public class SecurityNames {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        try {
            String text = words[0].equals("name")
                ? new X500Principal(HexFormat.of().parseHex(words[1])).getName()
                : SslPrincipalMapper.fromRules(decode(words[1])).getName(decode(words[2]));
            return "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
        } catch (Exception e) {
            return "!" + e.getClass().getSimpleName();
        }
    }

    private static String decode(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
