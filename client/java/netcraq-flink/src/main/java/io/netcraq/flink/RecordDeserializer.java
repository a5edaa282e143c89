// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import io.netcraq.streams.StreamRecord;
import java.io.IOException;
import java.io.Serializable;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.util.Collector;

/** Makes what a job works on of a stream's records. */
public interface RecordDeserializer<T> extends Serializable, ResultTypeQueryable<T> {
    /**
     * Makes any number of values of a record. Its data lie in the node's memory: they are good while
     * this method runs.
     */
    void deserialize(int partition, StreamRecord record, Collector<T> out) throws IOException;

    /** One that leaves it to a schema of Flink's, such as {@code SimpleStringSchema}. */
    static <T> RecordDeserializer<T> of(DeserializationSchema<T> schema) {
        return new Schema<>(schema);
    }

    /** A schema of Flink's. */
    final class Schema<T> implements RecordDeserializer<T> {
        private static final long serialVersionUID = 1;

        private final DeserializationSchema<T> schema;

        private Schema(DeserializationSchema<T> schema) {
            this.schema = schema;
        }

        @Override
        public void deserialize(int partition, StreamRecord record, Collector<T> out) throws IOException {
            schema.deserialize(record.bytes(), out);
        }

        @Override
        public TypeInformation<T> getProducedType() {
            return schema.getProducedType();
        }
    }
}
