// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

const DEFAULT_SOCKET = '/run/netcraq/node.sock'
const SOCKET_VARIABLE = 'NETCRAQ_NODE_SOCKET'

/**
 * parse reads the place of the server, a path or "tcp://host:port", and returns what net.connect
 * takes. Without one it is what the environment says, or the default.
 */
function parse(place) {
  const text = place || process.env[SOCKET_VARIABLE] || DEFAULT_SOCKET
  const tcp = /^tcp:\/\/(?:\[([^\]]+)\]|([^:/[\]]*)):(\d{1,5})\/?$/.exec(text)
  if (tcp) return { text, options: { host: tcp[1] || tcp[2] || 'localhost', port: Number(tcp[3]), noDelay: true } }
  const path = text.replace(/^unix:(\/\/)?/, '')
  if (path === '' || /^[a-z]+:\/\//.test(path)) {
    throw new NodeError(Code.INVALID_ARGUMENT, `${JSON.stringify(text)} is no path of a socket and no tcp://host:port`)
  }
  return { text, options: { path } }
}

module.exports = { DEFAULT_SOCKET, SOCKET_VARIABLE, parse }
