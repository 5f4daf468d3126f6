package pvesim

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

const (
	ticketPath = "/access/ticket"
	// csrfField and the header csrfHeader have the token that a request with a ticket
	// needs, unless it is a GET or an upload.
	csrfField  = "CSRFPreventionToken"
	csrfHeader = "Csrfpreventiontoken"
)

// sign returns a text with its time and a signature, in the form of tickets.
func (s *Server) sign(prefix, text, separator string, at time.Time) string {
	plain := prefix + text
	stamp := fmt.Sprintf("%08X", at.Unix())
	s.mu.Lock()
	mac := hmac.New(sha256.New, s.secret)
	s.mu.Unlock()
	fmt.Fprintf(mac, "%s:%s", plain, stamp)
	return stamp + separator + base64.RawStdEncoding.EncodeToString(mac.Sum(nil))
}

// signed returns whether a signature was made by the server and is not too old.
func (s *Server) signed(prefix, text, separator, signature string) bool {
	stamp, _, ok := strings.Cut(signature, separator)
	seconds, err := strconv.ParseInt(stamp, 16, 64)
	if !ok || err != nil {
		return false
	}
	at := time.Unix(seconds, 0)
	age := time.Since(at)
	const clockSkew = 5 * time.Minute
	return age > -clockSkew && age < s.timing(TimeTicket) && hmac.Equal([]byte(s.sign(prefix, text, separator, at)), []byte(signature))
}

// ExpireTickets makes all tickets invalid.
func (s *Server) ExpireTickets() {
	secret := newSecret()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret = secret
}

func newSecret() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret)
	return secret
}

// ticket returns a ticket for a user, and csrf the token for it.
func (s *Server) ticket(user string) string {
	return "PVE:" + user + ":" + s.sign("PVE:", user, "::", time.Now())
}

func (s *Server) csrf(user string) string { return s.sign("CSRF:", user, ":", time.Now()) }

// userOf returns the user of a valid ticket.
func (s *Server) userOf(ticket string) (string, bool) {
	parts := strings.SplitN(ticket, ":", 3)
	if len(parts) != 3 || parts[0] != "PVE" || !s.signed("PVE:", parts[1], "::", parts[2]) {
		return "", false
	}
	enabled := s.Cluster.Access(func(c *access.Control) error {
		if !c.Enabled(parts[1]) {
			return errors.New("user is disabled")
		}
		return nil
	})
	return parts[1], enabled == nil
}

var (
	ticketPattern = regexp.MustCompile(`(?:^|\s)PVEAuthCookie=([^;]*)`)
	tokenPattern  = regexp.MustCompile(`(?:^|\s)PVEAPIToken=([^;]*)`)
)

// value returns the unescaped value of a pattern in a header.
func value(pattern *regexp.Regexp, header string) string {
	match := pattern.FindStringSubmatch(header)
	if match == nil {
		return ""
	}
	text, err := url.PathUnescape(match[1])
	if err != nil {
		return match[1]
	}
	return text
}

// unauthorized is the response for a request without valid credentials. It has no
// body: the text is the reason phrase.
func unauthorized(text string) error {
	return &bareError{status: http.StatusUnauthorized, reason: text}
}

// authenticate returns the user or the token of a request.
func (s *Server) authenticate(r *http.Request, path string) (string, error) {
	if path == ticketPath && (r.Method == http.MethodPost || r.Method == http.MethodGet) || path == "/access/domains" && r.Method == http.MethodGet {
		return "", nil
	}
	authorization := r.Header.Get("Authorization")
	ticket := value(ticketPattern, r.Header.Get("Cookie"))
	if ticket == "" {
		ticket = value(ticketPattern, authorization)
	}
	if ticket == "" {
		token := value(tokenPattern, authorization)
		if token == "" {
			return "", unauthorized("No ticket")
		}
		user := ""
		err := s.Cluster.Access(func(c *access.Control) error {
			name, ok := c.Authenticate(token)
			if !ok {
				return unauthorized("Authentication failed!")
			}
			user = name
			return nil
		})
		return user, err
	}
	user, ok := s.userOf(ticket)
	if !ok {
		return "", unauthorized("permission denied - invalid PVE ticket")
	}
	if r.Method != http.MethodGet && !isUpload(r.Method, path) && !s.signed("CSRF:", user, ":", r.Header.Get(csrfHeader)) {
		return "", unauthorized("Permission denied - invalid csrf token")
	}
	return user, nil
}

var uploadPattern = regexp.MustCompile(`^/nodes/[^/]+/storage/[^/]+/upload$`)

func isUpload(method, path string) bool {
	return method == http.MethodPost && uploadPattern.MatchString(path)
}

// login handles POST /access/ticket.
func (s *Server) login(o *schema.Operation, params map[string]any) (any, error) {
	if err := o.Check(params); err != nil {
		return nil, err
	}
	user, password := schema.Text(params["username"]), schema.Text(params["password"])
	if realm := params["realm"]; realm != nil && !strings.Contains(user, "@") {
		user += "@" + schema.Text(realm)
	}
	err := s.Cluster.Access(func(c *access.Control) error {
		if !c.Login(user, password) {
			return errors.New("authentication failure")
		}
		return nil
	})
	if err != nil {
		if name, ok := s.userOf(password); !ok || name != user {
			return nil, &schema.Error{Status: http.StatusUnauthorized, Message: "authentication failure\n"}
		}
	}
	return map[string]any{
		"username": user, "ticket": s.ticket(user), csrfField: s.csrf(user), "cap": map[string]any{}, "clustername": s.Cluster.Name(),
	}, nil
}
