package puppet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// RevocationSecret is the Secret with the credentials for revocations, in the
// namespace of the manager. An administrator creates it.
const RevocationSecret = "nova-bootstrap-puppet-revocation"

// Keys of the Secret, besides those of a TLS Secret and ca.crt.
const serverKey = "server"

const (
	// defaultPort is the port of Puppet servers.
	defaultPort = "8140"
	// requestTimeout limits one request to a Puppet server.
	requestTimeout = 10 * time.Second
	// maxResponse limits the part of a response that is read, in bytes.
	maxResponse = 4 << 10
)

// authority is the CA of a Puppet server.
type authority struct {
	url    string
	client *http.Client
}

// newAuthority reads the Secret. The server is named there and not in a Cluster: a
// tenant must not choose where the credentials are used.
func newAuthority(secret *corev1.Secret) (*authority, error) {
	host := string(bytes.TrimSpace(secret.Data[serverKey]))
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, defaultPort)
	}
	address := url.URL{Scheme: "https", Host: host, Path: "/puppet-ca/v1/clean"}
	if _, err := url.Parse(address.String()); err != nil || len(secret.Data[serverKey]) == 0 {
		return nil, fmt.Errorf("%s is no name of a server", serverKey)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		return nil, errors.New("ca.crt has no certificate in PEM")
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, errors.New("tls.crt and tls.key are no certificate with its key") // the cause could quote them
	}
	return &authority{url: address.String(), client: &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// revoke revokes and deletes a certificate. It returns false if there is none.
func (a *authority) revoke(ctx context.Context, certname string) (bool, error) {
	body, err := json.Marshal(map[string][]string{"certnames": {certname}})
	if err != nil {
		return false, fmt.Errorf("writing request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, a.url, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("making request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return false, fmt.Errorf("requesting revocation: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return false, fmt.Errorf("reading response: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the Puppet server returned %s", response.Status)
	}
	return !strings.Contains(string(text), "do not exist"), nil
}
