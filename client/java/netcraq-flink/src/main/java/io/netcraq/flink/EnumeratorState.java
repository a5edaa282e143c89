// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * The state of the enumerator.
 *
 * @param found whether the stream's partitions were found; readers have the splits that are not
 * waiting
 * @param waiting the splits that no reader has yet
 */
public record EnumeratorState(boolean found, List<PartitionSplit> waiting) {
    /** Encodes the state for checkpoints. */
    static final class Serializer implements SimpleVersionedSerializer<EnumeratorState> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(EnumeratorState state) throws IOException {
            DataOutputSerializer out = new DataOutputSerializer(256);
            out.writeBoolean(state.found());
            out.writeInt(state.waiting().size());
            for (PartitionSplit split : state.waiting()) {
                PartitionSplitSerializer.write(split, out);
            }
            return out.getCopyOfBuffer();
        }

        @Override
        public EnumeratorState deserialize(int version, byte[] bytes) throws IOException {
            PartitionSplitSerializer.check(version);
            DataInputDeserializer in = new DataInputDeserializer(bytes);
            boolean found = in.readBoolean();
            List<PartitionSplit> waiting = new ArrayList<>();
            for (int left = in.readInt(); left > 0; left--) {
                waiting.add(PartitionSplitSerializer.read(in));
            }
            return new EnumeratorState(found, waiting);
        }
    }
}
