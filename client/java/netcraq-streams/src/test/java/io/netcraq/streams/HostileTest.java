// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.newsclub.net.unix.AFUNIXServerSocket;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;

/** If a server passes invalid memory, the reader reports an error, reads nothing else, and ends. */
@Timeout(60)
class HostileTest {
    private static final int OBJECT = 1024;
    private static final int OBJECTS = 4;
    private static final int SEGMENT = Segment.HEADER_BYTES + OBJECTS * OBJECT;
    private static final int FIRST = Segment.HEADER_BYTES; // object 0
    private static final int RECORD = FIRST + Segment.OBJECT_HEADER_BYTES;

    @TempDir
    Path folder;

    private ByteBuffer segment;
    private ByteBuffer cursor;
    private long told = SEGMENT;
    private int promised = 2;
    private String partitions;

    /** Makes valid memory, which has an object with the records "ab" and "cd". */
    @BeforeEach
    void make() {
        segment = ByteBuffer.allocate(SEGMENT).order(ByteOrder.LITTLE_ENDIAN);
        segment.put(0, "NCSEG001".getBytes(StandardCharsets.US_ASCII));
        segment.putInt(8, 1).putInt(12, 4096).putInt(16, OBJECT).putInt(20, OBJECTS).putLong(64, 1);
        for (int i = 1; i < OBJECTS; i++) {
            segment.putLong(FIRST + i * OBJECT, -1);
        }
        segment.putLong(FIRST, 0).putLong(FIRST + 8, 0).putLong(FIRST + 16, 64L << 32 | 2);
        for (int at = RECORD; at < RECORD + 64; at += 32) {
            segment.putInt(at, 2).put(at + 24, (at == RECORD ? "ab" : "cd").getBytes(StandardCharsets.US_ASCII));
        }
        cursor = ByteBuffer.allocate(CursorPage.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        cursor.put(0, "NCCUR001".getBytes(StandardCharsets.US_ASCII)).putInt(8, 1);
    }

    /** Serves a subscription with the test's memory, and reads until no more records come. */
    private List<String> read() throws IOException {
        List<String> got = new ArrayList<>();
        Path socket = folder.resolve("s");
        File page = write("cursor", cursor);
        File memory = write("segment", segment);
        try (AFUNIXServerSocket listener = AFUNIXServerSocket.bindOn(AFUNIXSocketAddress.of(socket))) {
            Thread server = new Thread(() -> serve(listener, page, memory));
            server.setDaemon(true);
            server.start();
            ReaderOptions options = ReaderOptions.of("s").socket(socket.toString()).openTimeout(Duration.ZERO);
            try (StreamReader reader = StreamReader.open(options)) {
                for (Batch batch; (batch = reader.next(Duration.ofMillis(20))) != null; ) {
                    batch.forEach(r -> got.add(r.text()));
                }
            }
        }
        return got;
    }

    private File write(String name, ByteBuffer content) throws IOException {
        Path path = folder.resolve(name);
        Files.write(path, content.array());
        return path.toFile();
    }

    private void serve(AFUNIXServerSocket listener, File page, File memory) {
        try (AFUNIXSocket s = listener.accept(); RandomAccessFile a = new RandomAccessFile(page, "rw");
                RandomAccessFile b = new RandomAccessFile(memory, "r")) {
            BufferedReader in = new BufferedReader(new InputStreamReader(s.getInputStream(), StandardCharsets.UTF_8));
            JsonNode request = NodeConnection.JSON.readTree(in.readLine());
            String list = partitions != null ? partitions : "[{\"partition\":0,\"bytes\":" + told
                    + ",\"generation\":\"1\",\"object\":0,\"offset\":0}]";
            String answer = "{\"id\":" + request.path("id") + ",\"data\":{\"descriptors\":2,\"incarnation\":\"i\","
                    + "\"partitions\":" + list + "},\"more\":true}\n";
            FileDescriptor[] files = {a.getFD(), b.getFD(), b.getFD()};
            s.setOutboundFileDescriptors(Arrays.copyOf(files, promised));
            s.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
            in.readLine(); // this waits until the reader has disconnected
        } catch (IOException e) {
            return; // the reader has disconnected
        }
    }

    @Test
    void whatIsRightIsRead() throws IOException {
        assertEquals(List.of("ab", "cd"), read());
    }

    static Stream<Arguments> garbage() {
        return Stream.of(
                mutation("another magic", t -> t.segment.put(0, (byte) 'X')),
                mutation("another layout", t -> t.segment.putInt(8, 2)),
                mutation("another header", t -> t.segment.putInt(12, 8192)),
                mutation("objects of no power of two", t -> t.segment.putInt(16, 1032)),
                mutation("objects of a negative size", t -> t.segment.putInt(16, Integer.MIN_VALUE)),
                mutation("objects of no size", t -> t.segment.putInt(16, 0)),
                mutation("more objects than there are", t -> t.segment.putInt(20, 5)),
                mutation("fewer objects than there are", t -> t.segment.putInt(20, 3)),
                mutation("2^32-1 objects", t -> t.segment.putInt(20, -1)),
                mutation("no objects", t -> t.segment.putInt(20, 0)),
                mutation("a file that is shorter", t -> t.segment = ByteBuffer.allocate(SEGMENT - 1)
                        .put(t.segment.slice(0, SEGMENT - 1))),
                mutation("an empty file", t -> t.segment = ByteBuffer.allocate(0)),
                mutation("a length of nothing", t -> t.told = 0),
                mutation("a length below nothing", t -> t.told = -4096),
                mutation("a length of 2^62", t -> t.told = 1L << 62),
                mutation("an object larger than objects are", t -> t.segment.putLong(FIRST + 16, 961L << 32 | 2)),
                mutation("an object of 2^32-1 bytes", t -> t.segment.putLong(FIRST + 16, -1L)),
                mutation("a record beyond its object", t -> t.segment.putInt(RECORD + 32, 9)),
                mutation("a record of 2^32-1 bytes", t -> t.segment.putInt(RECORD, -1)),
                mutation("a record of 2^31 bytes", t -> t.segment.putInt(RECORD, Integer.MIN_VALUE)),
                mutation("half a record", t -> t.segment.putLong(FIRST + 16, 72L << 32 | 2)),
                mutation("more records than it says", t -> t.segment.putLong(FIRST + 16, 64L << 32 | 1)),
                mutation("fewer records than it says", t -> t.segment.putLong(FIRST + 16, 64L << 32 | 3)),
                mutation("an offset below nothing", t -> t.segment.putLong(FIRST + 8, -7)),
                mutation("a next object that goes back", t -> {
                    t.segment.putLong(64, 2).putLong(FIRST + OBJECT, 1).putLong(FIRST + OBJECT + 8, 1);
                    t.segment.putLong(FIRST + OBJECT + 16, 24L << 32 | 1);
                }),
                mutation("another cursor page", t -> t.cursor.put(0, (byte) 'X')),
                mutation("a cursor page of 2 cells", t -> t.cursor.putInt(8, 2)),
                mutation("a cursor page of 2^32-1 cells", t -> t.cursor.putInt(8, -1)),
                mutation("a short cursor page", t -> t.cursor = ByteBuffer.allocate(100)),
                mutation("a long cursor page", t -> t.cursor = ByteBuffer.allocate(8192)),
                mutation("no descriptor of memory", t -> t.promised = 1),
                mutation("a descriptor too many", t -> t.promised = 3),
                mutation("no partition", t -> t.partitions = "[]"),
                mutation("partitions that are none", t -> t.partitions = "7"));
    }

    private static Arguments mutation(String name, Consumer<HostileTest> how) {
        return Arguments.of(name, how);
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource
    void garbage(String name, Consumer<HostileTest> how) {
        how.accept(this);
        assertThrows(GarbageException.class, this::read);
    }

    /** Objects with impossible numbers count as missing. */
    @ParameterizedTest
    @ValueSource(longs = {-1, Long.MAX_VALUE, Long.MIN_VALUE, 1L << 32})
    void numbersThatCannotBe(long number) throws IOException {
        segment.putLong(64, number);
        assertEquals(List.of("ab", "cd"), read());
        segment.putLong(FIRST, number);
        assertEquals(List.of(), read());
    }

    /** Whatever the memory contains, only documented exceptions are thrown. */
    @Test
    void anyBytes() throws IOException {
        Random random = new Random(18);
        int refused = 0;
        for (int round = 0; round < 80; round++) {
            make();
            for (int i = 0; i <= round % 4; i++) {
                int area = random.nextInt(3);
                ByteBuffer b = area == 2 ? cursor : segment;
                int at = area == 0 ? FIRST + random.nextInt(OBJECT / 4) : random.nextInt(96);
                b.put(at, (byte) random.nextInt());
            }
            try {
                read();
            } catch (GarbageException e) {
                refused++;
            }
            Files.deleteIfExists(folder.resolve("s"));
        }
        assertTrue(refused > 8 && refused < 80, refused + " were refused");
    }

    /** Tests readers when the other side is not a node's server. */
    @ParameterizedTest
    @ValueSource(strings = {"HTTP/1.1 400 Bad Request\n", "[]\n", "7\n", "\n", "{\"id\":1,\"data\":7}\n"})
    void anotherProtocol(String text) throws IOException {
        assertThrows(GarbageException.class, () -> readFrom(text, 1));
    }

    @Test
    void anAnswerWithoutAnEnd() throws IOException {
        assertThrows(GarbageException.class, () -> readFrom("x".repeat(1 << 16), 64));
    }

    private void readFrom(String text, int times) throws IOException {
        Path socket = folder.resolve("s");
        try (AFUNIXServerSocket listener = AFUNIXServerSocket.bindOn(AFUNIXSocketAddress.of(socket))) {
            Thread server = new Thread(() -> {
                try (AFUNIXSocket s = listener.accept()) {
                    s.getInputStream().read(new byte[1024]);
                    for (int i = 0; i < times; i++) {
                        s.getOutputStream().write(text.getBytes(StandardCharsets.UTF_8));
                    }
                    s.getInputStream().read();
                } catch (IOException e) {
                    return; // the reader has disconnected
                }
            });
            server.setDaemon(true);
            server.start();
            ReaderOptions options = ReaderOptions.of("s").socket(socket.toString()).openTimeout(Duration.ZERO);
            assertNull(StreamReader.open(options));
        }
    }
}
