import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * What an application that moves to another cluster asks MirrorMaker's client there, as one line of JSON. Arguments:
 * bootstrap, the alias of the cluster that it comes from, its group, and how many seconds it waits for checkpoints.
 */
public class MirrorView {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0]);
        Duration timeout = Duration.ofSeconds(Long.parseLong(args[3]));
        Map<String, Long> offsets = new TreeMap<>();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> entry :
                RemoteClusterUtils.translateOffsets(config, args[1], args[2], timeout).entrySet()) {
            offsets.put(entry.getKey().toString(), entry.getValue().offset());
        }
        Map<String, Object> view = new TreeMap<>();
        view.put("upstream_clusters", RemoteClusterUtils.upstreamClusters(config));
        view.put("heartbeat_topics", RemoteClusterUtils.heartbeatTopics(config));
        view.put("checkpoint_topics", RemoteClusterUtils.checkpointTopics(config));
        view.put("hops", RemoteClusterUtils.replicationHops(config, args[1]));
        view.put("offsets", offsets);
        System.out.println(new ObjectMapper().writeValueAsString(view));
    }
}
