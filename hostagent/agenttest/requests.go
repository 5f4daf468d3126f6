package agenttest

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Requests are the certificate requests of a cluster. They are signed as requested when
// they are read for the second time.
type Requests struct {
	// CAs are the CAs, by the names of their signers.
	CAs map[string]*CA
	// Denied is a part of the name of a request that is denied. Ignored leaves all
	// requests open.
	Denied  string
	Ignored bool

	t        *testing.T
	lock     sync.Mutex
	requests map[string]map[string]any
	reads    map[string]int
}

// NewRequests returns the requests of a cluster with these CAs.
func NewRequests(t *testing.T, cas map[string]*CA) *Requests {
	t.Helper()
	return &Requests{CAs: cas, t: t, requests: map[string]map[string]any{}, reads: map[string]int{}}
}

// Count returns the number of requests.
func (s *Requests) Count() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.requests)
}

// Serve answers a request to the API server, and returns false if it is for something
// else.
func (s *Requests) Serve(w http.ResponseWriter, r *http.Request) bool {
	name, is := strings.CutPrefix(r.URL.Path, "/apis/certificates.k8s.io/v1/certificatesigningrequests")
	if !is {
		return false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if r.Method == http.MethodPost {
		content, err := io.ReadAll(r.Body)
		object := map[string]any{}
		if err = errors.Join(err, json.Unmarshal(content, &object)); err != nil {
			s.t.Error(err)
		}
		meta, _ := object["metadata"].(map[string]any)
		s.requests["/"+fmt.Sprint(meta["name"])] = object
		Respond(w, http.StatusCreated, object)
		return true
	}
	object, found := s.requests[name]
	if !found {
		Fail(w, http.StatusNotFound, "NotFound")
		return true
	}
	const second = 2
	if s.reads[name]++; s.reads[name] == second && !s.Ignored {
		s.decide(name, object)
	}
	Respond(w, http.StatusOK, object)
	return true
}

func (s *Requests) decide(name string, object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	text, err := base64.StdEncoding.DecodeString(fmt.Sprint(spec["request"]))
	block, _ := pem.Decode(text)
	if err != nil || block == nil {
		s.t.Errorf("the request %s is malformed", name)
		return
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Error(err)
		return
	}
	if s.Denied != "" && strings.Contains(name, s.Denied) {
		object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Denied", "message": "not this one"}}}
		return
	}
	seconds, limited := spec["expirationSeconds"].(float64)
	if !limited {
		seconds = time.Hour.Seconds()
	}
	template := &x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, NotAfter: time.Now().Add(time.Duration(seconds) * time.Second),
	}
	usages, _ := spec["usages"].([]any)
	for _, usage := range usages {
		switch usage {
		case "server auth":
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		case "client auth":
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}
	}
	ca, found := s.CAs[fmt.Sprint(spec["signerName"])]
	if !found {
		s.t.Errorf("the request %s is for the signer %v", name, spec["signerName"])
		return
	}
	object["status"] = map[string]any{"certificate": base64.StdEncoding.EncodeToString([]byte(ca.Sign(s.t, text, template)))}
}
