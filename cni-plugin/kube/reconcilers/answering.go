package reconcilers

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

// answerWait is the timeout for making a connection to a switch.
const answerWait = time.Second

// answering returns the switches whose P4Runtime server accepts connections.
func answering(ctx context.Context, switches []nodeview.Node) []nodeview.Node {
	there := make([]bool, len(switches))
	var wg sync.WaitGroup
	for i, p := range switches {
		wg.Go(func() {
			c, err := (&net.Dialer{Timeout: answerWait}).DialContext(ctx, "tcp", p.Status.P4Runtime)
			if err == nil {
				c.Close()
			}
			there[i] = err == nil
		})
	}
	wg.Wait()
	var out []nodeview.Node
	for i, p := range switches {
		if there[i] {
			out = append(out, p)
		}
	}
	return out
}
