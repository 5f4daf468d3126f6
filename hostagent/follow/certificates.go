package follow

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// renewingFile exists while certificates are renewed.
	renewingFile = "/var/lib/nova/renewing-certificates"
	// restartedAnnotation on a static pod restarts it: the kubelet replaces a pod whose
	// manifest differs.
	restartedAnnotation = "nova-platform.io/certificates-renewed"
	// signTimeout is how long the cluster may take to sign certificates.
	signTimeout = 5 * time.Minute
)

// renewCertificates renews the certificates of a control plane node if the first of them
// ends before the time in the settings: kubeadm does if it has made them, otherwise they
// are requested in the cluster. Then it restarts the components, one after
// another: they read some of their certificates only when they start. etcd reads its
// own for each connection. An interrupted renewal begins again.
func renewCertificates(ctx context.Context, m *machine.Machine, client *cluster.Client, node Node, s *nodeconfig.Settings) error {
	if s.RenewCertificates.IsZero() {
		return nil
	}
	if !m.Exists(renewingFile) {
		ends, err := endOf(m, s)
		if err != nil || !ends.Before(s.RenewCertificates) {
			return err
		}
	}
	m.Logf("Renewing certificates")
	if err := m.Write(renewingFile, "", 0o600); err != nil {
		return err
	}
	if err := m.Flush(ctx); err != nil {
		return err
	}
	if err := renew(ctx, m, client, node, s); err != nil {
		return err
	}
	switch ends, err := endOf(m, s); {
	case err != nil:
		return err
	case ends.Before(s.RenewCertificates):
		return fmt.Errorf("the renewed certificates end at %s, but %s is wanted", ends.Format(time.RFC3339), s.RenewCertificates.Format(time.RFC3339))
	}
	// The API server is the last one: the others need it to become ready.
	for _, name := range []string{"kube-vip", "kube-controller-manager", "kube-scheduler", "kube-apiserver"} {
		if err := restartPod(ctx, m, client, name, s.Node); err != nil {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
	}
	return m.Remove(renewingFile)
}

// renew replaces the certificates.
func renew(ctx context.Context, m *machine.Machine, client *cluster.Client, of Node, s *nodeconfig.Settings) error {
	if s.Certificates == nil {
		return m.Run(ctx, "kubeadm", "certs", "renew", "all")
	}
	node, err := keys.NodeOf(of.Name, of.Addresses, false)
	if err != nil {
		return err
	}
	signer := &keys.Requests{Machine: m, Client: client, Node: node.Name, Until: m.Now().Add(signTimeout)}
	return keys.Renew(ctx, m, s.Certificates, node, s.RenewCertificates, signer)
}

// endOf returns when the first certificate ends.
func endOf(m *machine.Machine, s *nodeconfig.Settings) (time.Time, error) {
	if s.Certificates != nil {
		return keys.FirstEnd(m, s.Certificates)
	}
	return firstEnd(m)
}

// firstEnd returns when the first certificate that kubeadm made ends. With external etcd
// some do not exist.
func firstEnd(m *machine.Machine) (time.Time, error) {
	var first time.Time
	for _, c := range certificates.Of(false, false) {
		file := path.Join(nodeconfig.KeysDir, c.File+".crt")
		if c.File == "" || !m.Exists(file) {
			continue
		}
		content, err := m.Load(file)
		if err != nil {
			return time.Time{}, fmt.Errorf("reading certificates: %w", err)
		}
		chain, err := certutil.ParseCertsPEM([]byte(content))
		if err != nil {
			return time.Time{}, fmt.Errorf("reading certificates: %s: %w", file, err)
		}
		if ends := chain[0].NotAfter; first.IsZero() || ends.Before(first) {
			first = ends
		}
	}
	if first.IsZero() {
		return first, errors.New("reading certificates: there are none")
	}
	return first, nil
}

// restartPod restarts a static pod of the node, if there is one, and waits until the
// new pod is ready.
func restartPod(ctx context.Context, m *machine.Machine, client *cluster.Client, name, node string) error {
	p, err := loadPod(m, name)
	if err != nil || p == nil {
		return err
	}
	return p.deploy(ctx, m, client, name, node, restartedAnnotation)
}
