// SPDX-License-Identifier: Apache-2.0
'use strict'

// These are the kinds of failures. They are the codes of the node API (api/nodeapi/nodeapi.go), and
// CLOSED, which only this library uses.
const Code = Object.freeze({
  INVALID_ARGUMENT: 'invalid_argument',
  TOO_LARGE: 'too_large',
  PERMISSION_DENIED: 'permission_denied',
  QUOTA_EXCEEDED: 'quota_exceeded',
  NO_ROOM: 'no_room',
  LEASE_GONE: 'lease_gone',
  NOT_HELD: 'not_held',
  WRONG_OFFSET: 'wrong_offset',
  TIMEOUT: 'timeout',
  OUTCOME_UNKNOWN: 'outcome_unknown',
  UNAVAILABLE: 'unavailable',
  CANCELED: 'canceled',
  DRAINING: 'draining',
  INTERNAL: 'internal',
  CLOSED: 'closed',
})

/**
 * NodeError is the error of a failed call. `code` is the kind of failure, and `do` says what the
 * program can do.
 */
class NodeError extends Error {
  constructor(code, message, advice) {
    super(message)
    this.code = code
    if (advice) this.do = advice
  }
}
NodeError.prototype.name = 'NodeError'

/** A write may or may not have been executed. */
class OutcomeUnknown extends NodeError {
  constructor(message, advice) {
    super(Code.OUTCOME_UNKNOWN, message, advice || 'read the key, and decide from what is there')
  }
}
OutcomeUnknown.prototype.name = 'OutcomeUnknown'

/** fromAnswer makes a NodeError from the error in an answer. */
function fromAnswer(error) {
  const { code, message, do: advice } = typeof error === 'object' ? error : { message: String(error) }
  if (code === Code.OUTCOME_UNKNOWN) return new OutcomeUnknown(message, advice)
  return new NodeError(code || Code.INTERNAL, message || 'the server gives no reason', advice)
}

/**
 * ofOlderServer returns the error of a function that failed. If the server is too old for the
 * function, the message says so.
 */
function ofOlderServer(why, func, server) {
  if (why.code !== Code.INVALID_ARGUMENT || server?.maxList) return why
  const message = `${func}: the node's server (${server?.server}) is older than this function: ${why.message}`
  return new NodeError(why.code, message, "update the node's server, or watch the prefix")
}

module.exports = { Code, NodeError, OutcomeUnknown, fromAnswer, ofOlderServer }
