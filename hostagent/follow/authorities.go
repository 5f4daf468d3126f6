package follow

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// changingFile has the names of the programs that still have to be restarted for
	// other CAs. It exists while the CAs are changed.
	changingFile = "/var/lib/nova/changing-authorities"

	kubernetesDir     = "/etc/kubernetes"
	kubelet           = "kubelet"
	controllerManager = "kube-controller-manager"
	// pods are those of the node that may have read the CAs when they started.
	pods = "pods"
)

// kubeconfigs are the kubeconfigs of kubeadm. Others may be for other clusters.
var kubeconfigs = []string{"admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf", "kubelet.conf", "bootstrap-kubelet.conf"}

// signingArguments are the arguments with which kube-controller-manager signs. kubeadm sets
// them to nothing if it does not find the key.
var signingArguments = []string{
	"--cluster-signing-cert-file=" + nodeconfig.KeysDir + "/ca.crt",
	"--cluster-signing-key-file=" + nodeconfig.KeysDir + "/ca.key",
}

// programs that read CAs or certificates only when they start, in the order in which they
// are restarted. The kubelet is first: it reports whether the others are ready, so it needs
// a certificate that the API servers trust. The API server reads its other CAs and its
// serving certificate again, and etcd its certificates.
var restartable = []struct {
	name        string
	authorities []certificates.Authority
	// certificates are the names of those that it reads.
	certificates []string
}{
	{kubelet, []certificates.Authority{certificates.Kubernetes}, []string{certificates.KubeletClient, "kubelet-server"}},
	{etcd, []certificates.Authority{certificates.Etcd}, nil},
	{"kube-apiserver", []certificates.Authority{certificates.Kubernetes, certificates.Etcd}, []string{"apiserver-kubelet-client", "apiserver-etcd-client"}},
	{controllerManager, []certificates.Authority{certificates.Kubernetes}, []string{"controller-manager"}},
	{"kube-scheduler", []certificates.Authority{certificates.Kubernetes}, []string{"scheduler"}},
	{"kube-vip", []certificates.Authority{certificates.Kubernetes}, []string{"admin"}},
	// With the certificates of another CA: all pods that start from then on have both CAs.
	{pods, nil, []string{certificates.KubeletClient}},
}

// difference is how a node differs from the desired CAs.
type difference struct {
	// trust are the CAs of which programs trust other ones.
	trust map[certificates.Authority]bool
	// certificates are the names of those that have to be signed again.
	certificates []string
	// signs is true if kube-controller-manager has the key of a CA.
	signs bool
}

// restarts returns the programs to restart, and those that an interrupted change has left.
func (d *difference) restarts(left []string) []string {
	var names []string
	for _, p := range restartable {
		trusts := slices.ContainsFunc(p.authorities, func(a certificates.Authority) bool { return d.trust[a] })
		has := slices.ContainsFunc(p.certificates, func(name string) bool { return slices.Contains(d.certificates, name) })
		if trusts || has || d.signs && p.name == controllerManager || slices.Contains(left, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// authorities changes the CAs of a node.
type authorities struct {
	m      *machine.Machine
	client *cluster.Client
	node   Node
	s      *nodeconfig.Settings
	// content are the desired certificates in PEM, and bundles the same.
	content map[certificates.Authority]string
	bundles keys.Bundles
}

// changeAuthorities changes the CAs that the node trusts, has the certificates of another
// CA signed again, and restarts the programs and pods that read either only when they
// start. Then it removes keys of CAs, and labels the Node. It returns the client with the new credentials.
//
// Each step compares the files with the settings. Restarts are recorded before the first
// file changes, so an interrupted change continues with them.
func changeAuthorities(ctx context.Context, m *machine.Machine, client *cluster.Client, node Node, s *nodeconfig.Settings) (*cluster.Client, error) {
	if s.Authorities == nil {
		return client, nil
	}
	a := &authorities{m: m, client: client, node: node, s: s}
	if err := a.parse(); err != nil {
		return client, err
	}
	if err := a.change(ctx); err != nil {
		return client, err
	}
	return a.client, a.client.LabelNode(ctx, node.Name, map[string]*string{nodeconfig.AuthoritiesLabel: &s.Authorities.ID})
}

func (a *authorities) parse() error {
	a.content, a.bundles = map[certificates.Authority]string{certificates.Kubernetes: a.s.Authorities.Kubernetes}, keys.Bundles{}
	if c := a.s.Certificates; c != nil {
		a.content[certificates.FrontProxy] = a.s.Authorities.FrontProxy
		if !c.ExternalEtcd {
			a.content[certificates.Etcd] = a.s.Authorities.Etcd
		}
	}
	for authority, content := range a.content {
		bundle, err := keys.ParseBundle(content)
		if err != nil {
			return fmt.Errorf("%s: %w", authority, err)
		}
		a.bundles[authority] = bundle
	}
	return nil
}

func (a *authorities) change(ctx context.Context) error {
	d, err := a.compare()
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(d.restarts(strings.Fields(a.m.Read(changingFile))), func(name string) bool {
		return name != kubelet && name != pods && !a.m.Exists(manifestOf(name))
	})
	if len(left) > 0 {
		a.m.Logf("Changing CAs: %s will be restarted", strings.Join(left, ", "))
		if err := a.record(left); err != nil {
			return err
		}
		if err := a.m.Flush(ctx); err != nil {
			return err
		}
	}
	if err := a.replaceFiles(ctx, d); err != nil {
		return err
	}
	for i, name := range left {
		if err := a.restart(ctx, name); err != nil {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
		if err := a.record(left[i+1:]); err != nil {
			return err
		}
	}
	if err := a.removeKeys(ctx); err != nil {
		return err
	}
	return a.m.Remove(changingFile)
}

// record records the programs that have to be restarted.
func (a *authorities) record(names []string) error {
	return a.m.Write(changingFile, strings.Join(names, "\n"), 0o600)
}

// compare finds out how the node differs.
func (a *authorities) compare() (*difference, error) {
	d := &difference{trust: map[certificates.Authority]bool{}}
	for authority, bundle := range a.bundles {
		is, err := keys.ParseBundle(a.m.Read(bundleFile(authority)))
		d.trust[authority] = err != nil || !is.SameTrust(bundle)
	}
	err := a.eachKubeconfig(func(_ string, config *clientcmdapi.Config) error {
		for _, c := range config.Clusters {
			is, err := keys.ParseBundle(string(c.CertificateAuthorityData))
			if err != nil || !is.SameTrust(a.bundles[certificates.Kubernetes]) {
				d.trust[certificates.Kubernetes] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if d.certificates, err = keys.KubeletDue(a.m, a.bundles[certificates.Kubernetes]); err != nil || a.s.Certificates == nil {
		return d, err
	}
	node, err := keys.NodeOf(a.node.Name, a.node.Addresses, false)
	if err != nil {
		return nil, err
	}
	due, err := keys.Due(a.m, a.s.Certificates, node, a.bundles)
	if err != nil {
		return nil, err
	}
	d.certificates = append(d.certificates, due...)
	p, err := loadPod(a.m, controllerManager)
	d.signs = slices.ContainsFunc(p.arguments(), signs)
	return d, err
}

// replaceFiles writes certificates and kubeconfigs.
func (a *authorities) replaceFiles(ctx context.Context, d *difference) error {
	until := a.m.Now().Add(signTimeout)
	signer := func() *keys.Requests {
		return &keys.Requests{Machine: a.m, Client: a.client, Node: a.node.Name, Until: until}
	}
	// First, while the API servers trust the former certificate of the kubelet.
	if err := keys.RenewKubelet(ctx, a.m, a.node.Name, d.certificates, a.bundles[certificates.Kubernetes], signer()); err != nil {
		return fmt.Errorf("renewing certificates of the kubelet: %w", err)
	}
	for _, authority := range certificates.Authorities() {
		content, has := a.content[authority]
		if !has || a.m.Read(bundleFile(authority)) == content {
			continue
		}
		if err := a.m.Edit(bundleFile(authority), content, 0o644); err != nil {
			return err
		}
	}
	if err := a.eachKubeconfig(a.replaceKubeconfig); err != nil {
		return err
	}
	var err error
	if a.client, err = cluster.Load(a.m.At(kubeconfig)); err != nil {
		return err
	}
	if a.s.Certificates != nil {
		node, err := keys.NodeOf(a.node.Name, a.node.Addresses, false)
		if err != nil {
			return err
		}
		if err := keys.Ensure(ctx, a.m, a.s.Certificates, node, func() (keys.Signer, error) { return signer(), nil }); err != nil {
			return err
		}
	}
	return a.m.Flush(ctx)
}

// bundleFile is the file with the certificates of a CA.
func bundleFile(a certificates.Authority) string { return path.Join(nodeconfig.KeysDir, a.File()) }

// eachKubeconfig calls the function with the kubeconfigs that exist.
func (a *authorities) eachKubeconfig(do func(file string, config *clientcmdapi.Config) error) error {
	for _, name := range kubeconfigs {
		file := path.Join(kubernetesDir, name)
		if !a.m.Exists(file) {
			continue
		}
		content, err := a.m.Load(file)
		if err != nil {
			return err
		}
		config, err := clientcmd.Load([]byte(content))
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if err := do(file, config); err != nil {
			return err
		}
	}
	return nil
}

// replaceKubeconfig writes a kubeconfig with the desired CA, unless it has it.
func (a *authorities) replaceKubeconfig(file string, config *clientcmdapi.Config) error {
	ca, same := []byte(a.content[certificates.Kubernetes]), true
	for _, c := range config.Clusters {
		same = same && bytes.Equal(c.CertificateAuthorityData, ca)
		c.CertificateAuthorityData = ca
	}
	if same {
		return nil
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return a.m.Edit(file, string(content), 0o600)
}

// restart restarts a program, and waits until it is ready.
func (a *authorities) restart(ctx context.Context, name string) error {
	switch name {
	case kubelet:
		return restartKubelet(ctx, a.m)
	case pods:
		return a.restartPods(ctx)
	}
	p, err := loadPod(a.m, name)
	if err != nil {
		return err
	}
	if name == controllerManager && a.s.Certificates != nil {
		if err := p.stopSigning(); err != nil {
			return err
		}
	}
	if err := p.deploy(ctx, a.m, a.client, name, a.node.Name, restartedAnnotation); err != nil || name != etcd {
		return err
	}
	return waitFor(ctx, a.m, func() error { return a.client.Ready(ctx) })
}

// restartPods restarts the pods that started before the file with the CAs had the current
// ones.
func (a *authorities) restartPods(ctx context.Context) error {
	file, err := os.Stat(a.m.At(bundleFile(certificates.Kubernetes)))
	if err != nil {
		return fmt.Errorf("reading the time of a file: %w", err)
	}
	var staying []string
	err = waitFor(ctx, a.m, func() (err error) {
		staying, err = a.client.EvictPods(ctx, a.node.Name, file.ModTime())
		return err
	})
	if len(staying) > 0 {
		a.m.Logf("Pods without a controller keep the CAs that they have read: %s", strings.Join(staying, ", "))
	}
	return err
}

// removeKeys removes the keys of CAs, if certificates are requested.
func (a *authorities) removeKeys(ctx context.Context) error {
	if a.s.Certificates == nil {
		return nil
	}
	found, err := keys.AuthorityKeys(a.m)
	if err != nil || len(found) == 0 {
		return err
	}
	a.m.Logf("Removing the keys of CAs")
	if err := a.m.Remove(found...); err != nil {
		return fmt.Errorf("removing keys of CAs: %w", err)
	}
	return a.m.Flush(ctx)
}

// signs reports whether kube-controller-manager signs with this argument.
func signs(argument string) bool { return slices.Contains(signingArguments, argument) }

// stopSigning lets kube-controller-manager sign no certificates, as kubeadm does without
// the key of the CA: it would not start without the key, or with several certificates.
func (p pod) stopSigning() error {
	list, _, err := unstructured.NestedSlice(p, "spec", "containers")
	if err != nil {
		return fmt.Errorf("reading manifest: %w", err)
	}
	for _, entry := range list {
		container, _ := entry.(map[string]any)
		command, found, err := unstructured.NestedStringSlice(container, "command")
		if err != nil {
			return fmt.Errorf("reading manifest: %w", err)
		}
		if !found {
			continue
		}
		for i, argument := range command {
			if name, _, _ := strings.Cut(argument, "="); signs(argument) {
				command[i] = name + "="
			}
		}
		if err := unstructured.SetNestedStringSlice(container, command, "command"); err != nil {
			return fmt.Errorf("writing manifest: %w", err)
		}
	}
	if err := unstructured.SetNestedSlice(p, list, "spec", "containers"); err != nil {
		return fmt.Errorf("writing manifest: %w", err)
	}
	return nil
}
