// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package nodeapi

import "io/fs"

// ownedByUser returns false, because `netcraq dev` needs Linux.
func ownedByUser(fs.FileInfo) bool { return false }
