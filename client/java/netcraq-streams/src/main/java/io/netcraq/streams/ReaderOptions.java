// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/** What is read, and how: {@code ReaderOptions.of("orders").consumer("billing")}. */
public final class ReaderOptions implements Serializable {
    /** How records come. */
    public enum Mode {
        /** They are read in the node's memory, which is mapped: on the same machine, by a Unix socket. */
        PUSH,
        /** They are asked for: from anywhere that the node API is reached. */
        PULL
    }

    /** Where a reader begins of which nothing is known. */
    public enum From {
        /** Where the consumer of its name was, else as EARLIEST. */
        KNOWN(""),
        /** The oldest record that is there. */
        EARLIEST("earliest"),
        /** What comes from now on. */
        LATEST("latest");

        final String wire;

        From(String wire) {
            this.wire = wire;
        }
    }

    private static final long serialVersionUID = 1;

    final String stream;
    String socket = "";
    String namespace = "";
    String consumer = "";
    int[] partitions = {};
    From from = From.KNOWN;
    TreeMap<Integer, Long> offsets = new TreeMap<>();
    String incarnation = "";
    Mode mode = Mode.PUSH;
    int batchBytes;
    boolean skip;
    boolean manual;
    Duration openTimeout = Duration.ofSeconds(30);

    private ReaderOptions(String stream) {
        this.stream = Objects.requireNonNull(stream);
    }

    /** Begins with a stream's name. */
    public static ReaderOptions of(String stream) {
        return new ReaderOptions(stream);
    }

    /** The same, in an object of its own. */
    public ReaderOptions copy() {
        ReaderOptions o = new ReaderOptions(stream);
        o.socket = socket;
        o.namespace = namespace;
        o.consumer = consumer;
        o.partitions = partitions.clone();
        o.from = from;
        o.offsets = new TreeMap<>(offsets);
        o.incarnation = incarnation;
        o.mode = mode;
        o.batchBytes = batchBytes;
        o.skip = skip;
        o.manual = manual;
        o.openTimeout = openTimeout;
        return o;
    }

    /** Which stream. */
    public String stream() {
        return stream;
    }

    /** Where the node's server listens: a path, or "tcp://HOST:PORT", by which only pull works. */
    public ReaderOptions socket(String where) {
        socket = Objects.requireNonNull(where);
        return this;
    }

    /**
     * Where the node's server listens: as given, otherwise $NETCRAQ_NODE_SOCKET, otherwise the socket of a running
     * {@code netcraq dev} in $XDG_RUNTIME_DIR, otherwise /run/netcraq/node.sock.
     */
    public String socket() {
        if (!socket.isEmpty()) {
            return socket;
        }
        String said = System.getenv("NETCRAQ_NODE_SOCKET");
        if (said != null && !said.isEmpty()) {
            return said;
        }
        String folder = System.getenv("XDG_RUNTIME_DIR");
        if (folder != null && !folder.isEmpty() && Files.exists(Path.of(folder, "netcraq.sock"))) {
            return folder + "/netcraq.sock";
        }
        return "/run/netcraq/node.sock";
    }

    /** The stream's namespace. Without one: the program's own. */
    public ReaderOptions namespace(String name) {
        namespace = Objects.requireNonNull(name);
        return this;
    }

    /** The stream's namespace, "" for the program's own. */
    public String namespace() {
        return namespace;
    }

    /** A name: the node remembers where it is, and holds what it has not read for a while when it has gone. */
    public ReaderOptions consumer(String name) {
        consumer = Objects.requireNonNull(name);
        return this;
    }

    /** The consumer's name, "" if it has none. */
    public String consumer() {
        return consumer;
    }

    /** Which partitions. None: all. */
    public ReaderOptions partitions(int... which) {
        partitions = which.clone();
        return this;
    }

    /** Where to begin. */
    public ReaderOptions from(From where) {
        from = Objects.requireNonNull(where);
        return this;
    }

    /** Where to begin: offsets by partition, with the incarnation of the stream that they are of. Others are not read. */
    public ReaderOptions offsets(Map<Integer, Long> where, String ofIncarnation) {
        offsets = new TreeMap<>(where);
        incarnation = Objects.requireNonNull(ofIncarnation);
        partitions = offsets.keySet().stream().mapToInt(Integer::intValue).toArray();
        return this;
    }

    /** By push or by pull. */
    public ReaderOptions mode(Mode how) {
        mode = Objects.requireNonNull(how);
        return this;
    }

    /** Bounds a batch of pull. 0: the server's bound. */
    public ReaderOptions batchBytes(int most) {
        batchBytes = most;
        return this;
    }

    /**
     * Has the node move this reader on rather than wait for it. By push, records are copied then,
     * since they may be overwritten while they are read.
     */
    public ReaderOptions skip(boolean yes) {
        skip = yes;
        return this;
    }

    /**
     * With true, the node holds for the consumer what {@link StreamReader#done} has not said to be
     * done, and not only what was not released.
     */
    public ReaderOptions manual(boolean yes) {
        manual = yes;
        return this;
    }

    /** For how long to try to open it, while the server is not there. */
    public ReaderOptions openTimeout(Duration most) {
        openTimeout = Objects.requireNonNull(most);
        return this;
    }
}
