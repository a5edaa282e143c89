// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError } = require('./errors.cjs')

const DEFAULT_TTL = 10_000

/**
 * Kept is something that hangs on a lease, which is kept alive three times in its time to live. By
 * this side's clock the lease holds until `until`, which is never later than by the server's:
 * it counts from before the request that renewed it.
 */
class Kept {
  constructor(client, lease, ttl, options) {
    this.client = client
    this.lease = lease
    this.ttl = ttl
    this.options = options?.namespace ? { namespace: options.namespace } : undefined
    this.over = false
    this.until = Infinity
    this.renewTimer = null
    this.endTimer = null
    this.renewing = false
    // Who brings a lease keeps it alive, or does not.
    if (options?.lease) return
    client.kept.add(this)
    // The server has kept it alive until now, and did so last at most a third of its time ago.
    this.lives(performance.now() + ttl / 2)
    this.renew()
  }

  /** lives says until when it surely holds. */
  lives(until) {
    this.until = until
    clearTimeout(this.endTimer)
    this.endTimer = setTimeout(() => this.gone(new NodeError(Code.LEASE_GONE, 'the node API did not renew it in time')),
      until - performance.now())
    this.endTimer.unref()
  }

  /** renew keeps the lease alive, and again until it is over. */
  async renew() {
    if (this.over || this.renewing) return
    this.renewing = true
    clearTimeout(this.renewTimer)
    const began = performance.now()
    try {
      const timeout = Math.max(100, Math.min(this.ttl / 3, 5_000))
      await this.client.keepAlive(this.lease, { ...this.options, timeout })
      if (!this.over) this.lives(began + this.ttl)
    } catch (why) {
      if (!this.over && why.code === Code.LEASE_GONE) this.gone(why)
    }
    this.renewing = false
    this.renewSoon()
  }

  renewSoon() {
    if (this.over) return
    // Near its end it is tried more often.
    const left = this.until - performance.now()
    clearTimeout(this.renewTimer)
    this.renewTimer = setTimeout(() => this.renew(), Math.max(20, Math.min(this.ttl / 3, left / 2)))
    this.renewTimer.unref()
  }

  stop() {
    this.over = true
    clearTimeout(this.renewTimer)
    clearTimeout(this.endTimer)
    this.client.kept.delete(this)
  }
}

/**
 * Held is a lock, a leadership or a permit. `token` is its fencing token, a BigInt that is greater
 * with each holder; `lost` resolves with the reason when it may be another's, and `signal` aborts.
 */
class Held extends Kept {
  constructor(client, back, answer, ttl, options) {
    super(client, answer.lease, ttl, options)
    this.back = back
    this.name = answer.name
    this.token = BigInt(answer.token)
    const lost = new AbortController()
    this.signal = lost.signal
    this.lost = new Promise((resolve) => {
      this.lose = (why) => {
        lost.abort(why)
        resolve(why)
      }
    })
  }

  /** held says whether it surely is this one's still. */
  get held() {
    return !this.over && performance.now() < this.until
  }

  gone(why) {
    this.back = null
    this.stop()
    this.lose(new NodeError(Code.NOT_HELD, `${this.name} is held no more: ${why.message}`))
  }

  release(options) {
    return this.giveBack(options)
  }

  /** giveBack may be called again where it failed: the server keeps alive what was not given back. */
  async giveBack(options) {
    if (this.back === null) return
    this.stop()
    this.lose(new NodeError(Code.NOT_HELD, `${this.name} was given back`))
    await this.client.giveBack(this.back, this.name, this.token, { ...this.options, ...options })
    this.back = null
  }
}

/** Lock is a lock that is held. */
class Lock extends Held {
  unlock(options) {
    return this.giveBack(options)
  }
}

/** Leadership is an election that was won. */
class Leadership extends Held {
  resign(options) {
    return this.giveBack(options)
  }
}

/** Permit is one of a semaphore's. */
class Permit extends Held {}

/** Registration is an instance of a service. Where its lease has lapsed it registers again. */
class Registration extends Kept {
  constructor(client, answer, ttl, data, options) {
    super(client, answer.lease, ttl, options)
    this.data = data
    this.service = data.service
    this.instance = answer.instance
    this.address = answer.address
  }

  async gone() {
    try {
      const data = { ...this.data, instance: this.instance }
      const answer = await this.client.register(data, this.options)
      if (this.over) return await this.client.deregister(this.service, this.instance, this.options)
      this.lease = answer.lease
      this.lives(performance.now() + this.ttl / 2)
      this.renewSoon()
    } catch {
      // The next renewal finds the lease gone, and comes here again.
    }
  }

  async giveBack(options) {
    return this.deregister(options)
  }

  /** deregister takes the instance away. */
  async deregister(options) {
    if (this.over) return
    this.stop()
    await this.client.deregister(this.service, this.instance, { ...this.options, ...options })
  }
}

module.exports = { DEFAULT_TTL, Lock, Leadership, Permit, Registration }
