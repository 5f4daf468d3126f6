//go:build imports

package x // removed before landing
import (
_ "github.com/onsi/ginkgo/v2"
_ "github.com/onsi/gomega"
_ "github.com/vmware/govmomi"
_ "github.com/vmware/govmomi/simulator"
_ "github.com/google/go-cmp/cmp"
_ "sigs.k8s.io/cluster-api/util/patch"
_ "sigs.k8s.io/cluster-api/util/secret"
_ "sigs.k8s.io/cluster-api/util/kubeconfig"
_ "sigs.k8s.io/cluster-api/controllers/clustercache"
_ "sigs.k8s.io/cluster-api/util/flags"
_ "sigs.k8s.io/cluster-api/util/certs"
_ "sigs.k8s.io/controller-runtime/pkg/envtest"
_ "sigs.k8s.io/controller-runtime/pkg/metrics/filters"
_ "go.etcd.io/etcd/client/v3"
_ "github.com/vishvananda/netlink"
_ "github.com/vishvananda/netns"
_ "github.com/spf13/cobra"
_ "github.com/spf13/pflag"
_ "golang.org/x/sys/unix"
_ "golang.org/x/time/rate"
_ "github.com/charmbracelet/lipgloss"
_ "github.com/pterm/pterm"
)
