// Command netcraqctl reads and writes the key-value store in the switches, measures it, and shows
// and changes the controller's configuration. See netcraqctl --help. Command netcraq has the
// operators' commands, too.
package main

import "github.com/netcraq/netcraq/cmd/internal/operate"

func main() { operate.Main(operate.Netcraqctl) }
