// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

/**
 * The options of every call. The option closing is internal, and allows the call while the client
 * is closing.
 */
const COMMON = ['namespace', 'timeout', 'signal', 'closing']

/** onlyKnown refuses unknown options, because a misspelled option would otherwise be ignored. */
function onlyKnown(what, options, names) {
  for (const option in options) {
    if (names.includes(option)) continue
    const has = names.filter((n) => n !== 'closing').join(', ')
    throw new NodeError(Code.INVALID_ARGUMENT, `${what} has no option ${JSON.stringify(option)}`, `it has ${has}`)
  }
}

/**
 * known is like onlyKnown, but for a call. The call may have the options of every call and its own
 * options.
 */
function known(what, options, ...more) {
  if (options !== undefined) onlyKnown(what, options, more.length === 0 ? COMMON : COMMON.concat(more))
}

module.exports = { known, onlyKnown }
