// SPDX-License-Identifier: Apache-2.0
'use strict'

// This is the real server with a store in memory (nodeapi/internal/memserver). NETCRAQ_MEMSERVER is
// the path of the command. The Go test test/clients/js builds the command and sets the variable.

const { spawn } = require('node:child_process')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const readline = require('node:readline')

const command = process.env.NETCRAQ_MEMSERVER
const skip = command ? false : 'NETCRAQ_MEMSERVER is not set: go test ./test/clients/js builds the server and sets it'

class Memserver {
  constructor() {
    this.directory = fs.mkdtempSync(path.join(os.tmpdir(), 'netcraq-js-'))
    this.socket = path.join(this.directory, 'node.sock')
    this.process = null
  }

  /** start starts the server, and waits until it listens. */
  async start(...more) {
    this.process = spawn(command, ['--socket', this.socket, ...more], { stdio: ['ignore', 'pipe', 'ignore'] })
    this.lines = []
    for await (const line of readline.createInterface({ input: this.process.stdout })) {
      this.lines.push(line)
      if (line === 'listening') break
    }
    return this
  }

  /** stop ends the server at once, or with another signal such as SIGTERM. */
  async stop(signal = 'SIGKILL') {
    if (this.process === null) return
    const gone = new Promise((resolve) => this.process.once('exit', resolve))
    this.process.kill(signal)
    await gone
    this.process = null
    if (signal === 'SIGKILL') fs.rmSync(this.socket, { force: true })
  }

  async close() {
    await this.stop()
    fs.rmSync(this.directory, { recursive: true, force: true })
  }
}

module.exports = { Memserver, skip }
