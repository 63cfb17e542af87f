import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints partition 0 of a topic as Kafka's own client reads it: offset, timestamp type and value, key, value, headers; bytes in hex. */
class JavaReader {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "isolation.level", "read_committed",
                "max.partition.fetch.bytes", 64 << 20, "fetch.max.bytes", 64 << 20);
        var tp = new TopicPartition(args[1], 0);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            while (consumer.position(tp) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    var line = new StringBuilder();
                    line.append(record.offset()).append(' ').append(record.timestampType().id).append(' ').append(record.timestamp());
                    line.append(' ').append(hex(record.key())).append(' ').append(hex(record.value()));
                    for (Header header : record.headers())
                        line.append(' ').append(hex(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8))).append(' ').append(hex(header.value()));
                    System.out.println(line);
                }
            }
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : "x" + HexFormat.of().formatHex(bytes);
    }
}
