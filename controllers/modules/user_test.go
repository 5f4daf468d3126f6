package modules

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

var _ = Describe("The user of nova-addon in a workload cluster", func() {
	It("has the permission to write Nova's substitutions and no others", func(ctx SpecContext) {
		user := NewUser(nil)
		Expect(user.Permissions.Write(ctx, user.Name, testEnv.Client)).To(BeTrue())
		config := rest.CopyConfig(testEnv.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user.Name}
		workload, err := client.New(config, client.Options{Scheme: testEnv.Scheme})
		Expect(err).NotTo(HaveOccurred())
		for _, value := range []string{"one", "two"} {
			Eventually(func() error { return substitute(ctx, workload, map[string]string{"a": value}) }).Should(Succeed())
		}
		written := &corev1.ConfigMap{}
		Expect(testEnv.Client.Get(ctx, client.ObjectKey{Namespace: modules.SubstituteNamespace, Name: modules.SubstituteConfig}, written)).To(Succeed())
		Expect(written.Data).To(Equal(map[string]string{"a": "two"}))
		Expect(workload.List(ctx, &corev1.SecretList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		Expect(workload.List(ctx, &corev1.ConfigMapList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	})
})
