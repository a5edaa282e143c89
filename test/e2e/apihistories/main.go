// Command apihistories writes, reads, lists and watches objects at several API servers of a cluster
// at once. It checks that the servers behave as one store. The history must be linearizable over
// all servers, including lists and watches, and no watch may be stuck.
//
//	apihistories --kubeconfig FILE [flags] NAME=URL...
//	apihistories --check FILE
//
// It prints {"begun": true} when the clients run, and continues until "end" (or the end of standard
// input). On standard input it also accepts three other lines. "excuse NAME" says that the server's
// node has a fault, so the server's watches may be late. "expect NAME" says that they must be
// current again. "mark TEXT" records what was just done to the cluster. Answers must always be
// right. At the end it prints a summary as one line of JSON, and exits with 1 if the history is
// wrong. --check prints the summary of a history that --out has stored.
package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// drain bounds how long it takes until the last event of the history has reached all watches.
const drain = time.Minute

func main() {
	// If a node loses its power, a watch through the node's server ends only after a minute. With
	// these settings, it ends after seconds.
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "2",
		"HTTP2_PING_TIMEOUT_SECONDS": "2"} {
		_ = os.Setenv(name, seconds)
	}
	kubeconfig := flag.String("kubeconfig", "", "`FILE` with the credentials; its server is ignored")
	namespace := flag.String("namespace", "histories",
		"namespace for the objects; it is created for the run and deleted afterwards")
	late := flag.Duration("late", 10*time.Second,
		"a watch that tells a completed write later than this is stuck")
	pause := flag.Duration("pause", 150*time.Millisecond, "between two requests of one client")
	out := flag.String("out", "", "a file for the history, as JSON (gzip)")
	kept := flag.String("check", "", "a file that --out made: nothing is asked, what it says is checked again")
	flag.Parse()
	if *kept != "" {
		h, err := read(*kept)
		if err != nil {
			fail(fmt.Errorf("reading a history: %w", err))
		}
		say(h.report(*late))
	}
	found, err := run(*kubeconfig, *namespace, *out, *late, *pause, flag.Args())
	if err != nil {
		fail(err)
	}
	say(found)
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "apihistories: %v\n", err)
	os.Exit(2)
}

func say(found report) {
	_ = json.NewEncoder(os.Stdout).Encode(found)
	if len(found.Wrong) > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

func connect(kubeconfig string, arguments []string) ([]server, error) {
	var all []server
	for _, argument := range arguments {
		name, url, _ := strings.Cut(argument, "=")
		config, err := clientcmd.BuildConfigFromFlags(url, kubeconfig)
		if err != nil {
			return nil, err
		}
		config.APIPath, config.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		config.QPS = -1
		client, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, err
		}
		all = append(all, server{name, client})
	}
	if len(all) == 0 {
		return nil, errors.New("name API servers: n1=https://172.30.0.11:6443")
	}
	return all, nil
}

// prepare creates the namespace and the steady objects, and then lists the objects. The history
// begins at the revision of that list.
func prepare(ctx context.Context, h *history, s server, namespace string) error {
	again := func(what string, do func() error) error {
		err := do()
		for ctx.Err() == nil && err != nil {
			wait(ctx, 500*time.Millisecond)
			err = do()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	spaces := func() error {
		err := s.client.Get().Resource("namespaces").Name(namespace).Do(ctx).Error()
		if err == nil {
			_ = s.client.Delete().Resource("namespaces").Name(namespace).Do(ctx).Error()
			return errors.New("it is there still")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return s.client.Post().Resource("namespaces").
			Body(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}).Do(ctx).Error()
	}
	if err := again("making the namespace", spaces); err != nil {
		return err
	}
	// own checks that the controller manager has created the ConfigMap that it puts into each
	// namespace. It has the certificate of the cluster's CA.
	own := func() error {
		return s.client.Get().Namespace(namespace).Resource(resource).Name("kube-root-ca.crt").
			Do(ctx).Error()
	}
	if err := again("waiting for the controller manager", own); err != nil {
		return err
	}
	var page corev1.ConfigMapList
	if err := again("listing", func() error {
		return s.client.Get().Namespace(namespace).
			Resource(resource).Do(ctx).Into(&page)
	}); err != nil {
		return err
	}
	var err error
	if h.Since, err = strconv.ParseInt(page.ResourceVersion, 10, 64); err != nil {
		return err
	}
	for i := range page.Items {
		h.Before = append(h.Before, page.Items[i].Name)
	}
	return nil
}

func run(kubeconfig, namespace, out string, late, pause time.Duration, arguments []string) (report,
	error) {
	servers, err := connect(kubeconfig, arguments)
	if err != nil {
		return report{}, err
	}
	h := &history{start: time.Now()}
	setup, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := prepare(setup, h, servers[0], namespace); err != nil {
		return report{}, err
	}
	var asking, watching sync.WaitGroup
	asks, stopAsking := context.WithCancel(context.Background())
	watches, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	defer stopAsking()
	number := 0
	client := func(s server) *client {
		number++
		return &client{history: h, server: s, namespace: namespace, number: number,
			random: rand.New(rand.NewPCG(uint64(number), 20))}
	}
	first := client(servers[0])
	for _, key := range keys(0)[:steady] {
		name, whole := first.value()
		var m corev1.ConfigMap
		r := first.server.client.Post().Namespace(namespace).Resource(resource).
			Body(first.object(key, whole))
		o := first.do(setup, operation{Kind: create, Key: key, Value: name}, r, &m)
		if o.Outcome != done {
			return report{}, fmt.Errorf("making %s: %s", key, o.Error)
		}
		o.Read = stateOf(&m)
		h.add(o)
	}
	watchers := 0
	for _, s := range servers {
		for _, w := range []watcher{{lasts: 3 * time.Minute},
			{lasts: 15 * time.Second, back: true}} {
			w.history, w.server, w.namespace, w.number = h, s, namespace, watchers
			watchers++
			watching.Go(func() { w.run(watches, h.Since) })
		}
		a, b, c, d := client(s), client(s), client(s), client(s)
		asking.Go(func() { a.ask(asks, pause, a.write) })
		asking.Go(func() { b.ask(asks, pause, b.write) })
		asking.Go(func() {
			c.ask(asks, pause, func(ctx context.Context) operation {
				all := keys(c.ageOf(h.now()))
				return c.get(ctx, all[c.random.IntN(len(all))])
			})
		})
		asking.Go(func() { d.ask(asks, 2*pause, d.list) })
	}
	sweeper := client(servers[0])
	asking.Go(func() { sweeper.sweep(asks) })
	fmt.Println(`{"begun": true}`)
	obey(h, servers)
	stopAsking()
	asking.Wait()
	if err := h.end(servers, namespace, number+1, watchers); err != nil {
		fmt.Fprintf(os.Stderr, "apihistories: %v\n", err)
	}
	stopWatching()
	watching.Wait()
	h.Ended = h.now()
	if out != "" {
		if err := h.save(out); err != nil {
			return report{}, err
		}
	}
	tidy, cancelTidy := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancelTidy()
	for _, s := range servers {
		if s.client.Delete().Resource("namespaces").Name(namespace).Do(tidy).Error() == nil {
			break
		}
	}
	return h.report(late), nil
}

// obey executes the commands on standard input, until the input ends.
func obey(h *history, servers []server) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, name, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		known := slices.ContainsFunc(servers, func(s server) bool { return s.name == name })
		switch {
		case verb == "end":
			return
		case verb == "excuse" && known:
			h.excuse(name)
		case verb == "expect" && known:
			h.expect(name)
		case verb == "mark" && name != "":
			h.mark(name)
		default:
			fmt.Fprintf(os.Stderr, "apihistories: no such request: %s\n", lines.Text())
		}
	}
}

// end creates a last object, and waits until all watches have reported it.
func (h *history) end(servers []server, namespace string, number, watchers int) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	for n := 0; h.Until == 0 && ctx.Err() == nil; n++ {
		c := &client{history: h, server: servers[n%len(servers)], namespace: namespace,
			number: number + n, random: rand.New(rand.NewPCG(1, 2))}
		name, whole := c.value()
		var m corev1.ConfigMap
		key := fmt.Sprintf("end-%d", n)
		o := c.do(ctx, operation{Kind: create, Key: key, Value: name},
			c.server.client.Post().Namespace(namespace).Resource(resource).
				Body(c.object(key, whole)), &m)
		if o.Outcome == done {
			o.Read = stateOf(&m)
			h.mu.Lock()
			h.Until = o.Read.Revision
			h.mu.Unlock()
		}
		h.add(o)
		if o.Outcome != done {
			wait(ctx, 200*time.Millisecond)
		}
	}
	if h.Until == 0 {
		h.Until = 1 << 62
		return errors.New("no server takes a last write")
	}
	for h.told(watchers) < h.Until {
		if ctx.Err() != nil {
			return fmt.Errorf("watches have come to revision %d, not to %d", h.told(watchers),
				h.Until)
		}
		wait(ctx, 50*time.Millisecond)
	}
	return nil
}

func (h *history) save(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(file)
	return errors.Join(json.NewEncoder(zip).Encode(h), zip.Close(), file.Close())
}

func read(path string) (*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := &history{}
	if err := json.NewDecoder(zip).Decode(h); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(h.Operations) == 0 {
		return nil, fmt.Errorf("%s: no operation in it", path)
	}
	return h, nil
}
