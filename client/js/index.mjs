// SPDX-License-Identifier: Apache-2.0
import netcraq from './index.cjs'

export const {
  Client, Code, DEFAULT_SOCKET, NEVER_WRITTEN, NodeError, OutcomeUnknown, SOCKET_VARIABLE, compareVersions, connect,
} = netcraq
