package placementcontroller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// These are queries to Prometheus about the gateways' metrics (etcd-monitor/hotkeys, where a test
// compares the names). The label of ReadsMetric and WritesMetric is a key, in the form of
// placement.Printable.
const (
	ReadsMetric  = "etcd_monitor_key_reads_total"
	WritesMetric = "etcd_monitor_key_writes_total"
	KeyLabel     = "key"
)

// Top is the number of most-read keys, and of most-written keys, for which Prometheus is queried.
const Top = 2000

// maxAnswer is the longest accepted answer, in bytes. It has room for Top keys of 4 kB each.
const maxAnswer = 16 << 20

// Prometheus queries a Prometheus server.
type Prometheus struct {
	api    promv1.API
	url    string
	window model.Duration
	wait   time.Duration
}

// NewPrometheus makes a source. address is the server's URL. window is the time over which rates
// are computed, which must be at least twice the scrape interval. wait is the time limit for an
// answer.
func NewPrometheus(address string, window, wait time.Duration) (*Prometheus, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the URL of a Prometheus (http://HOST:9090)", address)
	}
	if window < time.Second || wait <= 0 {
		return nil, fmt.Errorf("rates over %v, answers within %v: it takes a second at least, and some time", window, wait)
	}
	c, err := promapi.NewClient(promapi.Config{Address: address,
		Client: &http.Client{Transport: limited{http.DefaultTransport.(*http.Transport).Clone()}}})
	if err != nil {
		return nil, fmt.Errorf("the Prometheus %s: %w", address, err)
	}
	return &Prometheus{promv1.NewAPI(c), u.Redacted(), model.Duration(window), wait}, nil
}

// limited limits the length of answers.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// Name returns the URL and the window.
func (p *Prometheus) Name() (url, window string) { return p.url, p.window.String() }

// Heat returns the heat of the hottest keys. If a rate is impossible or the answer is too long,
// Heat rejects the whole answer, because a source that is wrong about one key may be wrong about
// others.
func (p *Prometheus) Heat(ctx context.Context) (map[string]policy.Heat, error) {
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	reads, err := p.rates(ctx, ReadsMetric)
	if err != nil {
		return nil, err
	}
	writes, err := p.rates(ctx, WritesMetric)
	if err != nil {
		return nil, err
	}
	out := make(map[string]policy.Heat, len(reads))
	for k, n := range reads {
		out[k] = policy.Heat{Reads: n, Writes: writes[k]}
	}
	for k, n := range writes {
		out[k] = policy.Heat{Reads: reads[k], Writes: n}
	}
	return out, nil
}

// rates returns a counter's rate for each of the Top keys with the highest rates.
func (p *Prometheus) rates(ctx context.Context, metric string) (map[string]float64, error) {
	query := fmt.Sprintf("topk(%d, sum by (%s) (rate(%s[%s])))", Top, KeyLabel, metric, p.window)
	vector, err := p.ask(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(vector) > Top {
		return nil, fmt.Errorf("Prometheus at %s: %s: %d answers, more than asked for", p.url, query, len(vector))
	}
	out := make(map[string]float64, len(vector))
	for _, s := range vector {
		x := float64(s.Value)
		if !(policy.Heat{Reads: x}).Valid() {
			return nil, fmt.Errorf("Prometheus at %s: %s: a rate of %v cannot be", p.url, query, x)
		}
		key, err := placement.ParsePrintable(string(s.Metric[KeyLabel]))
		if err != nil || key == "" {
			continue // this metric does not come from NetCRAQ's gateways
		}
		out[key] = x
	}
	return out, nil
}

func (p *Prometheus) ask(ctx context.Context, query string) (model.Vector, error) {
	v, _, _, err := p.api.Query(ctx, query, time.Time{}, promv1.WithTimeout(p.wait))
	if err != nil {
		return nil, p.failed(ctx, query, err)
	}
	vector, ok := v.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("Prometheus at %s: %s: it answered with a %v, and not with a vector", p.url, query, v.Type())
	}
	return vector, nil
}

func (p *Prometheus) failed(ctx context.Context, query string, err error) error {
	var e *promv1.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("Prometheus at %s did not answer within %v", p.url, p.wait)
	case errors.As(err, new(*http.MaxBytesError)):
		return fmt.Errorf("Prometheus at %s: %s: its answer is longer than %d bytes", p.url, query, maxAnswer)
	case errors.As(err, &e):
		return fmt.Errorf("Prometheus at %s: %s: %s (is it a Prometheus?)", p.url, query, e.Msg)
	case errors.Is(err, io.EOF):
		err = errors.New("it closed the connection")
	}
	return fmt.Errorf("Prometheus at %s: %w", p.url, err)
}

// Scalar returns the value of a query with a single result. It returns false if there is no such
// result.
func (p *Prometheus) Scalar(ctx context.Context, query string) (float64, bool) {
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	v, err := p.ask(ctx, query)
	if err != nil || len(v) != 1 || math.IsNaN(float64(v[0].Value)) || math.IsInf(float64(v[0].Value), 0) {
		return 0, false
	}
	return float64(v[0].Value), true
}
