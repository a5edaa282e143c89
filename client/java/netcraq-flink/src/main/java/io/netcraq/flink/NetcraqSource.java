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
 * A split is a partition. Where it is read on is in the checkpoints, with the stream's incarnation:
 * what a record did to the job's state is there exactly once. client/java/README.md says what has to
 * be so for that.
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

    /** Begins with a stream's name. */
    public static <T> Builder<T> builder(String stream) {
        return new Builder<>(stream);
    }

    /** Says what is read, and how. */
    public static final class Builder<T> {
        private final ReaderOptions options;
        private RecordDeserializer<T> deserializer;
        private From from = From.EARLIEST;
        private boolean bounded;
        private boolean failOnMissed = true;

        private Builder(String stream) {
            options = ReaderOptions.of(stream);
        }

        /** Where the node's server listens, wherever a task of the source runs: as of {@link ReaderOptions#socket}. */
        public Builder<T> socket(String where) {
            options.socket(where);
            return this;
        }

        /** The stream's namespace. Without one: that of the program. */
        public Builder<T> namespace(String name) {
            options.namespace(name);
            return this;
        }

        /**
         * A name of this job's own. The node holds for it what is not in a completed checkpoint: so the
         * job needs checkpoints, and the ring has room for what comes between two of them.
         */
        public Builder<T> consumer(String name) {
            options.consumer(name);
            return this;
        }

        /** By push, the default, or by pull. */
        public Builder<T> mode(Mode how) {
            options.mode(how);
            return this;
        }

        /** Begins with what comes when the job has begun, and not with the oldest record that is there. */
        public Builder<T> fromLatest() {
            from = From.LATEST;
            return this;
        }

        /** Ends with the records that are there when the job begins. */
        public Builder<T> bounded() {
            bounded = true;
            return this;
        }

        /**
         * With false, a job goes on where records are gone that come next, and counts them
         * ({@code netcraq.missed}). With true, the default, it fails.
         */
        public Builder<T> failOnMissed(boolean yes) {
            failOnMissed = yes;
            return this;
        }

        /** What is made of a record. */
        public Builder<T> deserializer(RecordDeserializer<T> how) {
            deserializer = how;
            return this;
        }

        /** What is made of a record, by a schema of Flink's. */
        public Builder<T> deserializer(DeserializationSchema<T> how) {
            return deserializer(RecordDeserializer.of(how));
        }

        /** The source. */
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
