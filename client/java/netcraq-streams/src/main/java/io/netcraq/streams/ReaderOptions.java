// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/** Options of a reader: {@code ReaderOptions.of("orders").consumer("billing")}. */
public final class ReaderOptions implements Serializable {
    /** The way to get records. */
    public enum Mode {
        /**
         * Reads from the node's memory, which is mapped. It needs the same machine and a Unix
         * socket.
         */
        PUSH,
        /** Reads by requests, from anywhere with access to the node API. */
        PULL
    }

    /** The position at which a reader begins if it has none. */
    public enum From {
        /** The last position of the consumer of this name, otherwise as EARLIEST. */
        KNOWN(""),
        /** The oldest existing record. */
        EARLIEST("earliest"),
        /** The next record to be appended. */
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

    /** Options to read a stream of this name. */
    public static ReaderOptions of(String stream) {
        return new ReaderOptions(stream);
    }

    /** An independent copy. */
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

    /** The stream's name. */
    public String stream() {
        return stream;
    }

    /**
     * The address of the node's server: a path, or "tcp://HOST:PORT", with which only pull works.
     */
    public ReaderOptions socket(String where) {
        socket = Objects.requireNonNull(where);
        return this;
    }

    /**
     * The address of the node's server: as given, otherwise $NETCRAQ_NODE_SOCKET, otherwise the
     * socket of a running {@code netcraq dev} in $XDG_RUNTIME_DIR, otherwise
     * /run/netcraq/node.sock.
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

    /** The stream's namespace. Default: the program's own. */
    public ReaderOptions namespace(String name) {
        namespace = Objects.requireNonNull(name);
        return this;
    }

    /** The stream's namespace, "" for the program's own. */
    public String namespace() {
        return namespace;
    }

    /**
     * The consumer's name. The node remembers its position, and keeps its unread records for some
     * time after it has gone.
     */
    public ReaderOptions consumer(String name) {
        consumer = Objects.requireNonNull(name);
        return this;
    }

    /** The consumer's name, "" if it has none. */
    public String consumer() {
        return consumer;
    }

    /** The partitions to read. None: all. */
    public ReaderOptions partitions(int... which) {
        partitions = which.clone();
        return this;
    }

    /** The position at which to begin. */
    public ReaderOptions from(From where) {
        from = Objects.requireNonNull(where);
        return this;
    }

    /**
     * Offsets at which to begin, by partition, with the incarnation that they belong to. Other
     * partitions are not read.
     */
    public ReaderOptions offsets(Map<Integer, Long> where, String ofIncarnation) {
        offsets = new TreeMap<>(where);
        incarnation = Objects.requireNonNull(ofIncarnation);
        partitions = offsets.keySet().stream().mapToInt(Integer::intValue).toArray();
        return this;
    }

    /** Push or pull. */
    public ReaderOptions mode(Mode how) {
        mode = Objects.requireNonNull(how);
        return this;
    }

    /** Bounds a batch read by pull. 0: the server's bound. */
    public ReaderOptions batchBytes(int most) {
        batchBytes = most;
        return this;
    }

    /**
     * Makes the node move a slow reader on instead of waiting for it. By push, records are then
     * copied, because they may be overwritten while they are read.
     */
    public ReaderOptions skip(boolean yes) {
        skip = yes;
        return this;
    }

    /**
     * With true, the node keeps the consumer's records until {@link StreamReader#done} is called
     * for them, and not only until they are released.
     */
    public ReaderOptions manual(boolean yes) {
        manual = yes;
        return this;
    }

    /** Time to retry opening while the server is not available. */
    public ReaderOptions openTimeout(Duration most) {
        openTimeout = Objects.requireNonNull(most);
        return this;
    }
}
