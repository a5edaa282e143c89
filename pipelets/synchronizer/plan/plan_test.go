package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

func etcd(endpoint, prefix, secret string) pipeletapi.Store {
	return pipeletapi.Store{Etcd: &pipeletapi.Etcd{Endpoints: []string{endpoint}, Prefix: prefix, Secret: secret}}
}

func pipelet(name, flow string, interval float64, src pipeletapi.Store, dst ...pipeletapi.Store) pipeletapi.Pipelet {
	namespace, name, _ := strings.Cut(name, "/")
	return pipeletapi.Pipelet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: pipeletapi.Spec{Src: []pipeletapi.Store{src}, Dst: dst, Flow: flow, Interval: interval}}
}

func TestOf(t *testing.T) {
	lake := pipeletapi.Store{Parquet: &pipeletapi.Parquet{Path: "/lake"}}
	load := etcd("http://a:1", "load/", "")
	suspended := pipelet("a/gone", "", 0, load, lake)
	suspended.Spec.Suspend = true
	all := []pipeletapi.Pipelet{
		pipelet("a/p1", "SELECT key, value FROM src", 0, load, lake, etcd("http://b:1", "x/", "")),
		// this pipelet has the same flow as the first
		pipelet("a/p2", "\nSELECT key, value FROM src;\n", 0, load, lake),
		// this pipelet has the same flow, in another namespace
		pipelet("b/p2", "SELECT key, value FROM src", 0, load, lake),
		pipelet("a/p3", "SELECT key, 1 AS value FROM src", 0, load, lake),
		pipelet("a/p4", "", 2.5, load, lake), // this pipelet has another interval
		pipelet("a/p5", "", 0, etcd("http://a:1", "load/", "s"), lake),
		// this pipelet uses the Secret of the other namespace
		pipelet("b/p6", "", 0, etcd("http://a:1", "load/", "s"), lake),
		pipelet("b/p7", "", 0, etcd("http://a:1", "load/", "s"), lake),
		suspended,
	}
	var b strings.Builder
	if err := Print(&b, Readers(all)); err != nil {
		t.Fatal(err)
	}
	const want = `readers 4, flows 6, workers 9
etcd http://a:1 load/, as records come
  SELECT key, value FROM src
    a/p1 to parquet /lake
    a/p1 to etcd http://b:1 x/
    a/p2 to parquet /lake
  SELECT key, value FROM src
    b/p2 to parquet /lake
  SELECT key, 1 AS value FROM src
    a/p3 to parquet /lake
etcd http://a:1 load/, every 2.5 s
  as they are
    a/p4 to parquet /lake
etcd http://a:1 load/, as records come
  as they are
    a/p5 to parquet /lake
etcd http://a:1 load/, as records come
  as they are
    b/p6 to parquet /lake
    b/p7 to parquet /lake
`
	if b.String() != want {
		t.Errorf("the plan is\n%s, want\n%s", b.String(), want)
	}
}
