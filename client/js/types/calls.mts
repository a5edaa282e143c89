// SPDX-License-Identifier: Apache-2.0
// This file has every public call with its types, for TypeScript's strict checks. It is never run.
// To check it, install typescript and @types/node in a folder above it, and run tsc -p
// client/js/types.
import {
  Client, Code, DEFAULT_SOCKET, NEVER_WRITTEN, NodeError, OutcomeUnknown, SOCKET_VARIABLE, compareVersions, connect,
  type CallOptions, type Comparison, type ConnectOptions, type Event, type Held, type HoldOptions, type Instance,
  type Item, type Leader, type Leadership, type Lease, type Lock, type Permit, type ReadOptions, type Registration,
  type Server, type ServiceOptions, type ServiceWatch, type Transacted, type Transaction, type Value, type Version,
  type Watch, type WatchOptions, type Write, type WriteOptions,
} from 'netcraq'

const how: ConnectOptions = {
  socket: DEFAULT_SOCKET, namespace: 'shop', agent: 'types', startTimeout: 1, timeout: 1, maxInFlight: 1, maxQueued: 1,
  minBackoff: 1, maxBackoff: 1, pingInterval: 1,
}
const variable: 'NETCRAQ_NODE_SOCKET' = SOCKET_VARIABLE

export async function calls(signal: AbortSignal): Promise<void> {
  const client: Client = await connect(how)
  const call: CallOptions = { namespace: 'shop', timeout: 1, signal }
  const read: ReadOptions = { ...call, eventual: true }
  const server: Server = client.server
  client.on('connected', (s: Server) => s.node).once('disconnected', (why: Error) => why.message)
  client.off('connected', () => undefined)

  const item: Item = await client.get('a', read)
  const text: string | undefined = item.text
  const bytes: Buffer | undefined = item.value
  const items: Item[] = await client.getMany(new Set(['a']), read)
  const failure: NodeError | undefined = items[0]?.error
  const values: Value[] = ['a', new Uint8Array(1), new ArrayBuffer(1), Buffer.from('a')]
  const lease: Lease = await client.grant(1000, call)
  const write: WriteOptions = { ...call, lease: lease.lease }
  const version: Version = await client.put('a', values[0] ?? '', write)
  const swap: { swapped: boolean; item: Item } = await client.cas('a', NEVER_WRITTEN, 'b', write)
  const deletion: { deleted: boolean; item: Item } = await client.delete('a', { ...call, version })
  const sum: { number: bigint; version: Version } = await client.increment('n', 1n, call)
  const transaction: Transaction = {
    compare: [{ key: 'a', version }, { key: 'b', value: 'x' }, { key: 'c', absent: true }] satisfies Comparison[],
    write: new Set<Write>([{ key: 'a', value: Buffer.from('a'), lease: lease.lease }, { key: 'b', delete: true }]),
  }
  const transacted: Transacted = await client.transact(transaction, call)
  const failed: Item[] = transacted.done ? [] : transacted.failed
  const ttl: number = (await client.keepAlive(lease.lease, call)).ttl
  await client.revoke(lease.lease, call)
  const order: number = compareVersions(version, sum.version)

  const follow: WatchOptions = { ...call, prefix: 'a/', after: { 'a/b': version } }
  const watches: Watch[] = [client.watch('a'), client.watch(['a'], call), client.watch(undefined, follow),
    client.watch({ keys: ['a'], ...call })]
  await watches[0]?.started
  for await (const event of client.watch({ prefix: '' })) {
    const overtaken: number = (event satisfies Event).overtaken
    if (overtaken > 0) break
  }
  watches.filter((w) => !w.ended).forEach((w) => w.close())

  const hold: HoldOptions = { ...call, ttl: 1000, wait: 0, lease: lease.lease }
  const lock: Lock = await client.lock('l', hold)
  const token: bigint = lock.token
  const held: Held = lock
  const lost: NodeError = await held.lost
  await lock.unlock(call)
  await client.unlock(lock, call)
  const leadership: Leadership = await client.campaign('e', 'me', hold)
  const leader: Leader = await client.leader('e', call)
  await leadership.resign(call)
  await client.resign(leadership, call)
  const permit: Permit = await client.acquire('s', 2, hold)
  if (permit.held && !permit.signal.aborted) await permit.release(call)
  await client.release(permit, call)

  const service: ServiceOptions = { ...call, instance: 'i', ttl: 1000, lease: lease.lease }
  const registration: Registration = await client.registerService('web', '10.0.0.7:80', service)
  const instances: Instance[] = await client.getService('web', { ...call, order: 'nearest' })
  const services: ServiceWatch = client.watchService('web', call)
  const next: IteratorResult<Instance[], undefined> = await services.next()
  await services.return()
  await registration.deregister(call)
  await client.ping(call)
  await client.close({ wait: 1000 })
  void [variable, server, text, bytes, failure, swap, deletion, failed, ttl, order, token, lost, leader, instances, next]
}

export function advice(error: unknown): string {
  if (error instanceof OutcomeUnknown) return error.code satisfies 'outcome_unknown'
  if (error instanceof NodeError && error.code === Code.NOT_HELD) return error.do ?? error.message
  throw error
}

// @ts-expect-error A client comes from connect.
export const client = new Client()
// @ts-expect-error A value is text or bytes.
export const wrong = (c: Client): Promise<Version> => c.put('a', 1)
