// SPDX-License-Identifier: Apache-2.0
'use strict'

const { DEFAULT_SOCKET, SOCKET_VARIABLE } = require('./lib/address.cjs')
const { Client, connect } = require('./lib/client.cjs')
const { Code, NodeError, OutcomeUnknown } = require('./lib/errors.cjs')
const { NEVER_WRITTEN, compareVersions } = require('./lib/values.cjs')

module.exports = { Client, Code, DEFAULT_SOCKET, NEVER_WRITTEN, NodeError, OutcomeUnknown, SOCKET_VARIABLE, compareVersions, connect }
