package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Clients use new objects in each age, which is a period of time. They create, change and delete
// these objects, and delete the remaining ones three ages later. So the history of each key stays
// short and can be checked fast. Steady objects exist during the whole test.
const (
	age      = 20 * time.Second
	perAge   = 4
	steady   = 2
	resource = "configmaps"
	field    = "v"
)

// server is an API server, with separate connections to it.
type server struct {
	name   string
	client rest.Interface
}

// client sends requests to one API server, one after the other.
type client struct {
	history   *history
	server    server
	namespace string
	number    int
	random    *rand.Rand
	writes    int
}

func (c *client) ageOf(now time.Duration) int { return int(now / age) }

// keys returns the names of the objects of an age, and of the steady objects.
func keys(age int) (all []string) {
	for i := range steady {
		all = append(all, fmt.Sprintf("steady-%d", i))
	}
	for i := range perAge {
		all = append(all, fmt.Sprintf("age%d-%d", age, i))
	}
	return all
}

// do sends a request and records its outcome. The HTTP client does not retry requests. Otherwise,
// if a write was executed, its second attempt would be refused, and the client would report a
// refusal.
func (c *client) do(ctx context.Context, o operation, r *rest.Request, into any) operation {
	limit := time.Duration(1000+c.random.IntN(5000)) * time.Millisecond
	if o.Kind == list {
		limit = 8 * time.Second
	}
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o.Client, o.Server, o.Begin = c.number, c.server.name, c.history.now()
	result := r.MaxRetries(0).Do(try)
	err := result.Error()
	if err == nil && into != nil {
		err = result.Into(into.(*corev1.ConfigMap))
	}
	o.End = c.history.now()
	o.Outcome = outcomeOf(err, o.Key)
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

// outcomeOf classifies an error of a request. A starting API server answers "not found" for paths
// that it does not serve yet. Such an answer names no object, so it does not mean that the object
// is absent.
func outcomeOf(err error, key string) outcome {
	named := false
	if status, is := err.(apierrors.APIStatus); is {
		details := status.Status().Details
		named = details != nil && details.Name == key && details.Kind == resource
	}
	switch {
	case err == nil:
		return done
	case named && apierrors.IsNotFound(err):
		return absent
	case named && apierrors.IsAlreadyExists(err):
		return exists
	case named && apierrors.IsConflict(err):
		return differs
	}
	return unknown
}

func (c *client) object(key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key, Namespace: c.namespace},
		Data: map[string]string{field: value}}
}

func stateOf(m *corev1.ConfigMap) state {
	revision, _ := strconv.ParseInt(m.ResourceVersion, 10, 64)
	return state{true, short(m.Data[field]), revision}
}

// short returns the part of a value that the history keeps: its name, without the padding.
func short(value string) string { return strings.SplitN(value, " ", 2)[0] }

// value returns a value that no other write has. A tenth of the values are too large for a cell.
func (c *client) value() (name, whole string) {
	c.writes++
	name = fmt.Sprintf("%d.%d", c.number, c.writes)
	whole = name
	if c.random.IntN(10) == 0 {
		for range 150 {
			whole += " " + strconv.FormatUint(c.random.Uint64(),
				36) // random text cannot be compressed
		}
	}
	return name, whole
}

func (c *client) get(ctx context.Context, key string) operation {
	var m corev1.ConfigMap
	o := c.do(ctx, operation{Kind: get, Key: key},
		c.server.client.Get().Namespace(c.namespace).Resource(resource).Name(key), &m)
	switch o.Outcome {
	case done:
		o.Read = stateOf(&m)
	case absent:
		o.Outcome = done
	}
	c.history.add(o)
	return o
}

// write does one write of a random kind, to a random key.
func (c *client) write(ctx context.Context) operation {
	all := keys(c.ageOf(c.history.now()))
	key := all[c.random.IntN(len(all))]
	p := c.random.IntN(100)
	if strings.HasPrefix(key, "steady") {
		p %= 60
	}
	name, whole := c.value()
	var m corev1.ConfigMap
	o := operation{Key: key, Value: name}
	at := func(r *rest.Request) *rest.Request {
		return r.Namespace(c.namespace).Resource(resource).
			Name(key)
	}
	switch {
	case p < 40:
		o.Kind = patch
		body, _ := json.Marshal(map[string]any{"data": map[string]string{field: whole}})
		o = c.do(ctx, o, at(c.server.client.Patch(types.MergePatchType)).Body(body), &m)
	case p < 60:
		before := c.get(ctx, key)
		if before.Outcome != done || !before.Read.Found {
			return before
		}
		o.Kind, o.Expected = update, before.Read.Revision
		object := c.object(key, whole)
		object.ResourceVersion = strconv.FormatInt(o.Expected, 10)
		o = c.do(ctx, o, at(c.server.client.Put()).Body(object), &m)
	case p < 85:
		o.Kind = create
		o = c.do(ctx, o, c.server.client.Post().Namespace(c.namespace).Resource(resource).
			Body(c.object(key, whole)), &m)
	default:
		return c.remove(ctx, key)
	}
	if o.Outcome == done {
		o.Read = stateOf(&m)
	}
	c.history.add(o)
	return o
}

func (c *client) remove(ctx context.Context, key string) operation {
	r := c.server.client.Delete().Namespace(c.namespace).Resource(resource).Name(key)
	o := c.do(ctx, operation{Kind: remove, Key: key}, r, nil)
	c.history.add(o)
	return o
}

// list lists all objects, either in one answer or in pages of one revision. The one answer may come
// from the server's cache, if the cache is current.
func (c *client) list(ctx context.Context) operation {
	o := operation{Kind: list, All: map[string]state{}, About: keys(c.ageOf(c.history.now())),
		Begin: c.history.now()}
	o.Client, o.Server = c.number, c.server.name
	options := metav1.ListOptions{}
	if c.random.IntN(4) == 0 {
		options.Limit = 3
	}
	try, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	var err error
	for first := true; first || options.Continue != ""; first = false {
		var page corev1.ConfigMapList
		r := c.server.client.Get().Namespace(c.namespace).Resource(resource).
			VersionedParams(&options, scheme.ParameterCodec)
		if err = r.MaxRetries(0).Do(try).Into(&page); err != nil {
			break
		}
		revision, _ := strconv.ParseInt(page.ResourceVersion, 10, 64)
		if !first && revision != o.Revision {
			err = fmt.Errorf("a page is of revision %d, the first of %d", revision, o.Revision)
			break
		}
		o.Revision = revision
		for i := range page.Items {
			o.All[page.Items[i].Name] = stateOf(&page.Items[i])
		}
		options.Continue = page.Continue
	}
	o.End, o.Outcome = c.history.now(), done
	if err != nil {
		o.Outcome, o.Error, o.All, o.Revision = unknown, err.Error(), nil, 0
	}
	c.history.add(o)
	return o
}

// ask makes requests of one kind until ctx ends, with about `pause` between them, and a longer
// pause after a request without an answer.
func (c *client) ask(ctx context.Context, pause time.Duration,
	one func(context.Context) operation) {
	for ctx.Err() == nil {
		wait := time.Duration(float64(pause) * (0.5 + c.random.Float64()))
		if o := one(ctx); o.Outcome == unknown {
			wait += 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// sweep deletes the objects that old ages have left.
func (c *client) sweep(ctx context.Context) {
	gone := 0
	for ctx.Err() == nil {
		left := map[string]bool{}
		for old := gone; old <= c.ageOf(c.history.now())-3; old++ {
			for _, key := range keys(old)[steady:] {
				switch o := c.remove(ctx, key); o.Outcome {
				case done, absent:
				default:
					left[key] = true
				}
			}
			if len(left) == 0 {
				gone = old + 1
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(age / 4):
		}
	}
}
