// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

/** The options of every call. closing is internal: the call is made while the client is closing. */
const COMMON = ['namespace', 'timeout', 'signal', 'closing']

/** onlyKnown refuses unknown options, because a misspelled option would otherwise be ignored. */
function onlyKnown(what, options, names) {
  for (const option in options) {
    if (names.includes(option)) continue
    const has = names.filter((n) => n !== 'closing').join(', ')
    throw new NodeError(Code.INVALID_ARGUMENT, `${what} has no option ${JSON.stringify(option)}`, `it has ${has}`)
  }
}

/** known is onlyKnown for a call, whose own options are in addition to those of every call. */
function known(what, options, ...more) {
  if (options !== undefined) onlyKnown(what, options, more.length === 0 ? COMMON : COMMON.concat(more))
}

module.exports = { known, onlyKnown }
