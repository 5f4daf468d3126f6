package env

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Env is a running API server.
type Env struct {
	// Config reaches it as a cluster administrator.
	Config *rest.Config
	// Client reads and writes without a cache.
	Client client.Client
	// Scheme knows Kubernetes, Cluster API and this project.
	Scheme *runtime.Scheme

	server *envtest.Environment
}

// Scheme returns a scheme that knows Kubernetes, Cluster API and this project.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(clusterv1.AddToScheme(s))
	utilruntime.Must(ipamv1.AddToScheme(s))
	utilruntime.Must(vspherev1.AddToScheme(s))
	utilruntime.Must(zvirtv1.AddToScheme(s))
	utilruntime.Must(proxmoxv1.AddToScheme(s))
	utilruntime.Must(bootstrapv1.AddToScheme(s))
	utilruntime.Must(controlplanev1.AddToScheme(s))
	utilruntime.Must(addonsv1.AddToScheme(s))
	return s
}

// Start starts etcd and an API server on loopback, building them if need be,
// and installs all definitions, those in further folders too. The caller stops
// it.
func Start(ctx context.Context, further ...string) (*Env, error) {
	paths, err := tools.Paths(ctx, os.Stderr, "etcd", "kube-apiserver", "kubectl")
	if err != nil {
		return nil, err
	}
	// An API server that runs for a minute may use more memory, and garbage
	// collection would take a fifth of its processor time.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return nil, fmt.Errorf("setting up the environment: %w", err)
	}
	core, err := coreDefinitions(ctx, paths["kubectl"])
	if err != nil {
		return nil, err
	}
	bases, err := filepath.Glob(filepath.Join(tools.Root(), "config", "*", "crd", "bases"))
	if err != nil {
		return nil, fmt.Errorf("finding definitions: %w", err)
	}
	e := &Env{Scheme: Scheme(), server: &envtest.Environment{
		CRDs:                  core,
		CRDDirectoryPaths:     append(bases, further...),
		ErrorIfCRDPathMissing: true,
		// The usual 20 s are few on two processors that build beside it.
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
	}}
	e.server.ControlPlane.Etcd = &envtest.Etcd{Path: paths["etcd"]}
	e.server.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync", "true")
	e.server.ControlPlane.GetAPIServer().Path = paths["kube-apiserver"]
	e.server.ControlPlane.KubectlPath = paths["kubectl"]
	if e.Config, err = e.server.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting API server: %w", err), e.server.Stop())
	}
	if e.Client, err = client.New(e.Config, client.Options{Scheme: e.Scheme}); err != nil {
		return nil, errors.Join(fmt.Errorf("making client: %w", err), e.server.Stop())
	}
	return e, nil
}

// startTimeout is how long the API server may take to start, or to stop.
const startTimeout = 2 * time.Minute

// Kubeconfig returns a kubeconfig of a cluster administrator, for programs.
func (e *Env) Kubeconfig() []byte { return e.server.KubeConfig }

// User returns how a user with a certificate of its own reaches the API server.
func (e *Env) User(name string, groups ...string) (*rest.Config, error) {
	user, err := e.server.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding user %s: %w", name, err)
	}
	return user.Config(), nil
}

// Stop stops the API server and etcd.
func (e *Env) Stop() error {
	return e.server.Stop()
}

// coreDefinitions returns Cluster API's definitions with their contract
// labels and without conversion, which no test here needs.
func coreDefinitions(ctx context.Context, kubectl string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	dir, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(dir, "core", "config", "crd")).Output()
	if err != nil {
		return nil, fmt.Errorf("rendering Cluster API's definitions: %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(out)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading Cluster API's definitions: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(doc, crd); err != nil {
			return nil, fmt.Errorf("parsing Cluster API's definitions: %w", err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		crd.Spec.Conversion = nil
		crds = append(crds, crd)
	}
}
