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

// These are limits of request bodies, in bytes.
const (
	smallBody = 64 << 10
	// keysBody is the limit for lists of keys. A list of about ten thousand keys with values of a
	// kilobyte fits.
	keysBody = 16 << 20
	// allBodies is the limit for all bodies in memory together.
	allBodies = 4 * keysBody
)

const (
	// bodyTime limits how long a body may take to arrive. bodyWait limits how long a request waits
	// until other bodies have left memory.
	bodyTime = 15 * time.Second
	bodyWait = 5 * time.Second
	// answerTime is how long an answer, or a piece of a stream, may take to reach the client.
	answerTime = 30 * time.Second
)

// bodies reads the bodies of requests, within limits, before the requests are executed.
type bodies struct {
	room       *semaphore.Weighted
	time, wait time.Duration
}

func newBodies() *bodies {
	return &bodies{room: semaphore.NewWeighted(allBodies), time: bodyTime, wait: bodyWait}
}

// Bounded passes requests to next with their bodies in memory, within the limits of this API.
// Servers that forward requests to the API's server use it.
func Bounded(next http.Handler) http.Handler { return newBodies().limit(keysBody, next) }

// limit passes requests to next, each with its whole body in memory. most is the limit in bytes. If
// it is 0, a body is not allowed.
func (b *bodies) limit(most int64, next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, status int, code, format string, args ...any) {
		w.Header().Set("Connection", "close") // close the connection, because the rest of the body is not read
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
		// fails only with httptest's recorder, which does not support deadlines
		_ = control.SetReadDeadline(time.Now().Add(b.time))
		switch {
		case most == 0:
			refuse(w, http.StatusBadRequest, admin.CodeInvalidArgument, "%s %s takes no body", r.Method, r.URL.Path)
			return
		case r.ContentLength > most:
			refuse(w, http.StatusRequestEntityTooLarge, admin.CodeInvalidArgument, "the request's body has %d bytes: %d at most", r.ContentLength, most)
			return
		}
		weight := r.ContentLength
		if weight < 0 { // the client has not declared the length of the body
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
			body.Grow(int(r.ContentLength) + bytes.MinRead) // avoids copying the body later
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
		_ = control.SetReadDeadline(time.Time{}) // the deadline is only for the body
		r.Body = io.NopCloser(&body)
		next.ServeHTTP(w, r)
	})
}
