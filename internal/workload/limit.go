package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// maxObject, maxList and maxError bound the body of a response. etcd accepts
	// objects of 1.5 MiB, and a Node with 50 images has 12 KiB. The text of an
	// error may be copied into a condition.
	maxObject = 8 << 20
	maxList   = 32 << 20
	maxError  = 16 << 10
	// maxHeader bounds the header of a response.
	maxHeader = 64 << 10
)

var (
	// ErrTooLarge is returned while a response is read that has more bytes than
	// this package allows.
	ErrTooLarge = errors.New("the response of the API server is too large")
	// ErrRedirect is returned for a response that leads to another server.
	ErrRedirect = errors.New("the API server redirects, which is refused")
)

// limiter bounds the responses of one API server.
type limiter struct {
	next http.RoundTripper

	// watched counts the bytes of watches since the last list, by resource and
	// selector. The keys come from requests, not from responses.
	watched reconcile.Memory[string, int64]
}

func newLimiter(next http.RoundTripper) *limiter {
	return &limiter{next: next}
}

// RoundTrip implements http.RoundTripper.
func (l *limiter) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/portforward"):
		// The connection is no HTTP after this, and its users bound it.
		return l.send(r)
	case isWatch(r):
		return l.watch(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timelimits.Fresh)
	response, err := l.send(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	bound := int64(maxObject)
	switch {
	case response.StatusCode >= http.StatusBadRequest:
		response.Body = shortened(response.Body, cancel)
		return response, nil
	case isList(r):
		bound = maxList
		if r.Method == http.MethodGet {
			l.watched.Forget(watchKey(r))
		}
	}
	response.Body = &body{ReadCloser: response.Body, left: func(n int64) bool { bound -= n; return bound >= 0 }, done: cancel}
	return response, nil
}

// send sends one request. It refuses redirects, because http.Client would
// follow them with the credentials and without the checks of the server, and
// drops warnings, which client-go would write to the log, and times to wait.
func (l *limiter) send(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest &&
		response.StatusCode != http.StatusNotModified {
		return nil, errors.Join(ErrRedirect, response.Body.Close())
	}
	response.Header.Del("Warning")
	// client-go would wait for the time in this header, up to ten times. A reconciler
	// that fails is retried anyway.
	response.Header.Del("Retry-After")
	return response, nil
}

// watch bounds the objects that watches add to a cache. A cache keeps all objects
// that it received since its last list, over any number of watches, so the bytes
// of watches are counted until the next list. Above the bound the next watch is
// answered as expired, and the cache lists again.
func (l *limiter) watch(r *http.Request) (*http.Response, error) {
	key := watchKey(r)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		l.watched.Forget(key)
	} else if l.count(key, 0) >= maxList {
		return expired(r), nil
	}
	response, err := l.send(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		response.Body = shortened(response.Body, func() {})
		return response, nil
	}
	response.Body = &body{ReadCloser: response.Body, left: func(n int64) bool { return l.count(key, n) < maxList }, done: func() {}}
	return response, nil
}

func (l *limiter) count(key string, n int64) (sum int64) {
	l.watched.Update(key, func(watched *int64) {
		*watched += n
		sum = *watched
	})
	return sum
}

// expired is the response of an API server that cannot go on with a watch.
func expired(r *http.Request) *http.Response {
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":%d,"message":"too much was watched since the last list"}`,
		http.StatusGone)
	return &http.Response{
		Status: http.StatusText(http.StatusGone), StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader([]byte(text))),
		ContentLength: int64(len(text)), Request: r,
	}
}

// shortened is the beginning of an error's body.
func shortened(of io.ReadCloser, done func()) io.ReadCloser {
	return &body{ReadCloser: struct {
		io.Reader
		io.Closer
	}{io.LimitReader(of, maxError), of}, left: func(int64) bool { return true }, done: done}
}

// body ends with ErrTooLarge once nothing is left of its bound.
type body struct {
	io.ReadCloser
	left func(n int64) bool
	done func()
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if n > 0 && !b.left(int64(n)) {
		return 0, ErrTooLarge
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// watchKey is the same for the list and the watch of a cache.
func watchKey(r *http.Request) string {
	query := r.URL.Query()
	return r.URL.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
}

// isList reports whether the path of a request names a collection of objects.
func isList(r *http.Request) bool {
	_, path, found := strings.Cut(r.URL.Path, "/api/v1/")
	if !found {
		if _, path, found = strings.Cut(r.URL.Path, "/apis/"); !found {
			return false
		}
		parts := strings.SplitN(path, "/", 3)
		if len(parts) < 3 {
			return false
		}
		path = parts[2]
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return len(parts) == 1 && parts[0] != ""
}
