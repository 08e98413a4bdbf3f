package barnabas.suites;

import java.lang.reflect.Method;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;

/** Leaves out the tests whose parameter is the group protocol "streams", which the broker does not serve. */
public class WithoutStreamsGroups implements InvocationInterceptor {
    @Override
    public void interceptTestTemplateMethod(
        Invocation<Void> invocation, ReflectiveInvocationContext<Method> context, ExtensionContext extension) throws Throwable {
        if (context.getArguments().contains("streams")) {
            invocation.skip();
            Assumptions.abort("the broker serves no streams groups");
        }
        invocation.proceed();
    }
}
