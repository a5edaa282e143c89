// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netcraq.streams.ReaderOptions.Mode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The reader, by push and by pull, against the real server. */
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

    /** Reads so many records of partition 0, whose offsets follow one another. */
    private static List<String> take(StreamReader reader, int many, long first) throws IOException {
        List<String> out = new ArrayList<>();
        while (out.size() < many) {
            Batch batch = reader.next(Memserver.PATIENCE);
            for (StreamRecord r : batch) {
                assertEquals(first + out.size(), r.offset());
                out.add(r.text());
            }
        }
        return out;
    }

    @ParameterizedTest
    @EnumSource
    void reads(Mode mode) throws IOException {
        server.open("s", "{}");
        server.append("s", 0, "one", "two", "");
        try (StreamReader reader = StreamReader.open(options(mode))) {
            assertEquals(List.of("one", "two", ""), take(reader, 3, 0));
            server.append("s", 0, "three");
            assertEquals(List.of("three"), take(reader, 1, 3));
        }
    }
}
