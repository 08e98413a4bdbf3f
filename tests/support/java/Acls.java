import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Apache Kafka's StandardAuthorizer, one command in each line of the file args[0], with tabs between its words; prints a line for each.
 *
 * new ALLOW_WITHOUT_ACLS; add ACL...; authorize PRINCIPAL HOST OPERATION TYPE NAME, which prints the audit log's line; type PRINCIPAL HOST
 * OPERATION TYPE; find FILTER..., where "null" is null; validate ACL...; address HEX. An ACL, or a filter, is: type, name, pattern type,
 * principal, host, operation, permission, each a code or a text.
 */
public class Acls {
    private static StandardAuthorizer authorizer;

    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8)) {
            String[] words = line.split("\t", -1);
            out.append(answer(words[0], Arrays.copyOfRange(words, 1, words.length))).append("\n");
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static String answer(String command, String[] w) throws Exception {
        switch (command) {
            case "new":
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of("super.users", "User:root", "allow.everyone.if.no.acl.found", w[0]));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
                return "ok";
            case "add":
                authorizer.addAcl(Uuid.randomUuid(), StandardAcl.fromAclBinding(binding(w)));
                return "ok";
            case "authorize":
                return auditLine(context(w[0], w[1]), new Action(AclOperation.fromCode(code(w[2])),
                    new ResourcePattern(ResourceType.fromCode(code(w[3])), w[4], PatternType.LITERAL), 1, true, true));
            case "type":
                return authorizer.authorizeByResourceType(context(w[0], w[1]), AclOperation.fromCode(code(w[2])),
                    ResourceType.fromCode(code(w[3]))).toString();
            case "find":
                List<String> found = new ArrayList<>();
                authorizer.acls(filter(w)).forEach(acl -> found.add(StandardAcl.fromAclBinding(acl).toString()));
                Collections.sort(found);
                return String.join(";", found);
            case "validate":
                return validated(binding(w));
            case "address":
                return InetAddress.getByAddress(HexFormat.of().parseHex(w[0])).getHostAddress();
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private static byte code(String word) {
        return Byte.parseByte(word);
    }

    private static String orNull(String word) {
        return word.equals("null") ? null : word;
    }

    private static AclBinding binding(String[] w) {
        return new AclBinding(new ResourcePattern(ResourceType.fromCode(code(w[0])), w[1], PatternType.fromCode(code(w[2]))),
            new AccessControlEntry(w[3], w[4], AclOperation.fromCode(code(w[5])), AclPermissionType.fromCode(code(w[6]))));
    }

    private static AclBindingFilter filter(String[] w) {
        return new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.fromCode(code(w[0])), orNull(w[1]), PatternType.fromCode(code(w[2]))),
            new AccessControlEntryFilter(orNull(w[3]), orNull(w[4]), AclOperation.fromCode(code(w[5])),
                AclPermissionType.fromCode(code(w[6]))));
    }

    private static AuthorizableRequestContext context(String principal, String host) throws Exception {
        return new RequestContext(new RequestHeader(ApiKeys.FETCH, (short) 4, "", 1), "", InetAddress.getByName(host),
            SecurityUtils.parseKafkaPrincipal(principal), new ListenerName("SASL_PLAINTEXT"), SecurityProtocol.SASL_PLAINTEXT,
            ClientInformation.EMPTY, false);
    }

    private static String auditLine(AuthorizableRequestContext context, Action action) throws Exception {
        var field = StandardAuthorizer.class.getDeclaredField("data");
        field.setAccessible(true);
        Object data = field.get(authorizer);
        Class<?> ruleClass = Class.forName("org.apache.kafka.metadata.authorizer.StandardAuthorizerData$MatchingRule");
        Method find = data.getClass().getDeclaredMethod("findAclRule", Set.class, String.class, Action.class);
        Method write = data.getClass().getDeclaredMethod("buildAuditMessage", KafkaPrincipal.class, AuthorizableRequestContext.class,
            Action.class, ruleClass);
        find.setAccessible(true);
        write.setAccessible(true);
        Set<KafkaPrincipal> principals = new java.util.HashSet<>(List.of(context.principal(), new KafkaPrincipal("User", "*")));
        Object rule = find.invoke(data, principals, context.clientAddress().getHostAddress(), action);
        return (String) write.invoke(data, context.principal(), context, action, rule);
    }

    private static String validated(AclBinding acl) throws Exception {
        Method validate = Class.forName("org.apache.kafka.controller.AclControlManager").getDeclaredMethod("validateNewAcl",
            AclBinding.class);
        validate.setAccessible(true);
        try {
            validate.invoke(null, acl);
            return "ok";
        } catch (InvocationTargetException e) {
            return e.getCause().getMessage();
        }
    }
}
