// SPDX-License-Identifier: Apache-2.0
'use strict'

// The load of make bench-nodeapi in Node.js: one call at a time through one interface, as
// netcraq-doors client does in Go. node client.cjs DOOR ADDRESS SECONDS WARM MODULES

const { createRequire } = require('node:module')
const net = require('node:net')
const path = require('node:path')

const NAMESPACE = 'default'
const KEY = 'services/barista/leader'
const VALUE_SIZE = 64
const ECHO_SIZE = 128
const TIMEOUT = 5_000

const [door, address, seconds, warm, modules] = process.argv.slice(2)
const foreign = createRequire(path.join(path.resolve(modules), 'x'))
const tcp = /^tcp:\/\/(.*):(\d+)$/.exec(address)

function dial() {
  const socket = net.connect(tcp ? { host: tcp[1], port: Number(tcp[2]), noDelay: true } : { path: address })
  return new Promise((resolve, reject) => socket.once('connect', () => resolve(socket)).once('error', reject))
}

function check(bytes) {
  if (bytes !== VALUE_SIZE) throw new Error(`a value of ${bytes} bytes, not ${VALUE_SIZE}`)
}

const doors = {
  async echo() {
    const socket = await dial()
    const message = Buffer.alloc(ECHO_SIZE, 'x')
    let left = 0
    let answered
    socket.on('data', (data) => {
      left -= data.length
      if (left === 0) answered()
    })
    const get = () =>
      new Promise((resolve) => {
        left = ECHO_SIZE
        answered = resolve
        socket.write(message)
      })
    return { get, version: 'net', close: () => socket.destroy() }
  },

  async json() {
    const netcraq = require('../../client/js')
    const client = await netcraq.connect({ socket: address })
    const get = async () => check((await client.get(KEY)).value.length)
    return { get, version: 'client/js', close: () => client.close() }
  },

  async compact() {
    const { Encoder } = foreign('cbor-x')
    const encoder = new Encoder({ mapsAsObjects: true, useRecords: false, tagUint8Array: false })
    const socket = await dial()
    socket.write('\0NC1')
    let rest = null
    let answered
    socket.on('data', (data) => {
      rest = rest === null ? data : Buffer.concat([rest, data])
      if (rest.length < 4 || rest.length < 4 + rest.readUInt32BE(0)) return
      const [id, item, error] = encoder.decode(rest.subarray(4))
      rest = null
      answered(id, item, error)
    })
    let id = 0
    const get = () =>
      new Promise((resolve, reject) => {
        const mine = ++id
        answered = (theirs, item, error) => {
          if (error || theirs !== mine) return reject(new Error(error?.message ?? `the answer of ${theirs}`))
          check(Buffer.byteLength(item.value))
          resolve()
        }
        const body = encoder.encode([mine, 'get', { key: KEY }, 0, 0, 0])
        const message = Buffer.allocUnsafe(4 + body.length)
        message.writeUInt32BE(body.length)
        message.set(body, 4)
        socket.write(message)
      })
    return { get, version: `cbor-x ${foreign('cbor-x/package.json').version}, a client of its own`, close: () => socket.destroy() }
  },

  async grpc() {
    const grpc = foreign('@grpc/grpc-js')
    const loaded = foreign('@grpc/proto-loader').loadSync(path.join(__dirname, 'doors.proto'))
    const { Doors } = grpc.loadPackageDefinition(loaded).netcraq.doors
    const client = new Doors(tcp ? `${tcp[1]}:${tcp[2]}` : `unix:${address}`, grpc.credentials.createInsecure())
    const get = () =>
      new Promise((resolve, reject) => {
        client.get({ namespace: NAMESPACE, key: KEY }, { deadline: Date.now() + TIMEOUT }, (why, item) => {
          if (why) return reject(why)
          check(item.value.length)
          resolve()
        })
      })
    return { get, version: `@grpc/grpc-js ${foreign('@grpc/grpc-js/package.json').version}`, close: () => client.close() }
  },
}

async function main() {
  const { get, version, close } = await doors[door]()
  for (let i = 0; i < Number(warm); i++) await get()
  const go = new Promise((resolve) => process.stdin.once('data', resolve))
  process.stdout.write('ready\n')
  await go
  const took = new Float64Array(1 << 22)
  let calls = 0
  const cpu = process.cpuUsage()
  const began = performance.now()
  const end = began + Number(seconds) * 1000
  for (let now = began; now < end && calls < took.length; ) {
    await get()
    const then = now
    now = performance.now()
    took[calls++] = now - then
  }
  const elapsed = (performance.now() - began) / 1000
  const used = process.cpuUsage(cpu)
  const sorted = took.subarray(0, calls).sort()
  const at = (share) => sorted[Math.min(calls - 1, Math.floor(calls * share))] * 1000
  const report = {
    calls, seconds: elapsed, p50_us: at(0.5), p99_us: at(0.99), cpu_us: used.user + used.system,
    version: `${version}, Node.js ${process.versions.node}`,
  }
  process.stdout.write(`${JSON.stringify(report)}\n`)
  await close()
  process.stdin.destroy()
}

main().catch((why) => {
  console.error(why)
  process.exit(1)
})
