package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"
)

// AlivePath is a path of a controller's admin API that proves that the controller's process is
// alive. The answer begins with the controller's Identity, and ends only when the process ends.
const AlivePath = "/v1/alive"

// Alive serves AlivePath.
func Alive(id Identity) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if json.NewEncoder(w).Encode(id) != nil {
			return
		}
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
}

// hasEnded waits until a leader's process has ended, and then returns true. If ctx ends first, it
// returns false. It returns true only if it has reached the process at its address, and the
// machine's kernel has since closed the connection and refuses new ones. If the machine does not
// answer, hasEnded concludes nothing.
func hasEnded(ctx context.Context, leader Identity) bool {
	if leader.Admin == "" {
		return false
	}
	met := false
	for ctx.Err() == nil {
		who, err := follow(ctx, leader.Admin)
		switch {
		case who != "":
			met = who == leader.Name
			if !met { // another process answers at the address
				return false
			}
		case met && errors.Is(err, syscall.ECONNREFUSED):
			return true
		default:
			pause(ctx, 100*time.Millisecond)
		}
	}
	return false
}

// follow reads a live controller's answer until the answer ends, and returns the controller's name.
func follow(ctx context.Context, address string) (name string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+AlivePath, nil)
	if err != nil {
		return "", err
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	r, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	var id Identity
	if err := json.NewDecoder(r.Body).Decode(&id); err != nil || r.StatusCode != http.StatusOK {
		return "", errors.Join(err, errors.New(r.Status))
	}
	io.Copy(io.Discard, r.Body)
	return id.Name, nil
}
