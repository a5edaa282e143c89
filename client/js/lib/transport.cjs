// SPDX-License-Identifier: Apache-2.0
'use strict'

const net = require('node:net')
const { Code, NodeError } = require('./errors.cjs')
const { LineSplitter } = require('./lines.cjs')

const READ_BUFFER = 64 << 10
// Maximum length of an answer in bytes. An answer may be longer than a request. For example,
// getMany can return 256 values.
const MAX_ANSWER = 4 << 20
// Maximum length of unsent text while the server does not read. Further calls wait.
const MAX_UNSENT = 1 << 20

/**
 * Transport is a connection that sends lines and receives messages. It sends all lines of one turn
 * of the event loop in one write. It calls tell with each message. It calls done once, with the
 * reason for the connection's end.
 */
class Transport {
  constructor(options, tell, room, done) {
    this.out = ''
    this.scheduled = false
    this.blocked = false
    this.ended = false
    this.failure = null
    // The number of times that data has arrived. Callers compare it with an earlier number to
    // detect whether new data has arrived.
    this.reads = 0
    this.done = done
    this.flush = this.flush.bind(this)
    const lines = new LineSplitter(MAX_ANSWER, (line) => tell(parse(line)))
    this.connected = new Promise((resolve, reject) => {
      this.socket = net.connect({
        ...options,
        onread: {
          buffer: Buffer.allocUnsafeSlow(READ_BUFFER),
          callback: (length, buffer) => {
            this.reads++
            try {
              lines.push(buffer, length)
            } catch (why) {
              this.destroy(why)
            }
            return true
          },
        },
      })
      this.socket.on('connect', resolve)
      this.socket.on('drain', () => {
        this.blocked = false
        if (this.out !== '') this.flush()
        room()
      })
      this.socket.on('end', () => this.socket.destroy())
      this.socket.on('error', (why) => {
        this.failure ||= why
      })
      this.socket.on('close', () => {
        if (this.ended) return
        this.ended = true
        const why = this.failure || new Error('the server closed the connection')
        reject(why)
        this.done(why)
      })
    })
    this.connected.catch(() => {})
  }

  /** congested reports whether the server reads more slowly than the client writes. */
  get congested() {
    return this.out.length > MAX_UNSENT
  }

  send(line) {
    this.out += line
    if (!this.scheduled) {
      this.scheduled = true
      process.nextTick(this.flush)
    }
  }

  flush() {
    this.scheduled = false
    if (this.blocked || this.out === '' || this.ended) return
    const out = this.out
    this.out = ''
    if (!this.socket.write(out, 'utf8')) this.blocked = true
  }

  /**
   * end closes the connection after everything was sent. In contrast, destroy closes it at once.
   */
  end() {
    this.flush()
    this.socket.end()
  }

  destroy(why) {
    this.failure ||= why
    this.socket.destroy()
  }
}

function parse(line) {
  try {
    const message = JSON.parse(line)
    if (message !== null && typeof message === 'object') return message
  } catch {
    // If the line is invalid, the error below reports it.
  }
  throw new NodeError(Code.INTERNAL, `the server sent what is no message: ${JSON.stringify(line.slice(0, 80))}`)
}

module.exports = { Transport }
