// SPDX-License-Identifier: Apache-2.0
'use strict'

const { EventEmitter } = require('node:events')
const { parse } = require('./address.cjs')
const {
  Calls, DEFAULT_TIMEOUT, GRANT, KEEP, MAX_TIMEOUT, READ, WAIT, WAIT_LEASED, WRITE,
} = require('./calls.cjs')
const { Code, NodeError } = require('./errors.cjs')
const { DEFAULT_TTL, Leadership, Lock, Permit, Registration } = require('./held.cjs')
const { Item, integer, item, name, value, version } = require('./values.cjs')
const { ServiceWatch, Watch } = require('./watch.cjs')
const { version: VERSION } = require('../package.json')

const START_TIMEOUT = 30_000
const CLOSE_WAIT = 10_000

const MAX_MANY = 256

const versionOf = (answer) => answer.version
const swap = (answer) => ({ swapped: answer.swapped === true, item: new Item(answer) })
const deletion = (answer) => ({ deleted: answer.deleted === true, item: new Item(answer) })
const sum = (answer) => ({ number: BigInt(answer.value), version: answer.version })

/**
 * Client is a program's way to the node API. Its methods take options last: `namespace` (else the
 * client's), `timeout` in milliseconds, `signal` (an AbortSignal).
 */
class Client extends EventEmitter {
  constructor(options) {
    super()
    this.kept = new Set()
    this.calls = new Calls(
      parse(options.socket),
      { ...options, agent: options.agent ?? `netcraq-js/${VERSION} node/${process.versions.node}` },
      {
        connected: (hello) => {
          for (const kept of this.kept) kept.renew()
          this.emit('connected', hello)
        },
        disconnected: (why) => this.emit('disconnected', why),
      },
    )
  }

  /** What the server said of itself and of its limits. */
  get server() {
    return this.calls.hello
  }

  // ---- Keys ----

  get(key, options) {
    try {
      const eventual = options?.eventual ? ',"eventual":true' : ''
      return this.calls.call('get', `{${space(options)}"key":${name(key)}${eventual}}`, READ, item, options)
    } catch (why) {
      return Promise.reject(why)
    }
  }

  async getMany(keys, options) {
    const eventual = options?.eventual ? ',"eventual":true' : ''
    const names = Array.from(keys, name)
    const some = []
    for (let i = 0; i < names.length; i += MAX_MANY) {
      const data = `{${space(options)}"keys":[${names.slice(i, i + MAX_MANY).join()}]${eventual}}`
      some.push(this.calls.call('getMany', data, READ, (answer) => answer.items.map(item), options))
    }
    return (await Promise.all(some)).flat()
  }

  async put(key, content, options) {
    const data = `{${space(options)}"key":${name(key)},${value(content)}${lease(options)}}`
    return this.calls.call('put', data, WRITE, versionOf, options)
  }

  async cas(key, expected, content, options) {
    const data = `{${space(options)}"key":${name(key)},"version":${version(expected)},${value(content)}${lease(options)}}`
    return this.calls.call('cas', data, WRITE, swap, options)
  }

  async delete(key, options) {
    const expected = options?.version === undefined ? '' : `,"version":${version(options.version)}`
    const data = `{${space(options)}"key":${name(key)}${expected}}`
    return this.calls.call('delete', data, WRITE, deletion, options)
  }

  async increment(key, by, options) {
    const data = `{${space(options)}"key":${name(key)},"by":${integer(by ?? 1)}}`
    return this.calls.call('increment', data, WRITE, sum, options)
  }

  watch(what, options) {
    let target = what
    if (typeof what === 'string') target = { keys: [what] }
    else if (what === undefined || what === null || Array.isArray(what)) target = { keys: what ?? undefined }
    const all = { ...options, ...target }
    return new Watch(this.calls, all, all).open()
  }

  // ---- Leases ----

  async grant(ttl, options) {
    return this.calls.call('grant', `{${space(options)}"ttlMs":${integer(ttl)}}`, GRANT, leaseOf, options)
  }

  async keepAlive(id, options) {
    return this.calls.call('keepAlive', `{${space(options)}"lease":${name(id)}}`, KEEP, leaseOf, options)
  }

  async revoke(id, options) {
    return this.calls.call('revoke', `{${space(options)}"lease":${name(id)}}`, WRITE, nothing, options)
  }

  // ---- Locks, elections, semaphores ----

  lock(lockName, options) {
    return this.#hold(Lock, 'lock', 'unlock', lockName, '', options)
  }

  unlock(held, options) {
    return held.giveBack(options)
  }

  campaign(election, content, options) {
    return this.#hold(Leadership, 'campaign', 'resign', election, `,"value":${JSON.stringify(String(content ?? ''))}`, options)
  }

  resign(held, options) {
    return held.giveBack(options)
  }

  async leader(election, options) {
    const decode = (answer) =>
      answer.found ? { found: true, value: answer.value ?? '', token: BigInt(answer.token) } : { found: false }
    return this.calls.call('leader', `{${space(options)}"name":${name(election)}}`, READ, decode, options)
  }

  acquire(semaphore, permits, options) {
    return this.#hold(Permit, 'acquire', 'release', semaphore, `,"permits":${Number(permits)}`, options)
  }

  release(held, options) {
    return held.giveBack(options)
  }

  async #hold(Kind, func, back, what, more, options) {
    const ttl = options?.ttl ?? DEFAULT_TTL
    const timeout = options?.timeout ?? this.calls.timeout
    const wait = options?.wait
    const data =
      `{${space(options)}"name":${name(what)}${more}${lease(options)}` +
      `${options?.lease ? '' : `,"ttlMs":${integer(ttl)}`}${wait === undefined ? '' : `,"waitMs":${integer(wait)}`}}`
    // The request lives as long as it may wait, and a moment to be answered.
    const time = wait === undefined || options?.timeout !== undefined ? timeout : Math.min(wait + DEFAULT_TIMEOUT, MAX_TIMEOUT)
    const abandoned = (answer) => {
      if (answer?.held) this.giveBack(back, answer.name, BigInt(answer.token), options).catch(() => {})
    }
    const kind = options?.lease ? WAIT_LEASED : WAIT
    const answer = await this.calls.call(func, data, kind, null, { ...options, timeout: time }, abandoned)
    if (!answer.held) throw new NodeError(Code.NOT_HELD, `${what} is held by another`)
    return new Kind(this, back, answer, ttl, options)
  }

  /** giveBack ends what a token stands for. For Held, and for who kept a token. */
  async giveBack(func, what, token, options) {
    const data = `{${space(options)}"name":${name(what)},"token":"${token}"}`
    await this.calls.call(func, data, WRITE, nothing, options)
  }

  // ---- Services ----

  async registerService(service, address, options) {
    const ttl = options?.ttl ?? DEFAULT_TTL
    const data = { service, instance: options?.instance, address, lease: options?.lease, ttlMs: ttl }
    return new Registration(this, await this.register(data, options), ttl, data, options)
  }

  /** register is registerService without what keeps it alive. */
  async register(data, options) {
    name(data.service)
    const text = `{${space(options)}${JSON.stringify(data).slice(1)}`
    return this.calls.call('registerService', text, WRITE, null, options)
  }

  async deregister(service, instance, options) {
    const data = `{${space(options)}"service":${name(service)},"instance":${name(instance)}}`
    await this.calls.call('deregisterService', data, WRITE, nothing, options)
  }

  async getService(service, options) {
    const order = options?.order ? `,"order":${JSON.stringify(options.order)}` : ''
    const data = `{${space(options)}"service":${name(service)}${order}}`
    return this.calls.call('getService', data, READ, (answer) => answer.instances ?? [], options)
  }

  watchService(service, options) {
    return new ServiceWatch(this.calls, service, options).open()
  }

  // ---- The connection ----

  async ping(options) {
    return this.calls.call('ping', '{}', READ, nothing, options)
  }

  /**
   * close gives back what is held, waits for what is under way, at most `wait` milliseconds, and
   * ends. Watches end at once.
   */
  async close(options) {
    this.closing ??= this.#close(options?.wait ?? CLOSE_WAIT)
    return this.closing
  }

  async #close(within) {
    const until = performance.now() + within
    this.calls.refuse()
    const timeout = Math.max(1, Math.min(within, DEFAULT_TIMEOUT))
    await Promise.allSettled([...this.kept].map((kept) => kept.giveBack({ timeout, closing: true })))
    await this.calls.close(Math.max(1, until - performance.now()))
  }
}

function space(options) {
  const namespace = options?.namespace
  return namespace ? `"namespace":${JSON.stringify(namespace)},` : ''
}

function lease(options) {
  return options?.lease ? `,"lease":${JSON.stringify(options.lease)}` : ''
}

function leaseOf(answer) {
  return { lease: answer.lease, ttl: answer.ttlMs }
}

function nothing() {}

/** connect waits for the server's socket and returns a Client. */
async function connect(options = {}) {
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
