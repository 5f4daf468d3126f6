package bootstrap

import (
	"errors"
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const (
	certificateA = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
	certificateB = "-----BEGIN CERTIFICATE-----\nYg==\n-----END CERTIFICATE-----\n"
)

// surrounded sets all platform settings.
func surrounded(in *Input) {
	in.Platform = bootstrapv1.PlatformSpec{
		Proxy: bootstrapv1.ProxySpec{
			HTTPProxy: "http://proxy.corp:3128", HTTPSProxy: "https://[fd00::1]:3129/",
			NoProxy:              []string{"10.0.0.0/8", "git.corp", ".internal"},
			CredentialsSecretRef: bootstrapv1.SecretReference{Name: "proxy"},
		},
		ImageRepository: "hub.universe.corp/nova-universe",
		RegistryMirrors: []bootstrapv1.RegistryMirror{
			{Registry: "docker.io", Endpoints: []string{"https://hub.universe.corp/docker", "https://mirror.corp"}},
			{Registry: "*", Endpoints: []string{"https://hub.universe.corp/all/"}},
		},
		PackageRepositories: []bootstrapv1.PackageRepository{
			{Name: "nova", URI: "https://packages.universe.corp/apt", Suite: "stable", Components: []string{"main", "extra"}, Key: "the key"},
			{Name: "flat", URI: "https://packages.universe.corp/flat", Suite: "/"},
		},
		NTP: bootstrapv1.NTPSpec{Servers: []string{"ntp1.corp", "10.0.0.1"}},
	}
	in.PlatformData = PlatformData{
		ProxyCredentials:  ServerCredentials{Username: "nova", Password: "p'a:s@s/1"},
		MirrorCredentials: ServerCredentials{Token: "t0ken"},
		ProxyCA:           []byte("# root\n" + certificateA + "# next\n" + certificateB + "# end\n"),
		MirrorCA:          []byte(certificateB),
	}
}

// Every file with credentials is readable for root only, and no other file
// contains credentials.
func TestLoginsAreForRootAlone(t *testing.T) {
	for _, mode := range []Mode{Init, JoinControlPlane, JoinWorker} {
		found := 0
		for _, f := range configOf(t, render(t, facts(mode, surrounded))).Machine.Files {
			secret := false
			for _, word := range []string{"p%27a", "p'a:s", "p''a:s", "t0ken"} {
				secret = secret || strings.Contains(f.Text, word)
			}
			if !secret {
				continue
			}
			found++
			if f.Mode != "0600" {
				t.Errorf("%s: %s holds a login and is %s", mode, f.Path, f.Mode)
			}
		}
		if found < 5 {
			t.Errorf("%s: only %d files hold a login", mode, found)
		}
	}
}

func TestClusterIsReachedDirectly(t *testing.T) {
	env := filesOf(t, render(t, facts(JoinWorker, surrounded)))["/etc/nova/proxy.env"]
	const want = "NO_PROXY='localhost,127.0.0.1,::1,__NOVA_NODE_IP__,10.77.0.10,10.244.0.0/16,10.96.0.0/16,.svc,.cluster.local,10.0.0.0/8,git.corp,.internal'\n"
	if !strings.Contains(env, want) {
		t.Errorf("%s\nlacks %s", env, want)
	}
	env = filesOf(t, render(t, facts(JoinWorker, func(in *Input) {
		surrounded(in)
		in.Network, in.Platform.Proxy.NoProxy = Network{}, nil
	})))["/etc/nova/proxy.env"]
	if !strings.Contains(env, "10.77.0.10,10.96.0.0/12,.svc,.cluster.local'") {
		t.Errorf("kubeadm's own ranges are missing:\n%s", env)
	}
}

func TestSurroundingErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*PlatformData)
		field  string
	}{
		"NoPEM":        {func(s *PlatformData) { s.ProxyCA = []byte("hunter2") }, "platform.proxy.trustedCAFrom"},
		"PrivateKey":   {func(s *PlatformData) { s.MirrorCA = []byte("-----BEGIN hunter2-----\nYQ==\n-----END hunter2-----\n") }, "platform.mirrorTrustedCAFrom"},
		"TokenBreaks":  {func(s *PlatformData) { s.MirrorCredentials = ServerCredentials{Token: "hunter2\n"} }, "platform.mirrorCredentialsSecretRef"},
		"SpaceInLogin": {func(s *PlatformData) { s.MirrorCredentials = ServerCredentials{Username: "a", Password: "hunter2 b"} }, "platform.mirrorCredentialsSecretRef"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(facts(JoinWorker, func(in *Input) {
				surrounded(in)
				tc.change(&in.PlatformData)
			}))
			var malformed *RenderError
			if !errors.As(err, &malformed) || malformed.Field != tc.field {
				t.Fatalf("err = %v, want one of %s", err, tc.field)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v quotes a secret", err)
			}
		})
	}
}

// TestCredentialsOfMirrors sees that credentials are sent to the registry of the images
// only if that is not the public one.
func TestCredentialsOfMirrors(t *testing.T) {
	for repository, sent := range map[string]bool{"": false, "registry.k8s.io": false, "hub.corp:5000/k8s": true} {
		files := filesOf(t, render(t, facts(JoinWorker, func(in *Input) {
			in.Platform.ImageRepository = repository
			in.Platform.RegistryMirrors = []bootstrapv1.RegistryMirror{{Registry: "*", Endpoints: []string{"https://mirror.corp"}}}
			in.PlatformData.MirrorCredentials = ServerCredentials{Token: "t0ken"}
		})))
		host, _, _ := strings.Cut(repository, "/")
		if got := strings.Contains(files["/etc/containerd/certs.d/"+host+"/hosts.toml"], "Bearer t0ken"); got != sent {
			t.Errorf("%q: credentials are sent: %v, want %v", repository, got, sent)
		}
		if !strings.Contains(files["/etc/containerd/certs.d/_default/hosts.toml"], "Bearer t0ken") {
			t.Errorf("%q: the mirror gets no credentials", repository)
		}
	}
}
