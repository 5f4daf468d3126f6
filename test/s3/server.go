package s3

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/process"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Bucket is the bucket that a server has.
const Bucket = "snapshots"

// startTimeout is how long a server may take to answer.
const startTimeout = time.Minute

// Options are the settings of the server.
type Options struct {
	// Dir is the directory for its data. It must exist.
	Dir string
	// IP is the address on which it listens. If not set, it is 127.0.0.1.
	IP string
	// Inside calls a function where the server is to run, such as in another
	// network namespace. Nil runs it here.
	Inside process.Inside
	// Log receives the output of the server.
	Log io.Writer
}

// Server is a server that runs.
type Server struct {
	// Endpoint is its URL, and CA the certificate it is verified against.
	Endpoint string
	CA       []byte
	// AccessKeyID and SecretAccessKey are its only user's.
	AccessKeyID, SecretAccessKey string

	options Options
	program string
	address string
	process *process.Process
}

// Start runs a server.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.IP == "" {
		o.IP = "127.0.0.1"
	}
	if o.Inside == nil {
		o.Inside = process.Here
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	programs, err := tools.Paths(ctx, o.Log, "versitygw")
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 20)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	s := &Server{options: o, program: programs["versitygw"], AccessKeyID: "nova", SecretAccessKey: hex.EncodeToString(secret)}
	for _, dir := range []string{s.path("data", Bucket), s.path("meta")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making bucket: %w", err)
		}
	}
	if s.CA, err = s.makeCertificates(); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if s.address, err = s.freeAddress(ctx); err != nil {
		return nil, fmt.Errorf("finding port: %w", err)
	}
	s.Endpoint = "https://" + s.address
	return s, s.Run(ctx)
}

// Run starts the server again after Stop, with the same data.
func (s *Server) Run(ctx context.Context) error {
	// It outlives ctx, which only bounds the wait.
	command := exec.CommandContext(context.WithoutCancel(ctx), s.program, "--port", s.address, "--access", s.AccessKeyID, "--secret", s.SecretAccessKey,
		"--cert", s.path("server.crt"), "--key", s.path("server.key"), "--quiet", "--health", "/healthz",
		"posix", "--sidecar", s.path("meta"), s.path("data"))
	command.Stdout, command.Stderr = s.options.Log, s.options.Log
	var err error
	if s.process, err = process.Start(command, s.options.Inside); err != nil {
		return fmt.Errorf("starting versitygw: %w", err)
	}
	return s.await(ctx)
}

// await waits until the server answers.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		DialContext:     process.Dial(s.options.Inside),
	}
	defer transport.CloseIdleConnections()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/healthz", nil)
		if err != nil {
			return err
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err == nil {
			return response.Body.Close()
		}
		select {
		case <-s.process.Exited:
			return errors.New("starting versitygw: it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("waiting for versitygw: %w", err)
		case <-tick.C:
		}
	}
}

// Stop ends the server at once, as a machine that fails does.
func (s *Server) Stop() { s.process.Stop() }

// Objects lists the objects in the bucket, without the server.
func (s *Server) Objects() ([]string, error) {
	var found []string
	root := s.path("data", Bucket)
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		found = append(found, name)
		return err
	})
	return found, err
}

// Path is the file of an object in the bucket, past the server.
func (s *Server) Path(object string) string { return s.path("data", Bucket, object) }

func (s *Server) path(parts ...string) string {
	return filepath.Join(append([]string{s.options.Dir}, parts...)...)
}

// freeAddress finds a port below those that connections are given.
func (s *Server) freeAddress(ctx context.Context) (address string, err error) {
	for range 100 {
		address = net.JoinHostPort(s.options.IP, strconv.Itoa(20000+mathrand.IntN(10000)))
		err = s.options.Inside(func() error {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return l.Close()
		})
		if err == nil {
			return address, nil
		}
	}
	return "", err
}

// makeCertificates makes an authority and the server's certificate.
func (s *Server) makeCertificates() ([]byte, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "s3-ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "s3"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.ParseIP(s.options.IP)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), errors.Join(
		os.WriteFile(s.path("server.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(s.path("server.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600),
	)
}
