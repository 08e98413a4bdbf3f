package barnabas.suites;

import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import kafka.server.ControllerServer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;

/** What tests ask of the controller that is another process: the ids of topics. */
public class RunningController extends ControllerServer {
    private RunningBroker broker;

    private RunningController() {
        super(null, null, null); // is not called
    }

    public static RunningController of(RunningBroker broker) {
        RunningController controller = RunningBroker.made(RunningController.class);
        controller.broker = broker;
        return controller;
    }

    @Override
    public Controller controller() {
        Class<?>[] types = {Controller.class};
        return (Controller) Proxy.newProxyInstance(getClass().getClassLoader(), types, (proxy, method, arguments) -> {
            Map<String, Uuid> known = broker.topicIds();
            if (method.getName().equals("findAllTopicIds"))
                return CompletableFuture.completedFuture(known);
            if (!method.getName().equals("findTopicIds"))
                throw new UnsupportedOperationException(method.toString());
            Map<String, ResultOrError<Uuid>> found = new HashMap<>();
            for (Object name : (Collection<?>) arguments[1])
                found.put((String) name, known.containsKey(name) ? ResultOrError.of(known.get(name))
                    : ResultOrError.of(ApiError.fromThrowable(new UnknownTopicOrPartitionException())));
            return CompletableFuture.completedFuture(found);
        });
    }
}
