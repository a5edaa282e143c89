// SPDX-License-Identifier: Apache-2.0
// Writes to a storage service while it holds a lock.
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'netcraq'

const [role, address] = process.argv.slice(2)
if (!address) {
  console.error('usage: lock.mjs storage|WRITER HOST:PORT')
  process.exit(2)
}
if (role === 'storage') serve(address)
else await write(role, address)

function serve(address) {
  let newest = 0n
  const [host, port] = address.split(':')
  createServer((request, response) => {
    // Number cannot represent every token exactly.
    const token = BigInt(request.url.slice(1))
    // A smaller token belongs to a writer that had the lock before the newest one.
    response.statusCode = token < newest ? 409 : 200
    if (token > newest) newest = token
    response.end()
  }).listen(Number(port), host)
}

async function write(name, address) {
  const client = await connect()
  // If this process is killed, the next one gets the lock after the TTL, in milliseconds.
  const lock = await client.lock('lock-js', { ttl: 5000 })
  while (lock.held) {
    // The signal ends a write that is on its way when the lock is lost.
    const url = `http://${address}/${lock.token}`
    const answer = await fetch(url, { method: 'POST', signal: lock.signal })
    console.log(`${name}: token ${lock.token}: ${answer.status}`)
    if (!answer.ok) break
    await sleep(200)
  }
  await client.close()
}
