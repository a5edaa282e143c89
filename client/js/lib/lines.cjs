// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

const NEWLINE = 10

/**
 * LineSplitter splits the bytes from a socket into lines. The buffer belongs to the socket, which
 * reuses it after push. So push copies the bytes of an incomplete line, once.
 */
class LineSplitter {
  /** tell is called with the text of each line. max is the maximum length of a line in bytes. */
  constructor(max, tell) {
    this.max = max
    this.tell = tell
    this.parts = []
    this.size = 0
  }

  push(buffer, length) {
    let start = 0
    if (this.size > 0) {
      const end = find(buffer, 0, length)
      if (end < 0) return this.keep(buffer, 0, length)
      this.keep(buffer, 0, end)
      const line = Buffer.concat(this.parts, this.size).toString('utf8')
      this.parts = []
      this.size = 0
      this.tell(line)
      start = end + 1
    }
    while (start < length) {
      const end = find(buffer, start, length)
      if (end < 0) return this.keep(buffer, start, length)
      if (end - start > this.max) throw this.tooLong()
      this.tell(buffer.toString('utf8', start, end))
      start = end + 1
    }
  }

  keep(buffer, start, end) {
    this.size += end - start
    if (this.size > this.max) throw this.tooLong()
    if (end > start) this.parts.push(Buffer.from(buffer.subarray(start, end)))
  }

  tooLong() {
    return new NodeError(Code.INTERNAL, `the server sent a line of more than ${this.max} bytes`)
  }
}

function find(buffer, start, end) {
  // In the common case, a line ends at the end of the bytes. This case needs no view of the buffer.
  if (buffer[end - 1] === NEWLINE) return buffer.indexOf(NEWLINE, start)
  const at = buffer.subarray(start, end).indexOf(NEWLINE)
  return at < 0 ? at : start + at
}

module.exports = { LineSplitter }
