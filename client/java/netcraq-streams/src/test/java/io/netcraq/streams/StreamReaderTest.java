// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netcraq.streams.ReaderOptions.From;
import io.netcraq.streams.ReaderOptions.Mode;
import java.io.File;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests the reader, by push and by pull, with the real server. */
@Timeout(120)
class StreamReaderTest {
    private Memserver server;

    @BeforeEach
    void start() throws IOException {
        server = new Memserver();
    }

    @AfterEach
    void stop() throws IOException {
        server.close();
    }

    private ReaderOptions options(Mode mode) {
        return ReaderOptions.of("s").socket(server.socket()).mode(mode);
    }

    /**
     * Reads the given number of records of partition 0, and checks that their offsets are
     * consecutive.
     */
    private static List<String> take(StreamReader reader, int many, long first) throws IOException {
        List<String> out = new ArrayList<>();
        while (out.size() < many) {
            Batch batch = reader.next(Memserver.PATIENCE);
            assertNotNull(batch, "no record came");
            assertEquals(0, batch.missed());
            for (StreamRecord r : batch) {
                assertEquals(first + out.size(), r.offset());
                out.add(r.text());
            }
        }
        return out;
    }

    private static void until(String what, BooleanSupplier condition) {
        until(() -> what, condition);
    }

    private static void until(Supplier<String> what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + Memserver.PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, () -> "waited in vain for " + what.get());
            try {
                Thread.sleep(10);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }

    private static List<String> numbered(int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> i + " \u00fc " + "x".repeat(i % 300)).toList();
    }

    /** Work that runs concurrently with the test. The result's get throws its exception. */
    private interface Work {
        void run() throws Exception;
    }

    private static CompletableFuture<Void> beside(Work work) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        Thread t = new Thread(() -> {
            try {
                work.run();
                done.complete(null);
            } catch (Exception | Error e) {
                done.completeExceptionally(e);
            }
        });
        t.setDaemon(true);
        t.start();
        return done;
    }

    @ParameterizedTest
    @EnumSource
    void readsWhatIsThereAndWhatComes(Mode mode) throws IOException {
        Instant before = Instant.now().minusSeconds(1);
        assertThrows(NodeException.class, () -> StreamReader.open(options(mode)), "there is no such stream");
        server.open("s", "{}");
        server.append("s", 0, "one", "two", "");
        try (StreamReader reader = StreamReader.open(options(mode))) {
            assertEquals(List.of("one", "two", ""), take(reader, 3, 0));
            CompletableFuture<Void> producer = beside(() -> server.append("s", 0, "three"));
            Batch batch = reader.next();
            StreamRecord record = batch.get(0);
            assertEquals("three", record.text());
            assertEquals("three", new String(record.bytes()));
            assertTrue(record.time().isAfter(before) && record.time().isBefore(Instant.now().plusSeconds(1)));
            assertThrows(RuntimeException.class, () -> record.data().put(0, (byte) 1), "records are not written");
            assertThrows(IndexOutOfBoundsException.class, () -> batch.get(1));
            assertNull(reader.next(Duration.ofMillis(50)));
            assertThrows(IllegalStateException.class, () -> batch.get(0), "it was released");
            producer.join();
        }
    }

    @Test
    void pullsByTcpAndDoesNotPush() throws IOException {
        server.open("s", "{}");
        server.append("s", 0, "one");
        try (StreamReader reader = StreamReader.open(options(Mode.PULL).socket(server.tcp()))) {
            assertEquals(List.of("one"), take(reader, 1, 0));
        }
        assertThrows(NodeException.class, () -> StreamReader.open(options(Mode.PUSH).socket(server.tcp())));
    }

    /**
     * There are many times as many records as fit into the ring. No record is lost, because the
     * server waits for the reader.
     */
    @ParameterizedTest
    @EnumSource
    void keepsTheOrderOfEachPartitionAndResumesByName(Mode mode) throws Exception {
        int partitions = 3;
        server.open("s", "{\"partitions\":3,\"objectBytes\":1024,\"objects\":8,\"stallMs\":3600000}");
        List<String> want = numbered(0, 400);
        Map<Integer, List<String>> got = new HashMap<>();
        List<CompletableFuture<Void>> producers = new ArrayList<>();
        StreamReader reader = StreamReader.open(options(mode).consumer("me"));
        try {
            for (int p = 0; p < partitions; p++) {
                int partition = p;
                got.put(p, new ArrayList<>());
                producers.add(beside(() -> {
                    try (NodeConnection c = server.connect()) {
                        for (int i = 0; i < want.size(); i += 8) {
                            Memserver.append(c, "s", partition, want.subList(i, i + 8), Memserver.PATIENCE);
                        }
                    }
                }));
            }
            int total = 0;
            int batches = 0;
            while (total < partitions * want.size()) {
                Batch batch = reader.next(Memserver.PATIENCE);
                assertNotNull(batch);
                assertEquals(0, batch.missed());
                List<String> list = got.get(batch.partition());
                for (StreamRecord r : batch) {
                    assertEquals(list.size(), r.offset());
                    list.add(r.text());
                    total++;
                }
                batch.release();
                if (++batches == 20) { // stop here; another reader with the same name continues
                    reader.close();
                    reader = StreamReader.open(options(mode).consumer("me"));
                }
            }
            assertNull(reader.next(Duration.ofMillis(50)));
        } finally {
            reader.close();
        }
        for (int p = 0; p < partitions; p++) {
            assertEquals(want, got.get(p));
            producers.get(p).get(60, TimeUnit.SECONDS);
        }
    }

    @ParameterizedTest
    @EnumSource
    void goesOnWhenTheServerWasKilled(Mode mode) throws Exception {
        server.open("s", "{\"partitions\":2}");
        Map<Integer, List<String>> got = Map.of(0, new ArrayList<>(), 1, new ArrayList<>());
        try (StreamReader reader = StreamReader.open(options(mode))) {
            for (int round = 0; round < 4; round++) {
                server.append("s", 0, "a" + round, "b" + round);
                server.append("s", 1, "x" + round);
                int kill = round;
                CompletableFuture<Void> killer = beside(() -> {
                    if (kill % 2 == 0) {
                        // in this case, kill the server while the reader waits; otherwise before it
                        // reads
                        Thread.sleep(50);
                    }
                    server.kill();
                    server.start();
                });
                if (round % 2 == 1) {
                    killer.get(60, TimeUnit.SECONDS);
                }
                while (got.get(0).size() + got.get(1).size() < 3 * (round + 1)) {
                    Batch batch = reader.next(Memserver.PATIENCE);
                    assertNotNull(batch);
                    assertEquals(0, batch.missed());
                    for (StreamRecord r : batch) {
                        assertEquals(got.get(batch.partition()).size(), r.offset());
                        got.get(batch.partition()).add(r.text());
                    }
                }
                killer.get(60, TimeUnit.SECONDS);
            }
        }
        assertEquals(List.of("a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"), got.get(0));
        assertEquals(List.of("x0", "x1", "x2", "x3"), got.get(1));
    }

    @Test
    void waitsForASlowReaderAndMovesOnWhoSkips() throws Exception {
        server.open("s", "{\"objectBytes\":1024,\"objects\":4,\"stallMs\":3600000}");
        String[] one = {"x".repeat(400)}; // two records fit into an object
        try (StreamReader reader = StreamReader.open(options(Mode.PUSH))) {
            CompletableFuture<Void> producer = beside(() -> {
                for (int i = 0; i < 9; i++) {
                    server.append("s", 0, one);
                }
            });
            until("a full ring", () -> nextOffset() == 8);
            assertThrows(TimeoutException.class, () -> producer.get(200, TimeUnit.MILLISECONDS));
            take(reader, 9, 0);
            producer.get(60, TimeUnit.SECONDS);
        }
        try (StreamReader reader = StreamReader.open(options(Mode.PUSH).from(From.LATEST).skip(true))) {
            for (int i = 0; i < 20; i++) {
                server.append("s", 0, one);
            }
            Batch batch = reader.next(Memserver.PATIENCE);
            assertEquals(19, batch.missed());
            assertEquals(28, batch.offset());
            assertEquals(server.next("s", 0), batch.next());
            for (int i = 0; i < 20; i++) {
                // the reader has a copy of the record, so these records may overwrite it
                server.append("s", 0, "y".repeat(400));
            }
            assertEquals(one[0], batch.get(0).text());
            batch.release();
        }
    }

    /**
     * The first batch of a named consumer reports how many records the consumer missed, even if
     * earlier readers with the same name got no batch.
     */
    @ParameterizedTest
    @CsvSource({"PUSH,false", "PUSH,true", "PULL,false", "PULL,true"})
    void tellsLaterWhatWasMissed(Mode mode, boolean manual) throws IOException {
        server.open("s", "{\"objectBytes\":1024,\"objects\":4,\"slow\":\"skip\"}");
        ReaderOptions options = options(mode).consumer("me").manual(manual);
        StreamReader.open(options).close();
        for (int i = 0; i < 20; i++) {
            server.append("s", 0, "x".repeat(400));
        }
        // this reader got the number of missed records, but returned no batch
        StreamReader.open(options).close();
        try (StreamReader reader = StreamReader.open(options)) {
            server.kill(); // a reader that connects again requests records from its position
            server.start();
            server.append("s", 0, "by the new server");
            Batch batch = reader.next(Memserver.PATIENCE);
            assertTrue(batch.offset() > 0);
            assertEquals(batch.offset(), batch.missed());
            take(reader, (int) (21 - batch.next()), batch.next());
            assertNull(reader.next(Duration.ofMillis(50))); // this releases the previous batch
            reader.done(0, 21);
        }
        // missed records are reported only once
        try (StreamReader reader = StreamReader.open(options)) {
            server.append("s", 0, "y");
            assertEquals(List.of("y"), take(reader, 1, 21));
        }
    }

    private long nextOffset() {
        try {
            return server.next("s", 0);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void tellsWhoReadTooSlowlyThatItWasOverwritten() throws IOException {
        server.open("s", "{\"objectBytes\":1024,\"objects\":4,\"slow\":\"skip\"}");
        server.append("s", 0, "x".repeat(400));
        try (StreamReader reader = StreamReader.open(options(Mode.PUSH))) {
            long before = 0;
            for (int round = 0; round < 3; round++) {
                Batch batch = reader.next(Memserver.PATIENCE);
                assertEquals(batch.offset() - before, batch.missed());
                before = batch.offset();
                for (int i = 0; i < 20; i++) {
                    server.append("s", 0, "y".repeat(400));
                }
                assertThrows(OverrunException.class, () -> reader.next(Memserver.PATIENCE));
            }
            Batch batch = reader.next(Memserver.PATIENCE);
            assertEquals(batch.offset() - before, batch.missed());
            assertEquals(61, batch.next());
        }
    }

    @ParameterizedTest
    @EnumSource
    void beginsAtOffsetsOfAnIncarnation(Mode mode) throws IOException {
        server.open("s", "{\"partitions\":2}");
        server.append("s", 0, "a", "b", "c");
        server.append("s", 1, "x");
        String incarnation;
        try (StreamReader reader = StreamReader.open(options(mode).partitions(0))) {
            incarnation = reader.incarnation();
            assertEquals(List.of("a", "b", "c"), take(reader, 3, 0));
        }
        try (StreamReader reader = StreamReader.open(options(mode).offsets(Map.of(0, 2L), incarnation))) {
            assertEquals(List.of("c"), take(reader, 1, 2));
        }
        assertThrows(NodeException.class, () -> {
            try (StreamReader r = StreamReader.open(options(mode).offsets(Map.of(0, 2L), "0123456789abcdef"))) {
                r.next(Memserver.PATIENCE);
            }
        });
        try (StreamReader reader = StreamReader.open(options(mode).from(From.LATEST).partitions(0))) {
            assertNull(reader.next(Duration.ofMillis(50)));
            server.append("s", 0, "d");
            assertEquals(List.of("d"), take(reader, 1, 3));
        }
    }

    /**
     * Records that are not declared as done stay in the ring, also for the next reader with the
     * same name. That reader gets each of these records once.
     */
    @ParameterizedTest
    @EnumSource
    void holdsWhatIsNotDone(Mode mode) throws Exception {
        server.open("s", "{\"objectBytes\":1024,\"objects\":4,\"stallMs\":3600000,\"keepMs\":3600000}");
        String text = "x".repeat(400); // two records fit into an object
        try (StreamReader reader = StreamReader.open(options(mode).consumer("me").manual(true))) {
            CompletableFuture<Void> producer = beside(() -> {
                for (int i = 0; i < 12; i++) {
                    server.append("s", 0, i + text);
                }
            });
            assertEquals(8, take(reader, 8, 0).size());
            assertNull(reader.next(Duration.ofMillis(200)));
            assertEquals(8, server.next("s", 0));
            CompletableFuture<Void> other = beside(() -> reader.done(0, 5));
            take(reader, 4, 8);
            other.get(60, TimeUnit.SECONDS);
            producer.get(60, TimeUnit.SECONDS);
            server.kill();
            server.start();
            beside(() -> server.append("s", 0, "new" + text));
            assertNull(reader.next(Duration.ofMillis(200)), "what came before does not come again");
            reader.done(0, 7);
            assertEquals(List.of("new" + text), take(reader, 1, 12));
        }
        try (StreamReader reader = StreamReader.open(options(mode).consumer("me").manual(true))) {
            Batch batch = reader.next(Memserver.PATIENCE);
            assertEquals(0, batch.missed());
            assertEquals(7, batch.offset());
        }
    }

    @ParameterizedTest
    @EnumSource
    void isWokenAndInterrupted(Mode mode) throws Exception {
        server.open("s", "{\"partitions\":2}");
        try (StreamReader reader = StreamReader.open(options(mode))) {
            CompletableFuture<Void> waker = beside(() -> {
                Thread.sleep(50);
                reader.wakeUp();
            });
            assertNull(reader.next());
            waker.get(60, TimeUnit.SECONDS);
            reader.wakeUp();
            assertNull(reader.next(), "the next one is woken");
            server.append("s", 1, "x");
            assertNotNull(reader.next(Memserver.PATIENCE));
            Thread me = Thread.currentThread();
            CompletableFuture<Void> interrupter = beside(() -> {
                Thread.sleep(50);
                me.interrupt();
            });
            assertThrows(InterruptedIOException.class, reader::next);
            assertTrue(Thread.interrupted());
            interrupter.get(60, TimeUnit.SECONDS);
            server.append("s", 1, "y");
            assertEquals("y", reader.next(Memserver.PATIENCE).get(0).text(), "it goes on");
        }
    }

    @Test
    void isReplacedByOneOfItsName() throws IOException {
        server.open("s", "{}");
        try (StreamReader first = StreamReader.open(options(Mode.PUSH).consumer("me"));
                StreamReader second = StreamReader.open(options(Mode.PUSH).consumer("me"))) {
            NodeException e = assertThrows(NodeException.class, first::next);
            assertEquals("not_held", e.code());
            server.append("s", 0, "x");
            assertEquals(List.of("x"), take(second, 1, 0));
        }
    }

    @Test
    void waitsForAServerOnlySoLong() throws Exception {
        server.open("s", "{}");
        server.kill();
        assertThrows(IOException.class, () -> StreamReader.open(options(Mode.PUSH).openTimeout(Duration.ofMillis(50))));
        CompletableFuture<Void> starter = beside(() -> {
            Thread.sleep(100);
            server.start();
        });
        StreamReader.open(options(Mode.PUSH)).close();
        starter.get(60, TimeUnit.SECONDS);
    }

    /**
     * After close, no file descriptor is open. The memory is unmapped when no object refers to it.
     */
    @Test
    void leaksNothing() throws Exception {
        server.open("s", "{\"partitions\":4}");
        server.append("s", 0, "x");
        for (Mode mode : Mode.values()) { // this loads everything that stays loaded
            StreamReader.open(options(mode)).close();
        }
        List<String> before = descriptors();
        for (int i = 0; i < 20; i++) {
            try (StreamReader reader = StreamReader.open(options(i % 2 == 0 ? Mode.PUSH : Mode.PULL))) {
                assertNotNull(reader.next(Memserver.PATIENCE));
            }
        }
        int most = before.size() + 3; // the virtual machine itself may open some file descriptors
        until(() -> "the descriptors to be closed: " + descriptors() + ", before: " + before,
                () -> descriptors().size() <= most);
        until("the memory to be unmapped", () -> {
            System.gc();
            return !mapped();
        });
        until("the threads to end", () -> Thread.getAllStackTraces().keySet().stream()
                .noneMatch(t -> t.getName().equals("netcraq-stream")));
    }

    /** Returns the open file descriptors of this process. */
    private static List<String> descriptors() {
        List<String> out = new ArrayList<>();
        for (File f : new File("/proc/self/fd").listFiles()) {
            try {
                out.add(Files.readSymbolicLink(f.toPath()).toString());
            } catch (IOException e) {
                // this is the file descriptor of this listing, or one that was closed meanwhile
                continue;
            }
        }
        return out;
    }

    private static boolean mapped() {
        try {
            return Files.readString(Path.of("/proc/self/maps")).contains("netcraq-");
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void iterates() throws IOException {
        server.open("s", "{}");
        server.append("s", 0, "a", "b");
        List<String> got = new ArrayList<>();
        try (StreamReader reader = StreamReader.open(options(Mode.PUSH).consumer("me"))) {
            for (Batch batch : reader) {
                batch.forEach(r -> got.add(r.text()));
                reader.wakeUp();
            }
        }
        assertEquals(List.of("a", "b"), got);
    }
}
