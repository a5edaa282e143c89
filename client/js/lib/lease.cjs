// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

// Leases that are kept alive for what is held next, of one namespace and time to live.
const MAX_IDLE = 4

/**
 * KeptLease is a lease that the client has made for one thing that is held, and keeps alive. By this
 * side's clock it lives until `until`, which is never later than by the server's: it counts from
 * before the request that renewed it.
 */
class KeptLease {
  constructor(leases, granted, kind, began) {
    this.leases = leases
    this.id = granted.lease
    this.ttl = granted.ttl
    this.kind = kind
    this.gone = null // why
    this.lost = null // is told then
    this.renewing = false
    this.renewTimer = null
    this.endTimer = null
    leases.all.add(this)
    this.lives(began + this.ttl)
  }

  /** lives says until when it surely does. */
  lives(until) {
    this.until = until
    const left = until - performance.now()
    clearTimeout(this.endTimer)
    this.endTimer = setTimeout(() => this.lose('the node API did not renew it in time'), left)
    this.endTimer.unref()
    this.renewIn(left - (this.ttl * 2) / 3)
  }

  renewIn(pause) {
    clearTimeout(this.renewTimer)
    this.renewTimer = setTimeout(() => this.renew(), Math.max(pause, 1))
    this.renewTimer.unref()
  }

  async renew() {
    if (this.renewing || !this.leases.all.has(this)) return
    this.renewing = true
    const began = performance.now()
    try {
      const timeout = Math.min(Math.max(this.until - began, 1), 60_000)
      await this.leases.client.keepAlive(this.id, { namespace: this.kind.namespace, timeout, closing: true })
      if (this.leases.all.has(this)) this.lives(began + this.ttl)
    } catch (why) {
      if (why.code === Code.LEASE_GONE) this.lose(why.message)
      else if (this.leases.all.has(this)) this.renewIn(this.ttl / 10)
    }
    this.renewing = false
  }

  lose(why) {
    if (!this.leases.all.has(this)) return
    this.stop()
    this.gone = new NodeError(Code.LEASE_GONE, `the lease ${this.id} is gone: ${why}`)
    this.lost?.(this.gone)
  }

  stop() {
    this.leases.all.delete(this)
    clearTimeout(this.renewTimer)
    clearTimeout(this.endTimer)
  }

  /** free gives it back: nothing is bound to it. */
  free() {
    this.lost = null
    const { idle } = this.kind
    if (this.gone === null && idle.length < MAX_IDLE && !this.leases.client.closing) idle.push(this)
    else this.drop()
  }

  /** drop ends it: something may be bound to it that nobody knows of. */
  drop() {
    this.lost = null
    if (this.leases.all.has(this)) this.end(this.ttl).catch(() => {}) // then it lapses
  }

  async end(within) {
    this.stop()
    const timeout = Math.min(Math.max(within, 1), 60_000)
    await this.leases.client.revoke(this.id, { namespace: this.kind.namespace, timeout, closing: true })
  }
}

/** Leases are a client's. */
class Leases {
  constructor(client) {
    this.client = client
    this.all = new Set()
    this.kinds = new Map()
  }

  /** take gives a lease to which nothing is bound. */
  async take(ttl, options) {
    const name = `${ttl} ${options?.namespace ?? ''}`
    let kind = this.kinds.get(name)
    if (kind === undefined) this.kinds.set(name, (kind = { namespace: options?.namespace, idle: [] }))
    for (let lease = kind.idle.pop(); lease !== undefined; lease = kind.idle.pop()) {
      if (lease.gone === null) return lease
    }
    const began = performance.now()
    const { namespace, timeout, signal, closing } = options ?? {}
    const granted = await this.client.grant(ttl, { namespace, timeout, signal, closing })
    return new KeptLease(this, granted, kind, began)
  }

  /** renew renews all, after a connection was made anew. */
  renew() {
    for (const lease of this.all) lease.renew()
  }

  /** close ends all. What fails lapses. */
  close(within) {
    return Promise.allSettled([...this.all].map((lease) => lease.end(within)))
  }
}

module.exports = { Leases }
