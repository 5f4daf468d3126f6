package cluster_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

var _ = Describe("The rules of a NovaVSphereCluster", func() {
	const pem = "-----BEGIN CERTIFICATE-----\n"
	thumbprint := strings.TrimSuffix(strings.Repeat("aB:", 32), ":")

	DescribeTable("refuse", func(ctx SpecContext, spoil func(*vspherev1.NovaVSphereCluster), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, rig.InfraCluster(), client.DryRunAll)).To(Succeed())
		bad := rig.InfraCluster()
		spoil(bad)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("no server", func(c *vspherev1.NovaVSphereCluster) { c.Spec.Server = "" },
			"server is required: the credentials are in a Secret, which has only user name and password"),
		Entry("a server in addition to an identity", func(c *vspherev1.NovaVSphereCluster) { c.Spec.IdentityRef.Kind = vspherev1.NovaVSphereIdentityKind },
			"server must not be set with a NovaVSphereIdentity: the server comes from the identity"),
		Entry("trust in addition to an identity", func(c *vspherev1.NovaVSphereCluster) {
			c.Spec.IdentityRef.Kind, c.Spec.Server = vspherev1.NovaVSphereIdentityKind, ""
			c.Spec.TLS = infrav1.Trust{Thumbprint: thumbprint}
		}, "tls must not be set with a NovaVSphereIdentity: it comes from the identity, together with the server"),
		Entry("a server with scheme", func(c *vspherev1.NovaVSphereCluster) { c.Spec.Server = "https://vcenter" },
			"server is a host name or address with an optional port, without scheme, path or credentials"),
		Entry("a server with credentials", func(c *vspherev1.NovaVSphereCluster) { c.Spec.Server = "nova@vcenter" },
			"server is a host name or address with an optional port, without scheme, path or credentials"),
		Entry("credentials without name", func(c *vspherev1.NovaVSphereCluster) { c.Spec.IdentityRef = infrav1.IdentityReference{Kind: "Secret"} }, "spec.identityRef.name"),
		Entry("credentials of an unknown kind", func(c *vspherev1.NovaVSphereCluster) { c.Spec.IdentityRef.Kind = "ConfigMap" }, "spec.identityRef.kind"),
		Entry("a bundle that is no certificate", func(c *vspherev1.NovaVSphereCluster) { c.Spec.TLS.CABundle = "hello" },
			"caBundle must hold at least one PEM certificate"),
		Entry("a short thumbprint", func(c *vspherev1.NovaVSphereCluster) { c.Spec.TLS.Thumbprint = "AA:BB" }, "spec.tls.thumbprint"),
		Entry("two ways to trust", func(c *vspherev1.NovaVSphereCluster) {
			c.Spec.TLS = infrav1.Trust{CABundle: pem, Thumbprint: thumbprint}
		}, "only one of caBundle and thumbprint can be set"),
	)

	DescribeTable("allow", func(ctx SpecContext, change func(*vspherev1.NovaVSphereCluster)) {
		c := newRig(ctx).InfraCluster()
		change(c)
		Expect(server.Client.Create(ctx, c)).To(Succeed())
	},
		Entry("a server with a port", func(c *vspherev1.NovaVSphereCluster) { c.Spec.Server = "192.0.2.1:8443" }),
		Entry("an identity, and no server", func(c *vspherev1.NovaVSphereCluster) {
			c.Spec.IdentityRef.Kind, c.Spec.Server = vspherev1.NovaVSphereIdentityKind, ""
		}),
		Entry("a bundle", func(c *vspherev1.NovaVSphereCluster) { c.Spec.TLS.CABundle = pem }),
		Entry("a thumbprint", func(c *vspherev1.NovaVSphereCluster) { c.Spec.TLS.Thumbprint = thumbprint }),
	)
})
