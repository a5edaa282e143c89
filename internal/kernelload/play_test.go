package kernelload

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
)

// play answers the queries that arrive at an interface, until stop is closed. Each query gets the
// next of the answers.
func play(ifindex int, answers []func(wire.Packet) wire.Packet, started chan<- struct{},
	stop <-chan struct{}) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
		unix.ETH_P_ALL<<8)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8,
		Ifindex: ifindex}); err != nil {
		return err
	}
	close(started)
	buffer := make([]byte, 2048)
	for {
		select {
		case <-stop:
			if len(answers) > 0 {
				return fmt.Errorf("%d answers were not asked for", len(answers))
			}
			return nil
		default:
		}
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING || len(answers) == 0 {
			continue
		}
		f, payload, err := wire.ParseFrame(buffer[:n])
		if err != nil {
			continue // the kernel itself has sent this frame
		}
		var q wire.Packet
		if err := q.Unmarshal(payload, 128); err != nil {
			return err
		}
		if q.Op != wire.Read || len(q.Value) > 0 {
			return fmt.Errorf("a query is %v", q.String())
		}
		q.Op, q.Value = wire.ReadReply, Value(128, q.Key, 7)
		a := answers[0](q)
		answers = answers[1:]
		if payload, err = a.Marshal(128); err != nil {
			return err
		}
		f.EthernetDst, f.EthernetSrc, f.Src, f.Dst = f.EthernetSrc, f.EthernetDst, f.Dst, f.Src
		frame, err := f.AppendTo(nil, payload)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, frame); err != nil {
			return err
		}
	}
}
