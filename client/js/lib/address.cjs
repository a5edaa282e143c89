// SPDX-License-Identifier: Apache-2.0
'use strict'

const fs = require('node:fs')
const path = require('node:path')

const { Code, NodeError } = require('./errors.cjs')

const DEFAULT_SOCKET = '/run/netcraq/node.sock'
const SOCKET_VARIABLE = 'NETCRAQ_NODE_SOCKET'

/**
 * findSocket returns the address of a program's server. It is $NETCRAQ_NODE_SOCKET, otherwise the
 * socket of a running `netcraq dev` of this user, otherwise DEFAULT_SOCKET.
 */
function findSocket() {
  if (process.env[SOCKET_VARIABLE]) return process.env[SOCKET_VARIABLE]
  try {
    let folder = process.env.XDG_RUNTIME_DIR
    if (!folder) {
      folder = path.join(process.env.TMPDIR || '/tmp', `netcraq-${process.geteuid()}`)
      const own = fs.lstatSync(folder) // any user can make a folder in /tmp
      if (!own.isDirectory() || own.mode & 0o077 || own.uid !== process.geteuid()) return DEFAULT_SOCKET
    }
    const dev = path.join(folder, 'netcraq.sock')
    if (fs.lstatSync(dev).isSocket()) return dev
  } catch (why) {
    if (why.code !== 'ENOENT' && why.code !== 'ENOTDIR' && why.code !== 'EACCES') throw why
  }
  return DEFAULT_SOCKET
}

/**
 * parse parses the address of the server, which is a path or "tcp://host:port". It returns the
 * options for net.connect. Without an address, it calls findSocket.
 */
function parse(place) {
  const text = place || findSocket()
  const tcp = /^tcp:\/\/(?:\[([^\]]+)\]|([^:/[\]]*)):(\d{1,5})\/?$/.exec(text)
  if (tcp) return { text, options: { host: tcp[1] || tcp[2] || 'localhost', port: Number(tcp[3]), noDelay: true } }
  const path = text.replace(/^unix:(\/\/)?/, '')
  if (path === '' || /^[a-z]+:\/\//.test(path)) {
    throw new NodeError(Code.INVALID_ARGUMENT, `${JSON.stringify(text)} is no path of a socket and no tcp://host:port`)
  }
  return { text, options: { path } }
}

module.exports = { DEFAULT_SOCKET, SOCKET_VARIABLE, parse }
