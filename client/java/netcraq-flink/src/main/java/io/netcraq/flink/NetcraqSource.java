// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import io.netcraq.streams.ReaderOptions;
import io.netcraq.streams.ReaderOptions.From;
import io.netcraq.streams.ReaderOptions.Mode;
import java.util.List;
import java.util.Objects;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.metrics.Counter;

/**
 * Reads a stream of a node as a source of Apache Flink.
 *
 * <pre>{@code
 * NetcraqSource<String> orders = NetcraqSource.<String>builder("orders")
 *         .consumer("billing")
 *         .deserializer(new SimpleStringSchema())
 *         .build();
 * env.fromSource(orders, WatermarkStrategy.noWatermarks(), "orders");
 * }</pre>
  *
  * A split is a partition. Its position is in the checkpoints, together with the stream's
  * incarnation, so each record affects the job's state exactly once. client/java/README.md lists the
  * conditions for that.
  */
public final class NetcraqSource<T> implements Source<T, PartitionSplit, EnumeratorState>, ResultTypeQueryable<T> {
    private static final long serialVersionUID = 1;

    private final ReaderOptions options;
    private final RecordDeserializer<T> deserializer;
    private final From from;
    private final boolean bounded;
    private final boolean failOnMissed;

    private NetcraqSource(Builder<T> b) {
        options = b.options.copy();
        deserializer = Objects.requireNonNull(b.deserializer, "a source has a deserializer");
        from = b.from;
        bounded = b.bounded;
        failOnMissed = b.failOnMissed;
    }

    /** Returns a builder for a source that reads a stream. */
    public static <T> Builder<T> builder(String stream) {
        return new Builder<>(stream);
    }

    /** Builds a source. */
    public static final class Builder<T> {
        private final ReaderOptions options;
        private RecordDeserializer<T> deserializer;
        private From from = From.EARLIEST;
        private boolean bounded;
        private boolean failOnMissed = true;

        private Builder(String stream) {
            options = ReaderOptions.of(stream);
        }

        /**
         * Sets the address of the node's server for the tasks of the source, in the form of {@link
         * ReaderOptions#socket}.
         */
        public Builder<T> socket(String where) {
            options.socket(where);
            return this;
        }

        /** Sets the stream's namespace. The default is the program's own namespace. */
        public Builder<T> namespace(String name) {
            options.namespace(name);
            return this;
        }

        /**
         * Sets the name of the consumer, which only this job may use. The node keeps the records
         * that are in no completed checkpoint of this consumer. So the job needs checkpoints, and
         * the ring must have room for the records between two checkpoints.
         */
        public Builder<T> consumer(String name) {
            options.consumer(name);
            return this;
        }

        /** Sets the mode, which is push (the default) or pull. */
        public Builder<T> mode(Mode how) {
            options.mode(how);
            return this;
        }

        /**
         * Makes the source begin with records that are appended after the start of the job, instead
         * of the oldest record.
         */
        public Builder<T> fromLatest() {
            from = From.LATEST;
            return this;
        }

        /** Makes the source end with the last record that exists at the start of the job. */
        public Builder<T> bounded() {
            bounded = true;
            return this;
        }

        /**
         * Determines what happens if the job's next records have been overwritten. With true, the
         * default, the job fails. With false, it continues and counts the missed records ({@code
         * netcraq.missed}).
         */
        public Builder<T> failOnMissed(boolean yes) {
            failOnMissed = yes;
            return this;
        }

        /** Converts records to the job's values. */
        public Builder<T> deserializer(RecordDeserializer<T> how) {
            deserializer = how;
            return this;
        }

        /** Converts records to the job's values with a schema of Flink. */
        public Builder<T> deserializer(DeserializationSchema<T> how) {
            return deserializer(RecordDeserializer.of(how));
        }

        /** Makes the source. */
        public NetcraqSource<T> build() {
            return new NetcraqSource<>(this);
        }
    }

    @Override
    public Boundedness getBoundedness() {
        return bounded ? Boundedness.BOUNDED : Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<T, PartitionSplit> createReader(SourceReaderContext context) {
        Counter missed = context.metricGroup().addGroup("netcraq").counter("missed");
        Done done = new Done();
        return new NetcraqSourceReader<>(
                () -> new PartitionSplitReader<>(options, deserializer, failOnMissed, missed, done), done, context);
    }

    @Override
    public SplitEnumerator<PartitionSplit, EnumeratorState> createEnumerator(
            SplitEnumeratorContext<PartitionSplit> context) {
        return restoreEnumerator(context, new EnumeratorState(false, List.of()));
    }

    @Override
    public SplitEnumerator<PartitionSplit, EnumeratorState> restoreEnumerator(
            SplitEnumeratorContext<PartitionSplit> context, EnumeratorState state) {
        return new PartitionEnumerator(context, options, from, bounded, state);
    }

    @Override
    public SimpleVersionedSerializer<PartitionSplit> getSplitSerializer() {
        return new PartitionSplitSerializer();
    }

    @Override
    public SimpleVersionedSerializer<EnumeratorState> getEnumeratorCheckpointSerializer() {
        return new EnumeratorState.Serializer();
    }

    @Override
    public TypeInformation<T> getProducedType() {
        return deserializer.getProducedType();
    }
}
