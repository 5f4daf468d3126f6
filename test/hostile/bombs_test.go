package hostile

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// templateBomb writes 3 GB.
func templateBomb() string {
	times := func(n int, name string) string { return strings.Repeat(`{{template "`+name+`"}}`, n) }
	return `{{define "a"}}{{printf "%999999d" 1}}{{end}}{{define "b"}}` + times(10, "a") + `{{end}}{{define "c"}}` + times(10, "b") + `{{end}}` + times(30, "c")
}

// booting creates a Machine of a cluster that boots with a NovaConfig of these
// files, and returns the NovaConfig.
func booting(ctx context.Context, as client.Client, namespace, cluster, name string, files []any) *unstructured.Unstructured {
	GinkgoHelper()
	config := bootConfig(namespace, cluster, name, files)
	Expect(as.Create(ctx, config)).To(Succeed())
	bootMachine(ctx, as, namespace, cluster, name)
	return config
}

func bootConfig(namespace, cluster, name string, files []any) *unstructured.Unstructured {
	config := object(bootstrapV, "NovaConfig", namespace, name, map[string]any{"files": files})
	config.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	return config
}

// bootMachine creates a Machine that boots with the NovaConfig of its name.
func bootMachine(ctx context.Context, as client.Client, namespace, cluster, name string) {
	GinkgoHelper()
	machine := object(coreV, "Machine", namespace, name, map[string]any{
		"clusterName": cluster, "version": bed.KubernetesVersion,
		"bootstrap":         map[string]any{"configRef": reference(bootstrapV, "NovaConfig", name)},
		"infrastructureRef": reference(infraV, "NovaVSphereMachine", name),
	})
	infra := object(infraV, "NovaVSphereMachine", namespace, name, honestMachine(nil))
	for _, o := range []client.Object{infra, machine} {
		o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
		Expect(as.Create(ctx, o)).To(Succeed())
	}
}

var _ = Describe("A tenant user who wants memory and time", func() {
	It("writes a template that writes gigabytes into a file of a node [F24]", func(ctx context.Context) {
		const namespace = "red-template"
		user := tenantUser(ctx, namespace)
		withdraw(namespace)
		bareCluster(ctx, user, namespace, "red", "192.0.2.1:6443")
		config := booting(ctx, user, namespace, "red", "bomb", []any{
			map[string]any{"path": "/etc/bomb", "contentFormat": "Template", "content": templateBomb()},
		})
		Eventually(conditionsOf(config)).WithContext(ctx).Should(ContainSubstring("files[/etc/bomb]: malformed template"))
		progresses(ctx)
	})
})
