// SPDX-License-Identifier: Apache-2.0
/**
 * The library netcraq-streams reads the streams of a node's server. Programs begin with {@link
 * io.netcraq.streams.StreamReader}.
 */
package io.netcraq.streams;
