// Package etcdevents is a source of streams. It fills a stream with changes of the keys of an etcd,
// from etcd's watch.
//
// The operator of the node's server names the etcd in a file (Open), and which of its keys each
// namespace may read. Programs request a prefix; the source accepts or refuses it.
package etcdevents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/streams/source"
)

// Rules lists the prefixes that each namespace may use. The name "*" stands for all namespaces.
type Rules map[string][]string

// Origin is an etcd whose keys fill streams.
type Origin struct {
	etcd  *durable.Connection
	rules Rules
	// progressEvery is the interval at which a source asks etcd for the progress of a partition.
	progressEvery time.Duration
}

// New creates an Origin for an existing connection, which the caller must close.
func New(etcd *durable.Connection, r Rules) *Origin { return &Origin{etcd, r, progressEvery} }

// maxFile is the maximum size of the operator's file, in bytes.
const maxFile = 1 << 20

// Open reads the file of an operator, and begins to connect to the etcd. For example:
//
//	endpoints: [https://etcd.example:2379]
//	cacert: /etc/netcraq/etcd-ca.crt         # cert and key, user and passwordFile: as needed
//	prefixes:
//	  shop: [/prices/, /stock/]              # prefixes that streams of the namespace shop may use
//	  "*": [/holidays/]                      # prefixes that all namespaces may use
func Open(path string) (o *Origin, end func(), err error) {
	var f struct {
		Endpoints    []string
		CACert       string `yaml:"cacert"`
		Cert, Key    string
		User         string
		PasswordFile string `yaml:"passwordFile"`
		Prefixes     Rules
	}
	text, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, nil, err
	}
	access := durable.Access{Endpoints: f.Endpoints, CA: f.CACert, Cert: f.Cert, Key: f.Key, User: f.User,
		PasswordFile: f.PasswordFile}
	if !access.Given() {
		return nil, nil, errors.New("it names no endpoints")
	}
	for ns, all := range f.Prefixes {
		if err := authority.CheckNamespace(ns); err != nil && ns != "*" {
			return nil, nil, fmt.Errorf("prefixes: %w", err)
		}
		for _, p := range all {
			if p == "" {
				return nil, nil, fmt.Errorf("prefixes: %s: an empty one would be all keys", ns)
			}
		}
	}
	etcd, err := durable.Dial(access)
	if err != nil {
		return nil, nil, err
	}
	return New(etcd, f.Prefixes), func() { _ = etcd.Close() }, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, errors.New("it may be written by others than its owner")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return text, err
}

// Make makes a source. It is a source.Maker.
func (o *Origin) Make(namespace string, c nodeapi.StreamSource) (source.Source, error) {
	if c.Etcd == nil {
		return nil, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "source is not etcd")
	}
	for _, ns := range []string{namespace, "*"} {
		for _, p := range o.rules[ns] {
			if strings.HasPrefix(c.Etcd.Prefix, p) {
				return &events{o.etcd, c.Etcd.Prefix, o.progressEvery}, nil
			}
		}
	}
	return nil, nodeapi.Errorf(nodeapi.CodePermissionDenied, "ask the operator of the node's server for it",
		"streams of the namespace %s may not have keys of etcd that begin with %.80q", namespace, c.Etcd.Prefix)
}
