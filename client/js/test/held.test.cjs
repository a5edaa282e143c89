// SPDX-License-Identifier: Apache-2.0
'use strict'

// These tests check how the library keeps locks, elections, permits and registrations alive.

const assert = require('node:assert/strict')
const { test } = require('node:test')
const { Code, NodeError, connect } = require('../index.cjs')
const { Fake } = require('./fake.cjs')

const failsWith = (code, promise) =>
  assert.rejects(promise, (why) => why instanceof NodeError && why.code === code && why.message !== '')

const TOKEN = '18446744073709551615'
const hold = (c, m) => c.answer(m.id, { held: true, name: m.data.name, token: TOKEN, lease: m.data.lease })
const ok = (c, m) => c.answer(m.id, {})

/** serve returns handlers of a server that grants every request. */
function serve(more) {
  let leases = 0
  return {
    grant: (c, m) => c.answer(m.id, { lease: `L${++leases}`, ttlMs: m.data.ttlMs }),
    revoke: ok,
    lock: hold, campaign: hold, acquire: hold, unlock: ok, resign: ok, release: ok,
    keepAlive: (c, m) => c.answer(m.id, { lease: m.data.lease, ttlMs: 10_000 }),
    registerService: (c, m) => c.answer(m.id, { instance: m.data.instance ?? 'i1', address: m.data.address, lease: m.data.lease }),
    deregisterService: ok,
    ...more,
  }
}

async function using(on, run) {
  const fake = await new Fake(serve(on)).listen()
  const client = await connect({ socket: fake.socket })
  try {
    await run(fake, client)
  } finally {
    await client.close({ wait: 200 })
    await fake.close()
  }
}

test('what is held has a token of 64 bits, and is given back under it', async () => {
  await using({}, async (fake, client) => {
    for (const [take, back, more, held] of [
      ['lock', 'unlock', {}, await client.lock('x', { ttl: 5000, wait: 70 })],
      ['campaign', 'resign', { value: 'me' }, await client.campaign('x', 'me', { ttl: 5000, wait: 70 })],
      ['acquire', 'release', { permits: 3 }, await client.acquire('x', 3, { ttl: 5000, wait: 70 })],
    ]) {
      assert.equal(held.token, BigInt(TOKEN))
      assert.equal(held.held, true)
      const asked = await fake.saw(take)
      assert.equal((await fake.saw('grant')).data.ttlMs, 5000)
      assert.ok(asked.data.waitMs <= 70)
      assert.deepEqual(asked.data, { name: 'x', lease: held.lease, waitMs: asked.data.waitMs, ...more })
      assert.ok(asked.once > 0 && asked.done <= asked.once)
      assert.equal(asked.timeoutMs, asked.data.waitMs + 5000)
      await held[back]()
      assert.deepEqual((await fake.saw(back)).data, { name: 'x', token: TOKEN })
      assert.equal(held.held, false)
      assert.equal((await held.lost).code, Code.NOT_HELD)
      assert.equal(held.signal.aborted, true)
      await held[back]()
      assert.equal(fake.count(back), 1)
    }
    const lock = await client.lock('y', { ttl: 5000 })
    await client.unlock(lock)
    assert.equal(fake.count('unlock'), 2)
    // Leases are reused, each for one lock or registration at a time.
    assert.equal(fake.count('grant'), 3)
  })
})

test('what is another\'s is an error', async () => {
  await using({ lock: (c, m) => c.answer(m.id, { held: false, name: 'x' }) }, async (fake, client) => {
    await failsWith(Code.NOT_HELD, client.lock('x', { wait: 0 }))
  })
})

test('its lease is kept alive, and it is lost when the server says that it is gone', async () => {
  let renewals = 0
  const on = {
    keepAlive: (c, m) => (++renewals < 3 ? c.answer(m.id, { lease: 'L1', ttlMs: 300 }) : c.refuse(m.id, 'lease_gone', 'it lapsed')),
  }
  await using(on, async (fake, client) => {
    const lock = await client.lock('x', { ttl: 600 })
    const why = await lock.lost
    assert.equal(why.code, Code.NOT_HELD)
    assert.equal(renewals, 3)
    assert.deepEqual([lock.held, lock.signal.aborted, lock.signal.reason], [false, true, why])
    await failsWith(Code.NOT_HELD, lock.unlock())
    assert.equal(fake.count('unlock'), 0)
  })
})

test('it is lost when the server is not heard for its time to live', async () => {
  await using({ keepAlive: () => {} }, async (fake, client) => {
    const lock = await client.lock('x', { ttl: 500 })
    assert.equal((await lock.lost).code, Code.NOT_HELD)
  })
})

test('it outlives the connection', async () => {
  await using({}, async (fake, client) => {
    const lock = await client.lock('x', { ttl: 5000 })
    fake.drop()
    await fake.saw('keepAlive')
    assert.equal(lock.held, true)
    await lock.unlock()
  })
})

test('who brings a lease keeps it alive', async () => {
  await using({ grant: (c, m) => c.answer(m.id, { lease: 'mine', ttlMs: m.data.ttlMs }) }, async (fake, client) => {
    const { lease, ttl } = await client.grant(500)
    assert.equal(ttl, 500)
    const lock = await client.lock('x', { lease })
    assert.equal((await fake.saw('lock')).data.lease, 'mine')
    await new Promise((resolve) => setTimeout(resolve, 700))
    assert.equal(fake.count('keepAlive'), 0)
    assert.equal(lock.held, true)
    await lock.unlock()
  })
})

test('a lock that comes when nobody waits for it any more is given back', async () => {
  let late
  const on = { lock: (c, m) => { late = () => hold(c, m) }, ping: ok }
  await using(on, async (fake, client) => {
    const pings = setInterval(() => client.ping().catch(() => {}), 10)
    await failsWith(Code.TIMEOUT, client.lock('x', { wait: 50, timeout: 300 }))
    clearInterval(pings)
    late()
    assert.deepEqual((await fake.saw('unlock')).data, { name: 'x', token: TOKEN })
    // A lock that was acquired nevertheless expires with its lease.
    assert.equal((await fake.saw('revoke')).data.lease, (await fake.saw('lock')).data.lease)
  })
})

test('a lock is asked for anew where the server has forgotten the client', async () => {
  let first = true
  const on = {
    hello: (c, m) => c.answer(m.id, { known: false }),
    lock: (c, m) => {
      if (!first) return hold(c, m)
      first = false
      c.socket.destroy()
    },
  }
  await using(on, async (fake, client) => {
    const lock = await client.lock('x')
    assert.equal(lock.held, true)
    const [lost, got] = fake.seen.filter((m) => m.func === 'lock').map((m) => m.data.lease)
    assert.notEqual(lost, got)
    assert.equal((await fake.saw('revoke')).data.lease, lost)
  })
})

test('waiting locks take no room from other calls', async () => {
  const on = { lock: () => {}, get: (c, m) => c.answer(m.id, { key: 'a', version: '0.0' }) }
  await using(on, async (fake, client) => {
    const locks = Array.from({ length: 600 }, (_, i) => client.lock(`x${i}`).catch((why) => why.code))
    assert.equal((await client.get('a')).found, false)
    await client.close({ wait: 200 })
    assert.ok((await Promise.all(locks)).every((code) => code === Code.CLOSED))
  })
})

test('what could not be given back goes with its lease', async () => {
  await using({ unlock: (c, m) => c.refuse(m.id, 'unavailable') }, async (fake, client) => {
    const lock = await client.lock('x')
    await failsWith(Code.UNAVAILABLE, lock.unlock())
    assert.equal(lock.held, false)
    assert.equal((await fake.saw('revoke')).data.lease, lock.lease)
    await lock.unlock()
    assert.equal(fake.count('unlock'), 1)
  })
})

test('a registration is made again when its lease is gone', async () => {
  let gone = true
  const on = {
    keepAlive: (c, m) => {
      if (!gone) return c.answer(m.id, { lease: m.data.lease, ttlMs: 600 })
      gone = false
      c.refuse(m.id, 'lease_gone')
    },
  }
  await using(on, async (fake, client) => {
    const registration = await client.registerService('barista', '10.0.0.1:80', { ttl: 600 })
    assert.equal(registration.instance, 'i1')
    const again = await fake.saw('registerService', 2)
    assert.deepEqual(again.data, { service: 'barista', instance: 'i1', address: '10.0.0.1:80', lease: 'L2' })
    await fake.saw('keepAlive', 2)
    await registration.deregister()
    assert.deepEqual((await fake.saw('deregisterService')).data, { service: 'barista', instance: 'i1', lease: 'L2' })
  })
})

test('services are found and followed', async () => {
  const lists = [[{ instance: 'a', address: 'x:1' }], [{ instance: 'a', address: 'x:1' }], []]
  const on = {
    getService: (c, m) => c.answer(m.id, { service: 's', instances: lists[0] }),
    watchService: (c, m) => { for (const instances of lists) c.say({ id: m.id, data: { service: 's', instances }, more: true }) },
    leader: (c, m) => c.answer(m.id, m.data.name === 'e' ? { found: true, value: 'me', token: TOKEN } : { found: false }),
  }
  await using(on, async (fake, client) => {
    assert.deepEqual(await client.getService('s', { order: 'nearest' }), lists[0])
    assert.equal((await fake.saw('getService')).data.order, 'nearest')
    const watch = client.watchService('s')
    await watch.started
    const { value } = await watch.next()
    assert.deepEqual(value, []) // newer lists have replaced the earlier lists
    assert.deepEqual(await client.leader('e'), { found: true, value: 'me', token: BigInt(TOKEN) })
    assert.deepEqual(await client.leader('f'), { found: false })
    // After this, the watch is resumed, and an unchanged list is not reported again.
    fake.drop()
    await fake.saw('watchService', 2)
    watch.close()
  })
})

test('close gives back what is held', async () => {
  await using({}, async (fake, client) => {
    const lock = await client.lock('x')
    await client.registerService('barista', '10.0.0.1:80')
    await client.close()
    assert.equal((await lock.lost).code, Code.NOT_HELD)
    assert.equal(fake.count('unlock'), 1)
    assert.equal(fake.count('deregisterService'), 1)
    assert.equal(fake.count('revoke'), 2)
  })
})
