// Command nova-fleet serves a read-only page with all workload clusters. It may
// read Clusters, control planes and Machines, and no Secret.
package main

import (
	"context"
	"flag"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fleet"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
)

// Flags of this program, in addition to the common flags.
var (
	address = flag.String("page-address", ":8080",
		"Address and port of the page. The login proxy of the platform must be the only client: it adds the token of the user to each request.")
	certificates = flag.String("page-cert-dir", "",
		"Folder with tls.crt and tls.key for the page. If not set, the page is served without TLS, and tokens of users are not encrypted between the login proxy and the page.")
)

func main() {
	scheme := runtime.NewScheme()
	types := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme)
	utilruntime.Must(types.AddToScheme(scheme))
	manager.Main("nova-fleet", scheme, func(ctx context.Context, mgr ctrl.Manager, _ *manager.Options) error {
		return fleet.Setup(ctx, mgr, *address, *certificates)
	})
}
