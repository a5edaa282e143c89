// SPDX-License-Identifier: Apache-2.0
'use strict'

// These tests make calls to a server that is late, wrong, silent or gone.

const assert = require('node:assert/strict')
const fs = require('node:fs')
const path = require('node:path')
const { test } = require('node:test')
const { Code, NodeError, OutcomeUnknown, connect } = require('../index.cjs')
const { DEFAULT_SOCKET, parse } = require('../lib/address.cjs')
const { Fake } = require('./fake.cjs')

const failsWith = (code, promise) =>
  assert.rejects(promise, (why) => why instanceof NodeError && why.code === code && why.message !== '')

const found = (m, text = 'v') => ({ key: m.data.key, found: true, value: text, version: '1.1' })

/** using runs a test with a Fake and a client of it, and ends both. */
async function using(on, options, run) {
  if (run === undefined) [options, run] = [{}, options]
  const fake = await new Fake(on).listen()
  let client
  try {
    client = await connect({ socket: fake.socket, ...options })
    await run(fake, client)
  } finally {
    await client?.close({ wait: 100 })
    await fake.close()
  }
}

test('it waits for the socket at start', async () => {
  const fake = new Fake({ get: (c, m) => c.answer(m.id, found(m)) })
  const connecting = connect({ socket: fake.socket })
  await new Promise((resolve) => setTimeout(resolve, 100))
  await fake.listen()
  const client = await connecting
  assert.equal((await client.get('a')).text, 'v')
  await client.close()
  await fake.close()
})

test('where there is no server it says so, after the time that it was given', async () => {
  const place = path.join('/nonexistent', 'node.sock')
  await assert.rejects(connect({ socket: place, startTimeout: 200 }), (why) => {
    assert.equal(why.code, Code.UNAVAILABLE)
    assert.match(why.message, /no node API at \/nonexistent\/node\.sock within 0\.2 s: .*ENOENT/)
    assert.match(why.do, /NETCRAQ_NODE_SOCKET/)
    return true
  })
  // connect must not fail before the time is over. If a pause is longer than the remaining time, it
  // is shortened.
  const began = performance.now()
  await failsWith(Code.UNAVAILABLE, connect({ socket: place, startTimeout: 200, minBackoff: 5_000, maxBackoff: 5_000 }))
  assert.ok(performance.now() - began >= 199)
  await failsWith(Code.INVALID_ARGUMENT, connect({ socket: 'http://localhost' }))
})

test('it finds a running netcraq dev', async () => {
  const fake = new Fake({ get: (c, m) => c.answer(m.id, found(m)) })
  fake.socket = path.join(fake.directory, 'netcraq.sock')
  const { NETCRAQ_NODE_SOCKET, XDG_RUNTIME_DIR, TMPDIR } = process.env
  delete process.env.NETCRAQ_NODE_SOCKET
  process.env.XDG_RUNTIME_DIR = fake.directory
  process.env.TMPDIR = fake.directory
  try {
    assert.equal(parse().text, DEFAULT_SOCKET)
    await fake.listen()
    const client = await connect()
    assert.equal((await client.get('a')).text, 'v')
    await client.close()

    delete process.env.XDG_RUNTIME_DIR
    const folder = path.join(fake.directory, `netcraq-${process.geteuid()}`)
    fs.mkdirSync(folder, { mode: 0o700 })
    fs.renameSync(fake.socket, path.join(folder, 'netcraq.sock'))
    assert.equal(parse().text, path.join(folder, 'netcraq.sock'))
    fs.chmodSync(folder, 0o777) // with this mode, another user could have put the socket there
    assert.equal(parse().text, DEFAULT_SOCKET)
  } finally {
    for (const [name, value] of Object.entries({ NETCRAQ_NODE_SOCKET, XDG_RUNTIME_DIR, TMPDIR })) {
      delete process.env[name]
      if (value !== undefined) process.env[name] = value
    }
    await fake.close()
  }
})

test('it does not wait for a server in silence', async () => {
  const warned = new Promise((resolve) => process.once('warning', resolve))
  const place = path.join('/nonexistent', 'node.sock')
  await failsWith(Code.UNAVAILABLE, connect({ socket: place, startTimeout: 1_500 }))
  const warning = await warned
  assert.match(warning.message, /waiting up to 1.5 s for the node API at \/nonexistent\/node\.sock: .*ENOENT/)
  assert.match(warning.detail, /NETCRAQ_NODE_SOCKET/)
})

test('options that there are not are refused by name', async () => {
  await assert.rejects(connect({ sockets: '/s' }), (why) => {
    assert.equal(why.code, Code.INVALID_ARGUMENT)
    assert.equal(why.message, 'connect has no option "sockets"')
    assert.match(why.do, /it has socket, namespace, /)
    return true
  })
  await using({}, async (fake, client) => {
    const bad = { timeOut: 1 }
    const calls = {
      get: ['k', bad], getMany: [['k'], bad], put: ['k', 'v', bad], cas: ['k', '0.0', 'v', bad], delete: ['k', bad],
      increment: ['k', 1, bad], grant: [1_000, bad], keepAlive: ['l', bad], revoke: ['l', bad], lock: ['l', bad],
      campaign: ['e', 'v', bad], acquire: ['s', 1, bad], leader: ['e', bad], registerService: ['s', 'h:1', bad],
      getService: ['s', bad], ping: [bad], close: [bad], watch: ['k', bad], watchService: ['s', bad],
    }
    for (const [method, args] of Object.entries(calls)) {
      await assert.rejects(async () => client[method](...args), { code: Code.INVALID_ARGUMENT, message: `${method} has no option "timeOut"` })
    }
    await assert.rejects(async () => client.put('k', 'v', { lease: 'l', eventual: true }), { message: 'put has no option "eventual"' })
    assert.deepEqual(fake.seen.map((m) => m.func), ['hello'])
  })
})

test('a server that accepts and is silent is not waited for longer', async () => {
  const fake = await new Fake({ hello: () => {} }).listen()
  await failsWith(Code.UNAVAILABLE, connect({ socket: fake.socket, startTimeout: 200 }))
  await fake.close()
})

test('a refusal at hello that will not change is told at once', async () => {
  const fake = await new Fake({ hello: (c, m) => c.refuse(m.id, 'permission_denied', 'not you') }).listen()
  await assert.rejects(connect({ socket: fake.socket }), { code: Code.PERMISSION_DENIED, message: 'not you' })
  await fake.close()
})

test('answers in any order, in pieces, several at once, and some for nobody', async () => {
  const asked = []
  const on = {
    get: (c, m) => {
      asked.push(m)
      if (asked.length < 4) return
      const lines = asked.reverse().map((q) => `${JSON.stringify({ id: q.id, data: found(q, `ž-${q.data.key}`) })}\n`)
      const bytes = Buffer.from(`{"id":999999,"data":{}}\n${lines.join('')}`)
      // The answer is sent byte by byte, so that characters are also split.
      let at = 0
      const next = () => {
        if (at >= bytes.length) return
        c.socket.write(bytes.subarray(at, at + 1))
        at++
        setImmediate(next)
      }
      next()
    },
  }
  await using(on, async (fake, client) => {
    const items = await Promise.all(['a', 'b', 'c', 'd'].map((key) => client.get(key)))
    assert.deepEqual(items.map((item) => item.text), ['ž-a', 'ž-b', 'ž-c', 'ž-d'])
  })
})

test('a read is asked again by the next connection', async () => {
  let dropped = false
  const on = {
    get: (c, m) => {
      if (dropped) return c.answer(m.id, found(m))
      dropped = true
      c.socket.destroy()
    },
  }
  await using(on, async (fake, client) => {
    let lost = 0
    client.on('disconnected', () => lost++)
    assert.equal((await client.get('a')).text, 'v')
    assert.equal(lost, 1)
    assert.equal(fake.count('hello'), 2)
  })
})

test('a write is sent again under its old number, to a server that knows the client', async () => {
  let dropped = false
  const on = {
    put: (c, m) => {
      if (dropped) return c.answer(m.id, { version: '1.1' })
      dropped = true
      c.socket.destroy()
    },
  }
  await using(on, async (fake, client) => {
    assert.equal(await client.put('a', 'x'), '1.1')
    const [first, second] = fake.seen.filter((m) => m.func === 'put')
    assert.deepEqual([second.once, second.data], [first.once, first.data])
    const [hello, again] = fake.seen.filter((m) => m.func === 'hello')
    assert.match(hello.data.client, /^[0-9a-f]{32}$/)
    assert.equal(again.data.client, hello.data.client)
  })
})

test('the outcome of a write is unknown where the server has forgotten the client', async () => {
  const on = {
    hello: (c, m) => c.answer(m.id, { known: false }),
    get: (c, m) => c.answer(m.id, found(m)),
    put: (c) => c.socket.destroy(),
    delete: (c, m) => c.answer(m.id, { deleted: true, key: 'b', version: '1.2' }),
  }
  await using(on, async (fake, client) => {
    await assert.rejects(client.put('a', 'x'), (why) => why instanceof OutcomeUnknown && why.code === Code.OUTCOME_UNKNOWN)
    assert.equal(fake.count('put'), 1)
    // Later calls use a new identity, because the server that knew the old one may come back.
    assert.equal((await client.delete('b')).deleted, true)
    const names = new Set(fake.seen.filter((m) => m.func === 'hello').map((m) => m.data.client))
    assert.equal(names.size, 2)
    assert.equal((await fake.saw('delete')).once, 1)
  })
})

test('a write that was not sent yet goes to the next server, whatever that knows', async () => {
  let known = true
  const on = {
    hello: (c, m) => c.answer(m.id, { known, inFlight: 8 }),
    put: (c, m) => {
      if (known || m.data.key === 'first') return
      c.answer(m.id, { version: '1.1' })
    },
  }
  await using(on, { maxInFlight: 1 }, async (fake, client) => {
    const first = client.put('first', 'x')
    const second = client.put('second', 'x')
    await fake.saw('put')
    known = false
    fake.drop()
    await failsWith(Code.OUTCOME_UNKNOWN, first)
    assert.equal(await second, '1.1')
  })
})

test('answers that are there are said to be done', async () => {
  const on = { put: (c, m) => m.data.key === 'stuck' || c.answer(m.id, { version: '1.1' }) }
  await using(on, async (fake, client) => {
    await client.put('a', '1')
    await client.put('b', '1')
    client.put('stuck', '1').catch(() => {})
    await client.put('c', '1')
    await client.put('d', '1')
    const puts = fake.seen.filter((m) => m.func === 'put').map((m) => [m.once, m.done])
    assert.deepEqual(puts, [[1, 1], [2, 2], [3, 3], [4, 3], [5, 3]])
  })
})

test('what waits is not said to be done', async () => {
  let lock = null
  const on = {
    put: (c, m) => c.answer(m.id, { version: '1.1' }),
    lock: (c, m) => { lock = () => c.answer(m.id, { held: true, name: 'x', token: '5', lease: 'l' }) },
    grant: (c, m) => c.answer(m.id, { lease: 'l', ttlMs: 10_000 }),
    unlock: (c, m) => c.answer(m.id, {}),
    revoke: (c, m) => c.answer(m.id, {}),
  }
  await using(on, async (fake, client) => {
    await client.put('a', '1')
    const held = client.lock('x')
    const { once } = await fake.saw('lock')
    await client.put('b', '1')
    await client.put('c', '1')
    lock()
    await held
    await client.put('d', '1')
    const puts = fake.seen.filter((m) => m.func === 'put')
    for (const put of puts.slice(0, 3)) assert.ok(put.done <= Math.min(put.once, once), `done ${put.done}, ${once} waits`)
    assert.equal(puts[3].done, puts[3].once)
  })
})

test('calls have their time', async () => {
  await using({ ping: (c, m) => c.answer(m.id, {}) }, async (fake, client) => {
    const slow = [client.get('a', { timeout: 500 }), client.put('a', 'x', { timeout: 600 })]
    const pings = setInterval(() => client.ping().catch(() => {}), 20)
    const results = await Promise.allSettled(slow)
    clearInterval(pings)
    assert.deepEqual(results.map((result) => result.reason.code), [Code.TIMEOUT, Code.OUTCOME_UNKNOWN])
    const { timeoutMs, id } = await fake.saw('get')
    assert.equal(timeoutMs, 500)
    // The client cancels the call at the server, and keeps the connection, which answers other
    // calls.
    assert.equal((await fake.saw('cancel')).data.id, id)
    assert.equal(fake.connections.length, 1)
  })
})

test('a connection that is silent while a call waits is made anew', async () => {
  await using({}, async (fake, client) => {
    await failsWith(Code.TIMEOUT, client.get('a', { timeout: 20 }))
    await fake.saw('hello', 2)
  })
})

test('without a connection a call says so when its time is up', async () => {
  await using({}, async (fake, client) => {
    await new Promise((resolve) => {
      client.once('disconnected', resolve)
      fake.server.close()
      fake.drop()
    })
    await failsWith(Code.UNAVAILABLE, client.put('a', 'x', { timeout: 20 }))
    fs.rmSync(fake.socket, { force: true })
    await fake.listen()
    await fake.saw('hello', 2)
  })
})

test('what is in flight is bounded, and what waits, too', async () => {
  const held = []
  await using({ get: (c, m) => held.push([c, m]) }, { maxInFlight: 3, maxQueued: 4 }, async (fake, client) => {
    const calls = Array.from({ length: 7 }, (_, i) => client.get(`k${i}`))
    await failsWith(Code.UNAVAILABLE, client.get('one too many'))
    await fake.saw('get', 3)
    let answered = 0
    while (answered < 7) {
      assert.ok(held.length <= 3 && fake.count('get') <= answered + 3)
      const [c, m] = held.shift()
      c.answer(m.id, found(m))
      await calls[answered++]
      if (answered <= 4) await fake.saw('get', answered + 3)
    }
  })
})

test('garbage, and a line without an end, cost the connection and no call', async () => {
  for (const garbage of ['nonsense\n', '[1]x\n', 'null\n', 'x'.repeat(5 << 20)]) {
    let times = 0
    const on = { get: (c, m) => (times++ === 0 ? c.socket.write(garbage) : c.answer(m.id, found(m))) }
    await using(on, async (fake, client) => {
      assert.equal((await client.get('a')).text, 'v')
      assert.equal(fake.count('hello'), 2)
    })
  }
})

test('an answer that makes no sense fails its call alone', async () => {
  const on = {
    get: (c, m) => (m.data.key === 'bad' ? c.say({ id: m.id }) : c.answer(m.id, found(m))),
    getMany: (c, m) => c.answer(m.id, { items: 7 }),
    increment: (c, m) => c.answer(m.id, { value: 'many' }),
    put: (c, m) => c.say({ id: m.id, error: 'odd' }),
  }
  await using(on, async (fake, client) => {
    await failsWith(Code.INTERNAL, client.get('bad'))
    await failsWith(Code.INTERNAL, client.getMany(['a']))
    await failsWith(Code.INTERNAL, client.increment('a'))
    await failsWith(Code.INTERNAL, client.put('a', 'x'))
    assert.equal((await client.get('a')).text, 'v')
    assert.equal(fake.count('hello'), 1)
  })
})

test('a server that closes at once, again and again, is asked less and less often', async () => {
  let welcome = true
  const on = {
    hello: (c, m) => {
      c.answer(m.id, { known: true })
      if (!welcome) c.socket.end()
    },
    get: (c, m) => c.answer(m.id, found(m)),
  }
  await using(on, { minBackoff: 20 }, async (fake, client) => {
    welcome = false
    fake.drop()
    await fake.saw('hello', 4)
    await new Promise((resolve) => setTimeout(resolve, 300))
    assert.ok(fake.count('hello') < 20, `${fake.count('hello')} times`)
    welcome = true
    assert.equal((await client.get('a')).text, 'v')
  })
})

test('a server that does not read does not fill the memory', async () => {
  const on = { hello: (c, m) => { c.answer(m.id, {}); c.socket.pause() } }
  await using(on, { maxInFlight: 10_000 }, async (fake, client) => {
    const value = 'x'.repeat(100_000)
    const puts = Array.from({ length: 300 }, (_, i) => client.put(`k${i}`, value, { timeout: 100 }).catch((why) => why.code))
    await new Promise(setImmediate)
    const { transport } = client.calls.link
    assert.ok(transport.out.length + transport.socket.writableLength < 4 << 20)
    const codes = await Promise.all(puts)
    assert.ok(codes.every((code) => code === Code.TIMEOUT || code === Code.OUTCOME_UNKNOWN || code === Code.UNAVAILABLE), `${codes}`)
  })
})

test('a call can be canceled, and what became of it is the server\'s to say', async () => {
  const on = {
    get: (c, m) => { on.asked = m.id },
    put: (c, m) => { on.asked = m.id; on.late = true },
    cancel: (c, m) => {
      if (on.late) c.answer(m.data.id, { version: '1.1' })
      else c.refuse(m.data.id, 'canceled')
      c.answer(m.id, {})
    },
  }
  await using(on, async (fake, client) => {
    const stop = new AbortController()
    const call = client.get('a', { signal: stop.signal })
    await fake.saw('get')
    stop.abort()
    await failsWith(Code.CANCELED, call)
    await failsWith(Code.CANCELED, client.get('a', { signal: stop.signal }))
    const again = new AbortController()
    const put = client.put('a', 'x', { signal: again.signal })
    await fake.saw('put')
    again.abort()
    assert.equal(await put, '1.1')
  })
})

test('a watch is taken up again where it was', async () => {
  const on = {
    watch: (c, m) => {
      c.say({ id: m.id, data: { started: true }, more: true })
      const n = fakeWatches++
      const event = (key, version) => ({ key, found: true, value: `${key}${version}`, version })
      if (n === 0) {
        c.say({ id: m.id, data: { events: [event('a', '1.1'), event('b', '1.9')] }, more: true })
      } else {
        // The events are a version that was already reported, an older version, and newer versions.
        c.say({ id: m.id, data: { events: [event('a', '1.1'), event('b', '1.8'), event('b', '1.10'), event('c', '2.1')] }, more: true })
      }
    },
  }
  let fakeWatches = 0
  await using(on, async (fake, client) => {
    const seen = []
    for await (const event of client.watch({ prefix: '' })) {
      seen.push(event.text)
      if (event.text === 'b1.9') fake.drop()
      if (event.text === 'c2.1') break
    }
    assert.deepEqual(seen, ['a1.1', 'b1.9', 'b1.10', 'c2.1'])
    assert.deepEqual((await fake.saw('watch', 2)).data, { prefix: '', after: { a: '1.1', b: '1.9' } })
    await fake.saw('cancel')
  })
})

test('a watch of many keys is taken up, whatever room there is for their versions', async () => {
  const keys = Array.from({ length: 5000 }, (_, i) => `a-key-of-some-length/${i}`)
  let connections = 0
  const on = {
    hello: (c, m) => { c.number = connections++; c.answer(m.id, { known: true, inFlight: 1024 }) },
    watch: (c, m) => {
      const after = m.data.after ?? {}
      const n = Object.keys(after).length
      if (n > 4096 || (c.number === 2 && n > 0)) return c.refuse(m.id, 'quota_exceeded')
      c.say({ id: m.id, data: { started: true }, more: true })
      const events = keys.filter((key) => !(key in after)).map((key) => ({ key, found: true, value: '1', version: '1.1' }))
      if (c.number > 0) events.push({ key: 'news', found: true, value: '1', version: `1.${c.number}` })
      c.say({ id: m.id, data: { events }, more: true })
    },
  }
  await using(on, async (fake, client) => {
    const watch = client.watch({ prefix: '' })
    for (const key of keys) assert.equal((await watch.next()).value.key, key)
    for (const version of ['1.1', '1.2']) {
      fake.drop()
      const { value } = await watch.next()
      assert.deepEqual([value.key, value.version], ['news', version])
    }
    const versions = Object.keys((await fake.saw('watch', 2)).data.after).length
    assert.ok(versions > 0 && versions <= 1024)
  })
})

test('a watch that the server cannot serve now is asked for again', async () => {
  let times = 0
  const on = {
    watch: (c, m) => {
      if (times++ < 2) return c.refuse(m.id, 'unavailable')
      c.say({ id: m.id, data: { started: true }, more: true })
      if (times === 3) c.say({ id: m.id, data: {} }) // the server ends the watch without a reason
    },
  }
  await using(on, async (fake, client) => {
    const watch = client.watch('a')
    await watch.started
    await fake.saw('watch', 4)
    watch.close()
  })
})

test('a server that shuts down is left for its successor, with no call lost', async () => {
  const on = {
    get: (c, m) => {
      if (m.data.key === 'slow') on.slow = [c, m]
      else c.answer(m.id, found(m))
    },
    put: (c, m) => (fakeDraining ? c.refuse(m.id, 'draining') : c.answer(m.id, { version: '1.1' })),
    watch: (c, m) => c.say({ id: m.id, data: { started: true }, more: true }),
  }
  let fakeDraining = false
  await using(on, async (fake, client) => {
    const watch = client.watch('a')
    await watch.started
    const slow = client.get('slow')
    await fake.saw('get')
    assert.equal((await fake.saw('hello')).data.drainNotice, true)
    const [old] = fake.connections
    old.say({ id: 0, data: { draining: true } })
    await fake.saw('hello', 2)
    await fake.saw('watch', 2)
    assert.equal(await client.put('a', 'x'), '1.1')
    const [c, m] = on.slow
    assert.equal(c, old)
    c.answer(m.id, found(m))
    assert.equal((await slow).text, 'v')
    await new Promise((resolve) => (old.socket.destroyed ? resolve() : old.socket.once('close', resolve)))

    // A server that is shutting down refuses the call, so the call goes to the next connection.
    fakeDraining = true
    const put = client.put('b', 'x')
    await fake.saw('put', 2)
    fakeDraining = false
    assert.equal(await put, '1.1')
    const puts = fake.seen.filter((message) => message.func === 'put')
    assert.ok(puts[2].once > puts[1].once)
    watch.close()
  })
})

test('a server that shuts down without a successor is used as long as it answers', async () => {
  let draining = false
  const on = {
    hello: (c, m) => c.answer(m.id, { known: true, draining }),
    get: (c, m) => c.answer(m.id, found(m)),
  }
  await using(on, async (fake, client) => {
    draining = true
    fake.connections[0].say({ id: 0, data: { draining: true } })
    await fake.saw('hello', 3)
    assert.equal((await client.get('a')).text, 'v')
    draining = false
    const [first] = fake.connections
    await new Promise((resolve) => (first.socket.destroyed ? resolve() : first.socket.once('close', resolve)))
    assert.equal((await client.get('a')).text, 'v')
  })
})

test('close waits for what is under way, and takes nothing new', async () => {
  const fake = await new Fake({ put: (c, m) => { fake.put = [c, m] } }).listen()
  const client = await connect({ socket: fake.socket })
  const put = client.put('a', 'x')
  const watch = client.watch('a')
  await fake.saw('put')
  const closing = client.close()
  await failsWith(Code.CLOSED, client.get('a'))
  await failsWith(Code.CLOSED, client.watch('a').started)
  assert.deepEqual(await watch.next(), { value: undefined, done: true })
  const [c, m] = fake.put
  c.answer(m.id, { version: '1.1' })
  assert.equal(await put, '1.1')
  await closing
  await client.close()
  await fake.close()
})

test('close does not wait for ever', async () => {
  const fake = await new Fake({}).listen()
  const client = await connect({ socket: fake.socket })
  const calls = [client.put('a', 'x'), client.get('a')]
  await fake.saw('get')
  const results = Promise.allSettled(calls)
  await client.close({ wait: 50 })
  assert.deepEqual((await results).map((result) => result.reason.code), [Code.OUTCOME_UNKNOWN, Code.CLOSED])
  await fake.close()
})

test('many connections and calls leave nothing behind', async () => {
  const on = { get: (c, m) => c.answer(m.id, found(m)) }
  await using(on, async (fake, client) => {
    for (let i = 0; i < 20; i++) {
      const call = client.get('a')
      if (i % 4 === 0) fake.drop()
      assert.equal((await call).text, 'v')
    }
    assert.equal(client.calls.links.size, 1)
    assert.equal(client.calls.link.pending.size, 0)
    assert.equal(client.calls.queued, 0)
    assert.deepEqual(client.calls.lanes.map((lane) => lane.inFlight), [0, 0, 0])
  })
})

test('a server that is older than list is named, and one that goes on for ever is left', async () => {
  const list = (c, m) => {
    if (m.data.prefix === 'for ever') c.answer(m.id, { items: [{ key: 'k', found: true, value: 'v', version: '1.1' }], cursor: 'c' })
    else c.refuse(m.id, 'invalid_argument', 'there is no function "list"')
  }
  await using({ list }, async (fake, client) => {
    await assert.rejects(client.listPage('a'), (why) => {
      assert.equal(why.code, Code.INVALID_ARGUMENT)
      assert.match(why.message, /the node's server \(fake\) is older than this function/)
      assert.match(why.do, /watch the prefix/)
      return true
    })
    let items = 0
    await assert.rejects(async () => {
      for await (const item of client.list('for ever')) items += item.found ? 1 : 0
    }, (why) => why.code === Code.INTERNAL)
    assert.equal(items, 2)
    for await (const item of client.list('for ever')) {
      assert.equal(item.key, 'k')
      break
    }
    assert.equal(fake.count('list'), 4)
  })
})
