package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestDev runs the commands that a new user tries, without privileges.
func TestDev(t *testing.T) {
	u := newUser(t)
	began := time.Now()
	server := u.dev()
	ready := time.Since(began)
	began = time.Now()
	version := u.must("put", "color", "blue")
	put := time.Since(began)
	began = time.Now()
	if got := u.must("get", "color"); got != "blue" {
		t.Errorf("get: %q", got)
	}
	t.Logf("ready after %v, put %v, get %v", ready, put, time.Since(began))
	if !regexp.MustCompile(`^\d+\.\d+$`).MatchString(version) {
		t.Errorf("put prints %q", version)
	}
	if got := u.must("get", "color", "-o", "json"); got != `{"key":"color","found":true,"value":"blue","version":"`+version+`"}` {
		t.Errorf("get -o json prints %s", got)
	}
	for _, c := range []struct {
		args string
		code int
		want string // required part of the output
	}{
		{"get nothing", exitNotFound, "nothing has no value"},
		{"get nothing -o json", exitNotFound, `"found":false`},
		{"put color red --if-version 9.9", exitRefused, "color has version " + version + ", not 9.9; nothing was written"},
		{"put color red --if-absent", exitRefused, "nothing was written"},
		{"cas color 0 red", exitRefused, "nothing was written"},
		{"delete color --if-version 9.9", exitRefused, "nothing was deleted"},
		{"cas color " + version + " red", 0, "."},
		{"get color", 0, "red\n"},
		{"get color --version", 0, "\tred\n"},
		{"put color x --ttl 1m --if-version 9.9", exitRefused, "nothing was written"},
		{"key show color", 0, " in chain main, slot "},
		{"key show color -o json", 0, `"name": "node/default/color"`},
		{"key show nothing-there", exitNotFound, "is not placed in the network"},
		{"key add colors/more hex:00", 0, "is 0x"},
		{"key remove colors/more", 0, "is out of chain main"},
		{"direct get node/default/color", 0, "answer   from "},
		{"direct get nothing-there", exitNotFound, "is not placed in the network"},
		{"delete color", 0, "."},
		{"get color", exitNotFound, "no value"},
		{"put color again --if-absent", 0, "."},
		{"increment visits", 0, "1\n"},
		{"increment visits --by -3", 0, "-2\n"},
		{"put other mine --namespace elsewhere", 0, "."},
		{"get other", exitNotFound, "no value"},
		{"lock printer -- sh -c exit\\ $((NETCRAQ_TOKEN>0))", 1, "holding printer with token "},
		{"elect boss --value me -- true", 0, "holding boss"},
		{"semaphore uploads 2 -- true", 0, "holding uploads"},
		{"lock printer -- /nowhere", 1, "cannot run /nowhere"},
		{"chain show", 0, "chain main"},
		{"chain show -o json", 0, `"version": "` + buildinfo.Version() + `"`},
		{"switch list", 0, "s3"},
		{"status", 0, "no problems"},
		{"status --over 1h", 2, "pass 100ms to 1m"},
		{"bench --duration 100ms", 0, "queries"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "\\ ", "\x00"))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		out, errs, code := u.run(args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: exit code %d, %s%s; want %d, %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	u.lists()
	u.transacts()
	u.watches()
	u.excludes()
	u.leases()
	u.expires()
	u.pipelets()
	u.services()
	u.streams()
	u.streamCommands()
	u.etcd(server)
	if code := server.interrupt(t); code != 0 {
		t.Errorf("exit code %d: %s", code, server.said)
	}
	if left, err := filepath.Glob(filepath.Join(u.home, "run", "*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// lists checks that list prints all keys with a prefix, in order, with their versions. It omits
// deleted keys.
func (u *user) lists() {
	u.t.Helper()
	want, keys := "", ""
	for _, key := range []string{"list/a", "list/b", "list/c"} {
		v := u.must("put", key, "of "+key)
		want += v + "\t" + key + "\tof " + key + "\n"
		keys += v + "\t" + key + "\n"
	}
	u.must("put", "list/gone", "x")
	u.must("delete", "list/gone")
	if got := u.must("list", "list/") + "\n"; got != want {
		u.t.Errorf("list prints\n%swant\n%s", got, want)
	}
	if got := u.must("list", "list/", "--keys-only") + "\n"; got != keys {
		u.t.Errorf("list --keys-only prints\n%s", got)
	}
	if got := u.must("list", "--keys-only"); !strings.Contains("\n"+got+"\n", "\n"+keys) {
		u.t.Errorf("list of all keys prints\n%s", got)
	}
	if got := u.must("list", "none"); got != "" {
		u.t.Errorf("list of nothing prints %s", got)
	}
	out, errs, code := u.run("list", "list/", "--limit", "1", "-o", "json")
	if code != 0 || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, `{"key":"list/a","found":true,"value":"of list/a","version":"`) ||
		!strings.Contains(errs, "more keys follow") {
		u.t.Errorf("list --limit 1 -o json: %d, %s%s", code, out, errs)
	}
	if out, errs, code := u.run("list", "list/", "--limit", "3"); code != 0 || out != want || errs != "" {
		u.t.Errorf("list --limit 3: %d, %s%s", code, out, errs)
	}
}

// transacts checks that a transaction writes durable keys atomically, and that the server refuses
// volatile keys in transactions.
func (u *user) transacts() {
	u.t.Helper()
	durable := func(args ...string) (out, errs string, code int) {
		u.t.Helper()
		return u.run(append([]string{"--namespace", "durable", "transact"}, args...)...)
	}
	out, errs, code := durable("--if-absent", "bob", "--put", "alice=100", "--put", "bob=a=b", "--put", "gone=hex:ff")
	made := regexp.MustCompile(`^(16384\.\d+)\talice\n(16384\.\d+)\tbob\n(16384\.\d+)\tgone\n$`).FindStringSubmatch(out)
	if code != 0 || made == nil || made[1] != made[2] || made[2] != made[3] {
		u.t.Fatalf("transact prints %s%s", out, errs)
	}
	for _, c := range []struct {
		args []string
		code int
		want string // required part of the output
	}{
		{[]string{"--if-version", "alice=" + made[1], "--if-value", "bob=a=b", "--if-value", "gone=hex:ff"}, 0, "all conditions hold\n"},
		{[]string{"--if-version", "alice=0", "--if-value", "bob=x", "--if-absent", "gone", "--put", "alice=0", "--put", "new=0"},
			exitRefused, "alice has version " + made[1] + " not 0.0; bob has version " + made[1] + " and another value; gone has version " +
				made[1] + " and a value; nothing was written"},
		{[]string{"--if-value", "new=0", "--put", "alice=0"}, exitRefused, "new has no value, and version 0.0; nothing was written"},
		{[]string{"--if-absent", "bob", "--put", "alice=0", "-o", "json"}, exitRefused,
			`{"done":false,"failed":[{"key":"bob","found":true,"value":"a=b","version":"` + made[1] + `"}]}` + "\n"},
		{[]string{"--if-absent", "new", "--put", "alice=70", "--delete", "gone", "--delete", "new", "-o", "json"}, 0,
			`{"done":true,"written":[{"key":"alice","version":"16384.`},
		{[]string{"--put", "alice=1", "--put", "alice=2"}, 1, `"alice" is written twice`},
		{[]string{"--put", "color=red", "--namespace", "default"}, 1, "it is volatile"},
	} {
		if out, errs, code := durable(c.args...); code != c.code || !strings.Contains(out+errs, c.want) {
			u.t.Errorf("transact %q: exit code %d, %s%s; want %d, %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	for key, want := range map[string]string{"alice": "70", "bob": "a=b"} {
		if got := u.must("--namespace", "durable", "get", key); got != want {
			u.t.Errorf("%s is %q", key, got)
		}
	}
}

// watches checks that a watch prints the current state and each change. It can run a command for
// each change.
func (u *user) watches() {
	u.t.Helper()
	u.must("put", "watched", "one")
	w := u.start("watch", "watched")
	w.says(u.t, "\twatched\tone\n")
	u.must("put", "watched", "two")
	w.says(u.t, "\twatched\ttwo\n")
	u.must("delete", "watched")
	w.says(u.t, "\twatched\t(no value)\n")
	if code := w.interrupt(u.t); code != 0 {
		u.t.Errorf("watch ends with %d: %s", code, w.said)
	}
	u.must("put", "watched", "three")
	said := u.must("watch", "--prefix", "watch", "--count", "1", "--", "sh", "-c", "echo $NETCRAQ_KEY is $NETCRAQ_VALUE")
	if said != "watched is three" {
		u.t.Errorf("the command says %q", said)
	}
}

// excludes checks that a lock is held until Ctrl-C while other clients wait. The next holder's
// token is greater.
func (u *user) excludes() {
	u.t.Helper()
	first := u.start("lock", "door")
	first.says(u.t, "holding door with token ")
	if _, errs, code := u.run("lock", "door", "--no-wait"); code != exitRefused || !strings.Contains(errs, "door is not free") {
		u.t.Errorf("a second holder: %d, %s", code, errs)
	}
	second := u.start("lock", "door")
	if code := first.interrupt(u.t); code != 0 {
		u.t.Errorf("lock ends with %d: %s", code, first.said)
	}
	second.says(u.t, "holding door with token ")
	var a, b uint64
	_, err := fmt.Sscanf(first.said.String(), "holding door with token %d", &a)
	_, err2 := fmt.Sscanf(second.said.String(), "holding door with token %d", &b)
	if err != nil || err2 != nil || b <= a {
		u.t.Errorf("tokens %d, then %d", a, b)
	}
	second.interrupt(u.t)
}

// leases checks that a key is deleted together with its lease.
func (u *user) leases() {
	u.t.Helper()
	lease := u.must("lease", "grant", "1m")
	u.must("put", "worker", "busy", "--lease", lease)
	line := "(?m)^" + lease + ` +[1-6]?[0-9.]+m?[0-9.]*s +uid \d+, gid \d+ \(pid \d+\) +key worker$`
	if out := u.must("lease", "list"); !regexp.MustCompile(line).MatchString(out) {
		u.t.Errorf("lease list prints\n%s\nwant %s", out, line)
	}
	if out := u.must("lease", "list", "-o", "json"); !strings.Contains(out, `{"lease":"`+lease+`","ttlMillis":60000,"leftMillis":`) ||
		!strings.Contains(out, `"holds":[{"kind":"key","name":"worker"}]}`) {
		u.t.Errorf("lease list -o json prints %s", out)
	}
	if out := u.must("lease", "list", "--namespace", "without-leases"); out != "no leases" {
		u.t.Errorf("lease list of an empty namespace prints %q", out)
	}
	u.must("lease", "keep", lease, "--once")
	u.must("lease", "revoke", lease)
	if out, _, code := u.run("get", "worker"); code != exitNotFound {
		u.t.Errorf("the key of a revoked lease: %s", out)
	}
	for _, args := range [][]string{{"lease", "keep", lease}, {"lease", "revoke", lease}} {
		if _, errs, code := u.run(args...); code != exitNotFound || !strings.Contains(errs, "run out") {
			u.t.Errorf("%v of a revoked lease: %d, %s", args, code, errs)
		}
	}
	if _, errs, code := u.run("lease", "grant", "2h"); code != 2 || !strings.Contains(errs, "500ms to 1h") {
		u.t.Errorf("a lease of two hours: %d, %s", code, errs)
	}
	short := u.must("lease", "grant", "10s") // long enough for a slow command on a busy machine
	u.must("put", "worker", "busy", "--lease", short)
	poll.Until(u.t, soon, "the key has gone with its lease", func() bool {
		_, _, code := u.run("get", "worker")
		return code == exitNotFound
	})
}

// expires checks that a key with --ttl is deleted by itself, and that other keys stay.
func (u *user) expires() {
	u.t.Helper()
	u.must("put", "brief", "here", "--ttl", "10s", "--if-absent")
	if got := u.must("get", "brief"); got != "here" {
		u.t.Errorf("brief is %q", got)
	}
	u.must("put", "lasting", "here")
	poll.Until(u.t, soon, "the key has gone after its time", func() bool {
		_, _, code := u.run("get", "brief")
		return code == exitNotFound
	})
	u.must("get", "lasting")
}

// pipelets checks that the program that runs pipelets gets the arguments, and that the command
// returns this program's exit code.
func (u *user) pipelets() {
	u.t.Helper()
	if _, errs, code := u.run("pipelet", "check", "x.yaml"); code != 1 || !strings.Contains(errs, "found no netcraq-pipelets") {
		u.t.Errorf("without netcraq-pipelets: %d, %s", code, errs)
	}
	program := filepath.Join(u.home, "netcraq-pipelets")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho $0 has $@\nexit 5\n"), 0o755); err != nil {
		u.t.Fatal(err)
	}
	defer os.Remove(program)
	out, errs, code := u.run("pipelet", "run", "a.yaml", "--secrets", "dir")
	if out != program+" has run a.yaml --secrets dir\n" || errs != "" || code != 5 {
		u.t.Errorf("pipelet run: %d, %s%s", code, out, errs)
	}
}

// services checks that an instance is listed while it is registered, and that watchers are
// notified.
func (u *user) services() {
	u.t.Helper()
	if _, errs, code := u.run("service", "list", "web"); code != exitNotFound || !strings.Contains(errs, "web has no instance") {
		u.t.Errorf("a service without instances: %d, %s", code, errs)
	}
	w := u.start("service", "watch", "web")
	w.says(u.t, "0 instances")
	r := u.start("service", "register", "web", "10.0.0.7:80", "--instance", "one")
	r.says(u.t, "registered one of web at 10.0.0.7:80")
	w.says(u.t, "1 instances\t10.0.0.7:80")
	if got := u.must("service", "list", "web"); got != "10.0.0.7:80\tone" {
		u.t.Errorf("service list prints %q", got)
	}
	out, errs, code := u.run("service", "register", "web", "10.0.0.8:80", "--instance", "two", "--", "sh", "-c", "echo $NETCRAQ_INSTANCE; exit 9")
	if out != "two\n" || code != 9 {
		u.t.Errorf("the command: %d, %s%s", code, out, errs)
	}
	if code := r.interrupt(u.t); code != 0 {
		u.t.Errorf("register ends with %d: %s", code, r.said)
	}
	if out, _, code := u.run("service", "list", "web"); code != exitNotFound {
		u.t.Errorf("after both have ended: %d, %s", code, out)
	}
	w.interrupt(u.t)
	if _, errs, code := u.run("service", "register", "web", "10.0.0.7"); code != 2 || !strings.Contains(errs, "address with its port") {
		u.t.Errorf("an address without a port: %d, %s", code, errs)
	}
}

// streamCommands checks that appended records can be read from every position, and that one
// consumer reads each record once.
func (u *user) streamCommands() {
	u.t.Helper()
	if _, errs, code := u.run("stream", "append", "log", "x"); code != 1 || !strings.Contains(errs, `no stream "log"`) {
		u.t.Errorf("no stream yet: %d, %s", code, errs)
	}
	u.must("stream", "create", "log")
	u.must("stream", "append", "log", "a", "hex:ff00")
	lines := u.command("stream", "append", "log")
	lines.Stdin = strings.NewReader("c\nd\n")
	if out, err := lines.CombinedOutput(); err != nil || string(out) != "2\n3\n" {
		u.t.Errorf("lines appended: %v, %q", err, out)
	}
	if got := u.must("stream", "read", "log"); got != "0\ta\n1\t\xff\x00\n2\tc\n3\td" {
		u.t.Errorf("stream read prints %q", got)
	}
	if got := u.must("stream", "read", "log", "--from", "1", "--count", "1", "-o", "json"); !strings.Contains(got, `"offset":"1"`) ||
		!strings.Contains(got, `"valueBase64":"/wA="`) {
		u.t.Errorf("stream read -o json prints %s", got)
	}
	f := u.start("stream", "read", "log", "--consumer", "me", "--follow")
	f.says(u.t, "3\td\n")
	u.must("stream", "append", "log", "e")
	f.says(u.t, "4\te\n")
	if code := f.interrupt(u.t); code != 0 {
		u.t.Errorf("stream read --follow ends with %d: %s", code, f.said)
	}
	u.must("stream", "create", "changes", "--keys", "of/")
	u.must("put", "of/it", "on")
	follow := u.start("stream", "read", "changes", "--from", "earliest", "--follow")
	follow.says(u.t, `"key":"of/it","found":true,"value":"on"`)
	follow.interrupt(u.t)
	if got := u.must("stream", "list"); got != "changes\nlog\norders" {
		u.t.Errorf("stream list prints %q", got)
	}
	u.must("stream", "delete", "log")
	if _, _, code := u.run("stream", "read", "log"); code != 1 {
		u.t.Errorf("reading a deleted stream: %d", code)
	}
}

// streams checks that a program can append records and read them.
func (u *user) streams() {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), soon)
	defer cancel()
	c, err := node.Connect(ctx, node.Config{Socket: u.socket()})
	if err != nil {
		u.t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.OpenStream(ctx, "orders", &nodeapi.StreamConfig{Objects: 16}); err != nil {
		u.t.Fatal(err)
	}
	value, orders := "one", nodeapi.StreamData{Stream: "orders"}
	records := []nodeapi.RecordData{{Value: &value}}
	if _, err := c.Append(ctx, nodeapi.AppendData{StreamData: orders, Records: records}); err != nil {
		u.t.Fatal(err)
	}
	got, err := c.Read(ctx, nodeapi.ReadData{StreamData: orders, From: nodeapi.FromEarliest})
	if err != nil || len(got.Records) != 1 || got.Records[0].Value == nil || *got.Records[0].Value != value {
		u.t.Errorf("read %+v, %v", got, err)
	}
}

// etcd checks that an etcd client can write and read through the gateway, including a key that is
// placed in the switches.
func (u *user) etcd(server *running) {
	u.t.Helper()
	url := regexp.MustCompile(`etcd gateway +(http://\S+)`).FindStringSubmatch(server.said.String())
	if url == nil {
		u.t.Fatalf("no gateway: %s", server.said)
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), soon)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url[1]}, Logger: zap.NewNop()})
	if err != nil {
		u.t.Fatal(err)
	}
	defer c.Close()
	for _, value := range []string{"v", "w", "x"} {
		if _, err := c.Put(ctx, "/k", value); err != nil {
			u.t.Fatal(err)
		}
		got, err := c.Get(ctx, "/k")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value {
			u.t.Errorf("etcd has %v, %v; want %s", got, err, value)
		}
		if value == "v" { // the later values are written while the switches hold the key
			u.must("placement", "pin", "/k")
			poll.Until(u.t, soon, "it is placed", func() bool {
				out, _, _ := u.run("placement", "why", "/k")
				return strings.Contains(out, "/k is placed in chain main")
			})
		}
	}
}

// TestData checks that with --data, keys of the namespace durable and etcd's keys survive a
// restart. Other keys are lost.
func TestData(t *testing.T) {
	u := newUser(t)
	data := filepath.Join(u.home, "run", "data")
	for round := range 2 {
		server := u.dev("--switches", "2", "--data", data)
		if !strings.Contains(server.said.String(), data+" keeps them") {
			t.Errorf("it says %s", server.said)
		}
		_, _, volatile := u.run("get", "k")
		kept, _, durable := u.run("get", "k", "--namespace", "durable")
		if volatile != exitNotFound || round == 0 && durable != exitNotFound || round == 1 && kept != "kept\n" {
			t.Errorf("round %d: volatile %d, durable %d, %q", round, volatile, durable, kept)
		}
		u.must("put", "k", "lost")
		u.must("put", "k", "kept", "--namespace", "durable")
		u.etcd(server)
		if code := server.interrupt(t); code != 0 {
			t.Errorf("exit code %d: %s", code, server.said)
		}
	}
	server := u.dev("--switches", "1", "--data", data)
	_, errs, code := u.run("dev", "--page", "none", "--gateway", "none", "--socket", u.socket()+"2", "--data", data)
	if code != 1 || !strings.Contains(errs, "does another process use it?") {
		t.Errorf("a second server in %s: %d, %s", data, code, errs)
	}
	server.interrupt(t)
}

// TestEtcd runs a server with an existing etcd. The etcd stores durable keys, and its clients see
// its keys through the gateway. The etcd refuses a second server meanwhile. Afterwards it has none
// of the server's own keys.
func TestEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	direct := etcdtest.Client(t, etcd)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	if _, err := direct.Put(ctx, "/mine", "old"); err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	args := []string{"--switches", "2", "--etcd", "http://" + etcd, "--gateway", "127.0.0.1:0"}
	for round := range 2 {
		server := u.dev(args...)
		if want := "the etcd at http://" + etcd + " keeps them"; !strings.Contains(server.said.String(), want) {
			t.Errorf("it says %s; want %s", server.said, want)
		}
		kept, _, code := u.run("get", "k", "--namespace", "durable")
		if round == 0 && code != exitNotFound || round == 1 && kept != "kept\n" {
			t.Errorf("round %d: durable %d, %q", round, code, kept)
		}
		u.must("put", "k", "kept", "--namespace", "durable")
		u.etcd(server)
		address := regexp.MustCompile(`etcd gateway +(http://\S+)`).FindStringSubmatch(server.said.String())[1]
		gateway := etcdtest.Client(t, address)
		if got, err := gateway.Get(ctx, "/mine"); err != nil || len(got.Kvs) != 1 {
			t.Errorf("a key that was there before: %v, %v", got, err)
		}
		if _, err := gateway.Get(ctx, "/netcraq-dev", clientv3.WithPrefix()); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a client reads the server's own keys: %v", err)
		}
		u.refusedEtcd("http://"+etcd, `another netcraq dev uses it ("process `)
		u.refusedEtcd(address, "it is a NetCRAQ gateway")
		if code := server.interrupt(t); code != 0 {
			t.Errorf("exit code %d: %s", code, server.said)
		}
		if left, err := direct.Get(ctx, "/netcraq-dev", clientv3.WithPrefix()); err != nil || len(left.Kvs) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	if got, err := direct.Get(ctx, "/mine"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "old" {
		t.Errorf("a key that was there before: %v, %v", got, err)
	}

	// A server also refuses to use the gateway of a server that has its own etcd.
	other := u.dev("--switches", "1")
	u.refusedEtcd(regexp.MustCompile(`etcd gateway +(http://\S+)`).FindStringSubmatch(other.said.String())[1],
		"it is a NetCRAQ gateway")
	other.interrupt(t)

	// A server ends when it has lost its lease at the etcd.
	server := u.dev("--switches", "1", "--etcd", "http://"+etcd, "--gateway", "none")
	owner, err := direct.Get(ctx, "/netcraq-dev:owner")
	if err != nil || len(owner.Kvs) != 1 {
		t.Fatal(owner, err)
	}
	if _, err := direct.Revoke(ctx, clientv3.LeaseID(owner.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.ended:
	case <-time.After(soon):
		t.Fatal("the server goes on without its lease")
	}
	if said := server.said.String(); !strings.Contains(said, "another netcraq dev may use it now") {
		t.Errorf("it says %s", said)
	}
}

// refusedEtcd checks that a second server cannot use an etcd.
func (u *user) refusedEtcd(etcd, want string) {
	u.t.Helper()
	_, errs, code := u.run("dev", "--socket", u.socket()+"2", "--page", "none", "--gateway", "none", "--etcd", etcd)
	if code != 1 || !strings.Contains(errs, want) {
		u.t.Errorf("dev --etcd %s: %d, %s; want %q", etcd, code, errs, want)
	}
}

// TestKill checks that keys survive when a switch is killed. The report says what the failover
// cost.
func TestKill(t *testing.T) {
	u := newUser(t)
	server := u.dev("--switches", "4", "--kill", "s1", "--after", "1s")
	u.must("put", "survivor", "alive")
	server.says(t, "\nkilled s1; the chain is s2-s3-s4\n")
	whole := regexp.MustCompile(`(?s)killed s1.* writes +longest .* of \d+ failed`)
	poll.Until(t, soon, "the report", func() bool { return whole.MatchString(server.said.String()) }, server.said.String)
	report := server.said.String()
	t.Log(report[strings.Index(report, "killed"):])
	if n := len(regexp.MustCompile(`longest .* 0 of \d+ failed`).FindAllString(report, -1)); n != 2 {
		t.Errorf("%d of 2 lines say that none failed:\n%s", n, report)
	}
	if got := u.must("get", "survivor"); got != "alive" {
		t.Errorf("get: %q", got)
	}
	u.must("put", "survivor", "still")
	if code := server.interrupt(t); code != 0 {
		t.Errorf("exit code %d: %s", code, server.said)
	}
}

// TestAgain checks that a second server with the same socket is refused, and that one with another
// socket starts. A new server can reuse a killed server's socket. Without a runtime folder, the
// socket is in a folder of the user.
func TestAgain(t *testing.T) {
	u := newUser(t)
	first := u.dev("--switches", "1")
	_, errs, code := u.run("dev")
	if want := fmt.Sprintf("(process %d) has it. Stop it, or pass --socket PATH", first.Process.Pid); code != 1 ||
		!strings.Contains(errs, want) {
		t.Errorf("a second: %d, %s; want %q", code, errs, want)
	}
	other := filepath.Join(u.home, "run", "other")
	second := u.dev("--socket", other, "--switches", "2")
	u.must("put", "k", "first")
	u.must("put", "k", "second", "--socket", other)
	if got := u.must("get", "k"); got != "first" {
		t.Errorf("the first has %q", got)
	}
	if got := u.must("chain", "show", "--socket", other); !strings.Contains(got, "s2") {
		t.Errorf("the second's chain: %s", got)
	}
	if got := u.must("chain", "show"); strings.Contains(got, "s2") {
		t.Errorf("the first's chain: %s", got)
	}
	second.interrupt(t)
	_ = first.Process.Kill()
	<-first.ended
	third := u.dev("--switches", "1")
	if _, _, code := u.run("get", "k"); code != exitNotFound {
		t.Errorf("the third knows a key of the first's: %d", code)
	}
	third.interrupt(t)

}

// TestTmp checks the socket's place if there is no runtime folder: the user's own folder in /tmp,
// which no other user can have prepared.
func TestTmp(t *testing.T) {
	u := newUser(t)
	tmp, uid := filepath.Join(u.home, "tmp"), os.Getuid()
	if uid == 0 {
		uid = nobody
	}
	own := filepath.Join(tmp, fmt.Sprintf("netcraq-%d", uid))
	if err := os.MkdirAll(own, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{tmp, own} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	u.env = append(u.env, "XDG_RUNTIME_DIR=", "TMPDIR="+tmp)
	_, errs, code := u.run("dev", "--page", "none", "--gateway", "none")
	if code != 1 || !strings.Contains(errs, "is not a folder that only this user can enter. Remove it") {
		t.Errorf("in somebody's folder: %d, %s", code, errs)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	server := u.dev("--switches", "1")
	u.must("put", "k", "v")
	if !strings.Contains(server.said.String(), own) {
		t.Errorf("it says %s", server.said)
	}
	server.interrupt(t)
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", own, err)
	}
}

// TestListen checks that a user on another machine can use the server with the token and the
// fingerprint, and not without them. A second user of this machine stands for the other machine,
// because that user has separate files.
func TestListen(t *testing.T) {
	server, there := newUser(t), newUser(t)
	token := filepath.Join(server.home, "run", "token")
	running := server.dev("--listen", "127.0.0.1:0", "--listen-token", token, "--page", "127.0.0.1:0")
	found := regexp.MustCompile(`netcraq connect (127\.0\.0\.1:\d+) --listen-token FILE \\\n +--fingerprint \\\n +(sha256:[0-9a-f]{64})\n`).
		FindStringSubmatch(running.said.String())
	if found == nil {
		t.Fatalf("no command for other hosts: %s", running.said)
	}
	address, fingerprint := found[1], found[2]
	forged := filepath.Join(there.home, "run", "forged")
	secret, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(there.home, "run", "copied")
	for path, content := range map[string]string{copied: string(secret), forged: strings.Repeat("a", 52)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct{ flags, want string }{
		{"--listen-token " + forged + " --fingerprint " + fingerprint, "wrong token: copy the server's token file again"},
		{"--listen-token " + copied, "Pass --fingerprint as netcraq dev --listen prints it"},
		{"--listen-token " + copied + " --fingerprint sha256:" + strings.Repeat("0", 64), "has the fingerprint " + fingerprint},
	} {
		if _, errs, code := there.run(append([]string{"connect", address}, strings.Fields(c.flags)...)...); code != 1 ||
			!strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, %s; want %q", c.flags, code, errs, c.want)
		}
	}
	remote := there.start("connect", address, "--listen-token", copied, "--fingerprint", fingerprint,
		"--page", "127.0.0.1:0", "--gateway", "127.0.0.1:0")
	remote.says(t, "Stop it with Ctrl-C.")
	there.must("put", "from", "afar")
	if got := server.must("get", "from"); got != "afar" {
		t.Errorf("the server has %q", got)
	}
	if got := there.must("lock", "printer", "--", "echo", "printing"); !strings.Contains(got, "printing") {
		t.Errorf("lock prints %q", got)
	}
	if got := there.must("status"); !strings.Contains(got, "no problems") {
		t.Errorf("status prints %q", got)
	}
	there.streams()
	there.streamCommands()
	there.etcd(remote)
	page := regexp.MustCompile(`page +(http://\S+)`).FindStringSubmatch(remote.said.String())
	if page == nil {
		t.Fatalf("no page: %s", remote.said)
	}
	answer, err := http.Get(page[1])
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "<html") {
		t.Errorf("the page: %s, %v, %.80s", answer.Status, err, body)
	}
	if code := remote.interrupt(t); code != 0 {
		t.Errorf("connect ends with %d: %s", code, remote.said)
	}
	if _, errs, code := there.run("get", "from"); code == 0 {
		t.Errorf("after connect has ended: %s", errs)
	}
	if code := running.interrupt(t); code != 0 {
		t.Errorf("exit code %d: %s", code, running.said)
	}
}

// TestPortInUse checks that the message names the flag. It also names the process that uses the
// port, if the process belongs to this user.
func TestPortInUse(t *testing.T) {
	u := newUser(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, errs, code := u.run("dev", "--page", l.Addr().String())
	if code != 1 || !strings.Contains(errs, "cannot listen on "+l.Addr().String()) ||
		!strings.Contains(errs, "pass --page HOST:PORT, or --page none") {
		t.Errorf("%d: %s", code, errs)
	}
	if left, err := filepath.Glob(filepath.Join(u.home, "run", "*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
	token := filepath.Join(u.home, "run", "token")
	for _, c := range [][]string{ // addresses at which no process can listen
		{"--page", "none", "--gateway", "none", "--listen-token", token, "--listen", "192.0.2.1:5"},
		{"--gateway", "none", "--page", "127.0.0.1:none"},
		{"--page", "none", "--gateway", "127.0.0.1:none"},
	} {
		if _, errs, code := u.run(append([]string{"dev", "--switches", "1"}, c...)...); code != 1 ||
			!strings.Contains(errs, "cannot listen on ") || !strings.Contains(errs, ". Pass "+c[len(c)-2][:6]) {
			t.Errorf("%v: %d: %s", c, code, errs)
		}
	}
}

// TestReadme checks that the commands of the README's first block print the output shown there.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n([^`]*bin/netcraq dev[^`]*)```").FindStringSubmatch(string(readme))
	if block == nil {
		t.Fatal("the README has no block with netcraq dev")
	}
	u := newUser(t)
	u.dev()
	ran := 0
	for _, step := range strings.Split(block[1], "$ ")[1:] {
		line, want, _ := strings.Cut(step, "\n")
		args, ours := strings.CutPrefix(line, "bin/netcraq ")
		if !ours || strings.HasPrefix(args, "dev") {
			continue
		}
		ran++
		out, errs, code := u.run(strings.Fields(args)...)
		if got := errs + out; code != 0 || got != want {
			t.Errorf("%s: exit code %d, %q; the README says %q", line, code, got, want)
		}
	}
	if ran < 3 {
		t.Errorf("only %d commands were run", ran)
	}
}
