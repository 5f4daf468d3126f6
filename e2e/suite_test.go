package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

var (
	// ctx is the context of the specs: the framework reads it when it builds
	// them.
	ctx = context.Background()
	// b is the test environment, and facts are its properties.
	b     *bed.Bed
	facts inside
	// managements are the management clusters.
	managements []framework.ClusterProxy
	// used is the number of addresses that clusters have used.
	used int
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	// All specs together take longer than Ginkgo's default of one hour.
	suite.Timeout = 3 * time.Hour
	RunSpecs(t, "Cluster API's specs", suite, reporter)
}

var _ = BeforeSuite(func() {
	data, err := os.ReadFile(os.Getenv(insideVariable))
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(data, &facts)).To(Succeed())
	b, err = bed.Open(ctx, bedName)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.RemoveAll(artifacts())).To(Succeed())

	scheme := scheme()
	for i, kubeconfig := range facts.Managements {
		proxy := framework.NewClusterProxy(names[i], kubeconfig, scheme, framework.WithMachineLogCollector(logs{}))
		managements = append(managements, management{proxy})
		install(proxy)
	}
})

// install installs the providers as the suites of Cluster API do, and waits
// until they run. Their logs are files of the test environment, so the
// framework need not read them from the API server.
func install(proxy framework.ClusterProxy) {
	started := time.Now()
	var infrastructure []string
	for _, name := range hypervisors() {
		h, err := b.Hypervisor(name)
		Expect(err).NotTo(HaveOccurred())
		infrastructure = append(infrastructure, h.Facts().Provider+":"+version)
	}
	clusterctl.Init(ctx, clusterctl.InitInput{
		LogFolder: filepath.Join(artifacts(), "clusterctl", proxy.GetName()), ClusterctlConfigPath: configuration("init", nil),
		KubeconfigPath: proxy.GetKubeconfigPath(), CoreProvider: "cluster-api:" + facts.Core,
		BootstrapProviders: []string{"nova:" + version}, ControlPlaneProviders: []string{"nova:" + version},
		InfrastructureProviders: infrastructure,
	})
	for _, deployment := range framework.GetControllerDeployments(ctx, framework.GetControllerDeploymentsInput{Lister: proxy.GetClient()}) {
		framework.WaitForDeploymentsAvailable(ctx, framework.WaitForDeploymentsAvailableInput{
			Getter: proxy.GetClient(), Deployment: deployment,
		}, config().GetIntervals("default", "wait-controllers")...)
	}
	facts.Figures = append(facts.Figures, fmt.Sprintf("clusterctl init of %s: %.0f s", proxy.GetName(), time.Since(started).Seconds()))
}

// config returns the settings that Cluster API's suites read from a file. They
// require the providers of kubeadm.
func config() *clusterctl.E2EConfig {
	return &clusterctl.E2EConfig{
		ManagementClusterName: names[0],
		Variables: map[string]string{
			capie2e.KubernetesVersion:            bed.KubernetesVersion,
			capie2e.KubernetesVersionUpgradeFrom: bed.OlderVersion,
			capie2e.KubernetesVersionUpgradeTo:   bed.KubernetesVersion,
		},
		Intervals: intervals(),
	}
}

// configuration returns the path of a clusterctl configuration with the
// variables of templates.
func configuration(name string, variables map[string]string) string {
	GinkgoHelper()
	path := filepath.Join(filepath.Dir(facts.Config), name+".yaml")
	all := map[string]string{"CLUSTER_TOPOLOGY": "true"}
	maps.Copy(all, variables)
	Expect(clusterctl.CopyAndAmendClusterctlConfig(ctx, clusterctl.CopyAndAmendClusterctlConfigInput{
		ClusterctlConfigPath: facts.Config, OutputPath: path, Variables: all,
	})).To(Succeed())
	return path
}

// clusterConfiguration returns the path of the configuration for another
// cluster on a hypervisor, with a new address.
func clusterConfiguration(hypervisor string) string {
	GinkgoHelper()
	used++
	name := hypervisor + "-" + strconv.Itoa(used)
	variables, err := b.Variables(ctx, bed.Cluster{Hypervisor: hypervisor, Endpoint: "10.77.0." + strconv.Itoa(9+used)})
	Expect(err).NotTo(HaveOccurred())
	return configuration(name, variables)
}

// provider returns the name of a hypervisor's infrastructure provider in
// clusterctl.
func provider(hypervisor string) *string {
	facts, err := bed.FactsOf(hypervisor)
	Expect(err).NotTo(HaveOccurred())
	name := facts.Provider + ":" + version
	return &name
}

// credentials creates the credentials of a hypervisor in the namespace of a
// cluster, with the label that makes clusterctl move them together with it.
func credentials(hypervisor string) func(framework.ClusterProxy, string) {
	return func(proxy framework.ClusterProxy, namespace string) {
		GinkgoHelper()
		h, err := b.Hypervisor(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		data, err := h.Credentials()
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{StringData: data}
		secret.Namespace, secret.Name = namespace, h.Facts().CredentialsSecret
		secret.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}
		Expect(proxy.GetClient().Create(ctx, secret)).To(Succeed())
	}
}

// describeOn defines specs for each hypervisor of the test environment.
func describeOn(text string, body func(hypervisor string)) bool {
	for _, name := range hypervisors() {
		describe(name, text, body)
	}
	return true
}

// describe defines specs for a hypervisor.
func describe(hypervisor, text string, body func(hypervisor string)) bool {
	return Describe(text+" on "+hypervisor, Offset(2), Label(hypervisor), func() { body(hypervisor) })
}

// describeFull defines specs that run only if all specs run.
func describeFull(text string, body func(hypervisor string)) bool {
	return everything && describeOn(text, body)
}
