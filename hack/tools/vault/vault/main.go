// Command vault serves the core of Vault with the engines and logins that this
// project uses. Vault's own command also links the clients of clouds and databases,
// which is twice as much to build.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault/audit"
	auditfile "github.com/hashicorp/vault/builtin/audit/file"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/builtin/logical/pki"
	"github.com/hashicorp/vault/command/server"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/vault"
)

// builtins are the plugins that Vault knows besides those of its core: none.
type builtins struct{}

func (builtins) Contains(string, consts.PluginType) bool { return false }
func (builtins) Get(string, consts.PluginType) (func() (any, error), bool) {
	return nil, false
}
func (builtins) Keys(consts.PluginType) []string { return nil }
func (builtins) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Unknown, false
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("address", "127.0.0.1:8200", "the address to listen on")
	folder := flag.String("storage", "", "the folder for the data")
	certificate := flag.String("certificate", "", "the file with the certificate of the server")
	key := flag.String("key", "", "the file with the key of the certificate")
	flag.Parse()

	logger := hclog.New(&hclog.LoggerOptions{Name: "vault", Level: hclog.Info})
	storage, err := file.NewFileBackend(map[string]string{"path": *folder}, logger)
	if err != nil {
		return fmt.Errorf("opening the storage: %w", err)
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:           storage,
		StorageType:        "file",
		Logger:             logger,
		DisableMlock:       true,
		RedirectAddr:       "https://" + *address,
		LogicalBackends:    map[string]logical.Factory{"pki": pki.Factory},
		CredentialBackends: map[string]logical.Factory{"approle": approle.Factory, "cert": cert.Factory, "kubernetes": kubernetes.Factory},
		AuditBackends:      map[string]audit.Factory{"file": auditfile.Factory},
		BuiltinRegistry:    builtins{},
		RawConfig:          &server.Config{SharedConfig: &configutil.SharedConfig{}},
	})
	if err != nil {
		return fmt.Errorf("creating the core: %w", err)
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core:           core,
		ListenerConfig: &configutil.Listener{MaxRequestSize: vaulthttp.DefaultMaxRequestSize, MaxRequestDuration: vault.DefaultMaxRequestDuration},
	})
	// The login with a certificate reads that of the client.
	serving := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}}
	return serving.ServeTLS(listener, *certificate, *key)
}
