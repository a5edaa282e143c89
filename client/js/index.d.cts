// SPDX-License-Identifier: Apache-2.0
/// <reference types="node" />
import { EventEmitter } from 'node:events'

/** The default address of a node's server. */
export const DEFAULT_SOCKET: '/run/netcraq/node.sock'
export const SOCKET_VARIABLE: 'NETCRAQ_NODE_SOCKET'
/** The version of a key that was never written. */
export const NEVER_WRITTEN: Version

/** The version of a key. Its form is EPOCH.SEQUENCE. Versions come from answers. */
export type Version = string
/** A value is text, which is encoded as UTF-8, or bytes. */
export type Value = string | ArrayBufferView | ArrayBuffer

/**
 * Returns a negative number if a is before b, 0 if they are equal, and otherwise a positive number.
 */
export function compareVersions(a: Version, b: Version): number

export const Code: {
  readonly INVALID_ARGUMENT: 'invalid_argument'
  readonly TOO_LARGE: 'too_large'
  readonly PERMISSION_DENIED: 'permission_denied'
  readonly QUOTA_EXCEEDED: 'quota_exceeded'
  readonly NO_ROOM: 'no_room'
  readonly LEASE_GONE: 'lease_gone'
  readonly NOT_HELD: 'not_held'
  readonly WRONG_OFFSET: 'wrong_offset'
  readonly TIMEOUT: 'timeout'
  readonly OUTCOME_UNKNOWN: 'outcome_unknown'
  readonly UNAVAILABLE: 'unavailable'
  readonly CANCELED: 'canceled'
  readonly DRAINING: 'draining'
  readonly INTERNAL: 'internal'
  readonly CLOSED: 'closed'
}
export type Code = (typeof Code)[keyof typeof Code]

/**
 * The error of a failed call. `code` is the kind of failure, and `do` says what the program can do.
 */
export class NodeError extends Error {
  constructor(code: Code, message: string, advice?: string)
  readonly code: Code
  readonly do?: string
}

/** A write may or may not have been executed. */
export class OutcomeUnknown extends NodeError {
  constructor(message: string, advice?: string)
  readonly code: 'outcome_unknown'
}

export interface ConnectOptions {
  /**
   * The address of the node's server, a path or "tcp://host:port". The default is
   * NETCRAQ_NODE_SOCKET, otherwise the socket of a running netcraq dev, otherwise DEFAULT_SOCKET.
   */
  socket?: string
  /** The default namespace of calls. Without it, calls use the program's own namespace. */
  namespace?: string
  /** The name of this program in the server's logs. */
  agent?: string
  /** Milliseconds to wait for the server at start. The default is 30,000. */
  startTimeout?: number
  /**
   * The timeout in milliseconds of calls without their own timeout, at most 60,000. The default is
   * 5,000.
   */
  timeout?: number
  /**
   * Maximum number of calls in flight. Further calls wait. Calls that wait for locks have their own
   * limit of the same size. The default is 512.
   */
  maxInFlight?: number
  /**
   * Maximum number of calls that wait for room or for a connection. Further calls fail. The default
   * is 65,536.
   */
  maxQueued?: number
  /**
   * Milliseconds before the second attempt to connect, by default 10. The pause doubles each time,
   * up to maxBackoff, which is by default 1,000.
   */
  minBackoff?: number
  maxBackoff?: number
  /**
   * Milliseconds without a message after which the client checks the connection with a ping. The
   * default is 15,000.
   */
  pingInterval?: number
}

export interface CallOptions {
  namespace?: string
  /** The call's timeout in milliseconds, at most 60,000. */
  timeout?: number
  signal?: AbortSignal
}

export interface ReadOptions extends CallOptions {
  /**
   * With true, the read may return the last committed value of the nearest chain member. Otherwise
   * it is linearizable.
   */
  eventual?: boolean
}

export interface WriteOptions extends CallOptions {
  /** The lease with which the key expires. */
  lease?: string
}

/** The state of a key. */
export interface Item {
  readonly key: string
  /** Whether the key has a value. It has none if it was never written, or was deleted. */
  readonly found: boolean
  /** The value as text, if it is UTF-8. */
  readonly text: string | undefined
  /** The value as bytes. */
  readonly value: Buffer | undefined
  readonly version: Version
  readonly lease?: string
  /** In the results of getMany and lists, why the key was not read. */
  readonly error?: NodeError
}

export interface ListOptions extends CallOptions {
  /** Number of names that the server examines for one page, from 1 to 256. */
  pageSize?: number
  /** With true, the list leaves out the values. */
  keysOnly?: boolean
}

/**
 * A page of a list. Its items are in the order of their names. A page may have few items, or none,
 * although more pages follow.
 */
export interface Page {
  readonly items: Item[]
  /** The cursor of the next page, or '' if this is the last page. */
  readonly cursor: string
}

/**
 * A condition of a transaction on a key. The key must have a version or a value, or must have no
 * value.
 */
export type Comparison =
  | { key: string; version: Version }
  | { key: string; value: Value }
  | { key: string; absent: true }

/**
 * A transaction's change of a key. It writes a value, which may be bound to a lease, or deletes the
 * value.
 */
export type Write = { key: string; value: Value; lease?: string } | { key: string; delete: true }

/**
 * A transaction has 1 to 64 comparisons and writes altogether. A key may be compared at most once,
 * and written at most once.
 */
export interface Transaction {
  compare?: Iterable<Comparison>
  write?: Iterable<Write>
}

/** The result of a transaction. */
export interface Transacted {
  /** Whether all comparisons held, so that everything was written. */
  readonly done: boolean
  /** The versions of the written keys, in the order of the writes. */
  readonly versions: Version[]
  /**
   * If done is false, the keys whose comparisons did not hold, in the order of the comparisons. If
   * the values of these items exceed 32 KiB in total, the later items have no value although they
   * are found.
   */
  readonly failed: Item[]
}

/** The newest version of a key, as a watch reports it. */
export interface Event extends Item {
  /** Number of versions that were skipped before this event. */
  readonly overtaken: number
}

export interface WatchOptions extends CallOptions {
  /**
   * The watch follows all keys whose names begin with this prefix. With '', it follows all keys of
   * the namespace.
   */
  prefix?: string
  /**
   * The versions that the caller knows, by key. The watch reports only newer versions of these
   * keys. For other keys, it first reports the current state.
   */
  after?: Record<string, Version>
}

export interface Stream<T> extends AsyncIterableIterator<T> {
  /** Resolves when the server has begun the watch. Rejects if the server refuses it. */
  readonly started: Promise<void>
  /** Whether the watch was closed, or has failed. */
  readonly ended: boolean
  next(): Promise<IteratorResult<T, undefined>>
  return(value?: any): Promise<IteratorResult<T, any>>
  close(): void
}

/**
 * The newest versions of keys. If the program does not take a key's events in time, only the newest
 * event is kept.
 */
export type Watch = Stream<Event>
/** The live instances of a service. */
export type ServiceWatch = Stream<Instance[]>

export interface Lease {
  readonly lease: string
  /** The lease's time to live, in milliseconds. */
  readonly ttl: number
}

export interface HoldOptions extends CallOptions {
  /**
   * Time to live in milliseconds. If this program dies, another program can acquire the lock after
   * at most this time. The default is 10,000.
   */
  ttl?: number
  /**
   * Milliseconds to wait for the lock. With 0, the call does not wait. By default, it waits until
   * the signal aborts.
   */
  wait?: number
  /**
   * A lease from grant, which the caller keeps alive. By default, the library makes a lease and
   * keeps it alive.
   */
  lease?: string
}

/** A lock, a leadership or a permit. */
export interface Held {
  readonly name: string
  /** The fencing token. Each new holder gets a greater token. */
  readonly token: bigint
  readonly lease: string
  /** Whether this program certainly still holds the lock, leadership or permit. */
  readonly held: boolean
  /** Resolves with the reason when the lock, leadership or permit may be lost. */
  readonly lost: Promise<NodeError>
  /**
   * Aborts when the lock, leadership or permit may be lost. Pass this signal to other asynchronous
   * operations.
   */
  readonly signal: AbortSignal
  /** Releases the lock, leadership or permit. If that fails, it expires with its lease. */
  release(options?: CallOptions): Promise<void>
}

export interface Lock extends Held {
  unlock(options?: CallOptions): Promise<void>
}
export interface Leadership extends Held {
  resign(options?: CallOptions): Promise<void>
}
export type Permit = Held

export interface Leader {
  readonly found: boolean
  readonly value?: string
  readonly token?: bigint
}

export interface Instance {
  readonly instance: string
  readonly address: string
  readonly node?: string
  readonly lease?: string
}

export interface ServiceOptions extends CallOptions {
  /** The instance's name. By default, the server chooses a name. */
  instance?: string
  /**
   * A lease from grant, which the caller keeps alive. By default, the library makes a lease and
   * keeps it alive.
   */
  lease?: string
  ttl?: number
}

/** An instance of a service. If its lease expires, the client registers the instance again. */
export interface Registration {
  readonly service: string
  readonly instance: string
  readonly address?: string
  deregister(options?: CallOptions): Promise<void>
}

/** The server's description of itself. */
export interface Server {
  readonly server: string
  readonly node: string
  readonly namespace: string
  readonly known: boolean
  readonly maxValue: number
  readonly inFlight: number
  readonly maxMessage: number
  readonly durable: boolean
  /** The largest page size of a list. It is undefined if the server is too old for lists. */
  readonly maxList?: number
  readonly draining?: boolean
}

/** A client of the node API. */
export class Client extends EventEmitter {
  private constructor()
  readonly server: Server

  get(key: string, options?: ReadOptions): Promise<Item>
  /** Returns the items in the order of keys. */
  getMany(keys: Iterable<string>, options?: ReadOptions): Promise<Item[]>
  /**
   * Reads one page of the keys whose names begin with prefix. With '', these are all keys of the
   * namespace. cursor is the cursor of the preceding page.
   */
  listPage(prefix: string, options?: ListOptions & { cursor?: string }): Promise<Page>
  /**
   * Yields the keys whose names begin with prefix, in the order of their names. A key that has a
   * value during the whole listing is yielded exactly once. timeout applies to each page.
   */
  list(prefix: string, options?: ListOptions): AsyncGenerator<Item, void, undefined>
  /** Writes a value, and creates the key if it does not exist. */
  put(key: string, value: Value, options?: WriteOptions): Promise<Version>
  /**
   * Writes a value if the key's version is the expected one. The item is the key's state after the
   * call.
   */
  cas(key: string, expected: Version, value: Value, options?: WriteOptions): Promise<{ swapped: boolean; item: Item }>
  /**
   * Removes the key's value. If a version is given, it does so only if the key has that version.
   */
  delete(key: string, options?: CallOptions & { version?: Version }): Promise<{ deleted: boolean; item: Item }>
  /** Adds to the key's value, which is a 64-bit decimal number. */
  increment(key: string, by?: number | bigint, options?: CallOptions): Promise<{ number: bigint; version: Version }>
  /**
   * Compares and writes several durable keys atomically. If all comparisons hold, everything is
   * written; otherwise nothing is written. Volatile keys are refused with INVALID_ARGUMENT.
   */
  transact(transaction: Transaction, options?: CallOptions): Promise<Transacted>
  watch(keys: string | string[] | undefined, options?: WatchOptions): Watch
  watch(what: WatchOptions & { keys?: string[] }): Watch

  grant(ttl: number, options?: CallOptions): Promise<Lease>
  keepAlive(lease: string, options?: CallOptions): Promise<Lease>
  revoke(lease: string, options?: CallOptions): Promise<void>

  /**
   * Acquires a lock. Fails with NOT_HELD if another caller still holds the lock after the time to
   * wait.
   */
  lock(name: string, options?: HoldOptions): Promise<Lock>
  unlock(lock: Lock, options?: CallOptions): Promise<void>
  campaign(election: string, value: string, options?: HoldOptions): Promise<Leadership>
  resign(leadership: Leadership, options?: CallOptions): Promise<void>
  leader(election: string, options?: CallOptions): Promise<Leader>
  /** Acquires one of a semaphore's permits. All callers must pass the same number of permits. */
  acquire(semaphore: string, permits: number, options?: HoldOptions): Promise<Permit>
  release(permit: Permit, options?: CallOptions): Promise<void>

  /** Registers an instance of a service. The address has the form host:port. */
  registerService(service: string, address: string, options?: ServiceOptions): Promise<Registration>
  getService(service: string, options?: CallOptions & { order?: '' | 'nearest' }): Promise<Instance[]>
  watchService(service: string, options?: CallOptions): ServiceWatch

  ping(options?: CallOptions): Promise<void>
  /**
   * Releases locks and registrations, waits for calls under way, and ends the client. It waits at
   * most `wait` milliseconds, by default 10,000.
   */
  close(options?: { wait?: number }): Promise<void>

  on(event: 'connected', listener: (server: Server) => void): this
  on(event: 'disconnected', listener: (why: Error) => void): this
  once(event: 'connected', listener: (server: Server) => void): this
  once(event: 'disconnected', listener: (why: Error) => void): this
}

/** Waits for the node's server and connects to it. */
export function connect(options?: ConnectOptions): Promise<Client>
