// SPDX-License-Identifier: Apache-2.0
'use strict'

// Fake is a server of the node API that misbehaves as a test requires. For example, it answers
// wrongly, late, twice, in pieces or not at all.

const fs = require('node:fs')
const net = require('node:net')
const os = require('node:os')
const path = require('node:path')

class Fake {
  /**
   * on maps the names of functions to handlers. A handler has the parameters (connection, message).
   */
  constructor(on = {}) {
    this.on = { hello: (c, m) => c.answer(m.id, { server: 'fake', known: true, inFlight: 1024 }), cancel: (c, m) => c.answer(m.id, {}), ...on }
    this.directory = fs.mkdtempSync(path.join(os.tmpdir(), 'netcraq-js-'))
    this.socket = path.join(this.directory, 'node.sock')
    this.connections = []
    this.seen = []
    this.waiting = []
    this.server = net.createServer({ allowHalfOpen: false }, (socket) => this.accept(socket))
  }

  async listen() {
    await new Promise((resolve) => this.server.listen(this.socket, resolve))
    return this
  }

  accept(socket) {
    const connection = {
      socket,
      say: (message) => socket.write(`${JSON.stringify(message)}\n`),
      answer: (id, data) => connection.say({ id, data }),
      refuse: (id, code, message) => connection.say({ id, error: { code, message: message ?? code } }),
    }
    this.connections.push(connection)
    let rest = ''
    socket.setEncoding('utf8')
    socket.on('error', () => {})
    socket.on('data', (text) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop()
      for (const line of lines) {
        const message = JSON.parse(line)
        this.seen.push(message)
        this.on[message.func]?.(connection, message)
      }
      for (const look of [...this.waiting]) look()
    })
  }

  /**
   * saw waits until the given number of requests of a function have arrived, and returns the last
   * request.
   */
  saw(func, times = 1) {
    return new Promise((resolve) => {
      const look = () => {
        const found = this.seen.filter((message) => message.func === func)
        if (found.length < times) return
        this.waiting = this.waiting.filter((other) => other !== look)
        resolve(found[times - 1])
      }
      this.waiting.push(look)
      look()
    })
  }

  count(func) {
    return this.seen.filter((message) => message.func === func).length
  }

  /** drop ends all connections. */
  drop() {
    for (const { socket } of this.connections) socket.destroy()
    this.connections = []
  }

  async close() {
    this.drop()
    await new Promise((resolve) => this.server.close(resolve))
    fs.rmSync(this.directory, { recursive: true, force: true })
  }
}

module.exports = { Fake }
