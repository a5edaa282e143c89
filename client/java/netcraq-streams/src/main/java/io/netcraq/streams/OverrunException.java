// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;

/**
 * The reader was too slow and was moved on, and its batch may have been overwritten while the
 * program read it. The records count as missed in the next batch.
 */
public class OverrunException extends IOException {
    OverrunException() {
        super("the records were overwritten while they were read: the reader was too slow");
    }
}
