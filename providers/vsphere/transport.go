package vsphere

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

const (
	// requestTimeout bounds every request but the long poll.
	requestTimeout = 20 * time.Second
	// pollSeconds is how long vCenter holds a long poll open without news;
	// pollTimeout is when a poll counts as dead.
	pollSeconds = 50
	pollTimeout = pollSeconds*time.Second + requestTimeout
	// parallel bounds the requests to one vCenter and identity, so that a
	// burst of machines is a queue here and not there.
	parallel = 16

	pollMethod = "WaitForUpdatesEx"
)

// endpoint is a vCenter and how to log in there.
type endpoint struct {
	server             string
	username, password string
	tls                trust
}

// trust says how the vCenter's certificate is verified.
type trust struct {
	caBundle   string
	thumbprint string
	insecure   bool
}

// id tells endpoints apart without giving the password away.
func (e endpoint) id() string {
	h := sha256.New()
	for _, s := range []string{e.server, e.username, e.password, e.tls.caBundle, e.tls.thumbprint, strconv.FormatBool(e.tls.insecure)} {
		// The length keeps two neighbours from running into each other.
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return string(h.Sum(nil))
}

// config returns the TLS settings that t stands for.
func (t trust) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.thumbprint != "":
		want := strings.ToUpper(t.thumbprint)
		// The chain does not matter: exactly one certificate is trusted.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			if got := soap.ThumbprintSHA256(cs.PeerCertificates[0]); got != want {
				return &thumbprintError{got: got}
			}
			return nil
		}
	case t.caBundle != "":
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.caBundle)) {
			return nil, errors.New("spec.tls.caBundle holds no certificate")
		}
	case t.insecure:
		c.InsecureSkipVerify = true
	}
	return c, nil
}

// thumbprintError is a certificate other than the pinned one.
type thumbprintError struct{ got string }

func (e *thumbprintError) Error() string {
	return fmt.Sprintf("the certificate's SHA-256 thumbprint is %s, not the one in spec.tls.thumbprint", e.got)
}

// dial returns a client that is not logged in. Its requests take slots.
func (e endpoint) dial(ctx context.Context, slots chan struct{}) (*vim25.Client, error) {
	config, err := e.tls.config()
	if err != nil {
		return nil, err
	}
	sc := soap.NewClient(&url.URL{Scheme: "https", Host: e.server, Path: vim25.Path}, false)
	sc.UserAgent = "cluster-api-provider-nova"
	// The client's own dialler obeys no context, so a vCenter that accepts
	// and then hangs would hold a goroutine for ever.
	t := sc.DefaultTransport()
	t.DialTLSContext = nil
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.TLSClientConfig = config
	t.MaxIdleConnsPerHost = parallel

	tr := &transport{next: sc, server: e.server, slots: slots}
	c, err := vim25.NewClient(ctx, tr)
	if err != nil {
		sc.CloseIdleConnections()
		return nil, err
	}
	c.Client = sc
	return c, nil
}

// transport bounds and counts requests.
type transport struct {
	next   soap.RoundTripper
	server string
	slots  chan struct{}
}

// RoundTrip sends a request. A long poll takes no slot.
func (t *transport) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	method := strings.TrimSuffix(reflect.TypeOf(req).Elem().Name(), "Body")
	timeout := requestTimeout
	if method == pollMethod {
		timeout = pollTimeout
	} else {
		select {
		case t.slots <- struct{}{}:
			defer func() { <-t.slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	err := t.next.RoundTrip(ctx, req, res)
	if method != pollMethod {
		requestSeconds.WithLabelValues(t.server).Observe(time.Since(start).Seconds())
	}
	requests.WithLabelValues(t.server, method, outcome(err)).Inc()
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "success"
	case soap.IsSoapFault(err):
		return "fault"
	default:
		return "error"
	}
}
