package puppet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/process"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// Revoker is the name of the certificate that may revoke others.
	Revoker = "nova-management-1"
	// Port is the port of the server.
	Port = 8140
	// startTimeout is how long a server may take to start on a slow machine.
	startTimeout = 10 * time.Minute
	// ready is the line of the log after which the server answers.
	ready = "Puppet Server has successfully started"
	// system is the configuration of Debian's package.
	system = "/etc/puppet/puppetserver"
)

// serverConf limits the server to one interpreter, so that it needs less than 1 GiB.
//
//go:embed puppetserver.conf
var serverConf string

//go:embed logback.xml
var logConf string

// Options are the settings of the server.
type Options struct {
	// Dir is the directory for its data. It must exist, and user puppet must be able
	// to reach it.
	Dir string
	// IP is the address on which it listens.
	IP string
	// Name is the name that its certificate is valid for, in addition to localhost.
	Name string
	// Environment is the folder of its environment, a control repository.
	Environment string
	// Inside calls a function where the server is to run, such as in another
	// network namespace.
	Inside process.Inside
	// Log receives the output of the server.
	Log io.Writer
}

// Server is a server that runs.
type Server struct {
	// Key signs the tokens that its autosign policy accepts.
	Key ed25519.PrivateKey

	options Options
	owner   *syscall.Credential
	process *process.Process
}

// Start runs a server.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{options: o}
	account, err := user.Lookup("puppet")
	if err != nil {
		return nil, fmt.Errorf("finding the user of puppetserver: %w", err)
	}
	uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("finding the user of puppetserver: %w", err)
	}
	s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := s.configure(ctx); err != nil {
		return nil, err
	}
	return s, s.Run(ctx)
}

// configure writes the configuration of the server and of its autosign policy.
func (s *Server) configure(ctx context.Context) error {
	for _, dir := range []string{"var", "run", "log", "keys", "records", "code/environments"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return fmt.Errorf("making folder: %w", err)
		}
	}
	for target, source := range map[string]string{
		"conf.d": system + "/conf.d", "services.d": system + "/services.d", "code/environments/production": s.options.Environment,
	} {
		if err := os.CopyFS(s.path(target), os.DirFS(source)); err != nil {
			return fmt.Errorf("copying %s: %w", source, err)
		}
	}
	if err := s.allowRevocation(); err != nil {
		return err
	}
	if err := s.newKey(); err != nil {
		return fmt.Errorf("making key: %w", err)
	}
	if err := tools.Build(ctx, s.path("nova-autosign"), "", "./cmd/nova-autosign"); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"autosign":                 fmt.Sprintf("#!/bin/sh\nexec %s -keys %s -records %s \"$@\"\n", s.path("nova-autosign"), s.path("keys"), s.path("records")),
		"puppet.conf":              fmt.Sprintf("[main]\nserver = localhost\n[server]\ncertname = %[1]s\ndns_alt_names = %[1]s,localhost\nautosign = %[2]s\nallow_duplicate_certs = true\ncadir = %[3]s\nssldir = %[4]s\n", s.options.Name, s.path("autosign"), s.path("ca"), s.path("ssl")),
		"logback.xml":              logConf,
		"conf.d/puppetserver.conf": strings.ReplaceAll(serverConf, "DIR", s.options.Dir),
		"conf.d/global.conf":       fmt.Sprintf("global: { logging-config: %s }\n", s.path("logback.xml")),
		"conf.d/webserver.conf":    fmt.Sprintf("webserver: { client-auth: want, ssl-host: %q, ssl-port: %d }\n", s.options.IP, Port),
	} {
		mode := os.FileMode(0o644)
		if name == "autosign" {
			mode = 0o755
		}
		if err := os.WriteFile(s.path(name), []byte(content), mode); err != nil {
			return fmt.Errorf("writing configuration: %w", err)
		}
	}
	return filepath.WalkDir(s.options.Dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(s.owner.Uid), int(s.owner.Gid)))
	})
}

// allowRevocation changes the authorization rules as docs/configuration-manager.md
// describes it.
func (s *Server) allowRevocation() error {
	path := s.path("conf.d", "auth.conf")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading authorization rules: %w", err)
	}
	before, clean, found := strings.Cut(string(content), `path: "/puppet-ca/v1/clean"`)
	allow := strings.Index(clean, "allow: {")
	end := strings.Index(clean, "sort-order:")
	if !found || allow < 0 || end < allow {
		return errors.New("changing authorization rules: no rule for /puppet-ca/v1/clean")
	}
	changed := before + `path: "/puppet-ca/v1/clean"` + clean[:allow] +
		fmt.Sprintf("allow: [ { extensions: { pp_cli_auth: \"true\" } }, %q ]\n            ", Revoker) + clean[end:]
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("writing authorization rules: %w", err)
	}
	return nil
}

// Generate makes a certificate of the CA as an administrator does, once for each name. It
// returns the certificate and its key, in PEM.
func (s *Server) Generate(ctx context.Context, certname string) (certificate, key []byte, err error) {
	if _, err := os.Stat(s.Certificate(certname)); errors.Is(err, fs.ErrNotExist) {
		if err := s.generate(ctx, certname); err != nil {
			return nil, nil, err
		}
	}
	certificate, err1 := os.ReadFile(s.path("ssl", "certs", certname+".pem"))
	key, err2 := os.ReadFile(s.path("ssl", "private_keys", certname+".pem"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, fmt.Errorf("reading certificate of %s: %w", certname, err)
	}
	return certificate, key, nil
}

func (s *Server) generate(ctx context.Context, certname string) error {
	var out bytes.Buffer
	command := exec.CommandContext(ctx, "puppetserver", "ca", "generate", "--certname", certname, "--config", s.path("puppet.conf"))
	command.Dir, command.Env = s.options.Dir, []string{"HOME=" + s.options.Dir, "PATH=/usr/bin:/bin", "LANG=C.UTF-8"}
	command.Stdout, command.Stderr = &out, &out
	if err := s.options.Inside(command.Run); err != nil {
		return fmt.Errorf("running puppetserver ca generate: %w: %s", err, &out)
	}
	return nil
}

// newKey makes the key of a management cluster, and gives the policy its public part.
func (s *Server) newKey() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	s.Key = private
	encoded, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return err
	}
	return s.Trust("suite", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encoded}))
}

// Trust lets a management cluster with this public key, in PEM, issue tokens.
func (s *Server) Trust(name string, key []byte) error {
	if err := os.WriteFile(s.path("keys", name+".pem"), key, 0o644); err != nil {
		return fmt.Errorf("writing public key: %w", err)
	}
	return nil
}

// Write writes a file of the environment. The server reads its environment again for
// each catalog.
func (s *Server) Write(path, content string) error {
	path = s.path("code/environments/production", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing file of the environment: %w", err)
	}
	return nil
}

// Run starts the server again after Stop, with the same data.
func (s *Server) Run(ctx context.Context) error {
	log, output := io.Pipe()
	// It outlives ctx, which only bounds the wait.
	command := exec.CommandContext(context.WithoutCancel(ctx), "java", "-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1",
		"-Djruby.logger.class=com.puppetlabs.jruby_utils.jruby.Slf4jLogger", "-Djruby.lib=/usr/share/jruby/lib",
		"-jar", "/usr/share/puppetserver/puppetserver.jar", "--config", s.path("conf.d"), "--bootstrap-config", s.path("services.d"))
	command.Dir, command.Env = s.options.Dir, []string{"HOME=" + s.options.Dir, "PATH=/usr/bin:/bin", "LANG=C.UTF-8"}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	var err error
	if s.process, err = process.Start(command, s.options.Inside); err != nil {
		return fmt.Errorf("starting puppetserver: %w", errors.Join(err, output.Close()))
	}
	go func() {
		<-s.process.Exited
		_ = output.Close()
	}()
	return s.await(ctx, log)
}

// await waits until the server answers. It copies the log to its end.
func (s *Server) await(ctx context.Context, log io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	answers := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(log)
		for found := false; lines.Scan(); {
			fmt.Fprintln(s.options.Log, lines.Text())
			if !found && strings.Contains(lines.Text(), ready) {
				found = true
				close(answers)
			}
		}
		_, _ = io.Copy(s.options.Log, log)
	}()
	select {
	case <-answers:
		return nil
	case <-s.process.Exited:
		return errors.New("starting puppetserver: it ended at once")
	case <-ctx.Done():
		return fmt.Errorf("waiting for puppetserver: %w", ctx.Err())
	}
}

// Stop ends the server at once, as a machine that fails does.
func (s *Server) Stop() {
	s.process.Stop()
}

// CA is the path of the certificate of its CA.
func (s *Server) CA() string { return s.path("ca", "ca_crt.pem") }

// Certificate is the path of a certificate that its CA signed.
func (s *Server) Certificate(certname string) string {
	return s.path("ca", "signed", certname+".pem")
}

func (s *Server) path(parts ...string) string {
	return filepath.Join(append([]string{s.options.Dir}, parts...)...)
}
