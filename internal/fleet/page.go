package fleet

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed page.html style.css page.js
var content embed.FS

const (
	// maxStreams bounds the open pages: each is a connection and is rendered for
	// its own user.
	maxStreams = 200
	// maxOwnStreams bounds the open pages of one user, so that others can open one.
	maxOwnStreams = 4
	// streamLifetime is how long a stream may last: the browser connects again,
	// with a token that is reviewed again.
	streamLifetime = 5 * time.Minute
	// checkInterval is the interval at which a stream looks for changes.
	checkInterval = 2 * time.Second
	// repeatInterval is the interval at which a stream renders without a change,
	// for the ages on the page.
	repeatInterval = time.Minute
	// writeTimeout limits each write to a browser.
	writeTimeout = 10 * time.Second

	// policy lets the page load its own style and script and nothing else.
	policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// page serves the clusters that a user may see.
type page struct {
	reader  client.Reader
	users   *users
	changes *changes
	streams chan struct{}
	now     func() time.Time

	mu sync.Mutex
	// opened is the number of streams of each user who has one.
	opened map[string]int
}

// acquire takes a stream for a user, unless too many are open.
func (p *page) acquire(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened[name] >= maxOwnStreams {
		return false
	}
	select {
	case p.streams <- struct{}{}:
	default:
		return false
	}
	if p.opened == nil {
		p.opened = map[string]int{}
	}
	p.opened[name]++
	return true
}

// release ends a stream of a user.
func (p *page) release(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	<-p.streams
	if p.opened[name]--; p.opened[name] == 0 {
		delete(p.opened, name)
	}
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{"age": age}).ParseFS(content, "page.html"))

// handler returns the routes of the page.
func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", p.asUser(p.whole))
	mux.Handle("GET /events", p.asUser(p.stream))
	for _, name := range []string{"style.css", "page.js"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, content, name) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// asUser authenticates a request.
func (p *page) asUser(next func(http.ResponseWriter, *http.Request, user.Info)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, known, err := p.users.authenticator.AuthenticateRequest(r)
		if isOutage(err) {
			requests.WithLabelValues("failed").Inc()
			ctrl.Log.WithName("fleet").Error(err, "Reviewing a token")
			http.Error(w, "The management cluster does not respond, try again", http.StatusServiceUnavailable)
			return
		}
		if err != nil || !known {
			if err != nil {
				ctrl.Log.WithName("fleet").V(1).Info("Rejected a token", "cause", err.Error())
			}
			requests.WithLabelValues("rejected").Inc()
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Sign in first: the request has no token that the API server accepts", http.StatusUnauthorized)
			return
		}
		requests.WithLabelValues("accepted").Inc()
		next(w, r, response.User)
	})
}

// whole writes the whole page.
func (p *page) whole(w http.ResponseWriter, r *http.Request, who user.Info) {
	text, _, err := p.render(r.Context(), "page", who)
	if err != nil {
		unavailable(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) //nolint:gosec // html/template escaped it; the browser may be gone
}

// stream sends the table each time that it changes. A user who may see nothing keeps no
// stream, so that users without permissions do not use up those of others.
func (p *page) stream(w http.ResponseWriter, r *http.Request, who user.Info) {
	if !p.acquire(who.GetName()) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "Too many pages are open", http.StatusServiceUnavailable)
		return
	}
	open.Inc()
	defer func() { p.release(who.GetName()); open.Dec() }()
	ctx, cancel := context.WithTimeout(r.Context(), streamLifetime)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	var sent []byte
	var seen int64
	var rendered time.Time
	for {
		if version := p.changes.get(); version != seen || rendered.IsZero() || time.Since(rendered) >= repeatInterval {
			text, sees, err := p.render(ctx, "table", who)
			if err != nil {
				ctrl.Log.WithName("fleet").Error(err, "Rendering clusters")
				return // the browser connects again
			}
			if !sees && rendered.IsZero() {
				w.WriteHeader(http.StatusNoContent) // the browser does not connect again
				return
			}
			seen, rendered = version, time.Now()
			if err := send(w, out, text, sent); err != nil {
				return
			}
			sent = text
		}
		select {
		case <-ctx.Done():
			return
		case <-check.C:
		}
	}
}

// send writes an event with the table, or a comment if it is the same as
// before, so that proxies keep the connection.
func send(w io.Writer, out *http.ResponseController, text, before []byte) error {
	if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("setting deadline: %w", err)
	}
	event := ": no change\n\n"
	if !bytes.Equal(text, before) {
		event = "data: " + strings.ReplaceAll(strings.TrimSpace(printable(string(text))), "\n", "\ndata: ") + "\n\n"
	}
	if _, err := io.WriteString(w, event); err != nil {
		return fmt.Errorf("writing event: %w", err)
	}
	return out.Flush()
}

// view is the data of the templates.
type view struct {
	User string
	// Sees is whether there are Rows, or the user may list those of all namespaces. The page of
	// another user has no script: its stream would end at once.
	Sees                       bool
	Rows                       []row
	Failed, Progressing, Ready int
}

// render returns a template with the clusters that a user may list, and whether there
// are any or the user may list those of all namespaces.
func (p *page) render(ctx context.Context, name string, who user.Info) (text []byte, sees bool, err error) {
	everywhere, err := p.users.mayList(ctx, who, "")
	if err != nil {
		return nil, false, err
	}
	known := map[string]bool{}
	found, err := rows(ctx, p.reader, func(namespace string) (bool, error) {
		may, asked := known[namespace]
		if everywhere || asked {
			return everywhere || may, nil
		}
		may, err := p.users.mayList(ctx, who, namespace)
		known[namespace] = may
		return may, err
	}, p.now())
	if err != nil {
		return nil, false, err
	}
	v := view{User: who.GetName(), Sees: everywhere || len(found) > 0, Rows: found}
	for _, r := range found {
		switch r.Health {
		case failed:
			v.Failed++
		case progressing:
			v.Progressing++
		default:
			v.Ready++
		}
	}
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, v); err != nil {
		return nil, false, fmt.Errorf("rendering page: %w", err)
	}
	return out.Bytes(), v.Sees, nil
}

func unavailable(w http.ResponseWriter, err error) {
	ctrl.Log.WithName("fleet").Error(err, "Rendering clusters")
	http.Error(w, "The management cluster does not respond, try again", http.StatusServiceUnavailable)
}

// age returns the time from or until now in its largest unit.
func age(t time.Time) string {
	d := time.Since(t).Abs()
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	default:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
}
