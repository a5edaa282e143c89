// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

/** What every call takes. closing is the library's own: the call is made while the client ends. */
const COMMON = ['namespace', 'timeout', 'signal', 'closing']

/** onlyKnown refuses options that a function does not have: a misspelled one would be ignored. */
function onlyKnown(what, options, names) {
  for (const option in options) {
    if (names.includes(option)) continue
    const has = names.filter((n) => n !== 'closing').join(', ')
    throw new NodeError(Code.INVALID_ARGUMENT, `${what} has no option ${JSON.stringify(option)}`, `it has ${has}`)
  }
}

/** known is onlyKnown for a call, with the options that it has besides those of every call. */
function known(what, options, ...more) {
  if (options !== undefined) onlyKnown(what, options, more.length === 0 ? COMMON : COMMON.concat(more))
}

module.exports = { known, onlyKnown }
