// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import java.io.IOException;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/** Encodes splits for checkpoints. */
final class PartitionSplitSerializer implements SimpleVersionedSerializer<PartitionSplit> {
    private static final int VERSION = 1;

    @Override
    public int getVersion() {
        return VERSION;
    }

    @Override
    public byte[] serialize(PartitionSplit split) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(64);
        write(split, out);
        return out.getCopyOfBuffer();
    }

    @Override
    public PartitionSplit deserialize(int version, byte[] bytes) throws IOException {
        check(version);
        return read(new DataInputDeserializer(bytes));
    }

    static void check(int version) throws IOException {
        if (version != VERSION) {
            throw new IOException("a checkpoint of version " + version + "; this program knows " + VERSION);
        }
    }

    static void write(PartitionSplit split, DataOutputSerializer out) throws IOException {
        out.writeInt(split.partition());
        out.writeUTF(split.incarnation());
        out.writeLong(split.offset());
        out.writeBoolean(split.begun());
        out.writeLong(split.stop());
    }

    static PartitionSplit read(DataInputDeserializer in) throws IOException {
        return new PartitionSplit(in.readInt(), in.readUTF(), in.readLong(), in.readBoolean(), in.readLong());
    }
}
