package pvesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

const (
	apiPath = "/api2/json"
	// maxBody is the size of a request that is no upload.
	maxBody = 512 << 10
	// maxUpload bounds an upload in memory.
	maxUpload = 256 << 20
)

// bareError is a response whose text is only the reason phrase.
type bareError struct {
	status int
	reason string
}

func (e *bareError) Error() string { return fmt.Sprintf("%d %s", e.status, e.reason) }

// serve performs a request that a node received.
func (s *Server) serve(e *endpoint, w http.ResponseWriter, r *http.Request) {
	if s.unreachable(e, r) {
		panic(http.ErrAbortHandler)
	}
	path, ok := strings.CutPrefix(r.URL.Path, apiPath)
	if !ok {
		respond(w, nil, &bareError{http.StatusInternalServerError, "no such file '" + r.URL.Path + "'"})
		return
	}
	if len(r.TransferEncoding) > 0 {
		respond(w, nil, &bareError{http.StatusNotImplemented, "chunked transfer encoding not supported"})
		return
	}
	// A connection that is closed before its request was read is reset, and the
	// client loses the response.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxUpload))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	user, err := s.authenticate(r, path)
	if err != nil {
		s.deny(w, r, err)
		return
	}
	o, params := schema.Find(r.Method, path)
	name := strings.Trim(path, "/")
	if o != nil {
		name = strings.Trim(o.Path, "/")
	}
	s.count(r.Method, name)
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(r.Method, "/"+name)
	}
	hit := s.takeRule(r.Method, strings.Trim(path, "/"))
	if hit != nil && hit.before() {
		hit.answer(s.ctx, w, r)
		return
	}
	data, err := s.perform(e, r, o, params, user, hit.doomed())
	if hit != nil && !hit.Work && !hit.Pass {
		hit.answer(s.ctx, w, r)
		return
	}
	s.finish(w, r, hit, data, err)
}

// finish responds to a request that was performed.
func (s *Server) finish(w http.ResponseWriter, r *http.Request, hit *rule, data any, err error) {
	if hit != nil && hit.Delay > 0 {
		pause(s.ctx, r, hit.Delay)
	}
	var refused *schema.Error
	if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		s.deny(w, r, err)
		return
	}
	respond(w, data, err)
}

// deny responds to a request without valid credentials after a while.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, err error) {
	pause(s.ctx, r, s.timing(TimeUnauthorized))
	respond(w, nil, err)
}

// perform performs a request of the API.
func (s *Server) perform(e *endpoint, r *http.Request, o *schema.Operation, params map[string]any, user, doomed string) (any, error) {
	path := strings.TrimPrefix(r.URL.Path, apiPath)
	sent, file, err := s.read(r, path)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, &schema.Error{Status: http.StatusNotImplemented, Message: fmt.Sprintf("Method '%s %s' not implemented", r.Method, path)}
	}
	for name, value := range sent {
		if own, ok := params[name]; ok && schema.Text(own) != schema.Text(value) {
			return nil, schema.InvalidParameter(name, "duplicate parameter (already defined in URI) with conflicting values!")
		}
		params[name] = value
	}
	delete(params, "_dc")
	if o.Path == ticketPath {
		return s.login(o, params)
	}
	return s.Cluster.Do(r.Context(), cluster.Request{Operation: o, Params: params, User: user, Node: e.node, Upload: file, Doomed: doomed})
}

// read reads the parameters of a request, and the uploaded file.
func (s *Server) read(r *http.Request, path string) (params map[string]any, file []byte, err error) {
	params = decode(r.URL.RawQuery)
	if r.ContentLength <= 0 {
		return params, nil, nil
	}
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		return nil, nil, &bareError{http.StatusNotImplemented, "Unexpected content for method '" + r.Method + "'"}
	}
	kind, attributes, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if isUpload(r.Method, path) {
		if kind != "multipart/form-data" || attributes["boundary"] == "" {
			return nil, nil, &bareError{http.StatusInternalServerError, "upload 'Content-Type '" + r.Header.Get("Content-Type") + "' not implemented"}
		}
		file, err = readUpload(r, attributes["boundary"], params)
		return params, file, err
	}
	if r.ContentLength > maxBody {
		return nil, nil, &bareError{http.StatusNotImplemented, "for data too large"}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, nil, err
	}
	sent := map[string]any{}
	switch kind {
	case "application/json":
		decoder := json.NewDecoder(strings.NewReader(string(body)))
		decoder.UseNumber()
		err = decoder.Decode(&sent)
	case "", "application/x-www-form-urlencoded":
		sent = decode(string(body))
	default:
		err = &bareError{506, "upload 'Content-Type '" + kind + "' not implemented"}
	}
	maps.Copy(sent, params)
	return sent, nil, err
}

// decode decodes a query. A parameter that is repeated becomes a list.
func decode(text string) map[string]any {
	params := map[string]any{}
	for part := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, hasValue := strings.Cut(part, "=")
		name = unescape(name)
		if !hasValue {
			params[name] = nil
			continue
		}
		switch old := params[name].(type) {
		case nil:
			params[name] = unescape(value)
		case []any:
			params[name] = append(old, unescape(value))
		default:
			params[name] = []any{old, unescape(value)}
		}
	}
	return params
}

func unescape(text string) string {
	plain, err := url.QueryUnescape(text)
	if err != nil {
		return text
	}
	return plain
}

// encoded returns the JSON of a response, whose data the simulator has made itself.
func encoded(content map[string]any) []byte {
	body, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return body
}

// respond writes a response. After an error the connection is closed.
func respond(w http.ResponseWriter, data any, err error) {
	if err == nil {
		header := w.Header()
		setHeaders(header)
		body := encoded(map[string]any{"data": data})
		header.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		return
	}
	var refused *schema.Error
	var bare *bareError
	switch {
	case errors.As(err, &bare):
		writeError(w, bare.status, bare.reason, "", nil)
	case errors.As(err, &refused) && refused.Status >= 590:
		writeError(w, refused.Status, refused.Message, "", nil)
	case errors.As(err, &refused):
		content := map[string]any{"data": nil, "message": refused.Message}
		if len(refused.Errors) > 0 {
			content["errors"] = refused.Errors
		}
		body := encoded(content)
		writeError(w, refused.Status, refused.Message, "application/json;charset=UTF-8", body)
	default:
		body := encoded(map[string]any{"data": nil, "message": err.Error() + "\n"})
		writeError(w, http.StatusInternalServerError, err.Error(), "application/json;charset=UTF-8", body)
	}
}

func setHeaders(header http.Header) {
	now := time.Now().UTC().Format(http.TimeFormat)
	for name, value := range map[string]string{
		"Server": "pve-api-daemon/3.0", "Content-Type": "application/json;charset=UTF-8", "Cache-Control": "max-age=0", "Pragma": "no-cache",
		"Expires": now, "Date": now,
	} {
		header.Set(name, value)
	}
}

// writeError writes a response with a reason phrase, which net/http cannot do.
func writeError(w http.ResponseWriter, status int, reason, kind string, body []byte) {
	reason, _, _ = strings.Cut(reason, "\n")
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	header := http.Header{}
	setHeaders(header)
	header.Del("Content-Type")
	if kind != "" {
		header.Set("Content-Type", kind)
	}
	header.Set("Connection", "close")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\n", status, reason)
	_ = header.Write(buffer)
	_, _ = buffer.WriteString("\r\n")
	_, _ = buffer.Write(body)
	_ = buffer.Flush()
}
