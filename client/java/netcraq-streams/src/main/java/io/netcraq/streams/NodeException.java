// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;
import java.util.Set;

/** An error that the node's server has answered. */
public class NodeException extends IOException {
    private static final Set<String> TEMPORARY = Set.of("unavailable", "draining", "timeout", "internal", "canceled");

    private final String code;

    /** Makes one of a code of the node API. */
    public NodeException(String code, String message) {
        super(code + ": " + message);
        this.code = code;
    }

    /** Which error it is: a code of docs/node-api.md. */
    public String code() {
        return code;
    }

    /** Whether it may help to connect again. */
    public boolean temporary() {
        return TEMPORARY.contains(code);
    }
}
