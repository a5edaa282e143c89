package adminrights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/nodeapi/authority"
)

// BodyLimit is the maximum size, in bytes, of the body of a request from a node.
const BodyLimit = 64 << 10

// ByNode permits only the requests that a node's agent needs, because the node may be compromised.
// The agent may list chains, list and create the node API's keys, and return unused keys. It may
// also lease sessions for the node's own address, and register a server at this address for
// notifications. quota returns the maximum number of keys of a namespace.
func ByNode(name string, host netip.Addr, share *Share, quota func(namespace string) int,
	next http.Handler) http.Handler {
	mux := http.NewServeMux()
	pass := func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(adminserver.WithCaller(r.Context(), adminserver.Caller{Node: name})))
	}
	deny := func(w http.ResponseWriter, format string, args ...any) {
		e := admin.Errorf(admin.CodePermissionDenied, format, args...)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(admin.MarshalError(e))
	}
	denyKey := func(w http.ResponseWriter, name string) {
		deny(w, "a node may ask for keys whose names begin with %s, not for %.80q", nodeapi.KeyPrefix, name)
	}
	mux.HandleFunc("GET /v1/chains", pass)
	mux.HandleFunc("GET /v1/chains/{chain}", pass)
	list := share.lists.limit(pass)
	mux.HandleFunc("GET /v1/keys", func(w http.ResponseWriter, r *http.Request) {
		prefix := r.URL.Query()["prefix"]
		if len(prefix) != 1 || !strings.HasPrefix(prefix[0], nodeapi.KeyPrefix) {
			denyKey(w, strings.Join(prefix, " "))
			return
		}
		if r.URL.Query().Has("state") {
			deny(w, "a node reads what keys hold at its own switch")
			return
		}
		list(w, r)
	})
	named := func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.PathValue("name"), nodeapi.KeyPrefix) {
			denyKey(w, r.PathValue("name"))
			return
		}
		if r.URL.Query().Has("state") {
			deny(w, "a node reads what keys hold at its own switch")
			return
		}
		pass(w, r)
	}
	mux.HandleFunc("GET /v1/keys/{name}", named)
	mux.HandleFunc("DELETE /v1/keys/{name}", named) // the controller removes the key only if it has no value
	mux.HandleFunc("POST /v1/keys", changed(func(k *admin.KeyRequest) error {
		namespace, key, ok := nodeapi.ParseKeyName(k.Name)
		if !ok || authority.CheckNamespace(namespace) != nil || key == "" {
			return fmt.Errorf("a node may make keys whose names are %sNAMESPACE/KEY, not %.80q", nodeapi.KeyPrefix,
				k.Name)
		}
		if k.Quota == nil || k.Quota.Prefix != nodeapi.NamespacePrefix(namespace) {
			return errors.New("a node makes keys within the quota of their namespace")
		}
		k.Node, k.Quota.Keys = name, min(k.Quota.Keys, quota(namespace))
		return nil
	}, deny, pass))
	mux.HandleFunc("POST /v1/sessions", changed(func(s *admin.SessionsRequest) error {
		s.Address = host.String()
		return nil
	}, deny, pass))
	mux.HandleFunc("PUT /v1/watches", changed(func(w *admin.WatchRequest) error {
		w.Address = host.String()
		return nil
	}, deny, share.watches.limit(pass)))
	mux.HandleFunc("PUT /v1/sessions/{lease}", pass) // lease names cannot be guessed, so any holder may renew
	mux.HandleFunc("DELETE /v1/sessions/{lease}", pass)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		deny(w, "a node may not %s %.80s", r.Method, r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(ReadOnlyHeader)
		r.Body = http.MaxBytesReader(w, r.Body, BodyLimit)
		if share.wait(r) != nil {
			return // the caller has gone
		}
		mux.ServeHTTP(w, r)
	})
}

// changed parses a request, lets check examine and change it, and forwards the result. It does not
// forward the caller's own bytes.
func changed[T any](check func(*T) error, deny func(http.ResponseWriter, string, ...any),
	pass http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		what := new(T)
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(what); err != nil || d.More() {
			deny(w, "the request's body is not understood: %v", err)
			return
		}
		if err := check(what); err != nil {
			deny(w, "%v", err)
			return
		}
		b, err := json.Marshal(what)
		if err != nil {
			deny(w, "%v", err)
			return
		}
		out := r.Clone(r.Context())
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		pass(w, out)
	}
}

// DefaultKeys returns the maximum number of keys of a namespace, for a leader that has no policy of
// its own.
func DefaultKeys(string) int { return authority.DefaultQuota.Keys }
