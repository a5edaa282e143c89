// SPDX-License-Identifier: Apache-2.0
'use strict'

// These tests use keys and watches with the real server.

const assert = require('node:assert/strict')
const { after, before, test } = require('node:test')
const { Code, NEVER_WRITTEN, NodeError, compareVersions, connect } = require('../index.cjs')
const { Memserver, skip } = require('./memserver.cjs')

let server, client

before(async () => {
  if (skip) return
  server = await new Memserver().start('--listen', 'tcp://127.0.0.1:0')
  client = await connect({ socket: server.socket })
})

after(async () => {
  await client?.close()
  await server?.close()
})

const failsWith = (code, promise) =>
  assert.rejects(promise, (why) => why instanceof NodeError && why.code === code && why.message !== '')

test('a key is written, read, swapped, counted and deleted', { skip }, async () => {
  assert.equal((await client.get('color')).found, false)
  const first = await client.put('color', 'blue')
  const item = await client.get('color')
  assert.deepEqual([item.found, item.text, item.version], [true, 'blue', first])
  assert.deepEqual(item.value, Buffer.from('blue'))

  const swapped = await client.cas('color', first, 'green')
  assert.equal(swapped.swapped, true)
  assert.ok(compareVersions(swapped.item.version, first) > 0)
  const late = await client.cas('color', first, 'red')
  assert.deepEqual([late.swapped, late.item.text], [false, 'green'])
  assert.equal((await client.cas('new', NEVER_WRITTEN, 'x')).swapped, true)

  assert.equal((await client.delete('color', { version: first })).deleted, false)
  const gone = await client.delete('color')
  assert.equal(gone.deleted, true)
  const read = await client.get('color', { eventual: true })
  assert.deepEqual([read.found, read.text, read.value, read.version], [false, undefined, undefined, gone.item.version])
})

test('numbers have 64 bits', { skip }, async () => {
  assert.equal((await client.increment('n')).number, 1n)
  assert.equal((await client.increment('n', -3)).number, -2n)
  assert.equal((await client.increment('n', 2n ** 62n)).number, 2n ** 62n - 2n)
  assert.equal((await client.get('n')).text, String(2n ** 62n - 2n))
  await failsWith(Code.INVALID_ARGUMENT, client.increment('n', 2 ** 60))
  await failsWith(Code.INVALID_ARGUMENT, client.increment('n', 2n ** 63n))
  await failsWith(Code.INVALID_ARGUMENT, client.increment('n', 0.5))
  await failsWith(Code.INVALID_ARGUMENT, client.increment('n', '1'))
})

test('values are bytes, and text where they are that', { skip }, async () => {
  const bytes = Uint8Array.of(0xff, 0, 10, 13, 0x22)
  await client.put('bytes', bytes)
  const item = await client.get('bytes')
  assert.deepEqual([item.text, item.value], [undefined, Buffer.from(bytes)])
  await client.put('bytes', bytes.buffer)
  assert.deepEqual((await client.get('bytes')).value, Buffer.from(bytes))
  for (const text of ['', 'a\nb\r\n"\\', 'žluťoučký 🐎 \u2028\u0000']) {
    await client.put('text', text)
    const read = await client.get('text')
    assert.deepEqual([read.found, read.text, read.value], [true, text, Buffer.from(text)])
  }
  for (const value of [undefined, null, 1, {}, 'a\ud800b']) await failsWith(Code.INVALID_ARGUMENT, client.put('text', value))
})

test('keys are listed by their names, a page at a time', { skip }, async () => {
  const all = async (prefix, options) => {
    const items = []
    for await (const item of client.list(prefix, options)) items.push(item)
    return items
  }
  const versions = new Map()
  for (let n = 0; n < 300; n++) {
    const key = `conf/${String(n).padStart(3, '0')}`
    versions.set(key, await client.put(key, key))
  }
  const names = [...versions.keys()]
  for (const options of [undefined, { pageSize: 7 }]) {
    const items = await all('conf/', options)
    assert.deepEqual(items.map((i) => i.key), names)
    for (const i of items) assert.deepEqual([i.text, i.version, i.found], [i.key, versions.get(i.key), true])
  }
  const keys = await all('conf/', { keysOnly: true })
  assert.deepEqual(keys.map((i) => [i.key, i.version]), [...versions])
  for (const i of keys) assert.equal(i.value, undefined)
  assert.deepEqual(await all('', { namespace: 'empty' }), [])
  const page = await client.listPage('conf/')
  assert.equal(page.items.length, 100)
  const next = await client.listPage('conf/', { cursor: page.cursor, pageSize: 1 })
  assert.deepEqual(next.items.map((i) => i.key), ['conf/100'])
  await assert.rejects(client.listPage('other', { cursor: page.cursor }), /not a cursor/)
  await failsWith(Code.TOO_LARGE, client.listPage('', { pageSize: 257 }))
  await failsWith(Code.INVALID_ARGUMENT, client.listPage('a\ud800'))
  await failsWith(Code.INVALID_ARGUMENT, client.listPage('a', { limit: 1 }))
})

test('several keys are compared and written together, or not at all', { skip }, async () => {
  const bytes = Buffer.of(0xff, 0)
  const made = await client.transact({
    compare: [{ key: 't/a', absent: true }, { key: 't/b', version: NEVER_WRITTEN }],
    write: [{ key: 't/a', value: '1' }, { key: 't/b', value: bytes }, { key: 't/never', delete: true }],
  })
  assert.deepEqual([made.done, made.failed], [true, []])
  assert.deepEqual(made.versions.slice(1), [made.versions[0], NEVER_WRITTEN])
  const { lease } = await client.grant(60_000)
  const held = await client.transact({
    compare: new Set([{ key: 't/a', value: '1' }, { key: 't/b', value: bytes }]),
    write: [{ key: 't/a', value: '2', lease }, { key: 't/b', delete: true }],
  })
  assert.equal(held.done, true)
  const [a, b] = await client.getMany(['t/a', 't/b'])
  assert.deepEqual([a.text, a.lease, a.version, b.found, b.version], ['2', lease, held.versions[0], false, held.versions[1]])

  const late = await client.transact({
    compare: [{ key: 't/a', version: made.versions[0] }, { key: 't/b', absent: true }, { key: 't/never', value: 'x' }],
    write: [{ key: 't/a', value: 'no' }, { key: 't/new', value: 'no' }],
  })
  assert.deepEqual([late.done, late.versions], [false, []])
  assert.deepEqual(late.failed.map((i) => [i.key, i.found, i.text, i.version]), [
    ['t/a', true, '2', held.versions[0]], ['t/never', false, undefined, NEVER_WRITTEN],
  ])
  assert.deepEqual((await client.getMany(['t/a', 't/new'])).map((i) => i.text), ['2', undefined])
  assert.equal((await client.transact({ compare: [{ key: 't/a', absent: true }] }, { namespace: 'empty' })).done, true)

  const long = []
  for (let n = 0; n < 40; n++) long.push({ key: `t/long/${n}`, value: 'x'.repeat(1000) })
  await client.transact({ write: long })
  const { failed } = await client.transact({ compare: long.map(({ key }) => ({ key, absent: true })) })
  assert.equal(failed.length, 40)
  failed.forEach((i, n) => assert.deepEqual([i.found, i.value?.length], [true, n < 32 ? 1000 : undefined]))
})

test('a transaction that cannot be is refused', { skip }, async () => {
  const key = 'k'
  for (const transaction of [
    undefined, {}, { compare: [], write: [] }, { write: [{ key }] }, { write: [{ key, value: 1 }] },
    { write: [{ key, value: 'v', delete: true }] }, { write: [{ key, value: 'v', ttl: 1 }] }, { writes: [] },
    { write: [{ value: 'v' }] }, { write: [undefined] }, { write: [{ key, value: 'v' }, { key, delete: true }] },
    { compare: [{ key }] }, { compare: [{ key, version: '1' }] }, { compare: [{ key, version: '1.1', value: 'v' }] },
    { compare: [{ key, absent: 'yes' }] }, { compare: [{ key: 'a\ud800', absent: true }] }, 'k',
  ]) await failsWith(Code.INVALID_ARGUMENT, client.transact(transaction))
  await failsWith(Code.INVALID_ARGUMENT, client.transact({ write: [{ key, value: 'v' }] }, { lease: 'l' }))
  const many = Array.from({ length: 65 }, (_, n) => ({ key: `k${n}`, absent: true }))
  await failsWith(Code.TOO_LARGE, client.transact({ compare: many }))
  assert.equal((await client.get(key)).found, false)
})

test('what cannot be is refused with its reason', { skip }, async () => {
  await failsWith(Code.INVALID_ARGUMENT, client.get(''))
  await failsWith(Code.INVALID_ARGUMENT, client.get('a\ud800'))
  await failsWith(Code.INVALID_ARGUMENT, client.get(undefined))
  await failsWith(Code.INVALID_ARGUMENT, client.cas('a', '1', 'x'))
  await failsWith(Code.INVALID_ARGUMENT, client.get('a', { timeout: 0 }))
  await failsWith(Code.INVALID_ARGUMENT, client.get('a', { timeout: 3_600_000 }))
  await failsWith(Code.TOO_LARGE, client.put('big', 'x'.repeat(2000)))
  await failsWith(Code.TOO_LARGE, client.put('big', 'x'.repeat(300_000)))
  await failsWith(Code.TOO_LARGE, client.put('big', '\ufffd'.repeat(100_000)))
  await failsWith(Code.TOO_LARGE, client.get('k'.repeat(300)))
  assert.equal((await client.get('big')).found, false)
})

test('many keys are read at once, in their order', { skip }, async () => {
  const names = Array.from({ length: 600 }, (_, i) => `many/${i}`)
  await Promise.all(names.filter((_, i) => i % 2).map((name) => client.put(name, name)))
  const items = await client.getMany(names)
  assert.deepEqual(items.map((item) => item.key), names)
  assert.deepEqual(items.map((item) => item.text), names.map((name, i) => (i % 2 ? name : undefined)))
  assert.deepEqual(await client.getMany([]), [])
})

test('namespaces are apart', { skip }, async () => {
  const other = await connect({ socket: server.socket, namespace: 'other' })
  await other.put('whose', 'theirs')
  assert.equal((await client.get('whose')).found, false)
  assert.equal((await client.get('whose', { namespace: 'other' })).text, 'theirs')
  assert.equal(other.server.namespace, 'other')
  await other.close()
})

test('thousands of calls at once, more than are in flight', { skip }, async () => {
  const n = 5000
  const sums = await Promise.all(Array.from({ length: n }, () => client.increment('hits')))
  assert.equal(new Set(sums.map((sum) => sum.number)).size, n)
  assert.equal((await client.get('hits')).text, String(n))
})

test('by tcp', { skip }, async () => {
  const [, address] = /^on tcp (.*)$/m.exec(server.lines.join('\n'))
  const byTcp = await connect({ socket: `tcp://${address}` })
  await byTcp.put('tcp', 'yes')
  assert.equal((await client.get('tcp')).text, 'yes')
  await byTcp.close()
})

test('a watch tells what is, and what becomes', { skip }, async () => {
  await client.put('w/a', '1')
  const watch = client.watch({ prefix: 'w/' })
  await watch.started
  const told = async () => {
    const { value: event } = await watch.next()
    return [event.key, event.text]
  }
  assert.deepEqual(await told(), ['w/a', '1'])
  await client.put('w/b', '2')
  assert.deepEqual(await told(), ['w/b', '2'])
  await client.delete('w/a')
  assert.deepEqual(await told(), ['w/a', undefined])
  watch.close()
  assert.deepEqual(await watch.next(), { value: undefined, done: true })
})

test('a watch of keys, with what is known', { skip }, async () => {
  const version = await client.put('known', '1')
  const watch = client.watch(['known', 'absent'], { after: { known: version } })
  const seen = []
  for await (const event of watch) {
    seen.push([event.key, event.found, event.text])
    if (event.key === 'absent') await client.put('known', '2')
    if (event.text === '2') break
  }
  assert.deepEqual(seen, [['absent', false, undefined], ['known', true, '2']])
  assert.equal(watch.ended, true)
})

test('who does not take what is told has the newest, and how many it overtook', { skip }, async () => {
  const watch = client.watch('busy')
  await watch.started
  for (let i = 0; i < 50; i++) await client.put('busy', String(i))
  await client.put('w/last', 'x')
  let events = 0
  let overtaken = 0
  for await (const event of watch) {
    events++
    overtaken += event.overtaken
    if (event.text === '49') break
  }
  // The first event may report that the key does not exist yet.
  assert.ok(events + overtaken === 50 || events + overtaken === 51, `${events} and ${overtaken}`)
})

test('a watch that is refused says why', { skip }, async () => {
  const watch = client.watch({ keys: [] })
  await failsWith(Code.INVALID_ARGUMENT, watch.started)
  await failsWith(Code.INVALID_ARGUMENT, watch.next())
  const stopped = new AbortController()
  const other = client.watch('a', { signal: stopped.signal })
  await other.started
  stopped.abort()
  await failsWith(Code.CANCELED, (async () => { for await (const _ of other) ; })())
})
