package main

import (
	"bufio"
	"fmt"
	"net"
	"time"
)

// door sends lines to the node API's socket, and prints the answers. It sends a line after the
// answer to the previous line.
func door(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("door takes a socket and requests")
	}
	nc, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	for _, request := range args[1:] {
		_ = nc.SetDeadline(time.Now().Add(2 * patience))
		if _, err := nc.Write([]byte(request + "\n")); err != nil {
			return err
		}
		answer, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Print(answer)
	}
	return nil
}
