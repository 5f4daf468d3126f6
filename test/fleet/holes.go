package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Holes are workload clusters whose API servers accept connections and never
// answer.
type Holes struct {
	Fleet

	// Listen listens where the managers run.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)

	listener net.Listener
	mu       sync.Mutex
	open     []net.Conn
	accepted int
}

// Apply starts the server that never answers, and creates the clusters with
// their kubeconfigs. They have no control plane object: every manager with a
// cluster cache connects to a cluster that has a kubeconfig.
func (h *Holes) Apply(ctx context.Context) error {
	var err error
	if h.listener, err = h.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	go h.accept()
	ns := &corev1.Namespace{}
	ns.Name = h.Name
	if err := h.Client.Create(ctx, ns); err != nil {
		return fmt.Errorf("making namespace: %w", err)
	}
	kubeconfig, err := h.kubeconfig()
	if err != nil {
		return err
	}
	for i := range h.Clusters {
		name := h.cluster(i)
		s := &corev1.Secret{Type: clusterv1.ClusterSecretType, Data: map[string][]byte{secret.KubeconfigDataName: kubeconfig}}
		s.Namespace, s.Name = h.Name, secret.Name(name, secret.Kubeconfig)
		s.Labels = map[string]string{clusterv1.ClusterNameLabel: name}
		cluster := h.object("Cluster", name, map[string]any{"controlPlaneRef": map[string]any{
			"apiGroup": h.fields(Nova).Group, "kind": Nova, "name": name,
		}})
		for _, object := range []client.Object{s, cluster} {
			if err := h.create(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// accept keeps all connections open and reads nothing.
func (h *Holes) accept() {
	for {
		conn, err := h.listener.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.open = append(h.open, conn)
		h.accepted++
		h.mu.Unlock()
	}
}

// Accepted is how many connections the managers have opened.
func (h *Holes) Accepted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accepted
}

// Close ends the server and its connections.
func (h *Holes) Close() error {
	if h.listener == nil {
		return nil
	}
	errs := []error{h.listener.Close()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.open {
		_ = conn.Close() // the other side may have closed it
	}
	h.open = nil
	return errors.Join(errs...)
}

func (h *Holes) kubeconfig() ([]byte, error) {
	pairs, err := authorities()
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hole"] = &clientcmdapi.Cluster{
		Server:                   "https://" + h.listener.Addr().String(),
		CertificateAuthorityData: pairs.GetByPurpose(secret.ClusterCA).KeyPair.Cert,
	}
	config.AuthInfos["hole"] = &clientcmdapi.AuthInfo{Token: "none"}
	config.Contexts["hole"] = &clientcmdapi.Context{Cluster: "hole", AuthInfo: "hole"}
	config.CurrentContext = "hole"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing kubeconfig: %w", err)
	}
	return data, nil
}
