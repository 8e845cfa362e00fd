// A Java producer and consumer of the worker's events, with the CloudEvents SDK
// over Kafka's own client and with Spring's header mappers, as NCMP has them.
// A test runs it beside a worker:
//
//	java -cp 'libs/*' Interop.java BROKERS REGISTRATIONS STATE-CHANGES HEARTBEATS LCM-EVENTS INVENTORY-EVENTS OUTCOMES
//
// It registers two handles, readies them, lets one lose its trust, asks for what
// is refused, and prints what it reads as lines of JSON. It fails if it cannot
// read a record as a CloudEvent.

import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.core.message.Encoding;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.CloudEventDeserializer;
import io.cloudevents.kafka.CloudEventSerializer;
import io.cloudevents.kafka.KafkaMessageFactory;
import java.io.ByteArrayInputStream;
import java.io.ObjectInputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.support.DefaultKafkaHeaderMapper;
import org.springframework.kafka.support.KafkaHeaderMapper;
import org.springframework.kafka.support.SimpleKafkaHeaderMapper;

public class Interop {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(120);
    private static final List<String> LEGACY = List.of("eventId", "eventSchema", "eventCorrelationId", "eventTime",
            "eventSource", "eventType", "eventSchemaVersion");

    public static void main(String[] args) throws Exception {
        String brokers = args[0];
        try (var binary = producer(brokers, Encoding.BINARY); var structured = producer(brokers, Encoding.STRUCTURED)) {
            int i = 0;
            for (var producer : List.of(binary, structured)) {
                String handle = "java-" + ++i;
                register(producer, args[1], handle);
                // What follows on other topics needs the handle.
                read(brokers, args[4], 2 * i - 1);
                send(producer, args[2], handle, "org.onap.ncmp.inventory.state-change.v1", "ready-" + handle,
                        "{\"cmHandle\":\"" + handle + "\",\"state\":{\"cmHandleState\":\"READY\"}}");
                read(brokers, args[4], 2 * i);
                send(producer, args[3], handle, "org.onap.cps.ncmp.events.trustlevel.DeviceTrustLevel", handle,
                        "{\"data\":{\"trustLevel\":\"NONE\"}}");
                send(producer, args[1], handle, "org.onap.ncmp.inventory.registration.v1", "refused-" + handle,
                        "{\"updatedCmHandles\":[{\"cmHandle\":\"nobody\"}]}");
            }
        }
        print("lcm", read(brokers, args[4], 4));
        print("inventory", read(brokers, args[5], 2));
        print("outcome", read(brokers, args[6], 2));
    }

    // docs: register
    static void register(KafkaProducer<String, CloudEvent> producer, String topic, String handle) throws Exception {
        CloudEvent event = CloudEventBuilder.v1()
                .withId("create-" + handle)
                .withSource(URI.create("/dmi/java"))
                .withType("org.onap.ncmp.inventory.registration.v1")
                .withData("application/json", """
                        {"dmiPlugin": "http://dmi.lab:8080",
                         "createdCmHandles": [{"cmHandle": "%s", "publicCmHandleProperties": {"rack": "Ä4"}}]}
                        """.formatted(handle).getBytes(StandardCharsets.UTF_8))
                .build();
        producer.send(new ProducerRecord<>(topic, handle, event)).get(); // the handle is the key
    }
    // docs: end

    static void send(KafkaProducer<String, CloudEvent> producer, String topic, String key, String type, String id, String data) throws Exception {
        CloudEvent event = CloudEventBuilder.v1().withId(id).withSource(URI.create("/dmi/java")).withType(type)
                .withData("application/json", data.getBytes(StandardCharsets.UTF_8)).build();
        producer.send(new ProducerRecord<>(topic, key, event)).get();
    }

    static KafkaProducer<String, CloudEvent> producer(String brokers, Encoding encoding) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", brokers, CloudEventSerializer.ENCODING_CONFIG, encoding));
        if (encoding == Encoding.STRUCTURED) {
            config.put(CloudEventSerializer.EVENT_FORMAT_CONFIG, JsonFormat.CONTENT_TYPE);
        }
        var serializer = new CloudEventSerializer();
        serializer.configure(config, false);
        config.keySet().removeIf(k -> k.startsWith("cloudevents."));
        return new KafkaProducer<>(config, new StringSerializer(), serializer);
    }

    // read waits for n records of a topic with one partition.
    static List<ConsumerRecord<String, byte[]>> read(String brokers, String topic, int n) {
        List<ConsumerRecord<String, byte[]>> all = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(Map.<String, Object>of("bootstrap.servers", brokers), new StringDeserializer(), new ByteArrayDeserializer())) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = System.nanoTime() + PATIENCE.toNanos();
            while (all.size() < n) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException(topic + " has " + all.size() + " of " + n + " records");
                }
                consumer.poll(Duration.ofMillis(200)).forEach(all::add);
            }
        }
        return all;
    }

    static void print(String kind, List<ConsumerRecord<String, byte[]>> records) throws Exception {
        var deserializer = new CloudEventDeserializer();
        for (var record : records) {
            // The deserializer is what a consumer configures; the factory is beneath it.
            CloudEvent event = deserializer.deserialize(record.topic(), record.headers(), record.value());
            if (!event.equals(KafkaMessageFactory.createReader(record).toEvent())) {
                throw new IllegalStateException("two readings of one record");
            }
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("kind", kind);
            line.put("key", record.key());
            Map<String, String> attributes = new TreeMap<>();
            for (String name : event.getAttributeNames()) {
                attributes.put(name, event.getAttribute(name).toString());
            }
            for (String name : event.getExtensionNames()) {
                attributes.put(name, event.getExtension(name).toString());
            }
            line.put("attributes", attributes);
            line.put("data", JSON.readTree(event.getData().toBytes()));
            line.put("default", mapped(new DefaultKafkaHeaderMapper(), record));
            line.put("simple", mapped(new SimpleKafkaHeaderMapper(), record));
            System.out.println(JSON.writeValueAsString(line));
        }
    }

    // mapped are NCMP's own headers as a consumer with one of Spring's mappers
    // has them: bytes, which are a serialized string, or text, or the class's name.
    static Map<String, String> mapped(KafkaHeaderMapper mapper, ConsumerRecord<String, byte[]> record) throws Exception {
        Map<String, Object> headers = new HashMap<>();
        mapper.toHeaders(new RecordHeaders(record.headers()), headers);
        Map<String, String> texts = new TreeMap<>();
        for (String name : LEGACY) {
            if (headers.get(name) instanceof byte[] bytes) {
                texts.put(name, text(bytes));
            } else if (headers.get(name) != null) {
                texts.put(name, headers.get(name).toString());
            }
        }
        var type = record.headers().lastHeader("__TypeId__");
        if (type != null) {
            texts.put("__TypeId__", new String(type.value(), StandardCharsets.UTF_8));
        }
        return texts;
    }

    static String text(byte[] bytes) throws Exception {
        if (bytes.length > 1 && bytes[0] == (byte) 0xac && bytes[1] == (byte) 0xed) {
            try (var in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
                return "java:" + in.readObject();
            }
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
