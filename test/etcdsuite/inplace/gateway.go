package inplace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// readyTime is the time limit for a gateway to become ready.
const readyTime = 20 * time.Second

// gateway is a gateway process in front of one or more etcd endpoints.
type gateway struct {
	key     string
	urls    []string // URLs of the gateway, one for each endpoint
	process *os.Process
	stdout  *os.File
	certs   certs
	places  *Placement
	clients int
}

// Start starts a gateway in front of endpoints without TLS. It listens at HOST:PORT, or at any free
// port if listen is empty. Start returns the gateway's URL and a function that kills the gateway.
func Start(listen string, endpoints ...string) (url string, end func(), err error) {
	g, err := start(endpoints, []string{listen}, certs{})
	if err != nil {
		return "", nil, err
	}
	return g.urls[0], g.end, nil
}

// start starts a gateway and waits until it is ready. It starts no goroutine that keeps running.
func start(endpoints, listen []string, c certs) (*gateway, error) {
	scheme := "http"
	args := []string{"etcd-monitor", "--endpoints", strings.Join(endpoints, ","), "--metrics-addr", "", "--log-level", "warn", "--max-request-bytes", "104857600", "--grpc-keepalive-min-time", "1ms"}
	if c.server != nil {
		scheme = "https"
		args = append(args, c.server...)
	}
	args = append(args, c.upstream...)
	urls := make([]string, len(listen))
	for i := range listen {
		urls[i] = scheme + "://" + cmp.Or(listen[i], "127.0.0.1:0")
	}
	args = append(args, "--listen-client-urls", strings.Join(urls, ","))
	args = append(args, strings.Fields(os.Getenv(EnvFlags))...)
	if address := os.Getenv(EnvController); address != "" {
		args = append(args, "--controller", address)
		if password := os.Getenv(EnvPassword); password != "" {
			file, err := passwordFile(password)
			if err != nil {
				return nil, err
			}
			defer os.Remove(file)
			args = append(args, "--user", root, "--password-file", file)
		}
	}
	log, err := os.OpenFile(cmp.Or(os.Getenv(EnvLog), os.DevNull), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	process, err := os.StartProcess(os.Getenv(EnvGateway), args, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, write, log}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		read.Close()
		return nil, err
	}
	write.Close()
	g := &gateway{process: process, stdout: read, certs: c}
	read.SetReadDeadline(time.Now().Add(readyTime))
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		g.end()
		return nil, fmt.Errorf("%w: %w (%s says more)", errClosed, err, log.Name())
	}
	_, rest, ok := strings.Cut(line, "etcd's API at ")
	rest, _, _ = strings.Cut(rest, ", for ")
	if g.urls = strings.Split(rest, ","); !ok || len(g.urls) != len(listen) {
		g.end()
		return nil, fmt.Errorf("the gateway said %q", line)
	}
	return g, nil
}

// passwordFile writes a password to a file that a starting gateway can read.
func passwordFile(password string) (string, error) {
	f, err := os.CreateTemp("", "password")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(password)
	return f.Name(), errors.Join(err, f.Close())
}

// end kills the process. A gateway has nothing to clean up.
func (g *gateway) end() {
	if g.places != nil {
		g.places.Close()
	}
	g.process.Kill()
	g.process.Wait()
	g.stdout.Close()
	g.certs.remove()
}
