// SPDX-License-Identifier: Apache-2.0
'use strict'

const { randomBytes } = require('node:crypto')
const { Code, NodeError, OutcomeUnknown, fromAnswer } = require('./errors.cjs')
const { Transport } = require('./transport.cjs')

// The default and the maximum timeout of the server, in milliseconds; see api/nodeapi/nodeapi.go.
const DEFAULT_TIMEOUT = 5_000
const MAX_TIMEOUT = 60_000
const MAX_MESSAGE = 256 << 10
const MAX_IN_FLIGHT = 512
// Maximum number of calls that wait for room.
const MAX_QUEUED = 65_536
// The client waits this many milliseconds longer than the server, because the server knows best
// whether a call that timed out was executed.
const GRACE = 200
const HELLO_TIMEOUT = 5_000
// Milliseconds to wait for the first connection before a warning is logged.
const SILENT_WAIT = 1_000
const ADVICE =
  "start netcraq dev, netcraq-sidecar or the node's agent, or set NETCRAQ_NODE_SOCKET to where it listens; " +
  'in a pod, mount the folder of the socket'
const PING_INTERVAL = 15_000
const WAKE_STEP = 10

// These are the kinds of calls. If write is true, the call has a side effect, so it must be
// executed only once. If again is true, the write may nevertheless be executed twice, because a
// lease that the client does not know expires by itself. Calls that wait for other callers have
// their own lane, so that they do not take the room of other calls. Calls that renew leases or
// release something need no room.
const READ = { lane: 0, write: false, again: false }
const WRITE = { lane: 0, write: true, again: false }
const GRANT = { lane: 0, write: true, again: true }
const WAIT = { lane: 1, write: true, again: false }
const KEEP = { lane: 2, write: false, again: false }
const RETURN = { lane: 2, write: true, again: false }

/** Errors of hello after which another attempt would also fail. */
const FINAL = new Set([Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT])

/** Call is a request. It may be sent over several connections until it is answered. */
class Call {
  constructor(func, data, kind, deadline, resolve, reject) {
    this.func = func
    this.data = data
    this.kind = kind
    this.deadline = deadline
    this.resolve = resolve
    this.reject = reject
    this.tail = '' // text that follows the data in the request
    this.decode = null
    // function that gets the data of an answer if the answer arrives after the call has failed
    this.late = null
    this.once = 0
    this.identity = null // identity under which the call was sent first
    this.sent = false // whether the call was sent over the connection on which it waits
    // whether the call was sent over a connection that has ended, so that it may have been executed
    this.maybe = false
    this.settled = false
    this.id = 0
    this.reads = 0
    this.abort = null
  }
}

/** Lane bounds the number of calls in flight. Further calls wait in the lane. */
class Lane {
  constructor(limit) {
    this.limit = limit
    this.inFlight = 0
    this.queue = []
    this.head = 0
  }

  get waiting() {
    return this.queue.length - this.head
  }

  take() {
    const call = this.queue[this.head]
    this.queue[this.head++] = undefined
    if (this.head === this.queue.length) {
      this.queue = []
      this.head = 0
    } else if (this.head > 1024 && this.head * 2 > this.queue.length) {
      this.queue = this.queue.slice(this.head)
      this.head = 0
    }
    return call
  }

  /**
   * sweep drops the waiting calls that have timed out, and returns how many calls it has dropped.
   */
  sweep() {
    const before = this.waiting
    this.queue = [...this.each()]
    this.head = 0
    return before - this.waiting
  }

  putFirst(calls) {
    this.queue = calls.concat(this.queue.slice(this.head))
    this.head = 0
  }

  /** each yields the waiting calls. */
  *each() {
    for (let i = this.head; i < this.queue.length; i++) if (!this.queue[i].settled) yield this.queue[i]
  }
}

/**
 * Identity is a name of this client. It assigns the numbers of the writes that the client sends
 * under this name.
 */
class Identity {
  constructor() {
    this.name = randomBytes(16).toString('hex')
    this.next = 1
    this.low = 1 // the caller has the answers to all smaller numbers
    this.open = new Set()
  }

  /**
   * take returns the next number. The server keeps its answers, beginning with the first number
   * that is unanswered, within the server's own bound.
   */
  take() {
    const number = this.next++
    this.open.add(number)
    return number
  }

  finish(number) {
    this.open.delete(number)
    while (this.low < this.next && !this.open.has(this.low)) this.low++
  }
}

/** Link is a connection after hello, with the calls that wait for answers on it. */
class Link {
  constructor(identity) {
    this.identity = identity
    this.transport = null
    this.pending = new Map()
    this.streams = new Map()
    this.hello = null
    this.since = 0
    this.lost = false
    this.draining = false
  }
}

/**
 * Calls carries calls and streams (watches) to the server and back. It connects, connects again,
 * bounds the number of calls in flight, and applies timeouts. A write has a number, `once`, under
 * the client's identity. After a connection was lost, the write is sent again under the same
 * number.
 */
class Calls {
  /** events is an object with the functions connected(hello) and disconnected(error). */
  constructor(address, options, events) {
    this.address = address
    this.events = events
    this.namespace = options.namespace || ''
    this.agent = options.agent
    this.timeout = options.timeout ?? DEFAULT_TIMEOUT
    this.bound = Math.max(1, options.maxInFlight ?? MAX_IN_FLIGHT)
    this.maxQueued = options.maxQueued ?? MAX_QUEUED
    this.minBackoff = options.minBackoff ?? 10
    this.maxBackoff = options.maxBackoff ?? 1_000
    this.identity = new Identity()
    this.link = null
    this.links = new Set()
    this.hello = null
    this.lanes = [new Lane(this.bound), new Lane(this.bound), new Lane(Infinity)]
    this.queued = 0 // total number of waiting calls in all lanes
    this.streams = new Set()
    this.nextId = 1
    this.lastFailure = null
    this.wakeAt = Infinity
    this.wakeTimer = null
    this.backoff = this.minBackoff
    this.backoffTimer = null
    this.connecting = false
    this.closing = false
    this.closed = false
    this.idle = null // resolves the promise of close when no call is under way
    this.wake = this.wake.bind(this)
    this.pinged = -1
    this.pingTimer = setInterval(() => this.ping(), options.pingInterval ?? PING_INTERVAL)
    this.pingTimer.unref()
  }

  // ---- Calls ----

  /**
   * call calls a function of the node API. data is JSON. The function late gets an answer that
   * arrives after the call has failed.
   */
  call(func, data, kind, decode, options, late) {
    return new Promise((resolve, reject) => {
      if (this.closed || (this.closing && !options?.closing)) return reject(closedError())
      const timeout = options?.timeout ?? this.timeout
      if (!(timeout > 0 && timeout <= MAX_TIMEOUT)) {
        return reject(new NodeError(Code.INVALID_ARGUMENT, `a time-out of ${timeout} ms is not one of 1 to ${MAX_TIMEOUT}`))
      }
      // In UTF-8, each character of data has at most three bytes. The other parts of a request have
      // far less than a kilobyte.
      if (data.length > (MAX_MESSAGE - 1024) / 3 && Buffer.byteLength(data) > MAX_MESSAGE - 1024) {
        return reject(tooLarge(Buffer.byteLength(data)))
      }
      const call = new Call(func, data, kind, performance.now() + timeout + GRACE, resolve, reject)
      call.decode = decode
      if (late !== undefined) call.late = late
      if (timeout !== DEFAULT_TIMEOUT) call.tail = `,"timeoutMs":${Math.max(1, Math.floor(timeout))}`
      if (options?.signal && !this.follow(call, options.signal)) return
      this.submit(call)
      if (!call.settled && call.deadline < this.wakeAt) this.wakeBy(call.deadline)
    })
  }

  submit(call) {
    const lane = this.lanes[call.kind.lane]
    const link = this.link
    if (link !== null && lane.waiting === 0 && lane.inFlight < lane.limit && !link.transport.congested) {
      return this.send(link, call)
    }
    if (this.queued >= this.maxQueued) {
      return this.fail(call, new NodeError(Code.UNAVAILABLE, `${this.queued} calls wait for the node API already`))
    }
    this.queued++
    lane.queue.push(call)
  }

  send(link, call) {
    const id = this.nextId++
    call.id = id
    call.sent = true
    call.reads = link.transport.reads
    link.pending.set(id, call)
    this.lanes[call.kind.lane].inFlight++
    if (!call.kind.write) {
      link.transport.send(`{"id":${id},"func":"${call.func}","data":${call.data}${call.tail}}\n`)
      return
    }
    const identity = link.identity
    if (call.once === 0) {
      call.once = identity.take()
      call.identity = identity
    }
    link.transport.send(
      `{"id":${id},"func":"${call.func}","data":${call.data}${call.tail},"once":${call.once},"done":${identity.low}}\n`,
    )
  }

  /** pump sends waiting calls while there is room. */
  pump() {
    const link = this.link
    if (link === null) return
    for (const lane of this.lanes) {
      while (lane.waiting > 0 && lane.inFlight < lane.limit && !link.transport.congested) {
        this.queued--
        const call = lane.take()
        if (!call.settled) this.send(link, call)
      }
    }
  }

  /**
   * forget releases a call's number. It is used if the call was not executed, or if its result no
   * longer matters.
   */
  forget(call) {
    if (call.once !== 0) call.identity.finish(call.once)
    call.once = 0
    call.identity = null
    call.maybe = false
  }

  settle(call) {
    call.settled = true
    if (call.once !== 0) call.identity.finish(call.once)
    if (call.abort !== null) call.abort()
    if (this.idle !== null) setImmediate(this.idle)
  }

  fail(call, why) {
    this.settle(call)
    call.reject(why)
  }

  receive(link, message) {
    const call = link.pending.get(message.id)
    if (call === undefined) {
      const stream = link.streams.get(message.id)
      if (stream !== undefined) stream.receive(link, message)
      else if (message.id === 0 || message.id === undefined) this.notice(link, message)
      return
    }
    link.pending.delete(message.id)
    this.lanes[call.kind.lane].inFlight--
    if (call.settled) {
      if (call.late !== null && !message.error) call.late(message.data)
    } else if (message.error) {
      this.refused(link, call, fromAnswer(message.error))
    } else {
      this.settle(call)
      try {
        call.resolve(call.decode === null ? message.data : call.decode(message.data))
      } catch (why) {
        call.reject(new NodeError(Code.INTERNAL, `${call.func} was answered with what it has no use for: ${why.message}`))
      }
    }
    if (this.queued > 0) this.pump()
    if (link.draining) this.leave(link)
  }

  refused(link, call, why) {
    if (why.code === Code.DRAINING) {
      // The call was not executed, so the next server may treat it as a new request.
      this.forget(call)
      call.sent = false
      this.queued++
      this.lanes[call.kind.lane].queue.push(call)
      link.draining = true
      if (this.link === link) {
        this.link = null
        this.reconnect()
      }
    } else if (why.code === Code.OUTCOME_UNKNOWN && call.kind.again && call.maybe) {
      this.forget(call)
      call.sent = false
      this.submit(call)
    } else {
      this.fail(call, why)
    }
  }

  /** notice processes a message that the server sends without a request. */
  notice(link, message) {
    if (message.error) link.transport.failure ||= fromAnswer(message.error)
    if (message.data?.draining === true && !link.draining) {
      link.draining = true
      if (this.link === link) this.reconnect()
    }
  }

  /**
   * leave ends a link whose server is shutting down, if no call waits for an answer on the link.
   */
  leave(link) {
    if (link.pending.size === 0 && this.link !== null && this.link !== link) link.transport.end()
  }

  // ---- Time ----

  wakeBy(at) {
    const now = performance.now()
    this.wakeAt = Math.max(at, now + WAKE_STEP)
    clearTimeout(this.wakeTimer)
    this.wakeTimer = setTimeout(this.wake, this.wakeAt - now + 1)
  }

  wake() {
    const now = performance.now()
    let next = Infinity
    const look = (call, link) => {
      if (call.settled) return
      if (call.deadline <= now) this.expire(call, link)
      else if (call.deadline < next) next = call.deadline
    }
    for (const lane of this.lanes) {
      for (const call of lane.each()) look(call, null)
      this.queued -= lane.sweep()
    }
    for (const link of [...this.links]) for (const call of [...link.pending.values()]) look(call, link)
    this.wakeAt = Infinity
    if (next !== Infinity && !this.closed) this.wakeBy(next)
  }

  /**
   * expire makes a call that has timed out fail. If the connection was silent meanwhile, expire
   * ends the connection.
   */
  expire(call, link) {
    const why = this.lastFailure === null ? '' : `: ${this.lastFailure.message}`
    if (this.mayBeDone(call)) {
      this.fail(call, new OutcomeUnknown(`${call.func} was not answered in its time: it may have been executed`))
    } else if (link === null && this.link === null) {
      this.fail(call, new NodeError(Code.UNAVAILABLE, `there is no connection to ${this.address.text}${why}`))
    } else {
      this.fail(call, new NodeError(Code.TIMEOUT, `${call.func} was not answered in its time`))
    }
    if (link === null) return
    if (link.transport.reads === call.reads) {
      link.transport.destroy(new NodeError(Code.TIMEOUT, `${this.address.text} does not answer`))
    } else {
      this.cancel(link, call.id)
    }
  }

  /** mayBeDone reports whether a call without an answer may have had a lasting effect. */
  mayBeDone(call) {
    return call.kind.write && !call.kind.again && (call.sent || call.maybe)
  }

  /**
   * cancel asks the server to end a request. It ignores the answer to the cancel request itself.
   */
  cancel(link, id) {
    if (!link.transport.ended) link.transport.send(`{"id":${this.nextId++},"func":"cancel","data":{"id":${id}}}\n`)
  }

  /**
   * follow cancels a call when the signal aborts. The server then reports whether the call was
   * executed.
   */
  follow(call, signal) {
    const canceled = () => new NodeError(Code.CANCELED, 'canceled by the caller')
    if (signal.aborted) {
      call.settled = true
      call.reject(canceled())
      return false
    }
    const abort = () => {
      for (const link of this.links) if (link.pending.get(call.id) === call) return this.cancel(link, call.id)
      if (!this.mayBeDone(call)) this.fail(call, canceled())
      else this.fail(call, new OutcomeUnknown(`${call.func} was canceled: it may have been executed`))
    }
    signal.addEventListener('abort', abort)
    call.abort = () => signal.removeEventListener('abort', abort)
    return true
  }

  /** ping checks whether an idle connection still works. */
  ping() {
    const link = this.link
    if (link === null) return
    if (this.pinged === link.transport.reads && link.pending.size === 0) {
      this.call('ping', '{}', KEEP, null).catch(() => {})
    }
    this.pinged = link.transport.reads
  }

  // ---- Streams ----

  /**
   * start keeps a stream open over all connections. On each connection, it calls
   * stream.start(link), which requests the stream.
   */
  start(stream) {
    this.streams.add(stream)
    if (this.link !== null) stream.start(this.link)
  }

  /** ask sends a stream's request and returns the request's id. */
  ask(link, stream, func, data) {
    const id = this.nextId++
    link.streams.set(id, stream)
    link.transport.send(`{"id":${id},"func":"${func}","data":${data}}\n`)
    return id
  }

  /** stop ends a stream. */
  stop(stream, link, id) {
    this.streams.delete(stream)
    if (link !== null && link.streams.delete(id)) this.cancel(link, id)
  }

  // ---- Connections ----

  /** connect makes the first connection, within the given number of milliseconds. */
  async connect(within) {
    const until = performance.now() + within
    const aloud = setTimeout(() => {
      const why = this.lastFailure?.message ?? 'it has not answered yet'
      process.emitWarning(`waiting up to ${within / 1000} s for the node API at ${this.address.text}: ${why}`, { detail: ADVICE })
    }, SILENT_WAIT)
    try {
      return await this.connectBy(until, within)
    } finally {
      clearTimeout(aloud)
    }
  }

  async connectBy(until, within) {
    for (let backoff = this.minBackoff; ; backoff = Math.min(backoff * 2, this.maxBackoff)) {
      try {
        return this.use(await this.attempt(Math.max(until - performance.now(), 1)))
      } catch (why) {
        if (this.closed) throw closedError()
        this.lastFailure = why
        if (FINAL.has(why.code)) throw why
      }
      const left = until - performance.now()
      if (left <= 0) {
        throw new NodeError(
          Code.UNAVAILABLE,
          `no node API at ${this.address.text} within ${within / 1000} s: ${this.lastFailure.message}`,
          ADVICE,
        )
      }
      // The pause ends at the end of the time, so that there is one more attempt then.
      await new Promise((resolve) => setTimeout(resolve, Math.min(jitter(backoff), left)))
    }
  }

  /** attempt makes one connection and sends hello. */
  async attempt(within) {
    const link = new Link(this.identity)
    const id = this.nextId++
    const answer = new Promise((resolve, reject) => {
      const receive = (message) => {
        if (message.id !== id) return this.receive(link, message)
        if (message.error) reject(fromAnswer(message.error))
        else resolve(message.data ?? {})
      }
      link.transport = new Transport(this.address.options, receive, () => this.pump(), (why) => {
        reject(why)
        this.lose(link, why)
      })
    })
    answer.catch(() => {})
    const silent = () => link.transport.destroy(new NodeError(Code.TIMEOUT, `${this.address.text} does not answer`))
    const timer = setTimeout(silent, Math.min(within, HELLO_TIMEOUT))
    try {
      await link.transport.connected
      const data = { client: link.identity.name, agent: this.agent, namespace: this.namespace || undefined, drainNotice: true }
      link.transport.send(`${JSON.stringify({ id, func: 'hello', data })}\n`)
      link.hello = await answer
    } catch (why) {
      link.transport.destroy(why)
      throw why
    } finally {
      clearTimeout(timer)
    }
    return link
  }

  /** use makes a link the current link, and sends all waiting calls on it. */
  use(link) {
    if (this.closed || link.lost) {
      link.transport.destroy(closedError())
      throw link.transport.failure
    }
    const known = link.hello.known === true
    for (const lane of this.lanes) {
      for (const call of lane.each()) {
        if (!call.maybe || (known && call.identity === link.identity)) continue
        if (call.kind.again) this.forget(call)
        else this.fail(call, lostAnswers(call))
      }
    }
    if (!known && link.identity.next > 1) {
      // The old server, which knows this identity, may come back. It would not know calls that are
      // sent to the new server under the same identity.
      if (this.identity === link.identity) this.identity = new Identity()
      link.transport.end()
      throw new Anew('the server was started anew')
    }
    const old = this.link
    this.link = link
    this.links.add(link)
    this.hello = link.hello
    link.since = performance.now()
    link.draining = link.hello.draining === true
    if (link.hello.inFlight > 0) {
      // The remaining quarter is for calls that need no room.
      const limit = Math.max(1, Math.min(this.bound, Math.floor((link.hello.inFlight * 3) / 8)))
      this.lanes[READ.lane].limit = this.lanes[WAIT.lane].limit = limit
    }
    for (const stream of this.streams) stream.start(link)
    this.pump()
    if (old !== null) old.draining = true
    for (const other of this.links) if (other.draining) this.leave(other)
    if (link.draining) this.reconnect()
    this.events.connected(link.hello)
    return link.hello
  }

  /** lose takes back the calls that wait on a link that has ended. */
  lose(link, why) {
    link.lost = true
    if (!this.links.delete(link)) return
    const again = this.lanes.map(() => [])
    for (const call of link.pending.values()) {
      this.lanes[call.kind.lane].inFlight--
      if (call.settled) continue
      call.sent = false
      if (call.kind.write) call.maybe = true
      if (call.maybe && this.link !== null && this.link !== link) {
        // The present connection was made before this link was lost, so its server may not know
        // this call.
        if (!call.kind.again) {
          this.fail(call, lostAnswers(call))
          continue
        }
        this.forget(call)
      }
      again[call.kind.lane].push(call)
    }
    link.pending.clear()
    link.streams.clear()
    again.forEach((calls, lane) => {
      this.queued += calls.length
      if (calls.length > 0) this.lanes[lane].putFirst(calls)
    })
    this.lastFailure = why
    if (this.link !== link) return this.pump()
    this.link = null
    // If the server repeatedly ends new connections at once, the pauses become longer.
    const short = performance.now() - link.since < this.maxBackoff
    this.backoff = short ? Math.min(this.backoff * 2, this.maxBackoff) : this.minBackoff
    this.reconnect()
    this.events.disconnected(why)
  }

  /**
   * reconnect connects again, after a pause, until it is connected or closed. While the present
   * server is shutting down, it looks for the next server.
   */
  reconnect() {
    if (this.connecting || this.closed) return
    this.connecting = true
    const attempt = async () => {
      this.backoffTimer = null
      try {
        const link = await this.attempt(HELLO_TIMEOUT)
        if (this.link !== null && link.hello.draining === true) {
          link.transport.end()
          throw new NodeError(Code.DRAINING, 'the server is shutting down')
        }
        this.connecting = false
        this.use(link)
      } catch (why) {
        this.connecting = false
        if (this.link !== null && !this.link.draining) return
        if (!(why instanceof Anew)) {
          this.lastFailure = why
          if (FINAL.has(why.code)) this.failQueued(why)
          this.backoff = Math.min(this.backoff * 2, this.maxBackoff)
        }
        this.reconnect()
      }
    }
    this.backoffTimer = setTimeout(attempt, jitter(this.backoff))
  }

  failQueued(why) {
    for (const lane of this.lanes) {
      for (const call of lane.each()) this.fail(call, this.mayBeDone(call) ? lostAnswers(call) : why)
    }
  }

  // ---- The end ----

  /** underWay reports whether a caller waits for an answer. */
  underWay() {
    for (const lane of this.lanes) for (const call of lane.each()) if (!call.settled) return true
    for (const link of this.links) for (const call of link.pending.values()) if (!call.settled) return true
    return false
  }

  /**
   * refuse makes all further calls fail, except for the calls that close makes. It ends watches,
   * and calls that wait for other callers.
   */
  refuse() {
    this.closing = true
    for (const stream of [...this.streams]) stream.close()
    for (const call of this.lanes[WAIT.lane].each()) this.fail(call, closedError())
    for (const link of this.links) {
      for (const call of link.pending.values()) {
        if (call.kind.lane !== WAIT.lane || call.settled) continue
        this.fail(call, closedError())
        this.cancel(link, call.id)
      }
    }
  }

  /**
   * close waits for calls under way, at most for the given number of milliseconds, and ends the
   * client.
   */
  async close(within) {
    if (this.underWay()) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, within)
        this.idle = () => {
          if (this.underWay()) return
          clearTimeout(timer)
          resolve()
        }
      })
      this.idle = null
    }
    this.abandon()
  }

  /** abandon ends the client immediately. Calls under way fail. */
  abandon() {
    if (this.closed) return
    this.closing = this.closed = true
    clearInterval(this.pingTimer)
    clearTimeout(this.wakeTimer)
    clearTimeout(this.backoffTimer)
    for (const link of [...this.links]) {
      this.links.delete(link)
      for (const call of link.pending.values()) {
        if (call.settled) continue
        if (!this.mayBeDone(call)) this.fail(call, closedError())
        else this.fail(call, new OutcomeUnknown(`the client was closed before ${call.func} was answered`))
      }
      link.transport.end()
      // The timer limits the wait for a server that does not close its side.
      setTimeout(() => link.transport.destroy(closedError()), 1_000).unref()
    }
    this.failQueued(closedError())
    this.link = null
  }
}

/** Anew means that the connection must be made again immediately. */
class Anew extends Error {}

function jitter(delay) {
  return delay * (0.5 + Math.random() / 2)
}

function closedError() {
  return new NodeError(Code.CLOSED, 'the client is closed')
}

function lostAnswers(call) {
  return new OutcomeUnknown(
    `the connection was lost before ${call.func} was answered, and the server has no record of it: it may have been executed`,
  )
}

function tooLarge(bytes) {
  return new NodeError(Code.TOO_LARGE, `the message has ${bytes} bytes; one has at most ${MAX_MESSAGE}`)
}

module.exports = {
  Calls, GRANT, KEEP, READ, RETURN, WAIT, WRITE, DEFAULT_TIMEOUT, MAX_MESSAGE, MAX_TIMEOUT, jitter,
}
