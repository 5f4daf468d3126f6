package starvault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
	"github.com/nova-platform/cluster-api-provider-nova/test/ports"
	"github.com/nova-platform/cluster-api-provider-nova/test/process"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// startTimeout is how long a server may take to answer.
const startTimeout = time.Minute

// Programs are the servers that tests run against, by their names in hack/tools.
var Programs = []string{"vault", "bao"}

// Options are the settings of a server.
type Options struct {
	// Program is one of Programs, or the path of one.
	Program string
	// Dir is the directory for its data. It must exist.
	Dir string
	// Address is the IP address and port on which it listens. If not set, it is a
	// free port of 127.0.0.1.
	Address string
	// Inside calls a function where the server is to run, such as in another
	// network namespace. Nil runs it here.
	Inside process.Inside
	// Audit writes an audit log, for Requests.
	Audit bool
	// Log receives the output of the server.
	Log io.Writer
}

// Server is a server that runs.
type Server struct {
	// URL is its URL, and CA the certificate it is verified against.
	URL string
	CA  []byte
	// RootToken has all permissions.
	RootToken string

	options   Options
	program   string
	unsealKey string
	process   *process.Process
}

// Start runs a server, initializes and unseals it, and mounts an engine at pki. If
// the directory has the data of a former one, it continues with that data.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Inside == nil {
		o.Inside = process.Here
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	program, err := programOf(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.Address == "" {
		if o.Address, err = ports.FreeAddress(ctx); err != nil {
			return nil, err
		}
	}
	s := &Server{URL: "https://" + o.Address, options: o, program: program}
	if err := s.configure(); err != nil {
		return nil, err
	}
	kept := s.readKeys()
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	switch {
	case kept == nil:
		err = s.Unseal(ctx)
	case errors.Is(kept, fs.ErrNotExist):
		err = s.initialize(ctx)
	default:
		err = kept
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// initialize initializes and unseals a new server, and mounts an engine.
func (s *Server) initialize(ctx context.Context) error {
	client, err := s.Client()
	if err != nil {
		return err
	}
	answer, err := client.Sys().InitWithContext(ctx, &api.InitRequest{SecretShares: 1, SecretThreshold: 1})
	if err != nil {
		return fmt.Errorf("initializing %s: %w", s.options.Program, err)
	}
	s.RootToken, s.unsealKey = answer.RootToken, answer.KeysB64[0]
	if err := errors.Join(s.writeKeys(), s.Unseal(ctx)); err != nil {
		return err
	}
	client.SetToken(s.RootToken)
	if err := client.Sys().MountWithContext(ctx, "pki", &api.MountInput{Type: "pki", Config: api.MountConfigInput{MaxLeaseTTL: "87600h"}}); err != nil {
		return fmt.Errorf("mounting the PKI engine of %s: %w", s.options.Program, err)
	}
	if !s.options.Audit {
		return nil
	}
	err = client.Sys().EnableAuditWithOptionsWithContext(ctx, "requests", &api.EnableAuditOptions{Type: "file", Options: map[string]string{"file_path": s.path(auditLog)}})
	if err != nil {
		return fmt.Errorf("enabling the audit log of %s: %w", s.options.Program, err)
	}
	return nil
}

// programOf returns the path of the program.
func programOf(ctx context.Context, o Options) (string, error) {
	if filepath.IsAbs(o.Program) {
		return o.Program, nil
	}
	programs, err := tools.Paths(ctx, o.Log, o.Program)
	return programs[o.Program], err
}

// Open returns a server that another process has started with the same options.
func Open(o Options) (*Server, error) {
	if o.Inside == nil {
		o.Inside = process.Here
	}
	s := &Server{URL: "https://" + o.Address, options: o}
	ca, err := os.ReadFile(s.path("tls", "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the CA: %w", err)
	}
	s.CA = ca
	return s, s.readKeys()
}

// keys are kept for other processes, and for the next start.
type keys struct {
	RootToken string `json:"rootToken"`
	Unseal    string `json:"unseal"`
}

func (s *Server) writeKeys() error {
	data, err := json.Marshal(keys{RootToken: s.RootToken, Unseal: s.unsealKey})
	if err != nil {
		return fmt.Errorf("writing the keys: %w", err)
	}
	return os.WriteFile(s.path("keys.json"), data, 0o600)
}

func (s *Server) readKeys() error {
	data, err := os.ReadFile(s.path("keys.json"))
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	k := keys{}
	if err := json.Unmarshal(data, &k); err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	s.RootToken, s.unsealKey = k.RootToken, k.Unseal
	return nil
}

// Exited is closed once the process of a server that Start has started has ended.
func (s *Server) Exited() <-chan struct{} { return s.process.Exited }

// Restart runs the server again after Stop, with the same data, and unseals it.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.run(ctx); err != nil {
		return err
	}
	return s.Unseal(ctx)
}

// RotateAuthority gives the server a certificate of a new CA, from its next start.
func (s *Server) RotateAuthority() error {
	if err := os.RemoveAll(s.path("tls")); err != nil {
		return fmt.Errorf("removing the certificates: %w", err)
	}
	return s.configure()
}

// Unseal makes a sealed server serve, and waits until it does.
func (s *Server) Unseal(ctx context.Context) error {
	client, err := s.Client()
	if err != nil {
		return err
	}
	if _, err := client.Sys().UnsealWithContext(ctx, s.unsealKey); err != nil {
		return fmt.Errorf("unsealing %s: %w", s.options.Program, err)
	}
	return s.await(ctx, client, func(health *api.HealthResponse) bool { return !health.Sealed && !health.Standby })
}

// Client returns a client with the root token.
func (s *Server) Client() (*api.Client, error) {
	config := api.DefaultConfig()
	config.Address, config.MaxRetries, config.Timeout = s.URL, 0, startTimeout
	if err := config.ConfigureTLS(&api.TLSConfig{CACertBytes: s.CA}); err != nil {
		return nil, fmt.Errorf("trusting the server: %w", err)
	}
	transport, ok := config.HttpClient.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("the client has another transport than net/http's")
	}
	transport.DialContext = process.Dial(s.options.Inside)
	client, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	client.SetToken(s.RootToken)
	return client, nil
}

// Stop ends the server at once, as a machine that fails does.
func (s *Server) Stop() { s.process.Stop() }

// configure writes the certificate and the configuration.
func (s *Server) configure() error {
	host, _, err := net.SplitHostPort(s.options.Address)
	if err != nil {
		return fmt.Errorf("reading the address: %w", err)
	}
	certificates, err := identity.Load(s.path("tls"), []string{host})
	if err != nil {
		return err
	}
	s.CA = certificates.CA
	// The listener for other members of a cluster would need the next port.
	config := fmt.Sprintf(`api_addr = %q
disable_clustering = true
unsafe_allow_api_audit_creation = true
storage "file" {
  path = %q
}
listener "tcp" {
  address       = %q
  tls_cert_file = %q
  tls_key_file  = %q
}
`, s.URL, s.path("data"), s.options.Address, s.path("tls", "tls.crt"), s.path("tls", "tls.key"))
	if err := os.WriteFile(s.path("server.hcl"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}

// run starts the process, and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	arguments := []string{"server", "-config", s.path("server.hcl")}
	if filepath.Base(s.program) == "vault" {
		arguments = []string{"-address", s.options.Address, "-storage", s.path("data"), "-certificate", s.path("tls", "tls.crt"), "-key", s.path("tls", "tls.key")}
	}
	// It outlives ctx, which only bounds the wait.
	command := exec.CommandContext(context.WithoutCancel(ctx), s.program, arguments...)
	command.Stdout, command.Stderr = s.options.Log, s.options.Log
	var err error
	if s.process, err = process.Start(command, s.options.Inside); err != nil {
		return fmt.Errorf("starting %s: %w", s.options.Program, err)
	}
	client, err := s.Client()
	if err != nil {
		return err
	}
	return s.await(ctx, client, func(*api.HealthResponse) bool { return true })
}

// Ready returns nil if the server serves requests.
func (s *Server) Ready(ctx context.Context) error {
	client, err := s.Client()
	if err != nil {
		return err
	}
	health, err := client.Sys().HealthWithContext(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("reading the health: %w", err)
	case health.Sealed || health.Standby:
		return errors.New("the server is sealed or in standby")
	}
	return nil
}

// await waits until the server reports a state.
func (s *Server) await(ctx context.Context, client *api.Client, done func(*api.HealthResponse) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		health, err := client.Sys().HealthWithContext(ctx)
		if err == nil && done(health) {
			return nil
		}
		select {
		case <-s.process.Exited:
			return fmt.Errorf("starting %s: it ended", s.options.Program)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", s.options.Program, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

func (s *Server) path(parts ...string) string {
	return filepath.Join(append([]string{s.options.Dir}, parts...)...)
}
