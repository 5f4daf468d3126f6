package signin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/test/bootdata"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// StartTimeout bounds the start of the API server, and the time until it has
	// read the keys of an issuer.
	StartTimeout = 2 * time.Minute

	version = "v1.36.3"
	// file is where the machine has the configuration.
	file = "/etc/kubernetes/authentication/config.yaml"
)

// Configuration returns the file that a control plane machine gets.
func Configuration(issuers ...bootstrapv1.TokenIssuer) ([]byte, error) {
	data, err := bootstrap.Render(bootstrap.Input{
		Mode: bootstrap.Init, ClusterNamespace: "default", ClusterName: "demo", Machine: "demo-1", Version: version,
		Endpoint: bootstrap.Endpoint{Host: "10.77.0.10", Port: 6443},
		Platform: bootstrapv1.PlatformSpec{Authentication: bootstrapv1.AuthenticationSpec{Issuers: issuers}},
	})
	if err != nil {
		return nil, fmt.Errorf("rendering bootstrap data: %w", err)
	}
	config, err := bootdata.Config(data)
	if err != nil {
		return nil, err
	}
	files, err := bootdata.Files(config)
	if err != nil {
		return nil, err
	}
	if files[file] == "" {
		return nil, fmt.Errorf("the machine has no %s", file)
	}
	return []byte(files[file]), nil
}

// Start starts an API server with the configuration at path. It returns how to
// reach it as its administrator, and a function that stops it.
func Start(ctx context.Context, path string) (*rest.Config, func() error, error) {
	paths, err := tools.Paths(ctx, os.Stderr, "etcd", "kube-apiserver", "kubectl")
	if err != nil {
		return nil, nil, err
	}
	server := &envtest.Environment{ControlPlaneStartTimeout: StartTimeout, ControlPlaneStopTimeout: StartTimeout}
	server.ControlPlane.Etcd = &envtest.Etcd{Path: paths["etcd"]}
	server.ControlPlane.KubectlPath = paths["kubectl"]
	api := server.ControlPlane.GetAPIServer()
	api.Path = paths["kube-apiserver"]
	api.Configure().Set("authentication-config", path)
	config, err := server.Start()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the API server: %w", errors.Join(err, server.Stop()))
	}
	return config, server.Stop, nil
}

// WhoAmI requests the user of a token from the API server.
func WhoAmI(ctx context.Context, server *rest.Config, token string) (*authenticationv1.UserInfo, error) {
	config := rest.AnonymousClientConfig(server)
	config.BearerToken = token
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller compares it
	}
	return &review.Status.UserInfo, nil
}
