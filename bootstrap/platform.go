package bootstrap

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// novaDir holds the permanent files of the platform's settings.
	novaDir = "/etc/nova"
	// resolvConf is the file that the kubelet passes to pods instead of the
	// system's: systemd-resolved adds the servers of single links to the
	// latter.
	resolvConf = novaDir + "/resolv.conf"

	defaultDNSDomain = "cluster.local"
	defaultServices  = "10.96.0.0/12"
)

// proxyCRD defines the object that contains the proxy settings for modules.
//
//go:embed proxy-crd.yaml
var proxyCRD string

// ServerCredentials authenticate at a server: a token, or name and password.
type ServerCredentials struct {
	Username, Password, Token string
}

// PlatformData is the content of the Secrets and ConfigMaps that the platform's
// settings refer to.
type PlatformData struct {
	// ProxyCredentials are for the proxies, MirrorCredentials for mirrors and
	// package repositories.
	ProxyCredentials, MirrorCredentials ServerCredentials
	// ProxyCA and MirrorCA are certificates in PEM.
	ProxyCA, MirrorCA []byte
	// ConfigurationManagerCA is the certificate of the Puppet server's CA in PEM.
	ConfigurationManagerCA []byte
}

// addPlatform configures proxy, mirrors, package repositories and name servers. A
// file is rendered only if its setting is set.
func addPlatform(in *Input, config *nodeconfig.Config) error {
	authorities, err := authorityFiles(in)
	if err != nil {
		return err
	}
	mirrors, err := mirrorFiles(in)
	if err != nil {
		return err
	}
	packages, err := packageFiles(in)
	if err != nil {
		return err
	}
	config.Machine.Files = slices.Concat(config.Machine.Files, authorities, proxyFiles(in), mirrors, packages, resolverFiles(in))
	return addProxyObject(in, config)
}

// resolverFiles configure the name servers of pods.
func resolverFiles(in *Input) []nodeconfig.File {
	r := &in.Platform.DNS.Nodes
	if len(r.Servers) == 0 {
		return nil
	}
	out := &bytes.Buffer{}
	for _, server := range r.Servers {
		fmt.Fprintf(out, "nameserver %s\n", server)
	}
	if len(r.SearchDomains) > 0 {
		fmt.Fprintf(out, "search %s\n", strings.Join(r.SearchDomains, " "))
	}
	return []nodeconfig.File{newFile(resolvConf, "0644", out.Bytes())}
}

// authorityFiles are the CA certificates to trust, one per file: trust stores
// ignore a second certificate in a file.
func authorityFiles(in *Input) ([]nodeconfig.File, error) {
	var files []nodeconfig.File
	for _, bundle := range []struct {
		field, name string
		content     []byte
	}{
		{"platform.proxy.trustedCAFrom", "proxy", in.PlatformData.ProxyCA},
		{"platform.mirrorTrustedCAFrom", "mirror", in.PlatformData.MirrorCA},
	} {
		rest := bytes.TrimSpace(bundle.content)
		for i := 0; len(rest) > 0; i++ {
			var block *pem.Block
			block, rest = pem.Decode(rest)
			if block == nil && i > 0 {
				break // text after the last certificate
			}
			if block == nil || block.Type != "CERTIFICATE" {
				return nil, renderErrorf(bundle.field, "contains data that is not a PEM certificate")
			}
			name := fmt.Sprintf("%s/nova-%s-%02d.crt", nodeconfig.CADir, bundle.name, i)
			files = append(files, newFile(name, "0644", pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})))
			rest = bytes.TrimSpace(rest)
		}
	}
	return files, nil
}

// noProxy lists the destinations without proxy, without duplicates. The node
// adds its own addresses at boot: a kubelet connects to its local API server.
func noProxy(in *Input) []string {
	services := in.Network.Services
	if len(services) == 0 {
		services = []string{defaultServices}
	}
	all := slices.Concat(
		[]string{"localhost", "127.0.0.1", "::1", nodeconfig.NodeIP, in.Endpoint.Host},
		in.Network.Pods, services, []string{".svc", "." + cmp.Or(in.Network.DNSDomain, defaultDNSDomain)}, in.Platform.Proxy.NoProxy)
	var once []string
	for _, entry := range all {
		if !slices.Contains(once, entry) {
			once = append(once, entry)
		}
	}
	return once
}

// proxyURL is a proxy's URL with the credentials.
func proxyURL(address string, login ServerCredentials) string {
	if address == "" || login.Username == "" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.User = url.UserPassword(login.Username, login.Password)
	// A quote would end the quoted value for systemd, apt and the shell.
	return strings.ReplaceAll(u.String(), "'", "%27")
}

// proxyFiles configure the proxy of containerd, the kubelet, apt and root's
// shells.
func proxyFiles(in *Input) []nodeconfig.File {
	p := &in.Platform.Proxy
	if !p.Used() {
		return nil
	}
	login := in.PlatformData.ProxyCredentials
	env, apt := &bytes.Buffer{}, &bytes.Buffer{}
	for _, proxy := range []struct{ scheme, address string }{{"http", p.HTTPProxy}, {"https", p.HTTPSProxy}} {
		if proxy.address == "" {
			continue
		}
		address := proxyURL(proxy.address, login)
		name := proxy.scheme + "_proxy"
		fmt.Fprintf(env, "%s='%s'\n%s='%s'\n", strings.ToUpper(name), address, name, address)
		fmt.Fprintf(apt, "Acquire::%s::Proxy \"%s\";\n", proxy.scheme, address)
	}
	list := noProxy(in)
	fmt.Fprintf(env, "NO_PROXY='%[1]s'\nno_proxy='%[1]s'\n", strings.Join(list, ","))
	for _, host := range list {
		// apt supports only hosts, no ranges and no domains.
		if strings.HasPrefix(host, ".") || strings.ContainsAny(host, "*/:") || host == nodeconfig.NodeIP {
			continue
		}
		fmt.Fprintf(apt, "Acquire::http::Proxy::%[1]s \"DIRECT\";\nAcquire::https::Proxy::%[1]s \"DIRECT\";\n", host)
	}
	unit := []byte("[Service]\nEnvironmentFile=-" + nodeconfig.ProxyFile + "\n")
	permissions := "0644"
	if login.Username != "" {
		permissions = "0600"
	}
	return []nodeconfig.File{
		newFile(nodeconfig.ProxyFile, "0600", env.Bytes()),
		newFile("/etc/systemd/system/containerd.service.d/90-nova-proxy.conf", "0644", unit),
		newFile("/etc/systemd/system/kubelet.service.d/90-nova-proxy.conf", "0644", unit),
		newFile("/etc/apt/apt.conf.d/90nova-proxy", permissions, apt.Bytes()),
		newFile("/etc/profile.d/nova-proxy.sh", "0644", []byte("if [ -r "+nodeconfig.ProxyFile+" ]; then\n  set -a\n  . "+nodeconfig.ProxyFile+"\n  set +a\nfi\n")),
	}
}

// registryHost is a registry and the servers for its images.
type registryHost struct {
	registry  string
	endpoints []string
}

// registryHosts are the registries in containerd's configuration: those with
// mirrors, and that of the image repository if it needs credentials or has its
// own CA.
func registryHosts(in *Input) []registryHost {
	var hosts []registryHost
	for _, m := range in.Platform.RegistryMirrors {
		hosts = append(hosts, registryHost{registry: m.Registry, endpoints: m.Endpoints})
	}
	own, _, _ := strings.Cut(in.Platform.ImageRepository, "/")
	named := func(h registryHost) bool { return h.registry == own }
	if own != "" && own != bootstrapv1.DefaultImageRepository && (in.PlatformData.MirrorCredentials != ServerCredentials{} || len(in.PlatformData.MirrorCA) > 0) && !slices.ContainsFunc(hosts, named) {
		hosts = append(hosts, registryHost{registry: own, endpoints: []string{"https://" + own}})
	}
	return hosts
}

// mirrorFiles are containerd's hosts.toml files.
func mirrorFiles(in *Input) ([]nodeconfig.File, error) {
	authorization, err := authorization(in.PlatformData.MirrorCredentials)
	if err != nil {
		return nil, err
	}
	bundle := novaDir + "/mirror-ca.crt"
	var files []nodeconfig.File
	hosts := registryHosts(in)
	if len(hosts) > 0 && len(in.PlatformData.MirrorCA) > 0 {
		files = append(files, newFile(bundle, "0644", in.PlatformData.MirrorCA))
	}
	for _, h := range hosts {
		folder, out := h.registry, &bytes.Buffer{}
		switch h.registry {
		case "*":
			folder = "_default"
		case "docker.io":
			fmt.Fprintf(out, "server = %q\n", "https://registry-1.docker.io")
		default:
			fmt.Fprintf(out, "server = %q\n", "https://"+h.registry)
		}
		for _, endpoint := range h.endpoints {
			writeHost(out, endpoint, authorization, len(in.PlatformData.MirrorCA) > 0, bundle)
		}
		permissions := "0644"
		if authorization != "" {
			permissions = "0600"
		}
		files = append(files, newFile(path.Join(nodeconfig.MirrorsDir, folder, "hosts.toml"), permissions, out.Bytes()))
	}
	return files, nil
}

// writeHost adds an endpoint to a hosts.toml.
func writeHost(out *bytes.Buffer, endpoint, authorization string, ca bool, bundle string) {
	address, below := strings.TrimSuffix(endpoint, "/"), false
	if u, err := url.Parse(address); err == nil && u.Path != "" {
		address, below = u.Scheme+"://"+u.Host+"/v2"+u.Path, true
	}
	fmt.Fprintf(out, "\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", address)
	if below {
		out.WriteString("  override_path = true\n")
	}
	if ca {
		fmt.Fprintf(out, "  ca = %q\n", bundle)
	}
	if authorization != "" {
		fmt.Fprintf(out, "  [host.%q.header]\n    authorization = %q\n", address, authorization)
	}
}

// authorization returns the Authorization header for the credentials, or
// nothing.
func authorization(login ServerCredentials) (string, error) {
	if strings.ContainsAny(login.Token+login.Username+login.Password, "\r\n\x00") {
		return "", renderErrorf("platform.mirrorCredentialsSecretRef", "contains a line break")
	}
	switch {
	case login.Token != "":
		return "Bearer " + login.Token, nil
	case login.Username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(login.Username+":"+login.Password)), nil
	}
	return "", nil
}

// packageFiles are apt's repositories and their credentials.
func packageFiles(in *Input) ([]nodeconfig.File, error) {
	var files []nodeconfig.File
	logins := &bytes.Buffer{}
	login := in.PlatformData.MirrorCredentials
	for _, r := range in.Platform.PackageRepositories {
		source := &bytes.Buffer{}
		fmt.Fprintf(source, "Types: deb\nURIs: %s\nSuites: %s\n", r.URI, r.Suite)
		if len(r.Components) > 0 {
			fmt.Fprintf(source, "Components: %s\n", strings.Join(r.Components, " "))
		}
		if r.Key != "" {
			key := path.Join("/etc/apt/keyrings", "nova-"+r.Name+".asc")
			fmt.Fprintf(source, "Signed-By: %s\n", key)
			files = append(files, newFile(key, "0644", []byte(strings.TrimSpace(r.Key)+"\n")))
		}
		files = append(files, newFile(path.Join("/etc/apt/sources.list.d", "nova-"+r.Name+".sources"), "0644", source.Bytes()))
		if login == (ServerCredentials{}) {
			continue
		}
		user, password := login.Username, login.Password
		if login.Token != "" {
			user, password = "token", login.Token
		}
		if strings.ContainsAny(user+password, " \t\r\n") {
			return nil, renderErrorf("platform.mirrorCredentialsSecretRef", "contains a space, which apt cannot read")
		}
		fmt.Fprintf(logins, "machine %s\nlogin %s\npassword %s\n", r.URI, user, password)
	}
	if logins.Len() > 0 {
		files = append(files, newFile("/etc/apt/auth.conf.d/90nova.conf", "0600", logins.Bytes()))
	}
	return files, nil
}

// addProxyObject adds the Proxy object of the workload cluster with its CRD.
// Every control plane machine applies it, so a rollout applies changes. The
// credentials are stored in a Secret, because all users can read the object.
func addProxyObject(in *Input, config *nodeconfig.Config) error {
	p := &in.Platform.Proxy
	if !in.Mode.controlPlane() || !p.Used() {
		return nil
	}
	spec := map[string]any{"noProxy": strings.Join(slices.DeleteFunc(noProxy(in), func(e string) bool { return e == nodeconfig.NodeIP }), ",")}
	for field, address := range map[string]string{"httpProxy": p.HTTPProxy, "httpsProxy": p.HTTPSProxy} {
		server, err := proxyServer(address)
		if err != nil {
			return renderErrorf("platform.proxy."+field, "is not a URL")
		}
		if server != nil {
			spec[field] = server
		}
	}
	if len(in.PlatformData.ProxyCA) > 0 {
		spec["trustedCA"] = base64.StdEncoding.EncodeToString(in.PlatformData.ProxyCA)
	}
	var documents [][]byte
	if login := in.PlatformData.ProxyCredentials; login.Username != "" {
		spec["credentials"] = map[string]any{"namespace": "kube-system", "name": "nova-proxy"}
		secret, err := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
			"metadata":   map[string]any{"namespace": "kube-system", "name": "nova-proxy"},
			"stringData": map[string]any{"username": login.Username, "password": login.Password},
		})
		if err != nil {
			return fmt.Errorf("writing proxy login: %w", err)
		}
		documents = append(documents, secret)
	}
	object, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.nova-platform.io/v1alpha1", "kind": "Proxy",
		"metadata": map[string]any{"name": "cluster"}, "spec": spec,
	})
	if err != nil {
		return fmt.Errorf("writing proxy object: %w", err)
	}
	config.Join.Manifests = append(config.Join.Manifests, proxyCRD, string(bytes.Join(append(documents, object), []byte("---\n"))))
	return nil
}

// proxyServer converts a proxy's address to the fields of the Proxy object.
func proxyServer(address string) (map[string]any, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // a missing address is not an error
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("reading proxy's address: %w", err)
	}
	server := map[string]any{"server": u.Scheme + "://" + strings.TrimSuffix(u.Host, ":"+u.Port())}
	if u.Port() != "" {
		server["port"] = u.Port()
	}
	return server, nil
}
