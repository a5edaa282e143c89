// SPDX-License-Identifier: Apache-2.0
'use strict'

// Why a call failed: the codes of the node API (api/nodeapi/nodeapi.go), and CLOSED, which is this
// library's own.
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

/** A call failed. `code` is its kind, `do` what can be done about it. */
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

/** fromAnswer makes the error of an answer. */
function fromAnswer(error) {
  const { code, message, do: advice } = typeof error === 'object' ? error : { message: String(error) }
  if (code === Code.OUTCOME_UNKNOWN) return new OutcomeUnknown(message, advice)
  return new NodeError(code || Code.INTERNAL, message || 'the server gives no reason', advice)
}

/** ofOlderServer is why a function failed, and says so if the server is older than it. */
function ofOlderServer(why, func, server) {
  if (why.code !== Code.INVALID_ARGUMENT || server?.maxList) return why
  const message = `${func}: the node's server (${server?.server}) is older than this function: ${why.message}`
  return new NodeError(why.code, message, "update the node's server, or watch the prefix")
}

module.exports = { Code, NodeError, OutcomeUnknown, fromAnswer, ofOlderServer }
