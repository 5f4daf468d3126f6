package download

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// connectTimeout limits a connection, and stallTimeout a download that gets
	// no data.
	connectTimeout = 30 * time.Second
	stallTimeout   = time.Minute
	// attempts is the number of downloads, and pause the time between them.
	attempts = 21
	pause    = 5 * time.Second
)

// Source is where a file is downloaded.
type Source struct {
	// Name is the name of the file, for messages.
	Name string
	// URL may be a credential, so no error contains it.
	URL string
	// SHA256 is the hash of the file, in hexadecimal.
	SHA256 string
	// CA, if set, verifies the server, in PEM.
	CA string
	// Limit, if set, is the maximum size of the file, in bytes.
	Limit int64
}

// File downloads a file, and verifies its hash.
func File(ctx context.Context, m *machine.Machine, from Source, to string) error {
	client, err := Client(m, from.CA)
	if err != nil {
		return fmt.Errorf("connecting to the server of %s: %w", from.Name, err)
	}
	for attempt := 1; ; attempt++ {
		hash, err := get(ctx, client, from, m.At(to))
		switch {
		case err == nil && hash == from.SHA256:
			return nil
		case err == nil:
			return fmt.Errorf("%s has another SHA-256 than %s", from.Name, from.SHA256)
		case errors.Is(err, errLimit), attempt == attempts, ctx.Err() != nil:
			return fmt.Errorf("%s cannot be downloaded: %w", from.Name, err)
		}
		m.Logf("Download of %s failed, attempt %d of %d: %v", from.Name, attempt, attempts, err)
		if err := m.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// errLimit means that a file is not the one that was to be downloaded.
var errLimit = errors.New("it is larger than allowed")

// Client returns a client that uses the proxy of the machine. The CA, if set, verifies
// the server.
func Client(m *machine.Machine, ca string) (*http.Client, error) {
	transport := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: stallTimeout,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:     true,
	}
	if ca != "" {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("the CA of the server contains no certificate")
		}
	}
	proxy := proxyConfig(m.Read(nodeconfig.ProxyFile)).ProxyFunc()
	transport.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	return &http.Client{Transport: transport}, nil
}

// proxyConfig reads a file with lines such as HTTP_PROXY='http://proxy:3128'.
func proxyConfig(text string) *httpproxy.Config {
	config := &httpproxy.Config{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, "'")
		switch name {
		case "HTTP_PROXY":
			config.HTTPProxy = value
		case "HTTPS_PROXY":
			config.HTTPSProxy = value
		case "NO_PROXY":
			config.NoProxy = value
		}
	}
	return config
}

// get downloads a file, and returns its hash.
func get(ctx context.Context, client *http.Client, from Source, to string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.URL, http.NoBody)
	if err != nil {
		return "", errors.New("its URL is malformed")
	}
	response, err := client.Do(request)
	if err != nil {
		return "", withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the server responds with %s", response.Status)
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("writing file: %w", err)
	}
	hash := sha256.New()
	stalled := time.AfterFunc(stallTimeout, func() { cancel(errors.New("the server sends no data")) })
	defer stalled.Stop()
	body := io.Reader(response.Body)
	if from.Limit > 0 {
		body = io.LimitReader(body, from.Limit+1)
	}
	size, err := io.Copy(io.MultiWriter(file, hash, touch(func() { stalled.Reset(stallTimeout) })), body)
	if from.Limit > 0 && size > from.Limit {
		err = errLimit
	}
	if err = errors.Join(err, context.Cause(ctx), file.Close()); err != nil {
		return "", fmt.Errorf("reading response: %w", withoutURL(err))
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// withoutURL removes the URL from an error of Go's client.
func withoutURL(err error) error {
	if failed, is := errors.AsType[*url.Error](err); is {
		return failed.Err
	}
	return err
}

// touch calls a function on each write.
type touch func()

// Write calls the function.
func (t touch) Write(p []byte) (int, error) {
	t()
	return len(p), nil
}
