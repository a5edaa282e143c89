// SPDX-License-Identifier: Apache-2.0
/// <reference types="node" />
import { EventEmitter } from 'node:events'

/** The default address of a node's server. */
export const DEFAULT_SOCKET: '/run/netcraq/node.sock'
export const SOCKET_VARIABLE: 'NETCRAQ_NODE_SOCKET'
/** The version of a key that was never written. */
export const NEVER_WRITTEN: Version

/** A key's version, EPOCH.SEQUENCE. It comes from answers. */
export type Version = string
/** A value: text, which is encoded as UTF-8, or bytes. */
export type Value = string | ArrayBufferView | ArrayBuffer

/** Negative if a is before b, 0 if they are equal. */
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

/** A failed call: `code` is the kind of failure, `do` the advice. */
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
  /** A path, or "tcp://host:port". Default: NETCRAQ_NODE_SOCKET, a running netcraq dev, or DEFAULT_SOCKET. */
  socket?: string
  /** The default namespace of calls. Default: the program's own. */
  namespace?: string
  /** The name of this program in the server's logs. */
  agent?: string
  /** Milliseconds to wait for the server at start. Default: 30,000. */
  startTimeout?: number
  /** Default timeout of a call in milliseconds, at most 60,000. Default: 5,000. */
  timeout?: number
  /**
   * Maximum number of calls in flight; further calls wait. Calls that wait for locks have their own limit of the same
   * size. Default: 512.
   */
  maxInFlight?: number
  /** Maximum number of calls that wait for room or for a connection; further calls fail. Default: 65,536. */
  maxQueued?: number
  /** Milliseconds before the second attempt to connect (10). The pause doubles each time, up to maxBackoff (1,000). */
  minBackoff?: number
  maxBackoff?: number
  /** Milliseconds without a message after which the connection is checked with a ping. Default: 15,000. */
  pingInterval?: number
}

export interface CallOptions {
  namespace?: string
  /** Milliseconds, at most 60,000. */
  timeout?: number
  signal?: AbortSignal
}

export interface ReadOptions extends CallOptions {
  /** Allows the last committed value of the nearest chain member; otherwise reads are linearizable. */
  eventual?: boolean
}

export interface WriteOptions extends CallOptions {
  /** The key expires with this lease. */
  lease?: string
}

/** A key's state. */
export interface Item {
  readonly key: string
  /** false: it was never written, or was deleted. */
  readonly found: boolean
  /** The value, if it is UTF-8. */
  readonly text: string | undefined
  /** The value's bytes. */
  readonly value: Buffer | undefined
  readonly version: Version
  readonly lease?: string
  /** In getMany and lists: why the key was not read. */
  readonly error?: NodeError
}

export interface ListOptions extends CallOptions {
  /** Number of names that the server examines for one page: 1 to 256. */
  pageSize?: number
  /** Leaves out the values. */
  keysOnly?: boolean
}

/** A page of a list, in the order of the names. Even a page before the last may have few items, or none. */
export interface Page {
  readonly items: Item[]
  /** The cursor of the next page; '' if this is the last one. */
  readonly cursor: string
}

/** A condition of a transaction on a key: its version, its value, or that it has no value. */
export type Comparison =
  | { key: string; version: Version }
  | { key: string; value: Value }
  | { key: string; absent: true }

/** A transaction's change of a key: write a value, which may be bound to a lease, or delete it. */
export type Write = { key: string; value: Value; lease?: string } | { key: string; delete: true }

/** 1 to 64 comparisons and writes altogether. A key may be compared at most once, and written at most once. */
export interface Transaction {
  compare?: Iterable<Comparison>
  write?: Iterable<Write>
}

/** The result of a transaction. */
export interface Transacted {
  /** All comparisons held, and everything was written. */
  readonly done: boolean
  /** The versions of the written keys, in their order. */
  readonly versions: Version[]
  /**
   * The keys whose comparisons did not hold, in their order, if it is not done. If the values of these items exceed
   * 32 KiB in total, the later ones are found but have no value.
   */
  readonly failed: Item[]
}

/** A key's newest version. */
export interface Event extends Item {
  /** Number of skipped earlier versions. */
  readonly overtaken: number
}

export interface WatchOptions extends CallOptions {
  /** Follows all keys whose names begin with this; '' is all of the namespace. */
  prefix?: string
  /** Known versions by key: only newer ones are reported. For other keys, the current state is reported first. */
  after?: Record<string, Version>
}

export interface Stream<T> extends AsyncIterableIterator<T> {
  /** Resolves when the server has begun, rejects if it refuses. */
  readonly started: Promise<void>
  /** Whether it was closed, or has failed. */
  readonly ended: boolean
  next(): Promise<IteratorResult<T, undefined>>
  return(value?: any): Promise<IteratorResult<T, any>>
  close(): void
}

/** The newest versions of keys. If the program does not take a key's events in time, only the newest is kept. */
export type Watch = Stream<Event>
/** The live instances of a service. */
export type ServiceWatch = Stream<Instance[]>

export interface Lease {
  readonly lease: string
  /** Its time to live, in milliseconds. */
  readonly ttl: number
}

export interface HoldOptions extends CallOptions {
  /**
   * Time to live in milliseconds: after this program has died, others can acquire it within that time. Default:
   * 10,000.
   */
  ttl?: number
  /** Milliseconds to wait for it; 0: do not wait. Default: until the signal aborts. */
  wait?: number
  /** A lease from grant, which the caller keeps alive. Default: the library makes one and keeps it alive. */
  lease?: string
}

/** A lock, a leadership or a permit. */
export interface Held {
  readonly name: string
  /** The fencing token, greater with each holder. */
  readonly token: bigint
  readonly lease: string
  /** Whether this program certainly still holds it. */
  readonly held: boolean
  /** Resolves, with the reason, when it may be lost. */
  readonly lost: Promise<NodeError>
  /** Aborts when it may be lost; pass it to other asynchronous operations. */
  readonly signal: AbortSignal
  /** Releases it. If that fails, it expires with its lease. */
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
  /** The instance's name. Default: the server chooses one. */
  instance?: string
  /** A lease from grant, which the caller keeps alive. Default: the library makes one and keeps it alive. */
  lease?: string
  ttl?: number
}

/** An instance of a service. If its lease expires, it is registered again. */
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
  /** The largest page of a list; undefined if the server is too old for list. */
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
  /** One page of the keys whose names begin with prefix ('': all of the namespace); cursor: from the preceding page. */
  listPage(prefix: string, options?: ListOptions & { cursor?: string }): Promise<Page>
  /**
   * The keys whose names begin with prefix, in the order of their names. A key that has a value during the whole
   * listing is yielded exactly once. timeout is for one page.
   */
  list(prefix: string, options?: ListOptions): AsyncGenerator<Item, void, undefined>
  /** Writes a value, and creates the key if it does not exist. */
  put(key: string, value: Value, options?: WriteOptions): Promise<Version>
  /** Writes a value if the version is the expected one; the item is the key's state after the call. */
  cas(key: string, expected: Version, value: Value, options?: WriteOptions): Promise<{ swapped: boolean; item: Item }>
  /** Removes the key's value; with a version, only if the key has that version. */
  delete(key: string, options?: CallOptions & { version?: Version }): Promise<{ deleted: boolean; item: Item }>
  /** Adds to a 64-bit decimal number. */
  increment(key: string, by?: number | bigint, options?: CallOptions): Promise<{ number: bigint; version: Version }>
  /**
   * Compares durable keys and writes several of them atomically if all comparisons hold; otherwise writes nothing.
   * Volatile keys are refused with INVALID_ARGUMENT.
   */
  transact(transaction: Transaction, options?: CallOptions): Promise<Transacted>
  watch(keys: string | string[] | undefined, options?: WatchOptions): Watch
  watch(what: WatchOptions & { keys?: string[] }): Watch

  grant(ttl: number, options?: CallOptions): Promise<Lease>
  keepAlive(lease: string, options?: CallOptions): Promise<Lease>
  revoke(lease: string, options?: CallOptions): Promise<void>

  /** Fails with NOT_HELD if another caller still holds it after the time to wait. */
  lock(name: string, options?: HoldOptions): Promise<Lock>
  unlock(lock: Lock, options?: CallOptions): Promise<void>
  campaign(election: string, value: string, options?: HoldOptions): Promise<Leadership>
  resign(leadership: Leadership, options?: CallOptions): Promise<void>
  leader(election: string, options?: CallOptions): Promise<Leader>
  /** Acquires one of a semaphore's permits. All callers must give the same number of permits. */
  acquire(semaphore: string, permits: number, options?: HoldOptions): Promise<Permit>
  release(permit: Permit, options?: CallOptions): Promise<void>

  /** address: host:port */
  registerService(service: string, address: string, options?: ServiceOptions): Promise<Registration>
  getService(service: string, options?: CallOptions & { order?: '' | 'nearest' }): Promise<Instance[]>
  watchService(service: string, options?: CallOptions): ServiceWatch

  ping(options?: CallOptions): Promise<void>
  /** Releases locks and registrations, waits at most `wait` milliseconds (10,000) for calls under way, and ends. */
  close(options?: { wait?: number }): Promise<void>

  on(event: 'connected', listener: (server: Server) => void): this
  on(event: 'disconnected', listener: (why: Error) => void): this
  once(event: 'connected', listener: (server: Server) => void): this
  once(event: 'disconnected', listener: (why: Error) => void): this
}

/** Waits for the node's server and connects to it. */
export function connect(options?: ConnectOptions): Promise<Client>
