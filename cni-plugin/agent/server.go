package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// maxRequest bounds a request, in bytes. It is large because a GC lists all attachments of a node.
const maxRequest = 4 << 20

// Handler serves the protocol of package agentapi.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	prefix := fmt.Sprintf("/v%d/", agentapi.Version)
	mux.HandleFunc("POST "+prefix+"attach", serve(a.Attach))
	mux.HandleFunc("POST "+prefix+"chain", serve(func(r *agentapi.Chain) (struct{}, error) { return struct{}{}, a.Chain(r) }))
	mux.HandleFunc("POST "+prefix+"detach", serve(func(r *agentapi.Attachment) (struct{}, error) {
		return struct{}{}, a.Detach(*r)
	}))
	mux.HandleFunc("POST "+prefix+"check", serve(func(r *agentapi.Check) (struct{}, error) { return struct{}{}, a.Check(r) }))
	mux.HandleFunc("POST "+prefix+"gc", serve(a.Collect))
	mux.HandleFunc("GET "+prefix+"status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.Status()) })
	mux.HandleFunc("GET "+prefix+"attachments", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, a.Attachments())
	})
	return mux
}

// serve makes an HTTP handler of a function that takes a request and returns an answer.
func serve[Req, Resp any](do func(*Req) (Resp, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req := new(Req)
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(req); err != nil {
			answer(w, http.StatusBadRequest, agentapi.Errorf(agentapi.CodeDecoding, "reading the request: %v", err))
			return
		}
		resp, err := do(req)
		if err == nil {
			answer(w, http.StatusOK, resp)
			return
		}
		var e *agentapi.Error
		if !errors.As(err, &e) {
			e = agentapi.Errorf(agentapi.CodeFailed, "%v", err)
		}
		answer(w, http.StatusInternalServerError, e)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // encoding fails only if the client has gone
}

// Listen makes the agent's Unix socket, in a folder that only root can enter. It replaces the
// socket of a dead agent. If another agent still uses the socket, Listen returns an error.
func Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the agent's socket: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the agent's socket: %w", err)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another agent listens at %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the socket of an agent that has gone: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("the agent's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("the agent's socket: %w", err)
	}
	return l, nil
}
