package ovirtsim

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// handler answers a request under the lock.
type handler func(q *request) (*elem, error)

// route is a method and a path below the API, {} standing for an ID.
type route struct {
	method string
	path   string
	parts  []string
	handle handler
}

// request is the input of a handler.
type request struct {
	method string
	// args are the IDs in the path.
	args   []string
	query  url.Values
	body   *elem
	follow *followTree
	// correlation is the client's name for its operation.
	correlation string
	// accepted is set by a handler whose operation continues after the response.
	accepted bool
	// user is the user of the request.
	user *user
	// job is the operation that continues, and doomed means that it must fail.
	job    *job
	doomed bool
	// instant work takes no time: the inventory is being made.
	instant bool
	// made is the address of the object that is being created.
	made string
	// nested is set for objects that are read for follow.
	nested bool
	// internal is set for a request that no client sent.
	internal bool
	// rows and followed are how many VMs the answer lists, and how many objects
	// the engine followed a link of.
	rows, followed int
	// filter limits the response to objects that the user has permissions for.
	filter bool
	// language is the one that faults are written in.
	language string
}

// table is all the API.
func (s *Server) table() []route {
	var all []route
	for _, part := range []map[string]handler{
		s.vmRoutes(), s.snapshotRoutes(), s.deviceRoutes(), s.templateRoutes(), s.diskRoutes(), s.networkRoutes(),
		s.computeRoutes(), s.groupRoutes(), s.systemRoutes(), s.roleRoutes(), s.quotaRoutes(), s.hostDeviceRoutes(),
	} {
		for pattern, handle := range part {
			method, path, _ := strings.Cut(pattern, " ")
			all = append(all, route{method: method, path: path, parts: split(path), handle: handle})
		}
	}
	return all
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// match compares a path with a route. An address without IDs in a place wins
// over one with.
func (r *route) match(parts []string) (args []string, ok bool) {
	if len(parts) != len(r.parts) {
		return nil, false
	}
	for i, part := range r.parts {
		switch {
		case part == "{}":
			args = append(args, parts[i])
		case part != parts[i]:
			return nil, false
		}
	}
	return args, true
}

// shape returns the key by which routes are found.
type shape struct {
	method, first string
	parts         int
}

func shapeOf(method string, parts []string) shape {
	return shape{method: method, first: first(parts), parts: len(parts)}
}

func byShape(routes []route) map[shape][]*route {
	out := map[shape][]*route{}
	for i := range routes {
		key := shapeOf(routes[i].method, routes[i].parts)
		out[key] = append(out[key], &routes[i])
	}
	return out
}

// find finds the route of a request, and whether there is one for the path at
// all.
func (s *Server) find(method string, parts []string) (best *route, args []string, known bool) {
	for _, r := range s.byShape[shapeOf(method, parts)] {
		found, ok := r.match(parts)
		if ok && (best == nil || len(found) < len(args)) {
			best, args = r, found
		}
	}
	if best != nil {
		return best, args, true
	}
	for i := range s.routes {
		if _, ok := s.routes[i].match(parts); ok {
			return nil, nil, true
		}
	}
	return nil, nil, false
}

// ServeHTTP answers all requests of an engine.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.unavailable(w, r) {
		return
	}
	parts := split(r.URL.Path)
	path := "/" + strings.Join(parts, "/")
	switch {
	case path == tokenPath, path == logoutPath, path == revokePath:
		s.serveSession(w, r, path, parts[1:])
	case strings.HasPrefix(path, imagePath):
		s.serveImage(w, r, strings.TrimPrefix(path, imagePath))
	case path == apiPath, strings.HasPrefix(path, apiPath+"/"):
		s.serveAPI(w, r, parts[2:])
	case path == "/ovirt-engine/services/pki-resource" && r.Method == http.MethodGet &&
		r.URL.Query().Get("resource") == "ca-certificate" && r.URL.Query().Get("format") == "X509-PEM-CA":
		w.Header().Set("Content-Type", "application/x-x509-ca-cert")
		_, _ = io.WriteString(w, s.CABundle)
	case len(parts) > 0 && parts[0] == "ovirt-engine" && r.Method == http.MethodGet:
		signOn(w, r, path)
	default:
		writeHTML(w, http.StatusNotFound, "404 Not Found", "The requested URL was not found on this server.")
	}
}

// signOn redirects clients without a cookie to the sign-on page and back,
// without end, as the pages outside of the API do.
func signOn(w http.ResponseWriter, r *http.Request, path string) {
	to := "/ovirt-engine/sso/oauth/authorize"
	if path == to {
		to = "/ovirt-engine/"
	}
	http.Redirect(w, r, to, http.StatusFound)
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, parts []string) {
	correlation := correlationID(r)
	if correlation != "" {
		w.Header().Set("Correlation-Id", correlation)
	}
	body, bodyErr := parseElem(io.LimitReader(r.Body, 16<<20))
	if errors.Is(bodyErr, io.EOF) {
		bodyErr = nil
	}
	s.mu.Lock()
	who := s.authorized(r)
	s.mu.Unlock()
	if who == nil {
		unauthorized(w)
		return
	}
	rt, args, known := s.find(r.Method, parts)
	s.count(r.Method, rt, parts)
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(r.Method, pattern(rt, parts))
	}
	q := &request{method: r.Method, args: args, query: r.URL.Query(), body: body, correlation: correlation, user: who}
	q.language = s.language(r)
	q.filter = r.Header.Get("Filter") == "true" || q.query.Get("filter") == "true"
	q.follow = parseFollow(q.query.Get("follow"))
	hit := s.takeRule(r, parts)
	if hit != nil && !hit.After && !hit.Work {
		hit.answer(s.ctx, w, r)
		return
	}
	q.doomed = hit != nil && hit.Work
	s.mu.Lock()
	status, reply := s.perform(rt, q, known, bodyErr)
	took := time.Duration(q.rows)*s.opts.Timings[TimeListVM] + time.Duration(q.followed)*s.opts.Timings[TimeFollow]
	s.mu.Unlock()
	if !s.pass(r, took) {
		return
	}
	if status == http.StatusAccepted && expectsCreated(r) {
		status, reply = s.await(r, q, status, reply)
	}
	if hit != nil && !hit.Work {
		hit.answer(s.ctx, w, r)
		return
	}
	writeReply(w, status, reply)
}

func writeReply(w http.ResponseWriter, status int, reply []byte) {
	if reply == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(reply)
}

// pass waits for the duration of a response. It returns false if the client
// disconnects or the server stops before.
func (s *Server) pass(r *http.Request, took time.Duration) bool {
	if took <= 0 {
		return true
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.ctx.Done():
	}
	return false
}

// await waits for the end of the operation of a request and responds with the
// resulting object.
func (s *Server) await(r *http.Request, q *request, status int, reply []byte) (int, []byte) {
	select {
	case <-q.job.done:
	case <-s.ctx.Done():
		return status, reply
	case <-r.Context().Done():
		return status, reply
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rt, args, known := s.find(http.MethodGet, split(q.made)[2:])
	status, reply = s.perform(rt, &request{method: http.MethodGet, args: args, query: q.query, follow: q.follow, user: q.user, filter: q.filter, internal: true}, known, nil)
	if status == http.StatusOK {
		status = http.StatusCreated
	}
	return status, reply
}

// perform finds the answer to a request. The caller holds the lock.
func (s *Server) perform(rt *route, q *request, known bool, bodyErr error) (int, []byte) {
	switch {
	case rt == nil && known:
		return http.StatusMethodNotAllowed, nil
	case rt == nil:
		return http.StatusNotFound, nil
	case bodyErr != nil:
		return http.StatusBadRequest, el("usage_message", leaf("message", "Request syntactically incorrect.")).bytes()
	}
	for _, arg := range q.args {
		if !wellFormed(arg) && rt.method != http.MethodOptions {
			return http.StatusBadRequest, (&fault{reason: "Operation failed", detail: "Invalid UUID string: " + arg}).elem().bytes()
		}
	}
	if err := s.authorize(q.user, rt, q); err != nil {
		status, reply := q.failed(err, rt.action())
		return status, reply.bytes()
	}
	if err := q.conforms(rt); err != nil {
		status, reply := q.failed(err, rt.action())
		return status, reply.bytes()
	}
	return s.answer(rt, q)
}

// answer handles a request. A list of VMs is the same until something changes.
func (s *Server) answer(rt *route, q *request) (int, []byte) {
	remember := rt.method == http.MethodGet && rt.path == "vms"
	if known, ok := s.lists[q.listKey()]; remember && ok {
		q.rows, q.followed = known.rows, known.followed
		s.countFollowed(q)
		return http.StatusOK, known.text
	}
	status, reply := s.handle(rt, q)
	if remember && reply != nil {
		q.rows = len(reply.kids)
	}
	s.countFollowed(q)
	text := reply.bytes()
	if remember && status == http.StatusOK {
		s.lists[q.listKey()] = knownList{text: text, rows: q.rows, followed: q.followed}
	}
	return status, text
}

// listKey is the key of a cached list of VMs.
func (q *request) listKey() string {
	if q.filter {
		return q.user.id + " " + q.query.Encode()
	}
	return q.query.Encode()
}

// conforms returns an error for a request that is not part of the API. Requests
// of the server itself are not checked.
func (q *request) conforms(rt *route) error {
	if q.method == http.MethodOptions || q.internal {
		return nil
	}
	return loadModel().check(q.method, rt.parts, q.query, q.body)
}

func (s *Server) handle(rt *route, q *request) (int, *elem) {
	reply, err := rt.handle(q)
	if q.method != http.MethodGet {
		s.changed()
	}
	if err != nil {
		return q.failed(err, rt.action())
	}
	if !rt.action() && reply != nil {
		q.followed = s.expand(reply, q.follow)
	}
	switch {
	case q.accepted:
		q.made = reply.attribute("href")
		return http.StatusAccepted, reply
	case q.method == http.MethodPost && !rt.action():
		return http.StatusCreated, reply
	}
	return http.StatusOK, reply
}

// action reports whether a route performs an action instead of creating an
// object.
func (r *route) action() bool {
	return r.method == http.MethodPost && len(r.parts) > 1 && r.parts[len(r.parts)-2] == "{}" && verbs[r.parts[len(r.parts)-1]]
}

var verbs = map[string]bool{
	"start": true, "stop": true, "shutdown": true, "reboot": true, "reset": true, "suspend": true, "migrate": true, "cancelmigration": true,
	"detach": true, "activate": true, "deactivate": true, "copy": true, "finalize": true, "cancel": true, "fence": true,
	"autopincpuandnumanodes": true, "refresh": true, "pause": true, "resume": true, "reduce": true,
}

// failed writes a refusal in the language of the request.
func (q *request) failed(err error, action bool) (int, *elem) {
	if f, ok := errors.AsType[*fault](err); ok && q.language == russian {
		translated := *f
		translated.detail = inRussian(f.detail)
		err = &translated
	}
	return failed(err, action)
}

// failed writes a refusal.
func failed(err error, action bool) (int, *elem) {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{status: http.StatusInternalServerError, reason: operationFailed, detail: err.Error()}
	}
	switch {
	case f.empty:
		return f.status, nil
	case action:
		return f.status, el("action", f.elem(), leaf("status", "failed"))
	}
	return f.status, f.elem()
}

var (
	uuidForm  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	shortForm = regexp.MustCompile(`^[0-9a-fA-F]+$`)
	notInID   = regexp.MustCompile(`[^0-9A-Za-z_-]`)
)

func wellFormed(id string) bool {
	return uuidForm.MatchString(id) || shortForm.MatchString(id)
}

// correlationID returns the client's name for its operation, trimmed as in the
// engine.
func correlationID(r *http.Request) string {
	id := r.Header.Get("Correlation-Id")
	if id == "" {
		id = r.URL.Query().Get("correlation_id")
	}
	id = notInID.ReplaceAllString(id, "")
	return id[:min(len(id), 36)]
}

// followTree contains the links in the parameter follow, by name.
type followTree struct {
	links map[string]*followTree
}

func parseFollow(text string) *followTree {
	tree := &followTree{links: map[string]*followTree{}}
	for path := range strings.SplitSeq(text, ",") {
		at := tree
		for name := range strings.SplitSeq(strings.TrimSpace(path), ".") {
			name = strings.ToLower(strings.ReplaceAll(name, "_", ""))
			if name == "" {
				break
			}
			if at.links[name] == nil {
				at.links[name] = &followTree{links: map[string]*followTree{}}
			}
			at = at.links[name]
		}
	}
	return tree
}

// expand replaces links and references by their objects, and returns the number
// of these.
func (s *Server) expand(e *elem, follow *followTree) int {
	if follow == nil || len(follow.links) == 0 {
		return 0
	}
	count := 0
	if e.id() == "" && e.attribute("href") == "" {
		for _, kid := range e.kids { // a collection
			count += s.expand(kid, follow)
		}
		return count
	}
	for i, kid := range e.kids {
		href := kid.attribute("href")
		if href == "" {
			continue
		}
		name := kid.name
		if name == "link" {
			name = kid.attribute("rel")
		}
		sub, wanted := follow.links[strings.ReplaceAll(name, "_", "")]
		if !wanted {
			continue
		}
		rt, args, _ := s.find(http.MethodGet, split(href)[2:])
		if rt == nil {
			continue
		}
		found, err := rt.handle(&request{method: http.MethodGet, args: args, query: url.Values{}, nested: true})
		if err != nil {
			continue
		}
		count += 1 + s.expand(found, sub)
		if kid.name != "link" {
			found.name = kid.name
		}
		e.kids[i] = found
	}
	return count
}
