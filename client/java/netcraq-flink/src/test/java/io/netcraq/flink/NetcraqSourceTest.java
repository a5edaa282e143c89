// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netcraq.streams.Memserver;
import io.netcraq.streams.NodeConnection;
import io.netcraq.streams.ReaderOptions.Mode;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.flink.util.ExceptionUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests the source in Flink's embedded cluster, with the real server. */
@Timeout(240)
class NetcraqSourceTest {
    private static final int PARTITIONS = 3;
    private static final int PARALLELISM = 2;

    private Memserver server;

    @TempDir
    Path folder;

    @BeforeEach
    void start() throws IOException {
        server = new Memserver();
        Counting.reset();
    }

    @AfterEach
    void stop() throws IOException {
        server.close();
    }

    /**
     * Counts in Flink's state how often each record came, and publishes the counts when the job
     * ends. It fails as often as configured. Each failure comes some records after a checkpoint.
     */
    private static final class Counting extends KeyedProcessFunction<String, String, String>
            implements CheckpointListener {
        private static final long serialVersionUID = 1;

        static final AtomicInteger failuresLeft = new AtomicInteger();
        static final AtomicInteger failures = new AtomicInteger();
        static final AtomicInteger checkpoints = new AtomicInteger();
        /** The highest count of each record in the state, including attempts that failed. */
        static final Map<String, Integer> seen = new ConcurrentHashMap<>();
        /** The counts at the end of the job. */
        static final Map<String, Integer> counted = new ConcurrentHashMap<>();

        private final long pauseMillis;
        private transient ValueState<Integer> count;
        // number of records since the last checkpoint; negative if there was no checkpoint yet
        private transient int behindCheckpoint;

        Counting(long pauseMillis) {
            this.pauseMillis = pauseMillis;
        }

        static void reset() {
            failuresLeft.set(0);
            failures.set(0);
            checkpoints.set(0);
            seen.clear();
            counted.clear();
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Integer.class));
            behindCheckpoint = Integer.MIN_VALUE;
        }

        @Override
        public void processElement(String value, Context context, Collector<String> out) throws Exception {
            if (pauseMillis > 0) {
                Thread.sleep(pauseMillis);
            }
            if (++behindCheckpoint > 20 && failuresLeft.getAndUpdate(n -> Math.max(0, n - 1)) > 0) {
                failures.incrementAndGet();
                throw new IllegalStateException("as the test wants it");
            }
            int now = (count.value() == null ? 0 : count.value()) + 1;
            count.update(now);
            seen.put(value, now);
            context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
        }

        @Override
        public void onTimer(long when, OnTimerContext context, Collector<String> out) throws Exception {
            counted.merge(context.getCurrentKey(), count.value(), Integer::sum);
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            checkpoints.incrementAndGet();
            if (behindCheckpoint < 0) {
                behindCheckpoint = 0;
            }
        }
    }

    private NetcraqSource.Builder<String> source(Mode mode) {
        return NetcraqSource.<String>builder("s").socket(server.socket()).mode(mode)
                .deserializer(new SimpleStringSchema());
    }

    private JobClient run(NetcraqSource<String> source, int restarts, long pauseMillis, String... savepoint)
            throws Exception {
        Configuration c = new Configuration();
        if (savepoint.length > 0) {
            c.set(StateRecoveryOptions.SAVEPOINT_PATH, savepoint[0]);
        }
        c.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        c.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, restarts);
        c.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(50));
        c.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(100));
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, c);
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "netcraq")
                .keyBy(v -> v)
                .process(new Counting(pauseMillis))
                .print();
        return env.executeAsync();
    }

    private static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + Memserver.PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, "waited in vain for " + what);
            Thread.sleep(10);
        }
    }

    private static List<String> records(int partition, int many) {
        return IntStream.range(0, many).mapToObj(i -> partition + "/" + i).toList();
    }

    private static void onceEach(int many) {
        assertEquals(PARTITIONS * many, Counting.counted.size());
        Counting.counted.forEach((record, count) -> assertEquals(1, count, record));
    }

    /** Each existing record is read once, although the job fails meanwhile. */
    @ParameterizedTest
    @EnumSource
    void boundedOnceEach(Mode mode) throws Exception {
        int many = 300;
        server.open("s", "{\"partitions\":" + PARTITIONS + "}");
        for (int p = 0; p < PARTITIONS; p++) {
            server.append("s", p, records(p, many).toArray(new String[0]));
        }
        Counting.failuresLeft.set(2);
        JobClient job = run(source(mode).bounded().build(), 2, 2);
        job.getJobExecutionResult().get(120, TimeUnit.SECONDS);
        assertEquals(2, Counting.failures.get());
        onceEach(many);
    }

    /**
     * The stream has many times as many records as fit into its ring. Records are appended while
     * the job fails and the server is killed. The node keeps records that are in no checkpoint, and
     * each record is counted once.
     */
    @ParameterizedTest
    @EnumSource
    void unboundedOnceEach(Mode mode) throws Exception {
        int many = 800;
        server.open("s", "{\"partitions\":" + PARTITIONS
                + ",\"objectBytes\":1024,\"objects\":8,\"stallMs\":3600000,\"keepMs\":3600000}");
        Counting.failuresLeft.set(2);
        JobClient job = run(source(mode).consumer("job").build(), 10, 0);
        until("a checkpoint, when all are subscribed", () -> Counting.checkpoints.get() > 2 * PARALLELISM);
        List<CompletableFuture<Void>> producers = new ArrayList<>();
        for (int p = 0; p < PARTITIONS; p++) {
            int partition = p;
            producers.add(CompletableFuture.runAsync(() -> produce(partition, records(partition, many))));
        }
        until("the job to have failed", () -> Counting.failures.get() == 2);
        server.kill();
        server.start();
        for (CompletableFuture<Void> p : producers) {
            p.get(120, TimeUnit.SECONDS);
        }
        until("all records", () -> Counting.seen.size() == PARTITIONS * many);
        job.stopWithSavepoint(true, folder.toUri().toString(), SavepointFormatType.CANONICAL)
                .get(60, TimeUnit.SECONDS);
        job.getJobExecutionResult().get(60, TimeUnit.SECONDS);
        onceEach(many);
    }

    /** Appends each record once, although the server may be killed. */
    private void produce(int partition, List<String> records) {
        int appended = 0;
        while (appended < records.size()) {
            try (NodeConnection c = server.connect()) {
                appended = (int) c.describe("", "s", Memserver.PATIENCE)
                        .path("partitions").path(partition).path("next").asLong();
                while (appended < records.size()) {
                    List<String> some = records.subList(appended, Math.min(appended + 5, records.size()));
                    Memserver.append(c, "s", partition, some, Memserver.PATIENCE);
                    appended += some.size();
                }
            } catch (IOException e) {
                // the server was killed; the next server shows how many records were appended
                continue;
            }
        }
    }

    /** If the next records are gone, the job fails, unless the source is configured to continue. */
    @Test
    void missedFailsUnlessAllowed() throws Exception {
        server.open("s", "{\"objectBytes\":1024,\"objects\":4}");
        server.append("s", 0, "first");
        JobClient job = run(source(Mode.PUSH).build(), 0, 0);
        until("the first record", () -> Counting.seen.containsKey("first"));
        String savepoint = job.stopWithSavepoint(false, folder.toUri().toString(), SavepointFormatType.CANONICAL)
                .get(60, TimeUnit.SECONDS);
        job.getJobExecutionResult().get(60, TimeUnit.SECONDS);
        for (int i = 0; i < 10; i++) { // one record fits into an object
            server.append("s", 0, i + "x".repeat(700));
        }
        CompletableFuture<?> failed = run(source(Mode.PUSH).build(), 0, 0, savepoint).getJobExecutionResult();
        ExecutionException e = assertThrows(ExecutionException.class, () -> failed.get(60, TimeUnit.SECONDS));
        String all = ExceptionUtils.stringifyException(e);
        assertTrue(all.contains("are gone"), all);
        assertEquals(Set.of("first"), Counting.seen.keySet());

        job = run(source(Mode.PUSH).failOnMissed(false).build(), 0, 0, savepoint);
        until("what is there", () -> Counting.seen.size() == 1 + 4);
        job.cancel().get(60, TimeUnit.SECONDS);
    }

    @Test
    void checkpointsAreReadBack() throws IOException {
        PartitionSplit split = new PartitionSplit(31, "7d1f0a2c5b3e9846", 1L << 52, true, Long.MAX_VALUE);
        PartitionSplitSerializer splits = new PartitionSplitSerializer();
        assertEquals(split, splits.deserialize(1, splits.serialize(split)));
        EnumeratorState state = new EnumeratorState(true, List.of(split, new PartitionSplit(0, "", 0, false, 7)));
        EnumeratorState.Serializer states = new EnumeratorState.Serializer();
        assertEquals(state, states.deserialize(1, states.serialize(state)));
        assertThrows(IOException.class, () -> splits.deserialize(2, splits.serialize(split)));
        assertThrows(IOException.class, () -> states.deserialize(2, states.serialize(state)));
        assertThrows(IOException.class, () -> states.deserialize(1, new byte[3]));
    }
}
