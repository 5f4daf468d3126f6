package ovirtsim

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

const (
	tokenPath  = "/ovirt-engine/sso/oauth/token"
	logoutPath = "/ovirt-engine/services/sso-logout"
	revokePath = "/ovirt-engine/sso/oauth/revoke"
)

// token is a session of the API.
type token struct {
	user    *user
	expires time.Time
	used    time.Time
}

// serveSession begins and ends sessions. Only a fault that names the address
// hits it.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request, path string, parts []string) {
	s.count(r.Method, nil, parts)
	hit := s.takeRule(r, parts)
	if hit != nil && !hit.After {
		hit.answer(s.ctx, w, r)
		return
	}
	out := w
	if hit != nil {
		out = httptest.NewRecorder() // the answer is lost
	}
	if path == tokenPath {
		s.serveToken(out, r)
	} else {
		s.serveLogout(out, r)
	}
	if hit != nil {
		hit.answer(s.ctx, w, r)
	}
}

// serveToken lets people in.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost {
		ssoError(w, "invalid_request", "Missing parameter: 'grant_type'")
		return
	}
	if grant := r.Form.Get("grant_type"); grant != "password" {
		ssoError(w, "unsupported_grant_type", fmt.Sprintf("Unsupported grant_type parameter: '%s'.", grant))
		return
	}
	s.mu.Lock()
	who := s.findUser(r.Form.Get("username"), r.Form.Get("password"))
	barred := who != nil && !s.mayLogin(who)
	s.mu.Unlock()
	if who == nil {
		ssoError(w, "access_denied", fmt.Sprintf("Cannot authenticate user '%s': The username or password is incorrect..", r.Form.Get("username")))
		return
	}
	if barred {
		ssoError(w, "access_denied", fmt.Sprintf("The user %s is not authorized to perform login", who.Name))
		return
	}
	raw := make([]byte, 64)
	_, _ = rand.Read(raw)
	value := base64.RawURLEncoding.EncodeToString(raw)
	s.mu.Lock()
	now := s.clock.Now()
	s.tokens[value] = &token{user: who, expires: now.Add(s.opts.TokenLifetime), used: now}
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, map[string]string{
		"access_token": value,
		"scope":        "ovirt-app-api",
		"exp":          strconv.FormatInt(now.Add(s.opts.TokenLifetime).UnixMilli(), 10),
		"token_type":   "bearer",
	})
}

// answerJSON writes a response. The client may have closed the connection.
func answerJSON(w http.ResponseWriter, status int, fields map[string]string) {
	body, err := json.Marshal(fields)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func ssoError(w http.ResponseWriter, code, message string) {
	answerJSON(w, http.StatusBadRequest, map[string]string{"error_code": code, "error": message})
}

// serveLogout ends a session.
func (s *Server) serveLogout(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	delete(s.tokens, r.Form.Get("token"))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// authorized returns the session of a request's token, or nil if the token is
// not valid. Basic credentials are accepted too, as in the engine.
func (s *Server) authorized(r *http.Request) *user {
	if name, password, ok := r.BasicAuth(); ok {
		u := s.findUser(name, password)
		if u != nil && !s.mayLogin(u) {
			return nil
		}
		return u
	}
	value, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	t := s.tokens[value]
	if !ok || t == nil {
		return nil
	}
	now := s.clock.Now()
	if now.After(t.expires) || now.Sub(t.used) > s.opts.TokenIdle {
		delete(s.tokens, value)
		return nil
	}
	t.used = now
	return t.user
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="RESTAPI"`)
	writeHTML(w, http.StatusUnauthorized, "Error", "invalid_grant: The provided authorization grant for the auth code has expired.")
}

func writeHTML(w http.ResponseWriter, status int, title, body string) {
	w.Header().Set("Content-Type", "text/html;charset=UTF-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<html><head><title>%s</title></head><body>%s</body></html>", html.EscapeString(title), html.EscapeString(body))
}

// ExpireTokens ends all sessions.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// Tokens is how many sessions there are.
func (s *Server) Tokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens)
}
