package bootstrap

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// hub is a name that only the proxy knows.
	hub = "hub.universe.test"
	// token opens the hub, and login the proxy.
	token         = "universe-t0ken"
	proxyUser     = "nova"
	proxyPassword = "p'a:s@s/1"

	registryPort = 10443
	proxyPort    = 10128
)

// address is where the suite's servers listen.
func address(port int) string { return net.JoinHostPort(host.Gateway, strconv.Itoa(port)) }

// universe is a closed network's registry behind a proxy that wants a login.
type universe struct {
	// authority is the certificate, in PEM, that the registry has its own from.
	authority []byte

	mu        sync.Mutex
	requested []string
	refused   int
	pulled    []string
}

// startUniverse serves until the context ends.
//
// balancer is the root file system of the balancer's image.
func startUniverse(ctx context.Context, balancer string, listen func(ctx context.Context, network, address string) (net.Listener, error)) (*universe, error) {
	u := &universe{}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if err := fill(ctx, images, balancer); err != nil {
		return nil, err
	}
	certificate, err := u.sign(hub)
	if err != nil {
		return nil, err
	}
	hubListener, err := listen(ctx, "tcp", address(registryPort))
	if err != nil {
		return nil, err
	}
	proxyListener, err := listen(ctx, "tcp", address(proxyPort))
	if err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	hubServer := &http.Server{Handler: u.guard(images), ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	proxyServer := &http.Server{Handler: http.HandlerFunc(u.proxy), ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	go func() { _ = hubServer.Serve(tls.NewListener(hubListener, settings)) }()
	go func() { _ = proxyServer.Serve(proxyListener) }()
	context.AfterFunc(ctx, func() {
		_ = hubServer.Close()
		_ = proxyServer.Close()
	})
	return u, nil
}

// guard accepts only requests with the token, and records their paths.
func (u *universe) guard(images http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		u.mu.Lock()
		u.pulled = append(u.pulled, r.URL.Path)
		u.mu.Unlock()
		images.ServeHTTP(w, r)
	})
}

// proxy forwards connections to the hub, for those who can log in.
func (u *universe) proxy(w http.ResponseWriter, r *http.Request) {
	// The client's header is as that of a login to a server.
	login := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, _ := login.BasicAuth()
	allowed := user == proxyUser && password == proxyPassword
	u.mu.Lock()
	if allowed {
		u.requested = append(u.requested, r.Host)
	} else {
		u.refused++
	}
	u.mu.Unlock()
	switch {
	case !allowed:
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
	case r.Method != http.MethodConnect || r.Host != hub+":443":
		w.WriteHeader(http.StatusForbidden)
	default:
		if err := tunnel(w, address(registryPort)); err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	}
}

// dialInside connects inside the bed.
var dialInside func(ctx context.Context, network, address string) (net.Conn, error)

// tunnel joins the client's connection with one to an address.
func tunnel(w http.ResponseWriter, address string) error {
	server, err := dialInside(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(server, buffered)
		_ = server.Close()
	}()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	return nil
}

// connections are the distinct hosts that were requested with the credentials.
func (u *universe) connections() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(u.requested)))
}

// pulls are the paths that were requested with the token.
func (u *universe) pulls() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.pulled)
}

// sign makes the registry's certificate with an authority of its own.
func (u *universe) sign(server string) (tls.Certificate, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Universe of the test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caBytes, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	u.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caBytes})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: server}, DNSNames: []string{server},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafBytes, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	return tls.Certificate{Certificate: [][]byte{leafBytes}, PrivateKey: key}, err
}

// fill pushes the image that pods of the suite run, under the names that the
// mirrors and the image repository give it.
func fill(ctx context.Context, images http.Handler, balancer string) error {
	probe, err := pause(ctx)
	if err != nil {
		return err
	}
	haproxy, err := imageOf(balancer)
	if err != nil {
		return err
	}
	// In addition to the images that the suite requests, the default image.
	repository, tag, _ := strings.Cut(strings.TrimPrefix(bootstrapv1.DefaultAPIServerLoadBalancerImage, "docker.io/"), ":")
	for _, i := range []struct {
		repository, tag string
		image           v1.Image
	}{
		{"docker/library/probe", "v1", probe}, {"all/team/probe", "v1", probe}, {"nova-universe/probe", "v1", probe}, {"docker/" + repository, tag, haproxy},
	} {
		if err := push(images, "/v2/"+i.repository, i.tag, i.image); err != nil {
			return fmt.Errorf("pushing %s: %w", i.repository, err)
		}
	}
	return nil
}

// push hands an image of one layer to a registry.
func push(images http.Handler, repository, tag string, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	layer, err := layers[0].Compressed()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(layer)
	if err != nil {
		return err
	}
	digest, err := layers[0].Digest()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	configName, err := image.ConfigName()
	if err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	for _, request := range []struct {
		method, path string
		body         []byte
	}{
		{http.MethodPost, "/blobs/uploads/?digest=" + digest.String(), content},
		{http.MethodPost, "/blobs/uploads/?digest=" + configName.String(), config},
		{http.MethodPut, "/manifests/" + tag, manifest},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(request.method, repository+request.path, bytes.NewReader(request.body))
		r.Header.Set("Content-Type", string(types.DockerManifestSchema2))
		images.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			return fmt.Errorf("%s %s: %d %s", request.method, request.path, w.Code, w.Body)
		}
	}
	return nil
}

// pause is an image of the bed's program that does nothing.
func pause(ctx context.Context) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "probe-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "pause")
	if err := tools.Build(ctx, program, "", "./test/host/pause"); err != nil {
		return nil, err
	}
	return imageOf(dir, "/pause")
}

// imageOf is an image of one layer with the files of a folder.
func imageOf(root string, entrypoint ...string) (v1.Image, error) {
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	if err := archive.AddFS(os.DirFS(root)); err != nil {
		return nil, fmt.Errorf("packing %s: %w", root, err)
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Entrypoint = entrypoint
	config.Config.Env = []string{"PATH=/usr/sbin:/usr/bin"}
	return mutate.ConfigFile(image, config)
}
