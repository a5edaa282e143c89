package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/admin"
)

// Permitted clock differences. Larger ones never cause wrong reads, because each switch measures
// read leases by its own clock. But a machine refuses a certificate whose validity has not begun by
// its clock.
const (
	driftWarning = time.Second
	driftProblem = 30 * time.Second
)

func clocks(ctx context.Context, l *look) {
	l.synchronized()
	if source := read(l.path("/sys/devices/system/clocksource/clocksource0/current_clocksource")); source == "hpet" || source == "acpi_pm" || source == "jiffies" {
		l.warn("clock source", "look in dmesg why the kernel took tsc for unstable; in a virtual machine, use its host's (kvm-clock)",
			"%s: each look at the clock takes a microsecond, and the switch's programs look at it for each packet", source)
	}
	client := &http.Client{Timeout: l.Timeout}
	if address, ok := l.adminAddress(); ok {
		client.Transport = adminTransport(address)
		base := "http://localhost"
		if !strings.Contains(address, "unix://") {
			if base = address; !strings.Contains(base, "://") {
				base = "http://" + base
			}
		}
		l.drift(ctx, client, "controller", base)
	}
	if len(l.Etcd) == 0 {
		return
	}
	config, err := l.etcdTLS()
	if err != nil {
		l.unseen("etcd", "the files for it", err)
		return
	}
	client.Transport = &http.Transport{TLSClientConfig: config}
	for _, url := range l.Etcd {
		if !strings.Contains(url, "://") {
			url = "http://" + url
		}
		l.drift(ctx, client, "etcd "+url, strings.TrimRight(url, "/")+"/version")
	}
}

func (l *look) synchronized() {
	status, worst, err := l.probes.clock()
	switch {
	case err != nil:
		l.unseen("synchronization", "asking the kernel", err)
	case status&unix.STA_UNSYNC != 0:
		l.warn("synchronization", "run chrony or systemd-timesyncd on all machines", "nothing keeps the clock right (the kernel says unsynchronized): certificates are refused, and events are out of order, when it drifts away")
	default:
		l.ok("synchronization", "the clock is kept right, to %v at worst", worst)
	}
}

// adjtimex returns the status of the kernel's clock, and its maximum error.
func adjtimex() (status int32, worst time.Duration, err error) {
	var t unix.Timex
	_, err = unix.Adjtimex(&t)
	return t.Status, time.Duration(t.Maxerror) * time.Microsecond, err
}

// drift compares this machine's clock with the Date header of a server's answer, which is in whole
// seconds.
func (l *look) drift(ctx context.Context, client *http.Client, who, url string) {
	before := l.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		l.unseen(who, "asking for its time", err)
		return
	}
	answer, err := client.Do(req)
	if err != nil {
		l.unseen(who, "asking for its time", err)
		return
	}
	answer.Body.Close()
	after := l.Now()
	theirs, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		l.unseen(who, "asking for its time", errors.New("its answer has no date"))
		return
	}
	apart := apart(before, after, theirs)
	said := fmt.Sprintf("%v ahead of this machine's", apart.Round(time.Second))
	if apart < 0 {
		said = fmt.Sprintf("%v behind this machine's", -apart.Round(time.Second))
	}
	const advice = "have both keep their clocks by the same servers (chrony, systemd-timesyncd)"
	switch size := max(apart, -apart); {
	case size >= driftProblem:
		l.problem(who, advice, "its clock is %s: certificates and tokens that one has just made are not valid for the other", said)
	case size >= driftWarning:
		l.warn(who, advice, "its clock is %s: events of the two are out of order", said)
	default:
		l.ok(who, "its clock agrees with this machine's, to a second")
	}
}

// apart returns the minimum difference between this clock and a server's clock. The server's time
// said is cut to the second, and the server read it between before and after.
func apart(before, after, said time.Time) time.Duration {
	if d := said.Sub(after); d > 0 {
		return d
	}
	if d := said.Add(time.Second).Sub(before); d < 0 {
		return d
	}
	return 0
}

// adminAddress returns the admin API's address. It returns false if the options name no address and
// no usual socket exists.
func (l *look) adminAddress() (string, bool) {
	if l.Admin != "" {
		return l.Admin, true
	}
	address := admin.DefaultSocket()
	at := slices.IndexFunc(strings.Split(address, ","), func(a string) bool {
		_, err := os.Stat(strings.TrimPrefix(a, "unix://"))
		return err == nil
	})
	return address, at >= 0
}

// adminTransport makes a transport for an address of the admin API.
func adminTransport(address string) http.RoundTripper {
	if !strings.Contains(address, "unix://") {
		return http.DefaultTransport
	}
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
		for _, a := range strings.Split(address, ",") {
			if path, ok := strings.CutPrefix(a, "unix://"); ok {
				if c, err = new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
					return c, nil
				}
			}
		}
		return nil, err
	}}
}

// etcdTLS is the TLS configuration for etcd.
func (l *look) etcdTLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.EtcdCA != "" {
		pem, err := os.ReadFile(l.EtcdCA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificates (PEM)", l.EtcdCA)
		}
	}
	if l.EtcdCert != "" {
		pair, err := tls.LoadX509KeyPair(l.EtcdCert, l.EtcdKey)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
