// SPDX-License-Identifier: Apache-2.0
'use strict'

const { EventEmitter } = require('node:events')
const { parse } = require('./address.cjs')
const { Calls, DEFAULT_TIMEOUT, GRANT, KEEP, MAX_TIMEOUT, READ, RETURN, WAIT, WRITE, jitter } = require('./calls.cjs')
const { Code, NodeError, ofOlderServer } = require('./errors.cjs')
const { Leadership, Lock, Permit, Registration } = require('./held.cjs')
const { Leases } = require('./lease.cjs')
const { known, onlyKnown } = require('./options.cjs')
const { Item, integer, item, name, value, version } = require('./values.cjs')
const { ServiceWatch, Watch } = require('./watch.cjs')
const { version: VERSION } = require('../package.json')

const DEFAULT_TTL = 10_000
// Milliseconds that one request waits for a lock at most. Then the request is repeated.
const LONGEST_WAIT = 50_000
// Errors of a lock request after which certainly nothing is bound to the request's lease.
const REFUSED = new Set([
  Code.NOT_HELD, Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT, Code.TOO_LARGE, Code.NO_ROOM, Code.QUOTA_EXCEEDED,
  Code.UNAVAILABLE, Code.CLOSED,
])
const START_TIMEOUT = 30_000
const CONNECT_OPTIONS = [
  'socket', 'namespace', 'agent', 'startTimeout', 'timeout', 'maxInFlight', 'maxQueued', 'minBackoff', 'maxBackoff',
  'pingInterval',
]
const CLOSE_WAIT = 10_000

const MAX_MANY = 256
// Number of names that the server examines for each page when the client lists all keys.
const MAX_LIST = 256

const versionOf = (answer) => answer.version
const page = (answer) => ({ items: (answer.items ?? []).map(item), cursor: answer.cursor ?? '' })
const swap = (answer) => ({ swapped: answer.swapped === true, item: new Item(answer) })
const deletion = (answer) => ({ deleted: answer.deleted === true, item: new Item(answer) })
const transacted = (answer) => ({
  done: answer.done === true,
  versions: answer.versions ?? [],
  failed: (answer.failed ?? []).map(item),
})
const sum = (answer) => ({ number: BigInt(answer.value), version: answer.version })

/**
 * Client gives access to the node API. The last argument of its methods is an object with options:
 * `namespace` (by default the client's), `timeout` in milliseconds, and `signal` (an AbortSignal).
 */
class Client extends EventEmitter {
  constructor(options) {
    super()
    this.held = new Set()
    this.leases = new Leases(this)
    this.closing = false
    this.ending = null
    this.calls = new Calls(
      parse(options.socket),
      { ...options, agent: options.agent ?? `netcraq-js/${VERSION} node/${process.versions.node}` },
      {
        connected: (hello) => {
          this.leases.renew()
          this.emit('connected', hello)
        },
        disconnected: (why) => this.emit('disconnected', why),
      },
    )
  }

  /** The server's description of itself and of its limits. */
  get server() {
    return this.calls.hello
  }

  // ---- Keys ----

  get(key, options) {
    try {
      known('get', options, 'eventual')
      const eventual = options?.eventual ? ',"eventual":true' : ''
      return this.calls.call('get', `{${space(options)}"key":${name(key)}${eventual}}`, READ, item, options)
    } catch (why) {
      return Promise.reject(why)
    }
  }

  async getMany(keys, options) {
    known('getMany', options, 'eventual')
    const eventual = options?.eventual ? ',"eventual":true' : ''
    const names = Array.from(keys, name)
    const some = []
    for (let i = 0; i < names.length; i += MAX_MANY) {
      const data = `{${space(options)}"keys":[${names.slice(i, i + MAX_MANY).join()}]${eventual}}`
      some.push(this.calls.call('getMany', data, READ, (answer) => answer.items.map(item), options))
    }
    return (await Promise.all(some)).flat()
  }

  async listPage(prefix, options) {
    known('listPage', options, 'cursor', 'pageSize', 'keysOnly')
    const { cursor, pageSize, keysOnly } = options ?? {}
    const data = []
    if (options?.namespace) data.push(`"namespace":${JSON.stringify(options.namespace)}`)
    if (prefix !== undefined && prefix !== '') data.push(`"prefix":${name(prefix)}`)
    if (cursor) data.push(`"cursor":${name(cursor)}`)
    if (pageSize !== undefined) data.push(`"limit":${integer(pageSize)}`)
    if (keysOnly) data.push('"keysOnly":true')
    try {
      return await this.calls.call('list', `{${data.join()}}`, READ, page, options)
    } catch (why) {
      throw ofOlderServer(why, 'list', this.server)
    }
  }

  async *list(prefix, options) {
    known('list', options, 'pageSize', 'keysOnly')
    for (let cursor = '', before; cursor !== before; ) {
      const found = await this.listPage(prefix, { pageSize: MAX_LIST, ...options, cursor })
      yield* found.items
      if (found.cursor === '') return
      before = cursor
      cursor = found.cursor
    }
    throw new NodeError(Code.INTERNAL, 'list: the server has answered with the cursor that it was given')
  }

  async put(key, content, options) {
    known('put', options, 'lease')
    const data = `{${space(options)}"key":${name(key)},${value(content)}${lease(options)}}`
    return this.calls.call('put', data, WRITE, versionOf, options)
  }

  async cas(key, expected, content, options) {
    known('cas', options, 'lease')
    const data = `{${space(options)}"key":${name(key)},"version":${version(expected)},${value(content)}${lease(options)}}`
    return this.calls.call('cas', data, WRITE, swap, options)
  }

  async delete(key, options) {
    known('delete', options, 'version')
    const expected = options?.version === undefined ? '' : `,"version":${version(options.version)}`
    const data = `{${space(options)}"key":${name(key)}${expected}}`
    return this.calls.call('delete', data, WRITE, deletion, options)
  }

  async increment(key, by, options) {
    known('increment', options)
    const data = `{${space(options)}"key":${name(key)},"by":${integer(by ?? 1)}}`
    return this.calls.call('increment', data, WRITE, sum, options)
  }

  async transact(transaction, options) {
    known('transact', options)
    onlyKnown('transact', transaction, ['compare', 'write'])
    const compare = Array.from(transaction?.compare ?? [], comparison)
    const write = Array.from(transaction?.write ?? [], writing)
    const data = `{${space(options)}"compare":[${compare.join()}],"write":[${write.join()}]}`
    return this.calls.call('transact', data, WRITE, transacted, options)
  }

  watch(what, options) {
    let target = what
    if (typeof what === 'string') target = { keys: [what] }
    else if (what === undefined || what === null || Array.isArray(what)) target = { keys: what ?? undefined }
    const all = { ...options, ...target }
    known('watch', all, 'keys', 'prefix', 'after')
    return new Watch(this.calls, all, all).open()
  }

  // ---- Leases ----

  async grant(ttl, options) {
    known('grant', options)
    return this.calls.call('grant', `{${space(options)}"ttlMs":${integer(ttl)}}`, GRANT, leaseOf, options)
  }

  async keepAlive(id, options) {
    known('keepAlive', options)
    return this.calls.call('keepAlive', `{${space(options)}"lease":${name(id)}}`, KEEP, leaseOf, options)
  }

  async revoke(id, options) {
    known('revoke', options)
    return this.calls.call('revoke', `{${space(options)}"lease":${name(id)}}`, RETURN, nothing, options)
  }

  // ---- Locks, elections, semaphores ----

  lock(lockName, options) {
    return this.#hold(Lock, 'lock', 'unlock', lockName, '', options)
  }

  unlock(held, options) {
    return held.release(options)
  }

  campaign(election, content, options) {
    return this.#hold(Leadership, 'campaign', 'resign', election, `,"value":${JSON.stringify(String(content ?? ''))}`, options)
  }

  resign(held, options) {
    return held.release(options)
  }

  async leader(election, options) {
    known('leader', options)
    const decode = (answer) =>
      answer.found ? { found: true, value: answer.value ?? '', token: BigInt(answer.token) } : { found: false }
    return this.calls.call('leader', `{${space(options)}"name":${name(election)}}`, READ, decode, options)
  }

  acquire(semaphore, permits, options) {
    return this.#hold(Permit, 'acquire', 'release', semaphore, `,"permits":${Number(permits)}`, options)
  }

  release(held, options) {
    return held.release(options)
  }

  async #hold(Kind, func, back, what, more, options) {
    known(func, options, 'ttl', 'wait', 'lease')
    const data = `{${space(options)}"name":${name(what)}${more}`
    const timeout = options?.timeout ?? this.calls.timeout
    const until = performance.now() + (options?.wait ?? Infinity)
    for (let pause = 10; ; pause = Math.min(2 * pause, 1_000)) {
      const kept = options?.lease ? null : await this.leases.take(options?.ttl ?? DEFAULT_TTL, { ...options, lease: undefined })
      const wait = Math.floor(Math.min(Math.max(until - performance.now(), 0), LONGEST_WAIT))
      const text = `${data},"lease":${JSON.stringify(kept?.id ?? options.lease)},"waitMs":${wait}}`
      const late = (answer) => {
        if (answer?.held) this.giveBack(back, answer.name, BigInt(answer.token), { namespace: options?.namespace }).catch(() => {})
      }
      try {
        const patience = { ...options, timeout: Math.min(wait + timeout, MAX_TIMEOUT) }
        const answer = await this.calls.call(func, text, WAIT, null, patience, late)
        if (answer.held === true) return new Kind(this, back, answer, kept, options)
        kept?.free()
      } catch (why) {
        if (kept === null) throw why
        if (REFUSED.has(why.code)) kept.free()
        else kept.drop() // a lock that was acquired nevertheless expires with the lease
        const unknown = why.code === Code.OUTCOME_UNKNOWN || why.code === Code.LEASE_GONE
        if (!unknown) throw why
        if (performance.now() >= until) throw new NodeError(Code.TIMEOUT, `${func} was not answered in its time`)
        await new Promise((resolve) => setTimeout(resolve, jitter(pause)))
      }
      if (performance.now() >= until) throw new NodeError(Code.NOT_HELD, `${what} is held by another`)
    }
  }

  /**
   * giveBack releases the lock, leadership or permit with a token. Held uses it, and so may callers
   * that have kept a token.
   */
  async giveBack(func, what, token, options) {
    known(func, options)
    const data = `{${space(options)}"name":${name(what)},"token":"${token}"}`
    await this.calls.call(func, data, RETURN, nothing, options)
  }

  // ---- Services ----

  async registerService(service, address, options) {
    known('registerService', options, 'instance', 'lease', 'ttl')
    const data = { service, instance: options?.instance, address, lease: options?.lease || undefined }
    const registration = new Registration(this, data, options?.ttl ?? DEFAULT_TTL, options)
    await registration.register({ timeout: options?.timeout, signal: options?.signal })
    return registration
  }

  /** register registers an instance once, without keeping it alive. */
  async register(data, options) {
    name(data.service)
    const text = `{${space(options)}${JSON.stringify(data).slice(1)}`
    return this.calls.call('registerService', text, WRITE, null, options)
  }

  async deregister(service, instance, leaseId, options) {
    known('deregister', options)
    const data = `{${space(options)}"service":${name(service)},"instance":${name(instance)},"lease":${name(leaseId)}}`
    await this.calls.call('deregisterService', data, RETURN, nothing, options)
  }

  async getService(service, options) {
    known('getService', options, 'order')
    const order = options?.order ? `,"order":${JSON.stringify(options.order)}` : ''
    const data = `{${space(options)}"service":${name(service)}${order}}`
    return this.calls.call('getService', data, READ, (answer) => answer.instances ?? [], options)
  }

  watchService(service, options) {
    known('watchService', options)
    return new ServiceWatch(this.calls, service, options).open()
  }

  // ---- The connection ----

  async ping(options) {
    known('ping', options)
    return this.calls.call('ping', '{}', READ, nothing, options)
  }

  /**
   * close releases locks and registrations, waits at most `wait` milliseconds for calls under way,
   * and ends the client. Watches end immediately.
   */
  async close(options) {
    onlyKnown('close', options, ['wait'])
    this.ending ??= this.#close(options?.wait ?? CLOSE_WAIT)
    return this.ending
  }

  async #close(wait) {
    const until = performance.now() + wait
    const left = () => Math.max(1, until - performance.now())
    this.closing = true
    this.calls.refuse()
    const patience = () => ({ timeout: Math.min(left(), DEFAULT_TIMEOUT), closing: true })
    await Promise.allSettled([...this.held].map((held) => held.release(patience())))
    await this.leases.close(Math.min(left(), DEFAULT_TIMEOUT))
    await this.calls.close(left())
  }
}

function space(options) {
  const namespace = options?.namespace
  return namespace ? `"namespace":${JSON.stringify(namespace)},` : ''
}

function lease(options) {
  return options?.lease ? `,"lease":${JSON.stringify(options.lease)}` : ''
}

/**
 * comparison encodes a condition of a transaction. If the object has several conditions, the server
 * refuses it.
 */
function comparison(one) {
  onlyKnown('transact: compare', one, ['key', 'version', 'value', 'absent'])
  let data = `{"key":${name(one?.key)}`
  if (one.version !== undefined) data += `,"version":${version(one.version)}`
  if (one.value !== undefined) data += `,${value(one.value)}`
  if (one.absent !== undefined) data += `,"absent":${one.absent === true}`
  return `${data}}`
}

function writing(one) {
  onlyKnown('transact: write', one, ['key', 'value', 'lease', 'delete'])
  let data = `{"key":${name(one?.key)}`
  if (one.value !== undefined) data += `,${value(one.value)}`
  if (one.delete !== undefined) data += `,"delete":${one.delete === true}`
  return `${data}${lease(one)}}`
}

function leaseOf(answer) {
  return { lease: answer.lease, ttl: answer.ttlMs }
}

function nothing() {}

/** connect waits for the server's socket and returns a Client. */
async function connect(options = {}) {
  onlyKnown('connect', options, CONNECT_OPTIONS)
  const client = new Client(options)
  try {
    await client.calls.connect(options.startTimeout ?? START_TIMEOUT)
  } catch (why) {
    client.calls.abandon()
    throw why
  }
  return client
}

module.exports = { Client, connect }
