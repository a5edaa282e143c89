// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')
const { jitter } = require('./calls.cjs')

/**
 * Held is a lock, a leadership or a permit. `token` is its fencing token, a BigInt that grows with
 * each holder. When the lock, leadership or permit may be lost, `lost` resolves with the reason,
 * and `signal` aborts.
 */
class Held {
  constructor(client, back, answer, kept, options) {
    this.client = client
    this.back = back
    this.kept = kept // null if the caller provided the lease
    this.options = { namespace: options?.namespace }
    this.name = answer.name
    this.token = BigInt(answer.token)
    this.lease = answer.lease
    this.failure = null // why it was lost
    this.over = false
    const lost = new AbortController()
    this.signal = lost.signal
    this.lost = new Promise((resolve) => {
      this.lose = (why) => {
        this.over = true
        client.held.delete(this)
        lost.abort(why)
        resolve(why)
      }
    })
    client.held.add(this)
    if (kept === null) return
    kept.lost = (why) => {
      this.failure = new NodeError(Code.NOT_HELD, `${this.name} is not surely held any more: ${why.message}`, 'take it again')
      this.lose(this.failure)
    }
    if (kept.gone !== null) kept.lost(kept.gone)
  }

  /** held reports whether the lock, leadership or permit is certainly still held. */
  get held() {
    return !this.over && (this.kept === null || performance.now() < this.kept.until)
  }

  /**
   * release releases the lock, leadership or permit. If that fails, it expires with its lease.
   * release throws if it was already lost. A second release does nothing.
   */
  async release(options) {
    if (this.over) {
      if (this.failure !== null) throw this.failure
      return
    }
    this.lose(new NodeError(Code.NOT_HELD, `${this.name} was given back`))
    try {
      await this.client.giveBack(this.back, this.name, this.token, { ...this.options, ...options })
    } catch (why) {
      this.kept?.drop()
      throw why
    }
    this.kept?.free()
  }
}

/** Lock is a held lock. */
class Lock extends Held {
  unlock(options) {
    return this.release(options)
  }
}

/** Leadership is a held leadership of an election. */
class Leadership extends Held {
  resign(options) {
    return this.release(options)
  }
}

/** Permit is a held permit of a semaphore. */
class Permit extends Held {}

/**
 * Registration is an instance of a service. If its lease is lost, the client registers the instance
 * again.
 */
class Registration {
  constructor(client, data, ttl, options) {
    this.client = client
    this.data = data
    this.ttl = ttl
    this.options = { namespace: options?.namespace }
    this.ownLease = data.lease
    this.kept = null
    this.over = false
    this.service = data.service
    this.address = data.address
  }

  get instance() {
    return this.data.instance
  }

  async register(options) {
    const kept = this.ownLease ? null : await this.client.leases.take(this.ttl, { ...this.options, ...options })
    if (kept !== null) this.data.lease = kept.id
    try {
      const answer = await this.client.register(this.data, { ...this.options, ...options })
      this.data.instance = answer.instance
    } catch (why) {
      kept?.drop()
      throw why
    }
    if (this.over) return kept?.drop()
    this.kept = kept
    this.client.held.add(this)
    if (kept === null) return
    kept.lost = () => this.again()
    if (kept.gone !== null) this.again()
  }

  async again() {
    this.kept = null
    for (let pause = 10; !this.over && !this.client.closing; pause = Math.min(2 * pause, 1_000)) {
      try {
        return await this.register()
      } catch {
        await new Promise((resolve) => setTimeout(resolve, jitter(pause)).unref())
      }
    }
  }

  /** deregister removes the instance. If that fails, the instance expires with its lease. */
  async deregister(options) {
    if (this.over) return
    this.over = true
    this.client.held.delete(this)
    // The lease has expired, and the instance has expired with it.
    if (this.ownLease === undefined && this.kept === null) return
    try {
      await this.client.deregister(this.service, this.instance, this.data.lease, { ...this.options, ...options })
    } catch (why) {
      this.kept?.drop()
      throw why
    }
    this.kept?.free()
  }

  release(options) {
    return this.deregister(options)
  }
}

module.exports = { Lock, Leadership, Permit, Registration }
