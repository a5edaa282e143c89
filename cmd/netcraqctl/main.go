// Command netcraqctl reads and writes the key-value store in the switches, and measures it. It also
// shows and changes the controller's configuration. See netcraqctl --help. The command netcraq also
// has the operators' commands.
package main

import "github.com/netcraq/netcraq/cmd/internal/operate"

func main() { operate.Main(operate.Netcraqctl) }
