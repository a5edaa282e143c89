// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;
import java.util.Set;

/** An error in an answer of the node's server. */
public class NodeException extends IOException {
    private static final Set<String> TEMPORARY = Set.of("unavailable", "draining", "timeout", "internal", "canceled");

    private final String code;

    /** Makes an error with a code of the node API. */
    public NodeException(String code, String message) {
        super(code + ": " + message);
        this.code = code;
    }

    /** Returns the error's code; docs/node-api.md lists the codes. */
    public String code() {
        return code;
    }

    /** Returns whether connecting again may help. */
    public boolean temporary() {
        return TEMPORARY.contains(code);
    }
}
