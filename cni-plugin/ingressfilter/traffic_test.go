package ingressfilter

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// exchange sends some bytes from one namespace to another, and expects to get them back.
func exchange(t *testing.T, from, to *udptest.Space, network, address string, size int) error {
	t.Helper()
	sent := bytes.Repeat([]byte("netcraq."), size/8+1)[:size]
	var server io.Closer
	to.Do(func() error {
		if network == "udp" {
			s, err := net.ListenPacket(network, address)
			if err == nil {
				server = s
				go func() {
					b := make([]byte, 1<<16)
					for {
						n, who, err := s.ReadFrom(b)
						if err != nil {
							return
						}
						_, _ = s.WriteTo(b[:n], who)
					}
				}()
			}
			return err
		}
		s, err := net.Listen(network, address)
		if err == nil {
			server = s
			go func() {
				if c, err := s.Accept(); err == nil {
					_, _ = io.Copy(c, c)
					c.Close()
				}
			}()
		}
		return err
	})
	defer server.Close()
	var c net.Conn
	var err error
	from.Do(func() error { c, err = net.DialTimeout(network, address, 5*time.Second); return nil })
	if err != nil {
		return err
	}
	defer c.Close()
	got := make([]byte, size)
	for range 5 { // UDP packets may be lost on a busy machine
		if _, err = c.Write(sent); err != nil {
			return err
		}
		if err = c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err = io.ReadFull(c, got); err == nil || network == "tcp" {
			break
		}
	}
	if err == nil && !bytes.Equal(got, sent) {
		err = fmt.Errorf("other bytes came back")
	}
	return err
}

func ping(t *testing.T, from *udptest.Space, to, size string) error {
	t.Helper()
	path, err := exec.LookPath("ping")
	if err != nil {
		t.Skip("skipped: needs ping (iputils)")
	}
	var out []byte
	from.Do(func() error {
		out, err = exec.Command(path, "-c1", "-W3", "-s", size,
			to).CombinedOutput()
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
