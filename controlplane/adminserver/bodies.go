package adminserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/netcraq/netcraq/api/admin"
)

// Bodies of requests, in bytes.
const (
	smallBody = 64 << 10
	// keysBody is for lists of keys: some ten thousand with values of a kilobyte.
	keysBody = 16 << 20
	// allBodies is what all together may have in memory.
	allBodies = 4 * keysBody
)

const (
	// bodyTime is how long a body may take to arrive, bodyWait how long a request waits for others'
	// bodies.
	bodyTime = 15 * time.Second
	bodyWait = 5 * time.Second
	// answerTime is how long an answer, or a piece of a stream, may take to be read.
	answerTime = 30 * time.Second
)

// bodies reads the bodies of requests within bounds, before anything is done.
type bodies struct {
	room       *semaphore.Weighted
	time, wait time.Duration
}

func newBodies() *bodies {
	return &bodies{room: semaphore.NewWeighted(allBodies), time: bodyTime, wait: bodyWait}
}

// Bounded passes requests to next with their bodies in memory, within the bounds of this API's. It
// is for servers that forward them to where the API is served.
func Bounded(next http.Handler) http.Handler { return newBodies().limit(keysBody, next) }

// limit passes requests with bodies of up to so many bytes on to next, with the whole body in
// memory; 0: a body is not allowed.
func (b *bodies) limit(most int64, next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, status int, code, format string, args ...any) {
		w.Header().Set("Connection", "close") // what is left of the body is not read
		e := admin.Errorf(code, format, args...)
		e.Status = status
		fail(w, e)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(b.time)) // only a recorder of tests cannot do it
		switch {
		case most == 0:
			refuse(w, http.StatusBadRequest, admin.CodeInvalidArgument, "%s %s takes no body", r.Method, r.URL.Path)
			return
		case r.ContentLength > most:
			refuse(w, http.StatusRequestEntityTooLarge, admin.CodeInvalidArgument, "the request's body has %d bytes: %d at most", r.ContentLength, most)
			return
		}
		weight := r.ContentLength
		if weight < 0 { // it does not say
			weight = most
		}
		waiting, cancel := context.WithTimeout(r.Context(), b.wait)
		err := b.room.Acquire(waiting, weight)
		cancel()
		if err != nil {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, admin.CodeUnavailable, "too many large requests are under way: try again")
			return
		}
		defer b.room.Release(weight)
		var body bytes.Buffer
		if r.ContentLength > 0 {
			body.Grow(int(r.ContentLength) + bytes.MinRead) // more would be copied
		}
		_, err = io.Copy(&body, http.MaxBytesReader(w, r.Body, most))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			refuse(w, http.StatusRequestEntityTooLarge, admin.CodeInvalidArgument, "the request's body has more than %d bytes", most)
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			refuse(w, http.StatusRequestTimeout, admin.CodeInvalidArgument, "the request's body did not arrive within %v", b.time)
			return
		case err != nil:
			refuse(w, http.StatusBadRequest, admin.CodeInvalidArgument, "reading the request's body: %v", err)
			return
		}
		_ = control.SetReadDeadline(time.Time{}) // what follows may take its time
		r.Body = io.NopCloser(&body)
		next.ServeHTTP(w, r)
	})
}
