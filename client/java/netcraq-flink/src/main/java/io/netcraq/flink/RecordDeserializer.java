// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import io.netcraq.streams.StreamRecord;
import java.io.IOException;
import java.io.Serializable;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.util.Collector;

/** Converts a stream's records to the values of a job. */
public interface RecordDeserializer<T> extends Serializable, ResultTypeQueryable<T> {
    /**
     * Makes any number of values from a record. The record's data is in the node's memory, and is
     * valid only during this call.
     */
    void deserialize(int partition, StreamRecord record, Collector<T> out) throws IOException;

    /** Returns a deserializer that uses a schema of Flink, such as {@code SimpleStringSchema}. */
    static <T> RecordDeserializer<T> of(DeserializationSchema<T> schema) {
        return new Schema<>(schema);
    }

    /** A deserializer that uses a schema of Flink. */
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
