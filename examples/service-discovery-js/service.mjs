// SPDX-License-Identifier: Apache-2.0
// Registers an instance of a service, or balances requests over all live instances.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'netcraq'

const [role, address] = process.argv.slice(2)
if (role !== 'balancer' && !(role === 'instance' && address)) {
  console.error('usage: service.mjs instance HOST:PORT | balancer')
  process.exit(2)
}
const client = await connect()
if (role === 'instance') await serve(address)
else await balance()

async function serve(address) {
  const [host, port] = address.split(':')
  const server = createServer((request, response) => response.end(`hello from ${address}\n`))
  server.listen(Number(port), host)
  await once(server, 'listening')
  // Register when requests can be served. A dead instance disappears from the list after the TTL.
  const registration = await client.registerService('hello', address, { ttl: 5000 })
  console.log('registered', address)
  process.once('SIGTERM', async () => {
    await registration.deregister()
    // A balancer may not have seen the change yet, so serve requests for a moment longer.
    await sleep(200)
    server.close()
    await client.close()
  })
}

async function balance() {
  let instances = []
  follow().catch((error) => {
    console.error(error)
    process.exit(1)
  })
  for (let turn = 0; ; turn++) {
    await sleep(200)
    if (instances.length === 0) continue
    const { address } = instances[turn % instances.length]
    try {
      const answer = await fetch(`http://${address}/`)
      process.stdout.write(await answer.text())
    } catch {
      console.log('no answer from', address) // it died, and its lease has not ended yet
    }
  }

  async function follow() {
    for await (instances of client.watchService('hello')) {
      console.log('instances:', instances.map((i) => i.address).sort().join(' ') || 'none')
    }
  }
}
