// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;

/**
 * The reader was too slow, and its batch may have been overwritten while the program read it. The
 * reader continues at a newer record, and the next batch reports the records of this batch as
 * missed.
 */
public class OverrunException extends IOException {
    OverrunException() {
        super("the records were overwritten while they were read: the reader was too slow");
    }
}
