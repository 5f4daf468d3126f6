package main

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

const namespace = "fleet"

func name(i int) string { return fmt.Sprintf("cluster-%04d", i) }

// makeFleet makes Clusters whose control planes are up, with their kubeconfigs.
// The first one is dead on request: its server takes connections and answers
// nothing.
func makeFleet(ctx context.Context, c client.Client, config *rest.Config, o options, dead string) error {
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("making namespace: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range o.clusters {
		server := config.Host
		if i == 0 && dead != "" {
			server = "https://" + dead
		}
		group.Go(func() error { return makeCluster(ctx, c, config, name(i), server) })
	}
	return group.Wait()
}

// writers is the number of clusters that are created at the same time.
const writers = 8

// makeCluster makes one Cluster with the API server at server.
func makeCluster(ctx context.Context, c client.Client, config *rest.Config, name, server string) error {
	kubeconfig, err := kubeconfigFor(config, server)
	if err != nil {
		return err
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: name}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443},
			ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "NovaControlPlane", Name: name},
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: name},
		},
	}
	data := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret.Name(name, secret.Kubeconfig), Labels: labels},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{secret.KubeconfigDataName: kubeconfig},
	}
	for _, object := range []client.Object{data, cluster} {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("making %s: %w", object.GetName(), err)
		}
	}
	cluster.Status.Initialization = clusterv1.ClusterInitializationStatus{
		InfrastructureProvisioned: ptr.To(true), ControlPlaneInitialized: ptr.To(true),
	}
	if err := c.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("initializing %s: %w", name, err)
	}
	return nil
}

func kubeconfigFor(config *rest.Config, server string) ([]byte, error) {
	data, err := clientcmd.Write(api.Config{
		Clusters: map[string]*api.Cluster{"c": {Server: server, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*api.AuthInfo{"u": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		}},
		Contexts: map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		return nil, fmt.Errorf("writing kubeconfig: %w", err)
	}
	return data, nil
}

// listenDead takes connections and answers nothing, until the context ends.
func listenDead(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listening: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = connection.Close() })
		}
	}()
	return listener.Addr().String(), nil
}

// makeSet makes a set in which every other module is a chart, and each depends
// on the one two before it, of its own kind.
func makeSet(ctx context.Context, c client.Client, o options) error {
	set := &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "base"},
		Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{},
			Sources: []addonsv1.Source{
				{Name: "release", Git: addonsv1.GitSource{URL: "https://code.example/release.git"}},
				{Name: "charts", Helm: addonsv1.HelmSource{URL: "oci://hub.example/charts"}},
			},
			Release: addonsv1.Release{Tag: "v1"},
		},
	}
	for i := range o.modules {
		m := addonsv1.Module{Name: fmt.Sprintf("module-%02d", i)}
		if i%2 == 0 {
			m.Source, m.Chart = "charts", &addonsv1.Chart{Name: m.Name, ValuesTemplate: "host: {{ .facts.endpoint.host }}"}
		} else {
			m.Kustomize = &addonsv1.Kustomize{Path: m.Name}
		}
		if i > 1 {
			m.DependsOn = []string{fmt.Sprintf("module-%02d", i-2)}
		}
		set.Spec.Modules = append(set.Spec.Modules, m)
	}
	if err := c.Create(ctx, set); err != nil {
		return fmt.Errorf("making set: %w", err)
	}
	return nil
}
