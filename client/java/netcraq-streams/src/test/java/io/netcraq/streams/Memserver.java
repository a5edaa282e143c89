// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/**
 * The real server with a store in memory (nodeapi/internal/memserver). It has a folder, so its
 * streams survive the end of the server. $NETCRAQ_MEMSERVER is the path of the command. The target
 * test-java of make builds the command and sets the variable.
 */
public final class Memserver implements AutoCloseable {
    /** A time limit that is longer than any operation takes on a busy machine. */
    public static final Duration PATIENCE = Duration.ofSeconds(60);

    private final String command = System.getenv("NETCRAQ_MEMSERVER");
    private final Path folder;
    private Process process;
    private String tcp;

    /** Starts the server. */
    public Memserver() throws IOException {
        if (command == null) {
            throw new IllegalStateException("NETCRAQ_MEMSERVER is not set: make test-java builds the server and sets it");
        }
        folder = Files.createTempDirectory("netcraq-java-");
        try {
            start();
        } catch (IOException | RuntimeException e) {
            close();
            throw e;
        }
    }

    /** Returns the address of the server's Unix socket. */
    public String socket() {
        return folder.resolve("s").toString();
    }

    /** Returns the server's TCP address. */
    public String tcp() {
        return tcp;
    }

    /** Starts the server, and waits until it listens. */
    public void start() throws IOException {
        List<String> line = List.of(command, "--socket", socket(), "--streams", folder.resolve("streams").toString(),
                "--listen", "tcp://127.0.0.1:0");
        process = new ProcessBuilder(line).redirectError(folder.resolve("log").toFile()).start();
        BufferedReader out = process.inputReader(StandardCharsets.UTF_8);
        for (String said; (said = out.readLine()) != null; ) {
            if (said.startsWith("on tcp ")) {
                tcp = "tcp://" + said.substring("on tcp ".length());
            }
            if (said.equals("listening")) {
                return;
            }
        }
        throw new IOException("memserver did not start: " + Files.readString(folder.resolve("log")));
    }

    /** Kills the server, as kill -9 does. */
    public void kill() throws IOException {
        try {
            if (process != null) { // the server was started
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        Files.deleteIfExists(Path.of(socket()));
    }

    /** Returns a separate connection, for one request at a time. */
    public NodeConnection connect() throws IOException {
        return NodeConnection.connect(socket(), PATIENCE);
    }

    /** Creates a stream with a config in JSON. */
    public void open(String stream, String config) throws IOException {
        try (NodeConnection c = connect()) {
            ObjectNode data = NodeConnection.JSON.createObjectNode().put("stream", stream);
            data.set("config", NodeConnection.JSON.readTree(config));
            c.call("openStream", data, PATIENCE);
        }
    }

    /** Appends all the records, and returns the offset of the first record. */
    public long append(String stream, int partition, String... records) throws IOException {
        try (NodeConnection c = connect()) {
            return append(c, stream, partition, List.of(records), PATIENCE);
        }
    }

    /**
     * Appends all the records on an existing connection. It retries records that were not appended.
     */
    public static long append(NodeConnection c, String stream, int partition, List<String> records, Duration patience)
            throws IOException {
        long first = -1;
        List<String> rest = new ArrayList<>(records);
        while (!rest.isEmpty()) {
            ObjectNode data = NodeConnection.JSON.createObjectNode().put("stream", stream).put("partition", partition);
            ArrayNode list = data.putArray("records");
            rest.forEach(r -> list.addObject().put("value", r));
            JsonNode answer = c.call("append", data, patience);
            first = first < 0 ? answer.path("offset").asLong() : first;
            rest = rest.subList(answer.path("appended").asInt(), rest.size());
        }
        return first;
    }

    /** Returns the offset of a partition's next record. */
    public long next(String stream, int partition) throws IOException {
        try (NodeConnection c = connect()) {
            return c.describe("", stream, PATIENCE).path("partitions").path(partition).path("next").asLong();
        }
    }

    @Override
    public void close() throws IOException {
        kill();
        try (Stream<Path> all = Files.walk(folder)) {
            all.sorted(Comparator.reverseOrder()).forEach(p -> {
                try {
                    Files.delete(p);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
        }
    }
}
