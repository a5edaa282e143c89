// SPDX-License-Identifier: Apache-2.0

// These tests check that the library has the same exports as an ECMAScript module and by require,
// and that its types declare all exports.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import * as esm from 'netcraq'

const cjs = createRequire(import.meta.url)('netcraq')

test('import and require give the same', () => {
  assert.deepEqual(Object.keys(esm).sort(), Object.keys(cjs).sort())
  for (const name of Object.keys(cjs)) assert.equal(esm[name], cjs[name])
})

test('the types name what there is', () => {
  const types = fs.readFileSync(new URL('../index.d.cts', import.meta.url), 'utf8')
  const exported = [...types.matchAll(/^export (?:const|function|class) (\w+)/gm)].map((match) => match[1])
  assert.deepEqual([...new Set(exported)].sort(), Object.keys(cjs).sort())
  const [, body] = /^export class Client [^{]*\{\n([\s\S]*?)^\}/m.exec(types)
  const typed = new Set([...body.matchAll(/^ {2}(\w+)\(/gm)].map((match) => match[1]))
  const there = Object.getOwnPropertyNames(cjs.Client.prototype)
  const inner = ['constructor', 'server', 'giveBack', 'register', 'deregister']
  for (const name of there) if (!inner.includes(name)) assert.ok(typed.has(name), `${name} has no type`)
  for (const name of typed) if (!['on', 'once'].includes(name)) assert.ok(there.includes(name), `${name} is not there`)
})
