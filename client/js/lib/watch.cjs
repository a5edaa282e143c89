// SPDX-License-Identifier: Apache-2.0
'use strict'

const { Code, NodeError, fromAnswer } = require('./errors.cjs')
const { jitter } = require('./calls.cjs')
const { Event, compareVersions, name } = require('./values.cjs')

/** These errors are not refusals. After them, the client requests the watch again. */
const PASSING = new Set([Code.UNAVAILABLE, Code.TIMEOUT, Code.DRAINING, Code.INTERNAL])
// These limit the versions that a resumed watch sends, because the server counts each version as a
// watch. The server reports the other keys again, and the client then drops versions that it knows.
const MAX_AFTER = 1024
const MAX_AFTER_BYTES = 128 << 10
// Number of deleted keys whose versions a watch remembers.
const MAX_GONE = 4096

/**
 * Stream is a request with several answers, and an async iterator over the answers. When the
 * connection ends, the stream is resumed on the next connection. It stores the entries that its
 * reader has not taken. Newer entries replace older entries of the same key, so its size is
 * bounded.
 */
class Stream {
  constructor(calls, func, options) {
    this.calls = calls
    this.func = func
    this.link = null
    this.id = 0
    this.backoff = calls.minBackoff
    this.bare = false // whether the stream is resumed without the known versions
    this.ended = false
    this.failure = null
    this.waiting = []
    /** Resolves when the server has begun the watch. From then on, no change is missed. */
    this.started = new Promise((resolve, reject) => {
      this.begun = resolve
      this.refused = reject
    })
    this.started.catch(() => {})
    this.signal = options?.signal
    this.aborted = () => this.end(new NodeError(Code.CANCELED, 'canceled by the caller'))
    this.restartTimer = null
    this.startTimer = null
    this.timeout = options?.timeout ?? calls.timeout
  }

  /** open requests the stream now, and again on each new connection. */
  open() {
    if (this.calls.closing) this.end(new NodeError(Code.CLOSED, 'the client is closed'))
    else if (this.signal?.aborted) this.aborted()
    else {
      const late = () => this.end(new NodeError(Code.TIMEOUT, `${this.func} was not answered in its time`))
      this.startTimer = setTimeout(late, this.timeout)
      this.signal?.addEventListener('abort', this.aborted)
      this.calls.start(this)
    }
    return this
  }

  /** start requests the stream on a connection. */
  start(link) {
    if (this.ended) return
    clearTimeout(this.restartTimer)
    this.link = link
    this.id = this.calls.ask(link, this, this.func, this.request())
  }

  receive(link, message) {
    if (link !== this.link || message.id !== this.id || this.ended) return
    if (message.error || message.more !== true) {
      link.streams.delete(this.id)
      const why = message.error ? fromAnswer(message.error) : null
      // The known versions in the request may exceed the quota.
      const barer = why?.code === Code.QUOTA_EXCEEDED && this.startTimer === null && !this.bare
      this.bare ||= barer
      if (why !== null && !barer && !PASSING.has(why.code)) return this.end(why)
    }
    if (message.data) {
      if (this.startTimer !== null) {
        clearTimeout(this.startTimer)
        this.startTimer = null
        this.begun()
      }
      this.backoff = this.calls.minBackoff
      this.take(message.data)
    }
    if (message.error || message.more !== true) this.restart()
  }

  /**
   * restart requests the stream again after a pause. If there is no connection, it does so on the
   * next connection.
   */
  restart() {
    this.restartTimer = setTimeout(() => {
      if (!this.ended && this.calls.link !== null) this.start(this.calls.link)
    }, jitter(this.backoff))
    this.backoff = Math.min(this.backoff * 2, this.calls.maxBackoff)
  }

  /** end ends the stream. Iterators get the error why if there is one; otherwise they end. */
  end(why) {
    if (this.ended) return
    this.ended = true
    this.failure = why
    clearTimeout(this.startTimer)
    clearTimeout(this.restartTimer)
    this.signal?.removeEventListener('abort', this.aborted)
    this.calls.stop(this, this.link, this.id)
    this.refused(why ?? new NodeError(Code.CLOSED, 'the watch is closed'))
    this.wake()
  }

  close() {
    this.end(null)
  }

  wake() {
    while (this.waiting.length > 0) {
      if (this.size() > 0) this.waiting.shift().resolve({ value: this.shift(), done: false })
      else if (this.failure !== null) this.waiting.shift().reject(this.failure)
      else if (this.ended) this.waiting.shift().resolve({ value: undefined, done: true })
      else return
    }
  }

  next() {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject })
      this.wake()
    })
  }

  async return(value) {
    this.close()
    return { value, done: true }
  }

  [Symbol.asyncIterator]() {
    return this
  }
}

/** Watch reports the newest versions of keys. */
class Watch extends Stream {
  /**
   * what is an object with keys or a prefix. Its field after has the versions that the caller
   * knows.
   */
  constructor(calls, what, options) {
    super(calls, 'watch', options)
    this.fields = ''
    if (options?.namespace) this.fields += `"namespace":${JSON.stringify(options.namespace)},`
    if (what.keys !== undefined) this.fields += `"keys":[${what.keys.map(name).join()}],`
    if (what.prefix !== undefined) this.fields += `"prefix":${JSON.stringify(String(what.prefix))},`
    // The newest version of each key that the reader has already got or is about to get.
    this.known = new Map(Object.entries(what.after ?? {}))
    this.gone = new Set()
    this.events = new Map()
  }

  /** request returns the data of the request, with as many known versions as the limits allow. */
  request() {
    let after = ''
    let n = 0
    for (const [key, version] of this.known) {
      const more = `${JSON.stringify(key)}:"${version}",`
      if (this.bare || ++n > MAX_AFTER || (after.length + more.length) * 3 > MAX_AFTER_BYTES) break
      after += more
    }
    return `{${this.fields}"after":{${after.slice(0, -1)}}}`
  }

  take(data) {
    for (const told of data.events ?? []) {
      const known = this.known.get(told.key)
      // After a new request, the server may report known versions again. They are dropped.
      if (known !== undefined && compareVersions(told.version, known) <= 0) continue
      this.known.set(told.key, told.version)
      this.forget(told)
      const event = new Event(told)
      const overtaken = this.events.get(told.key)
      if (overtaken !== undefined) event.overtaken += overtaken.overtaken + 1
      this.events.set(told.key, event)
    }
    this.wake()
  }

  /** forget bounds the number of remembered versions of deleted keys. */
  forget(told) {
    if (told.found) {
      this.gone.delete(told.key)
      return
    }
    this.gone.add(told.key)
    if (this.gone.size <= MAX_GONE) return
    const [oldest] = this.gone
    this.gone.delete(oldest)
    this.known.delete(oldest)
  }

  size() {
    return this.events.size
  }

  shift() {
    const [[key, event]] = this.events
    this.events.delete(key)
    return event
  }
}

/** ServiceWatch reports the live instances of a service. */
class ServiceWatch extends Stream {
  constructor(calls, service, options) {
    super(calls, 'watchService', options)
    const namespace = options?.namespace ? `"namespace":${JSON.stringify(options.namespace)},` : ''
    this.fields = `{${namespace}"service":${name(service)}}`
    this.newest = null
    this.told = ''
  }

  request() {
    return this.fields
  }

  take(data) {
    if (data.instances === undefined && data.service === undefined) return
    const instances = data.instances ?? []
    const text = JSON.stringify(instances)
    if (text === this.told) return
    this.told = text
    this.newest = instances
    this.wake()
  }

  size() {
    return this.newest === null ? 0 : 1
  }

  shift() {
    const instances = this.newest
    this.newest = null
    return instances
  }
}

module.exports = { Watch, ServiceWatch }
