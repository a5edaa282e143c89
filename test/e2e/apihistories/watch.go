package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// watcher watches the namespace through one API server until ctx ends. It starts a new watch when a
// watch ends. Each watch continues at the revision where the last watch ended. If back is set, it
// starts a little earlier, so the server must repeat events from its cache.
type watcher struct {
	history   *history
	server    server
	namespace string
	number    int
	lasts     time.Duration // duration of one watch
	back      bool
}

func (w *watcher) run(ctx context.Context, from int64) {
	recent := []int64{from}
	for ctx.Err() == nil {
		begin := recent[len(recent)-1]
		if w.back {
			begin = recent[0]
		}
		s, err := w.once(ctx, begin)
		switch {
		case s != nil && s.until() > recent[len(recent)-1]:
			recent = append(recent, s.until())
			recent = recent[max(0, len(recent)-2):]
		case err != nil:
			wait(ctx, 200*time.Millisecond)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			if revision, listed := w.list(ctx); listed {
				recent = []int64{revision}
			}
		}
	}
}

// once watches from a revision until the watch ends. If the watch cannot start, once returns no
// session.
func (w *watcher) once(ctx context.Context, from int64) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, w.lasts)
	defer cancel()
	options := metav1.ListOptions{Watch: true, ResourceVersion: strconv.FormatInt(from, 10),
		AllowWatchBookmarks: true}
	stream, err := w.server.client.Get().Namespace(w.namespace).Resource(resource).
		VersionedParams(&options, scheme.ParameterCodec).MaxRetries(0).Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	s := w.history.open(w.server.name, w.number, from)
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			return s, apierrors.FromObject(e.Object)
		}
		m, is := e.Object.(*corev1.ConfigMap)
		if !is {
			return s, fmt.Errorf("a watch tells %T", e.Object)
		}
		is2 := stateOf(m)
		told := event{Type: string(e.Type), Revision: is2.Revision, Key: m.Name, Value: is2.Value}
		if e.Type == watch.Bookmark {
			told = event{Revision: is2.Revision}
		}
		w.history.tell(s, told)
	}
	return s, nil
}

// list returns a new revision to watch from. It is needed when the server no longer has the events
// after the watcher's last revision.
func (w *watcher) list(ctx context.Context) (int64, bool) {
	var page corev1.ConfigMapList
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := w.server.client.Get().Namespace(w.namespace).Resource(resource).MaxRetries(0).Do(ctx).
		Into(&page); err != nil {
		fmt.Fprintf(os.Stderr, "%s: a watch cannot begin anew: %v\n", w.server.name, err)
		return 0, false
	}
	revision, err := strconv.ParseInt(page.ResourceVersion, 10, 64)
	return revision, err == nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
