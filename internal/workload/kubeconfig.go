package workload

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// maxKubeconfig is the largest kubeconfig that is parsed. One with CA bundle,
	// certificate and key has 10 KiB.
	maxKubeconfig = 256 << 10
)

// RefusedError is the reason for refusing a kubeconfig. It holds no value of the
// kubeconfig.
type RefusedError struct {
	// Field is the refused field, as it is spelled in a kubeconfig.
	Field string
	// Why is the rest of the sentence.
	Why string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the kubeconfig is refused: %s %s", e.Field, e.Why)
}

const (
	atCluster = "clusters[].cluster."
	atUser    = "users[].user."
)

// RESTConfig returns the client configuration for the current context of a
// kubeconfig, with the bounds of this package. Nothing outside of kubeconfig is
// read but the proxy of the environment. Certificates and keys are loaded when a
// connection is made.
func RESTConfig(kubeconfig []byte) (*rest.Config, error) {
	cluster, user, err := parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := parseServer(cluster.Server)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{
		Host:               server.String(),
		BearerToken:        user.Token,
		DisableCompression: true,
		WrapTransport:      func(next http.RoundTripper) http.RoundTripper { return newLimiter(next) },
		Dial:               (&net.Dialer{Timeout: timelimits.Reconnect, KeepAlive: timelimits.Reconnect, Control: endpoints.ControlFor(server)}).DialContext,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
	}
	if strings.ContainsFunc(user.Token, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return nil, &RefusedError{Field: atUser + "token", Why: "has characters that no token has"}
	}
	return config, nil
}

// parse returns the cluster and the user of the current context, which have no
// fields but those that RESTConfig uses.
func parse(kubeconfig []byte) (clientcmdv1.Cluster, clientcmdv1.AuthInfo, error) {
	none := func(err *RefusedError) (clientcmdv1.Cluster, clientcmdv1.AuthInfo, error) {
		return clientcmdv1.Cluster{}, clientcmdv1.AuthInfo{}, err
	}
	if len(kubeconfig) > maxKubeconfig {
		return none(&RefusedError{Field: "value", Why: fmt.Sprintf("is larger than %d KiB", maxKubeconfig>>10)})
	}
	config := clientcmdv1.Config{}
	// The error is left out because it may quote a credential.
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		return none(&RefusedError{Field: "value", Why: "is not a kubeconfig"})
	}
	at := slices.IndexFunc(config.Contexts, func(c clientcmdv1.NamedContext) bool { return c.Name == config.CurrentContext })
	if at < 0 {
		return none(&RefusedError{Field: "current-context", Why: "names no context"})
	}
	context := config.Contexts[at].Context
	ofCluster := slices.IndexFunc(config.Clusters, func(c clientcmdv1.NamedCluster) bool { return c.Name == context.Cluster })
	if ofCluster < 0 {
		return none(&RefusedError{Field: "contexts[].context.cluster", Why: "names no cluster"})
	}
	ofUser := slices.IndexFunc(config.AuthInfos, func(u clientcmdv1.NamedAuthInfo) bool { return u.Name == context.AuthInfo })
	if ofUser < 0 {
		return none(&RefusedError{Field: "contexts[].context.user", Why: "names no user"})
	}
	cluster, user := config.Clusters[ofCluster].Cluster, config.AuthInfos[ofUser].AuthInfo
	if field := otherField(cluster, "server", "tls-server-name", "certificate-authority-data", "disable-compression", "extensions"); field != "" {
		return none(&RefusedError{Field: atCluster + field, Why: notAllowed})
	}
	if field := otherField(user, "client-certificate-data", "client-key-data", "token", "extensions"); field != "" {
		return none(&RefusedError{Field: atUser + field, Why: notAllowed})
	}
	return cluster, user, nil
}

const notAllowed = "is not allowed, because the managers of the management cluster use this kubeconfig: " +
	"certificates, keys and tokens have to be inline, and the server has to be reached directly over TLS"

// otherField returns the name of the first field that is set and not allowed.
// A field that a later version of kubeconfigs adds is not allowed either.
func otherField(of any, allowed ...string) string {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !v.Field(i).IsZero() && !slices.Contains(allowed, name) {
			return name
		}
	}
	return ""
}

// Server returns the URL of an API server as RESTConfig returns it, or a
// RefusedError. A kubeconfig with a refused server must not be issued: it would be
// replaced again at once.
func Server(text string) (string, error) {
	server, err := parseServer(text)
	if err != nil {
		return "", err
	}
	return server.String(), nil
}

// parseServer reads the URL of an API server.
func parseServer(text string) (*url.URL, error) {
	refused := func(why string) (*url.URL, error) { return nil, &RefusedError{Field: atCluster + "server", Why: why} }
	server, err := url.Parse(text)
	switch {
	case text == "":
		return refused("is missing")
	case err != nil || server.Opaque != "" || server.Scheme == "" || server.Hostname() == "":
		return refused("is not a URL")
	case server.Scheme != "https":
		return refused("is not an https URL")
	case server.User != nil, server.RawQuery != "", server.Fragment != "", server.ForceQuery:
		return refused("is more than scheme, host, port and path")
	}
	if port := server.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return refused("has a port that does not exist")
		}
	}
	if endpoints.CheckHost(server.Hostname()) != nil {
		return refused("has an address that the manager's flags deny")
	}
	server.Path, server.RawPath = strings.TrimSuffix(server.Path, "/"), ""
	return server, nil
}
