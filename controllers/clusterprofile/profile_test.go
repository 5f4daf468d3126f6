package clusterprofile

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		versions []string
		topology string
		want     string
	}{
		"NoMachines":     {nil, "v1.36.3", "v1.36.3"},
		"NoTopology":     {nil, "", ""},
		"OneVersion":     {[]string{"v1.36.3"}, "v1.37.0", "v1.36.3"},
		"DuringUpgrade":  {[]string{"v1.37.0", "v1.36.3"}, "v1.37.0", "v1.36.3"},
		"NumbersNotText": {[]string{"v1.36.10", "v1.36.9"}, "", "v1.36.9"},
		"NoVersion":      {[]string{"latest"}, "v1.36.3", "v1.36.3"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Topology: clusterv1.Topology{Version: tc.topology}}, Status: clusterv1.ClusterStatus{ControlPlane: &clusterv1.ClusterControlPlaneStatus{}}}
			for _, v := range tc.versions {
				c.Status.ControlPlane.Versions = append(c.Status.ControlPlane.Versions, clusterv1.StatusVersion{Version: v, Replicas: 1})
			}
			NewWithT(t).Expect(version(c)).To(Equal(tc.want))
		})
	}
}

func TestProperties(t *testing.T) {
	g := NewWithT(t)
	c := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "NovaVSphereCluster"}}}
	c.Spec.Topology.ClassRef.Name = "nova-vsphere"
	c.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "b", Attributes: map[string]string{"region": "north"}}, {Name: "a", Attributes: map[string]string{"region": "north"}}}
	g.Expect(properties(c, "v0.1.0")).To(ConsistOf(
		map[string]any{"name": "hypervisor.nova.cluster.x-k8s.io", "value": "vsphere"},
		map[string]any{"name": "cluster-class.nova.cluster.x-k8s.io", "value": "nova-vsphere"},
		map[string]any{"name": "zones.nova.cluster.x-k8s.io", "value": "a,b"},
		map[string]any{"name": "topology.kubernetes.io/region", "value": "north"},
		map[string]any{"name": "release.nova.cluster.x-k8s.io", "value": "v0.1.0"},
	))
	c.Labels = map[string]string{"topology.kubernetes.io/region": "south"}
	g.Expect(properties(c, "")).To(ContainElement(map[string]any{"name": "topology.kubernetes.io/region", "value": "south"}), "a label of the Cluster wins")
	c.Spec.InfrastructureRef.Kind = "DockerCluster"
	g.Expect(properties(c, "")).To(ContainElement(map[string]any{"name": "hypervisor.nova.cluster.x-k8s.io", "value": "DockerCluster"}))
}

// Everything in a profile is bounded, whatever is in the Cluster.
func TestProfilesAreBounded(t *testing.T) {
	g := NewWithT(t)
	c := &clusterv1.Cluster{}
	for range 200 {
		c.Status.FailureDomains = append(c.Status.FailureDomains, clusterv1.FailureDomain{Name: strings.Repeat("z", 200) + rand.Text()})
	}
	c.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: "A", Message: strings.Repeat("ä", 5000)}}
	for _, p := range properties(c, "") {
		value, _, err := unstructured.NestedString(p.(map[string]any), "value")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(value)).To(And(BeNumerically(">", 0), BeNumerically("<=", maxValue)))
	}
	found := conditionsOf(c)
	g.Expect(found).To(HaveLen(len(copied)))
	for _, condition := range found {
		message, _, err := unstructured.NestedString(condition.(map[string]any), "message")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(message)).To(BeNumerically("<=", maxMessage))
		g.Expect(message).NotTo(ContainSubstring("\uFFFD"))
	}
}

// A profile publishes certificates and never a key.
func TestCertificates(t *testing.T) {
	g := NewWithT(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	disguised := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	g.Expect(certificates(append(append(private, disguised...), certificate...))).To(Equal(certificate))
	g.Expect(certificates([]byte("no certificate"))).To(BeEmpty())
	g.Expect(certificates(make([]byte, maxCA+1))).To(BeEmpty())
}
