// SPDX-License-Identifier: Apache-2.0
/// <reference types="node" />
import { EventEmitter } from 'node:events'

/** Where a node's server listens. */
export const DEFAULT_SOCKET: '/run/netcraq/node.sock'
export const SOCKET_VARIABLE: 'NETCRAQ_NODE_SOCKET'
/** The version of a key that was never written. */
export const NEVER_WRITTEN: Version

/** A key's version, EPOCH.SEQUENCE. It comes from answers. */
export type Version = string
/** A value: text, which is written as UTF-8, or bytes. */
export type Value = string | ArrayBufferView | ArrayBuffer

/** Negative where a is before b, 0 where they are the same. */
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

/** A call failed: `code` is its kind, `do` what can be done about it. */
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
  /** Whose keys are meant. Otherwise the program's own namespace. */
  namespace?: string
  /** What the server's logs call this program. */
  agent?: string
  /** Milliseconds to wait for the server at start: 30,000. */
  startTimeout?: number
  /** Milliseconds of each call that brings no other: 5,000; at most 60,000. */
  timeout?: number
  /** Calls in flight: 512. Further ones wait. Waiting locks have as much room of their own. */
  maxInFlight?: number
  /** Calls that may wait for room or for a connection: 65,536. Further ones fail. */
  maxQueued?: number
  /** Milliseconds before the second attempt to connect: 10; doubled each time up to maxBackoff: 1,000. */
  minBackoff?: number
  maxBackoff?: number
  /** Milliseconds after which a connection on which nothing came is asked whether it is one: 15,000. */
  pingInterval?: number
}

export interface CallOptions {
  namespace?: string
  /** Milliseconds, at most 60,000. */
  timeout?: number
  signal?: AbortSignal
}

export interface ReadOptions extends CallOptions {
  /** What the nearest member has committed; otherwise reads are linearizable. */
  eventual?: boolean
}

export interface WriteOptions extends CallOptions {
  /** The key goes when this lease does. */
  lease?: string
}

/** A key's state. */
export interface Item {
  readonly key: string
  /** false: it was never written, or was deleted. */
  readonly found: boolean
  /** The value, where it is UTF-8. */
  readonly text: string | undefined
  /** The value's bytes. */
  readonly value: Buffer | undefined
  readonly version: Version
  readonly lease?: string
  /** In getMany and lists: why this one was not read. */
  readonly error?: NodeError
}

export interface ListOptions extends CallOptions {
  /** How many names the server looks at for one page: 1 to 256. */
  pageSize?: number
  /** Leaves the values out. */
  keysOnly?: boolean
}

/** A page of a list, in the order of the names. One that is not the last may have few items, or none. */
export interface Page {
  readonly items: Item[]
  /** For the next page; '' if this is the last one. */
  readonly cursor: string
}

/** A condition of a transaction on a key: its version, its value, or that it has none. */
export type Comparison =
  | { key: string; version: Version }
  | { key: string; value: Value }
  | { key: string; absent: true }

/** What a transaction does to a key: it writes a value, bound to a lease if there is one, or deletes it. */
export type Write = { key: string; value: Value; lease?: string } | { key: string; delete: true }

/** Up to 64 comparisons and writes together, at least one. No key is compared twice, and none is written twice. */
export interface Transaction {
  compare?: Iterable<Comparison>
  write?: Iterable<Write>
}

/** What came of a transaction. */
export interface Transacted {
  /** All comparisons held, and everything was written. */
  readonly done: boolean
  /** Of the written keys, in their order. */
  readonly versions: Version[]
  /**
   * The keys whose comparisons did not hold, in their order, if it is not done. An item that is found has no value if
   * the values of those before it and its own have more than 32 KiB together.
   */
  readonly failed: Item[]
}

/** A key's newest version. */
export interface Event extends Item {
  /** How many versions before it are not told. */
  readonly overtaken: number
}

export interface WatchOptions extends CallOptions {
  /** All keys whose names begin so; '' is all of the namespace. */
  prefix?: string
  /** By key, the version that is known: what is newer is told. Of other keys their state is told first. */
  after?: Record<string, Version>
}

export interface Stream<T> extends AsyncIterableIterator<T> {
  /** Resolves when the server has begun, rejects where it refuses. */
  readonly started: Promise<void>
  /** It was closed, or has failed. */
  readonly ended: boolean
  next(): Promise<IteratorResult<T, undefined>>
  return(value?: any): Promise<IteratorResult<T, any>>
  close(): void
}

/** The newest versions of keys. Of a key whose events are not taken, the newest is kept. */
export type Watch = Stream<Event>
/** The instances of a service that live, as they are now. */
export type ServiceWatch = Stream<Instance[]>

export interface Lease {
  readonly lease: string
  /** Its time to live, in milliseconds. */
  readonly ttl: number
}

export interface HoldOptions extends CallOptions {
  /** Milliseconds after which it is another's when this program has died: 10,000. */
  ttl?: number
  /** Milliseconds to wait for it; 0: not at all. Otherwise until the signal aborts. */
  wait?: number
  /** A lease of grant's, which is kept alive by who brings it. Otherwise the library has one. */
  lease?: string
}

/** A lock, a leadership or a permit. */
export interface Held {
  readonly name: string
  /** The fencing token, greater with each holder. */
  readonly token: bigint
  readonly lease: string
  /** It surely is this program's still. */
  readonly held: boolean
  /** Resolves, with the reason, when it may be another's. */
  readonly lost: Promise<NodeError>
  /** Aborts then: for the calls of others. */
  readonly signal: AbortSignal
  /** Gives it back. Where that fails, it goes with its lease. */
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
  /** Otherwise the server names it. */
  instance?: string
  /** A lease of grant's, which is kept alive by who brings it. Otherwise the library has one. */
  lease?: string
  ttl?: number
}

/** An instance of a service, which is registered again where its lease has lapsed. */
export interface Registration {
  readonly service: string
  readonly instance: string
  readonly address?: string
  deregister(options?: CallOptions): Promise<void>
}

/** What the server says of itself. */
export interface Server {
  readonly server: string
  readonly node: string
  readonly namespace: string
  readonly known: boolean
  readonly maxValue: number
  readonly inFlight: number
  readonly maxMessage: number
  readonly durable: boolean
  /** The largest page of a list. None: the server is older than list. */
  readonly maxList?: number
  readonly draining?: boolean
}

/** A program's way to the node API. */
export class Client extends EventEmitter {
  private constructor()
  readonly server: Server

  get(key: string, options?: ReadOptions): Promise<Item>
  /** In the order of keys. */
  getMany(keys: Iterable<string>, options?: ReadOptions): Promise<Item[]>
  /** One page of the keys whose names begin with prefix ('': all of the namespace); cursor is that of the page before. */
  listPage(prefix: string, options?: ListOptions & { cursor?: string }): Promise<Page>
  /**
   * The keys whose names begin with prefix, by their names. A key that has a value during the whole listing comes
   * exactly once. timeout is for one page.
   */
  list(prefix: string, options?: ListOptions): AsyncGenerator<Item, void, undefined>
  /** Writes a value, and makes the key where there is none. */
  put(key: string, value: Value, options?: WriteOptions): Promise<Version>
  /** Writes a value if the version is the expected one; the item is the key as it is then. */
  cas(key: string, expected: Version, value: Value, options?: WriteOptions): Promise<{ swapped: boolean; item: Item }>
  /** Leaves the key without a value; with a version, if that is the key's. */
  delete(key: string, options?: CallOptions & { version?: Version }): Promise<{ deleted: boolean; item: Item }>
  /** Adds to a decimal number of 64 bits. */
  increment(key: string, by?: number | bigint, options?: CallOptions): Promise<{ number: bigint; version: Version }>
  /**
   * Compares durable keys and writes several of them at one moment, if all comparisons hold; otherwise writes nothing.
   * Volatile keys are refused with INVALID_ARGUMENT.
   */
  transact(transaction: Transaction, options?: CallOptions): Promise<Transacted>
  watch(keys: string | string[] | undefined, options?: WatchOptions): Watch
  watch(what: WatchOptions & { keys?: string[] }): Watch

  grant(ttl: number, options?: CallOptions): Promise<Lease>
  keepAlive(lease: string, options?: CallOptions): Promise<Lease>
  revoke(lease: string, options?: CallOptions): Promise<void>

  /** Fails with NOT_HELD where it is another's still when the time to wait is over. */
  lock(name: string, options?: HoldOptions): Promise<Lock>
  unlock(lock: Lock, options?: CallOptions): Promise<void>
  campaign(election: string, value: string, options?: HoldOptions): Promise<Leadership>
  resign(leadership: Leadership, options?: CallOptions): Promise<void>
  leader(election: string, options?: CallOptions): Promise<Leader>
  /** One of so many permits of a semaphore. */
  acquire(semaphore: string, permits: number, options?: HoldOptions): Promise<Permit>
  release(permit: Permit, options?: CallOptions): Promise<void>

  /** address: host:port */
  registerService(service: string, address: string, options?: ServiceOptions): Promise<Registration>
  getService(service: string, options?: CallOptions & { order?: '' | 'nearest' }): Promise<Instance[]>
  watchService(service: string, options?: CallOptions): ServiceWatch

  ping(options?: CallOptions): Promise<void>
  /** Gives back what is held, waits for what is under way (10,000 milliseconds), and ends. */
  close(options?: { wait?: number }): Promise<void>

  on(event: 'connected', listener: (server: Server) => void): this
  on(event: 'disconnected', listener: (why: Error) => void): this
  once(event: 'connected', listener: (server: Server) => void): this
  once(event: 'disconnected', listener: (why: Error) => void): this
}

/** Waits for the node's server and connects to it. */
export function connect(options?: ConnectOptions): Promise<Client>
