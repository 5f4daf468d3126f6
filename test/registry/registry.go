package registry

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/crypto/bcrypt"
	"k8s.io/client-go/util/cert"

	"github.com/nova-platform/cluster-api-provider-nova/test/process"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// startTimeout is how long the registry may take to answer.
const startTimeout = time.Minute

// Options are the settings of a registry.
type Options struct {
	// Dir is the directory for its data. It must exist.
	Dir string
	// IP and Port are the address on which it listens.
	IP   string
	Port int
	// Inside calls a function where the registry is to run, such as in another
	// network namespace.
	Inside process.Inside
	// Log receives the output of the registry.
	Log io.Writer
}

// Server is a registry that runs.
type Server struct {
	// Address is its host and port, and CA the certificate it is verified
	// against.
	Address string
	CA      []byte
	// User and Password are its only user's.
	User, Password string

	options Options
	process *process.Process
}

// Start runs a registry.
func Start(ctx context.Context, o Options) (*Server, error) {
	programs, err := tools.Paths(ctx, o.Log, "registry")
	if err != nil {
		return nil, err
	}
	s := &Server{
		Address: net.JoinHostPort(o.IP, strconv.Itoa(o.Port)), User: "nova", Password: rand.Text(),
		options: o,
	}
	if err := s.configure(); err != nil {
		return nil, fmt.Errorf("configuring registry: %w", err)
	}
	// It outlives ctx, which only bounds the wait.
	command := exec.CommandContext(context.WithoutCancel(ctx), programs["registry"], "serve", s.path("config.json"))
	// It reports the start of each request to a collector unless that is off.
	command.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	command.Stdout, command.Stderr = o.Log, o.Log
	if s.process, err = process.Start(command, o.Inside); err != nil {
		return nil, fmt.Errorf("starting registry: %w", err)
	}
	return s, s.await(ctx)
}

// Stop ends the registry.
func (s *Server) Stop() { s.process.Stop() }

// CAFile is the file with CA.
func (s *Server) CAFile() string { return s.path("ca.crt") }

// Login writes the file that "docker login" writes, and returns the value of
// DOCKER_CONFIG for it.
func (s *Server) Login(password string) (string, error) {
	dir, err := os.MkdirTemp(s.options.Dir, "login-")
	if err != nil {
		return "", fmt.Errorf("writing login: %w", err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte(s.User + ":" + password))
	data, err := json.Marshal(map[string]any{"auths": map[string]any{s.Address: map[string]any{"auth": auth}}})
	if err != nil {
		return "", fmt.Errorf("writing login: %w", err)
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600)
}

// Get requests a path of the registry.
func (s *Server) Get(ctx context.Context, path, accept string) (int, []byte, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		DialContext:     process.Dial(s.options.Inside),
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.SetBasicAuth(s.User, s.Password)
	request.Header.Set("Accept", accept)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, data, err
}

// await waits until the registry answers.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _, err := s.Get(ctx, "/v2/", "*/*")
		if status == http.StatusOK {
			return nil
		}
		select {
		case <-s.process.Exited:
			return errors.New("starting registry: it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("waiting for registry: status %d: %w", status, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// configure writes the certificates, the user and the configuration.
func (s *Server) configure() error {
	chain, key, err := cert.GenerateSelfSignedCertKey(s.options.IP, []net.IP{net.ParseIP(s.options.IP)}, nil)
	if err != nil {
		return err
	}
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return err
	}
	if s.CA, err = cert.EncodeCertificates(certificates[len(certificates)-1]); err != nil {
		return err
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(s.Password), bcrypt.MinCost)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"version": "0.1",
		"log":     map[string]any{"level": "warn"},
		"storage": map[string]any{"filesystem": map[string]any{"rootdirectory": s.path("data")}},
		"http":    map[string]any{"addr": s.Address, "tls": map[string]any{"certificate": s.path("server.crt"), "key": s.path("server.key")}},
		"auth":    map[string]any{"htpasswd": map[string]any{"realm": "nova", "path": s.path("htpasswd")}},
	})
	return errors.Join(err,
		os.WriteFile(s.path("ca.crt"), s.CA, 0o644),
		os.WriteFile(s.path("server.crt"), chain, 0o644),
		os.WriteFile(s.path("server.key"), key, 0o600),
		os.WriteFile(s.path("htpasswd"), []byte(s.User+":"+string(hash)+"\n"), 0o600),
		os.WriteFile(s.path("config.json"), config, 0o600),
	)
}

func (s *Server) path(name string) string { return filepath.Join(s.options.Dir, name) }
