// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError, fromAnswer } = require('./errors.cjs')

const NEVER_WRITTEN = '0.0'
const MIN_INT64 = -(2n ** 63n)
const MAX_INT64 = 2n ** 63n - 1n

/** Item is the state of a key. `text` and `value` are the same value, as text and as bytes. */
class Item {
  #base64
  #bytes

  constructor(data) {
    this.key = data.key
    this.found = data.found === true
    /** The value as text. It is undefined if the value is not UTF-8, or if there is no value. */
    this.text = data.value
    this.version = data.version
    if (data.lease) this.lease = data.lease
    if (data.error) this.error = fromAnswer(data.error)
    this.#base64 = data.valueBase64
    this.#bytes = undefined
  }

  /** The bytes of the value, or undefined if there is no value. */
  get value() {
    if (this.#bytes === undefined) {
      if (this.text !== undefined) this.#bytes = Buffer.from(this.text, 'utf8')
      else if (this.#base64 !== undefined) this.#bytes = Buffer.from(this.#base64, 'base64')
    }
    return this.#bytes
  }
}

const item = (data) => new Item(data)

/**
 * Event is an Item that a watch reports. It is a key's newest version, with the number of versions
 * that were skipped before it.
 */
class Event extends Item {
  constructor(data) {
    super(data)
    this.overtaken = data.overtaken ?? 0
  }
}

const wellFormed = String.prototype.isWellFormed
  ? (text) => text.isWellFormed()
  : (text) => !/\p{Surrogate}/u.test(text)

/** name encodes the name of a key, a lock or a service as JSON. */
function name(text) {
  if (typeof text !== 'string' || text === '') {
    throw new NodeError(Code.INVALID_ARGUMENT, 'a name is a string that is not empty')
  }
  if (!wellFormed(text)) {
    throw new NodeError(Code.INVALID_ARGUMENT, `the name ${JSON.stringify(text)} is no Unicode: a surrogate stands alone`)
  }
  return JSON.stringify(text)
}

/** value encodes a value, text or bytes, as members of a JSON object. */
function value(from) {
  if (typeof from === 'string') {
    if (wellFormed(from)) return `"value":${JSON.stringify(from)}`
    throw new NodeError(Code.INVALID_ARGUMENT, 'the text is no Unicode, a surrogate stands alone: give bytes')
  }
  let bytes
  if (ArrayBuffer.isView(from)) bytes = Buffer.from(from.buffer, from.byteOffset, from.byteLength)
  else if (from instanceof ArrayBuffer) bytes = Buffer.from(from)
  else throw new NodeError(Code.INVALID_ARGUMENT, `a value is a string or bytes, not ${from === null ? 'null' : typeof from}`)
  return `"valueBase64":"${bytes.toString('base64')}"`
}

/** version checks a version's format and encodes it as JSON. */
function version(text) {
  if (typeof text !== 'string' || !/^\d+\.\d+$/.test(text)) {
    throw new NodeError(Code.INVALID_ARGUMENT, `${String(text)} is no version: EPOCH.SEQUENCE, as answers have it`)
  }
  return `"${text}"`
}

/** integer encodes a 64-bit integer, given as a number or a BigInt. */
function integer(from) {
  if (typeof from === 'number' && !Number.isSafeInteger(from)) {
    throw new NodeError(Code.INVALID_ARGUMENT, `${from} is no whole number that JavaScript is sure of: use a BigInt`)
  }
  if (typeof from !== 'number' && typeof from !== 'bigint') {
    throw new NodeError(Code.INVALID_ARGUMENT, `${String(from)} is no whole number`)
  }
  if (from < MIN_INT64 || from > MAX_INT64) throw new NodeError(Code.INVALID_ARGUMENT, `${from} has more than 64 bits`)
  return String(from)
}

/**
 * compareVersions returns a negative number if a is before b, 0 if they are equal, and otherwise a
 * positive number.
 */
function compareVersions(a, b) {
  if (a === b) return 0
  const [x, y] = [a.split('.'), b.split('.')]
  // An epoch has 16 bits and a sequence has 48 bits, so both are exact as JavaScript numbers.
  return x[0] - y[0] || x[1] - y[1]
}

module.exports = { Event, Item, NEVER_WRITTEN, compareVersions, integer, item, name, value, version }
