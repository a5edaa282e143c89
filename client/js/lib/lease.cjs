// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

// Maximum number of idle leases of one namespace and time to live, which are kept alive for reuse.
const MAX_IDLE = 4

/**
 * KeptLease is a lease that the client made for a single lock or registration, and keeps alive.
 * `until` is when the lease ends, on the client's clock. The lease never ends earlier at the
 * server, because `until` counts from the time before the request that renewed the lease.
 */
class KeptLease {
  constructor(leases, granted, kind, began) {
    this.leases = leases
    this.id = granted.lease
    this.ttl = granted.ttl
    this.kind = kind
    this.gone = null // why the lease has expired
    this.lost = null // called when the lease has expired
    this.renewing = false
    this.renewTimer = null
    this.endTimer = null
    leases.all.add(this)
    this.lives(began + this.ttl)
  }

  /** lives sets the time until which the lease certainly exists. */
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

  /** free gives back a lease to which nothing is bound. */
  free() {
    this.lost = null
    const { idle } = this.kind
    if (this.gone === null && idle.length < MAX_IDLE && !this.leases.client.closing) idle.push(this)
    else this.drop()
  }

  /** drop ends a lease to which something may be bound without the client's knowledge. */
  drop() {
    this.lost = null
    // if this fails, the lease expires
    if (this.leases.all.has(this)) this.end(this.ttl).catch(() => {})
  }

  async end(within) {
    this.stop()
    const timeout = Math.min(Math.max(within, 1), 60_000)
    await this.leases.client.revoke(this.id, { namespace: this.kind.namespace, timeout, closing: true })
  }
}

/** Leases are the leases of a client. */
class Leases {
  constructor(client) {
    this.client = client
    this.all = new Set()
    this.kinds = new Map()
  }

  /** take returns a lease to which nothing is bound. */
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

  /** renew renews all leases after a new connection was made. */
  renew() {
    for (const lease of this.all) lease.renew()
  }

  /** close ends all leases. If that fails, they expire. */
  close(within) {
    return Promise.allSettled([...this.all].map((lease) => lease.end(within)))
  }
}

module.exports = { Leases }
