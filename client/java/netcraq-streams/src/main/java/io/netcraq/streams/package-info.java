// SPDX-License-Identifier: Apache-2.0
/**
 * Reads the streams of a node's server (netcraq-streams). {@link io.netcraq.streams.StreamReader} is
 * where a program begins.
 */
package io.netcraq.streams;
