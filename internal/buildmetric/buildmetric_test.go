package buildmetric

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/buildinfo"
)

// TestNew: the build metrics of two programs can be gathered together, as in an agent that runs the
// controller.
func TestNew(t *testing.T) {
	one, other := prometheus.NewRegistry(), prometheus.NewRegistry()
	one.MustRegister(New("netcraq-agent"))
	other.MustRegister(New("netcraq-controller"))
	families, err := prometheus.Gatherers{one, other}.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 2 {
		t.Fatalf("%v, %v", families, err)
	}
	text := families[0].String()
	for _, want := range []string{"netcraq_build_info", "netcraq-agent", "netcraq-controller", buildinfo.Version()} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}
