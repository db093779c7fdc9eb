/*
 * One long-lived program that answers with Kafka's own classes. Questions come on stdin, answers go to stdout.
 *
 *   question: op (1 byte), name (int32 length, UTF-8), version (int16), payload (int32 length)
 *   answer:   0 and two byte strings (int32 length each), or 1 and a text that says what was thrown
 *
 *   P  parse `payload` as class `name`: what Kafka writes for it, and its JSON
 *   B  build class `name` from the JSON in `payload`: what Kafka writes for it
 *   F  read a framed value, `name` metadata or remote: what Kafka's serde writes for it, and its JSON
 *   G  read a group record (int32 key length, key, value): both as Kafka writes them, and its text
 *   C  read a batch of control records: one line of JSON per record, type first
 *   I  replay batches of framed metadata records (int32 batches; each: int32 records; each: int32 length, value) from
 *      nothing: the image's records, framed (int32 length, value), as Kafka writes them at metadata.version `version`
 *      (-1: at that of the image), and the number of losses it would tell of
 *   M  make a control batch of record `name` from the JSON in `payload`; `version` is the control type
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.SupportedConfigChecker;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.serialization.AbstractApiMessageSerde;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;

public class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Class<?>> FOUND = new HashMap<>();
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    record Answer(byte[] first, byte[] second) { }

    static final class Remote extends RemoteLogMetadataSerde {
        final AbstractApiMessageSerde frame = new AbstractApiMessageSerde() {
            @Override
            public ApiMessage apiMessageFor(short key) {
                return newApiMessage(key);
            }
        };
    }

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        System.setOut(new PrintStream(System.err)); // nobody else may write between our answers
        while (true) {
            int op = in.read();
            if (op < 0) {
                return;
            }
            String name = new String(bytes(in), StandardCharsets.UTF_8);
            short version = in.readShort();
            byte[] payload = bytes(in);
            try {
                Answer answer = answer((char) op, name, version, payload);
                out.writeByte(0);
                write(out, answer.first);
                write(out, answer.second);
            } catch (Throwable problem) {
                Throwable cause = problem instanceof InvocationTargetException ? problem.getCause() : problem;
                out.writeByte(1);
                write(out, cause.toString().getBytes(StandardCharsets.UTF_8));
            }
            out.flush();
        }
    }

    static Answer answer(char op, String name, short version, byte[] payload) throws Exception {
        switch (op) {
            case 'P': {
                Message message = (Message) find(name).getDeclaredConstructor().newInstance();
                ByteBuffer buffer = ByteBuffer.wrap(payload);
                message.read(new ByteBufferAccessor(buffer), version);
                if (buffer.hasRemaining()) {
                    throw new IllegalStateException(buffer.remaining() + " bytes left over");
                }
                return new Answer(bytes(message, version), json(name, message, version));
            }
            case 'B': {
                JsonNode node = JSON.readTree(payload);
                Message message = (Message) find(name + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class).invoke(null, node, version);
                return new Answer(bytes(message, version), new byte[0]);
            }
            case 'F': {
                AbstractApiMessageSerde serde = name.equals("metadata") ? MetadataRecordSerde.INSTANCE : new Remote().frame;
                ApiMessageAndVersion read = serde.read(new ByteBufferAccessor(ByteBuffer.wrap(payload)), payload.length);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer target = ByteBuffer.allocate(serde.recordSize(read, cache));
                serde.write(read, cache, new ByteBufferAccessor(target));
                String type = read.message().getClass().getSimpleName();
                return new Answer(target.array(), json(type, read.message(), read.version()));
            }
            case 'G': {
                ByteBuffer both = ByteBuffer.wrap(payload);
                byte[] key = new byte[both.getInt()];
                both.get(key);
                CoordinatorRecord read = new GroupCoordinatorRecordSerde().deserialize(
                    ByteBuffer.wrap(key), both.hasRemaining() ? both.slice() : null);
                byte[] value = new GroupCoordinatorRecordSerde().serializeValue(read);
                key = new GroupCoordinatorRecordSerde().serializeKey(read);
                ByteBuffer again = ByteBuffer.allocate(4 + key.length + (value == null ? 0 : value.length));
                again.putInt(key.length).put(key);
                if (value != null) {
                    again.put(value);
                }
                return new Answer(again.array(), text(read.toString()));
            }
            case 'C': {
                StringBuilder lines = new StringBuilder();
                for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(payload)).batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        lines.append(ControlRecordType.parse(record.key())).append(' ').append(control(record)).append('\n');
                    }
                }
                return new Answer(text(lines.toString()), new byte[0]);
            }
            case 'I': {
                MetadataImage image = image(ByteBuffer.wrap(payload));
                int[] losses = {0};
                ImageWriterOptions.Builder options = new ImageWriterOptions.Builder(image).setLossHandler(loss -> losses[0]++);
                if (version >= 0) {
                    options.setMetadataVersion(MetadataVersion.fromFeatureLevel(version));
                }
                RecordListWriter writer = new RecordListWriter();
                image.write(writer, options.build());
                writer.close(true);
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                DataOutputStream framed = new DataOutputStream(out);
                for (ApiMessageAndVersion record : writer.records()) {
                    ObjectSerializationCache cache = new ObjectSerializationCache();
                    ByteBuffer target = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
                    MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(target));
                    write(framed, target.array());
                }
                return new Answer(out.toByteArray(), text(Integer.toString(losses[0])));
            }
            case 'M': {
                MemoryRecords made = make(name, version, JSON.readTree(payload));
                byte[] batch = new byte[made.sizeInBytes()];
                made.buffer().get(batch);
                return new Answer(batch, new byte[0]);
            }
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    /** What Kafka's loader publishes after these batches, as it reads them from a log. */
    static MetadataImage image(ByteBuffer batches) {
        MetadataImage[] newest = {MetadataImage.EMPTY};
        MetadataBatchLoader loader = new MetadataBatchLoader(
            new LogContext(),
            Time.SYSTEM,
            (what, cause) -> {
                throw new IllegalStateException(what + ": " + cause, cause);
            },
            (delta, image, manifest) -> newest[0] = image,
            SupportedConfigChecker.TRUE);
        long offset = 0;
        for (int left = batches.getInt(); left > 0; left--) {
            List<ApiMessageAndVersion> rows = new ArrayList<>();
            for (int rest = batches.getInt(); rest > 0; rest--) {
                byte[] value = new byte[batches.getInt()];
                batches.get(value);
                rows.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length));
            }
            loader.loadBatch(Batch.data(offset, 1, 1000L, 100, rows), LeaderAndEpoch.UNKNOWN);
            loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
            offset += rows.size();
        }
        return newest[0];
    }

    static Object control(Record record) {
        short version = 0;
        switch (ControlRecordType.parse(record.key())) {
            case ABORT:
            case COMMIT:
                return "{\"coordinatorEpoch\":" + EndTransactionMarker.deserialize(record).coordinatorEpoch() + "}";
            case LEADER_CHANGE:
                return LeaderChangeMessageJsonConverter.write(ControlRecordUtils.deserializeLeaderChangeMessage(record), version);
            case SNAPSHOT_HEADER:
                return SnapshotHeaderRecordJsonConverter.write(ControlRecordUtils.deserializeSnapshotHeaderRecord(record), version);
            case SNAPSHOT_FOOTER:
                return SnapshotFooterRecordJsonConverter.write(ControlRecordUtils.deserializeSnapshotFooterRecord(record), version);
            case KRAFT_VERSION:
                return KRaftVersionRecordJsonConverter.write(ControlRecordUtils.deserializeKRaftVersionRecord(record), version);
            case KRAFT_VOTERS:
                return VotersRecordJsonConverter.write(ControlRecordUtils.deserializeVotersRecord(record), version);
            default:
                throw new IllegalArgumentException("unknown control type");
        }
    }

    static MemoryRecords make(String name, short type, JsonNode node) {
        ByteBuffer room = ByteBuffer.allocate(1 << 20);
        short version = 0;
        switch (name) {
            case "EndTxnMarker":
                ControlRecordType end = ControlRecordType.fromTypeId(type);
                return MemoryRecords.withEndTransactionMarker(7L, (short) 3, new EndTransactionMarker(end, node.get("coordinatorEpoch").asInt()));
            case "LeaderChangeMessage":
                return MemoryRecords.withLeaderChangeMessage(5L, 1000L, 2, room, LeaderChangeMessageJsonConverter.read(node, version));
            case "SnapshotHeaderRecord":
                return MemoryRecords.withSnapshotHeaderRecord(5L, 1000L, 2, room, SnapshotHeaderRecordJsonConverter.read(node, version));
            case "SnapshotFooterRecord":
                return MemoryRecords.withSnapshotFooterRecord(5L, 1000L, 2, room, SnapshotFooterRecordJsonConverter.read(node, version));
            case "KRaftVersionRecord":
                return MemoryRecords.withKRaftVersionRecord(5L, 1000L, 2, room, KRaftVersionRecordJsonConverter.read(node, version));
            case "VotersRecord":
                return MemoryRecords.withVotersRecord(5L, 1000L, 2, room, VotersRecordJsonConverter.read(node, version));
            default:
                throw new IllegalArgumentException("no control record " + name);
        }
    }

    static Class<?> find(String name) throws ClassNotFoundException {
        Class<?> known = FOUND.get(name);
        for (int i = 0; known == null && i < PACKAGES.length; i++) {
            try {
                known = Class.forName(PACKAGES[i] + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
            FOUND.put(name, known);
        }
        if (known == null) {
            throw new ClassNotFoundException(name);
        }
        return known;
    }

    static byte[] bytes(Message message, short version) {
        return MessageUtil.byteBufferToArray(MessageUtil.toByteBufferAccessor(message, version).buffer());
    }

    static byte[] json(String name, Message message, short version) throws Exception {
        Object node = find(name + "JsonConverter")
            .getMethod("write", message.getClass(), short.class, boolean.class).invoke(null, message, version, false);
        return JSON.writeValueAsBytes(node);
    }

    static byte[] text(String words) {
        return words.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] bytes(DataInputStream in) throws IOException {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        return data;
    }

    static void write(DataOutputStream out, byte[] data) throws IOException {
        out.writeInt(data.length);
        out.write(data);
    }
}
