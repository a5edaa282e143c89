// SPDX-License-Identifier: Apache-2.0
// testpod's programs basics and hold (program.go), with the Node.js library.

import { createRequire } from 'node:module'

const { connect } = createRequire(import.meta.url)(process.env.NETCRAQ_JS)

const say = (event) => console.log(JSON.stringify(event))

/** Puts, gets and watches a key, and tries another namespace's. */
async function basics(client, key, other) {
  const watch = client.watch([key])
  const events = watch[Symbol.asyncIterator]()
  let next = events.next() // starts the watch
  let last = ''
  for (let i = 0; i < 5; i++) {
    last = `value ${i}`
    await client.put(key, last)
  }
  const got = await client.get(key)
  let [count, overtaken, version] = [0, 0, '']
  while (version !== got.version) {
    const { value: event } = await next
    count++
    overtaken += event.overtaken ?? 0
    version = event.version
    next = events.next()
    next.catch(() => {}) // the watch ends with the client
  }
  const refused = []
  for (const call of [
    () => client.get(key, { namespace: other }),
    () => client.put(key, 'forged', { namespace: other }),
    () => client.lock(key, { namespace: other, wait: 0 })
  ]) {
    try {
      await call()
      refused.push('it was done')
    } catch (error) {
      refused.push(`${error.code}: ${error.message}`)
    }
  }
  say({ put: last, got: got.text, events: count, overtaken, refused })
}

/** Takes a lock, and keeps it until this is killed, or gives it back. */
async function hold(client, name, ttl, then) {
  say({ waiting: true, pid: process.pid })
  const lock = await client.lock(name, { ttl: 1000 * Number(ttl), wait: 120000 })
  say({ token: String(lock.token), at: Date.now() / 1000 })
  if (then === 'keep') {
    await lock.lost
    return
  }
  await lock.unlock()
}

const [verb, ...rest] = process.argv.slice(2)
const client = await connect()
await { basics, hold }[verb](client, ...rest)
await client.close({ wait: 1000 })
