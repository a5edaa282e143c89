package durable

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestPages checks that pages contain each name once, in order, with the state of the key. It uses
// a gateway, and etcd directly. A page must end when its values reach the limit.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, ctx := open(t, Options{}, w.gateway()), t.Context()
	want := map[string]string{}
	var names []string
	for i := range 150 { // create more keys than one request to etcd returns
		name := fmt.Sprintf("conf/%03d", i)
		value := bytes.Repeat([]byte{byte(i)}, 100)
		want[name], names = string(value), append(names, name)
		if _, err := s.Put(ctx, key(name), value); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := s.Delete(ctx, key("conf/007"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []store.Key{key("conf"), key("conf0"), {Namespace: ns + "2", Name: "conf/1"}} {
		if _, err := s.Put(ctx, k, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	client := etcdtest.Client(t, w.Endpoints()...)
	remove, err := w.place(ctx, client, nameOf(key("conf/001")))
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	want["conf/001"] = "in the network"
	if _, err := s.Put(ctx, key("conf/001"), []byte(want["conf/001"])); err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]*Store{"gateway": s, "etcd": open(t, Options{}, w.Endpoints()...)} {
		for _, r := range []store.Range{{Most: 256, Bytes: 1 << 20}, {Most: 40, Bytes: 1 << 20},
			{Most: 1000, Bytes: 350}} {
			r.Namespace, r.Prefix = ns, "conf/"
			var found []string
			pages := 0
			for more := true; more; {
				page, err := at.Page(ctx, r)
				if err != nil {
					t.Fatal(err)
				}
				pages++
				more = page.More
				for _, n := range page.Names {
					found, r.After = append(found, n.Key.Name), n.Key.Name
					switch value := want[n.Key.Name]; {
					case !n.Read || n.Key.Namespace != ns:
						t.Errorf("%+v", n)
					case n.Key.Name == "conf/007":
						is(t, "deleted", n.Item, "", gone)
					case string(n.Value) != value:
						t.Errorf("%s, %s: %q", what, n.Key.Name, n.Value)
					}
				}
				if len(page.Names) > r.Most || r.Bytes == 350 && len(page.Names) > 5 {
					t.Errorf("%s: a page of %d names", what, len(page.Names))
				}
			}
			if !slices.Equal(found, names) || (pages == 1) != (r.Most == 256) {
				t.Errorf("%s, %+v: %d names in %d pages: %q", what, r, len(found), pages, found)
			}
		}
	}
	for _, after := range []string{"conf/149", "conf/\xff", "zzz", "conf0"} {
		page, err := s.Page(ctx, store.Range{Namespace: ns, Prefix: "conf/", After: after, Most: 10, Bytes: 1})
		if err != nil || len(page.Names) > 0 || page.More {
			t.Errorf("after the last: %+v, %v", page, err)
		}
	}
}

// TestPageIsOfOneMoment checks that all items of a page have the state of the same moment, although
// a page takes several requests to etcd. In each round the test writes the last key after the first
// key. So the last key must never be newer than the first key in a page.
func TestPageIsOfOneMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, ctx := open(t, Options{}, w.Endpoints()...), t.Context()
	name := func(n int) store.Key { return key(fmt.Sprintf("k%03d", n)) }
	const keys = 3 * valuesPage
	write := func(n, round int) {
		if _, err := s.Put(ctx, name(n), fmt.Append(nil, round)); err != nil {
			t.Error(err)
		}
	}
	for n := range keys {
		write(n, 0)
	}
	over := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for round := 1; ; round++ {
			select {
			case <-over:
				return
			default:
				write(0, round)
				write(keys-1, round)
			}
		}
	})
	defer work.Wait()
	defer close(over)
	for range 100 {
		page, err := s.Page(ctx, store.Range{Namespace: ns, Most: keys, Bytes: 1 << 20})
		if err != nil || len(page.Names) != keys {
			t.Fatalf("%d names, %v", len(page.Names), err)
		}
		first, _ := strconv.Atoi(string(page.Names[0].Value))
		last, _ := strconv.Atoi(string(page.Names[keys-1].Value))
		if last > first || last < first-1 {
			t.Fatalf("not of one moment: the first key is in round %d, the last one in %d", first, last)
		}
	}
}
