// SPDX-License-Identifier: Apache-2.0
'use strict'

// These tests use locks, elections, semaphores and services with the real server, also when a
// holder or the server dies.

const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const path = require('node:path')
const { after, before, test } = require('node:test')
const { Code, NodeError, connect } = require('../index.cjs')
const { Memserver, skip } = require('./memserver.cjs')

const failsWith = (code, promise) =>
  assert.rejects(promise, (why) => why instanceof NodeError && why.code === code && why.message !== '')

let server, one, two

before(async () => {
  if (skip) return
  server = await new Memserver().start()
  one = await connect({ socket: server.socket })
  two = await connect({ socket: server.socket })
})

after(async () => {
  await one?.close()
  await two?.close()
  await server?.close()
})

test('a lock is one\'s at a time, and tokens grow', { skip }, async () => {
  const first = await one.lock('printer')
  await failsWith(Code.NOT_HELD, two.lock('printer', { wait: 0 }))
  await failsWith(Code.NOT_HELD, one.lock('printer', { wait: 50 }))
  const waiting = two.lock('printer')
  await first.unlock()
  const second = await waiting
  assert.ok(second.token > first.token)
  await failsWith(Code.NOT_HELD, one.giveBack('unlock', 'printer', first.token))
  assert.equal(second.held, true)
  await second.unlock()
})

test('many take turns, and none is in at the same time', { skip }, async () => {
  let inside = 0
  let last = 0n
  await Promise.all(
    Array.from({ length: 20 }, async (_, i) => {
      const lock = await (i % 2 ? one : two).lock('turns')
      assert.equal(++inside, 1)
      assert.ok(lock.token > last)
      last = lock.token
      await new Promise(setImmediate)
      inside--
      await lock.unlock()
    }),
  )
})

test('a holder that is killed loses its lock within its time to live', { skip }, async () => {
  const script = `require(${JSON.stringify(path.resolve(__dirname, '..'))}).connect({ socket: process.argv[1] })
    .then((client) => client.lock('crash', { ttl: 600 })).then((lock) => console.log(String(lock.token)))`
  const child = spawn(process.execPath, ['-e', script, server.socket], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [token] = await new Promise((resolve) => child.stdout.once('data', (data) => resolve([BigInt(String(data))])))
  child.kill('SIGKILL')
  const lock = await one.lock('crash')
  assert.ok(lock.token > token)
  await failsWith(Code.NOT_HELD, one.giveBack('unlock', 'crash', token))
  await lock.unlock()
})

test('an election has a leader, whom others see', { skip }, async () => {
  assert.deepEqual(await one.leader('chief'), { found: false })
  const leadership = await one.campaign('chief', 'one')
  assert.deepEqual(await two.leader('chief'), { found: true, value: 'one', token: leadership.token })
  const next = two.campaign('chief', 'two')
  await leadership.resign()
  const other = await next
  assert.equal((await one.leader('chief')).value, 'two')
  await other.resign()
})

test('a semaphore has so many permits', { skip }, async () => {
  const permits = [await one.acquire('slots', 2), await two.acquire('slots', 2)]
  await failsWith(Code.NOT_HELD, one.acquire('slots', 2, { wait: 0 }))
  await permits[0].release()
  await (await two.acquire('slots', 2)).release()
  await permits[1].release()
})

test('a key goes with its lease', { skip }, async () => {
  const { lease } = await one.grant(60_000)
  await one.put('bound', 'x', { lease })
  const item = await two.get('bound')
  assert.deepEqual([item.text, item.lease], ['x', lease])
  assert.equal((await one.keepAlive(lease)).ttl, 60_000)
  await one.revoke(lease)
  await failsWith(Code.LEASE_GONE, one.keepAlive(lease))
  const watch = two.watch('bound')
  for await (const event of watch) if (!event.found) break
})

test('services are registered, found and followed', { skip }, async () => {
  const watch = two.watchService('barista')
  assert.deepEqual((await watch.next()).value, [])
  const a = await one.registerService('barista', '10.0.0.1:80', { instance: 'a' })
  assert.deepEqual((await watch.next()).value.map((i) => [i.instance, i.address]), [['a', '10.0.0.1:80']])
  const b = await two.registerService('barista', '10.0.0.2:80')
  assert.deepEqual((await one.getService('barista')).map((i) => i.instance).sort(), ['a', b.instance].sort())
  await a.deregister()
  for await (const instances of watch) if (instances.length === 1) break
  await b.deregister()
})

test('a server that is killed and comes back: calls go on, and what was sent twice was done once or is told', { skip }, async () => {
  const mine = await new Memserver().start()
  const client = await connect({ socket: mine.socket })
  const lock = await client.lock('x', { ttl: 800 })
  const watch = client.watch('after')
  await watch.started
  let done = 0
  let unknown = 0
  let stop = false
  const writers = Array.from({ length: 8 }, async (_, i) => {
    while (!stop) {
      try {
        await client.put(`k${i}`, 'x')
        done++
      } catch (why) {
        assert.equal(why.code, Code.OUTCOME_UNKNOWN)
        unknown++
      }
    }
  })
  for (let i = 0; i < 3; i++) {
    const before = done
    while (done < before + 100) await new Promise((resolve) => setTimeout(resolve, 5))
    await mine.stop()
    await mine.start()
  }
  stop = true
  await Promise.all(writers)
  assert.ok(unknown <= 3 * 8)
  // The server's store is new, so the lease is gone, and the client reports the lock as lost.
  await lock.lost
  await client.put('after', 'all')
  for await (const event of watch) if (event.text === 'all') break
  await client.close()
  await mine.close()
})

test('a server that is asked to go answers all that is under way', { skip }, async () => {
  const mine = await new Memserver().start('--grace', '10s')
  const client = await connect({ socket: mine.socket })
  let failed = 0
  let done = 0
  let stop = false
  const callers = Array.from({ length: 8 }, async () => {
    while (!stop) {
      await client.increment('n').then(() => done++, () => failed++)
    }
  })
  while (done < 100) await new Promise((resolve) => setTimeout(resolve, 5))
  const stopped = mine.stop('SIGTERM')
  const before = done
  while (done < before + 100 && failed === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  stop = true
  await Promise.all(callers)
  assert.equal(failed, 0)
  assert.equal((await client.get('n')).text, String(done))
  await client.close()
  await stopped
  await mine.close()
})
