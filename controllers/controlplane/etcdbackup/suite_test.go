package etcdbackup

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/ports"
	"github.com/nova-platform/cluster-api-provider-nova/test/s3"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var (
	testEnv *env.Env
	server  *s3.Server
)

func TestEtcdBackup(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Snapshots and restores of etcd")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	testEnv, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return testEnv.Stop() })
	server, err = s3.Start(ctx, s3.Options{Dir: GinkgoT().TempDir(), Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { server.Stop() })
})

const (
	clusterName = "c"
	machineName = "c-cp-0"
)

// rig is a control plane whose etcd is a real one of one member, on loopback.
type rig struct {
	namespace string
	now       time.Time
	clusters  *WorkloadClusters
	recorder  *events.FakeRecorder
	// history is the ID of etcd's data.
	history string
	// lonely members lack another one that they need for a majority.
	lonely bool
	// etcd is the endpoint of the member, and member its process.
	etcd   string
	member *exec.Cmd
}

// newRig creates a cluster; change may alter its control plane first.
func newRig(ctx context.Context, change func(*controlplanev1.NovaControlPlane), options ...func(*rig)) *rig {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "etcd-"}}
	Expect(testEnv.Client.Create(ctx, ns)).To(Succeed())
	r := &rig{namespace: ns.Name, now: time.Now(), recorder: events.NewFakeRecorder(1000)}
	for _, option := range options {
		option(r)
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: clusterName},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: clusterName},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereCluster", Name: clusterName},
		},
	}
	Expect(testEnv.Client.Create(ctx, cluster)).To(Succeed())
	cp := newControlPlane(ns.Name)
	cp.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
	if change != nil {
		change(cp)
	}
	Expect(testEnv.Client.Create(ctx, cp)).To(Succeed())
	cp.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	conditions.Set(cp, metav1.Condition{Type: controlplanev1.EtcdClusterHealthyCondition, Status: metav1.ConditionTrue, Reason: "Fine"})
	Expect(testEnv.Client.Status().Update(ctx, cp)).To(Succeed())
	Expect(testEnv.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "bucket"},
		Data: map[string][]byte{
			controlplanev1.S3AccessKeyIDKey: []byte(server.AccessKeyID), controlplanev1.S3SecretAccessKeyKey: []byte(server.SecretAccessKey), "ca.crt": server.CA,
		},
	})).To(Succeed())
	authority := pki.NewManaged(testEnv.Client)
	Expect(authority.Ensure(ctx, client.ObjectKeyFromObject(cluster), *metav1.NewControllerRef(cp, controlplanev1.GroupVersion.WithKind("NovaControlPlane")), 0)).To(Succeed())
	r.startEtcd(ctx, authority, client.ObjectKeyFromObject(cluster))
	r.clusters = NewWorkloadClusters(testEnv.Client, authority, nil)
	reach := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", r.etcd)
	}
	r.clusters.dial = reach
	r.clusters.forward = func(context.Context, client.ObjectKey) (etcd.Dial, error) {
		return func(ctx context.Context, node string) (net.Conn, error) { return reach(ctx, "", node) }, nil
	}
	r.history = "first"
	r.clusters.history = func(context.Context, client.ObjectKey) (string, error) { return r.history, nil }
	r.addMachine(ctx, machineName)
	return r
}

func newControlPlane(namespace string) *controlplanev1.NovaControlPlane {
	cp := &controlplanev1.NovaControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}},
		Spec: controlplanev1.NovaControlPlaneSpec{
			Version: "v1.36.3",
			MachineTemplate: controlplanev1.NovaControlPlaneMachineTemplate{Spec: controlplanev1.NovaControlPlaneMachineTemplateSpec{
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachineTemplate", Name: "template"},
			}},
		},
	}
	cp.Spec.Etcd.Snapshots = controlplanev1.EtcdSnapshotsSpec{
		Schedule:  "@every 6h",
		Retention: controlplanev1.EtcdSnapshotRetention{Count: 2},
		S3:        newS3(),
	}
	return cp
}

func newS3() controlplanev1.S3Spec {
	return controlplanev1.S3Spec{
		Endpoint: server.Endpoint, Bucket: s3.Bucket, Prefix: "nova",
		CredentialsSecretRef: bootstrapv1.SecretReference{Name: "bucket"},
		TrustedCAFrom:        bootstrapv1.FileSource{Secret: bootstrapv1.KeyReference{Name: "bucket", Key: "ca.crt"}},
	}
}

// place is where the rig's snapshots are, without the key that signs them.
func (r *rig) place() snapshots.Place {
	return snapshots.Place{
		Endpoint: server.Endpoint, CA: server.CA, Bucket: s3.Bucket, Dir: path.Join("nova", r.namespace, clusterName),
		AccessKeyID: server.AccessKeyID, SecretAccessKey: server.SecretAccessKey,
	}
}

func (r *rig) addMachine(ctx context.Context, name string) {
	GinkgoHelper()
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: map[string]string{
			clusterv1.ClusterNameLabel: clusterName, clusterv1.MachineControlPlaneLabel: "",
		}},
		Spec: clusterv1.MachineSpec{
			ClusterName:       clusterName,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachine", Name: name},
		},
	}
	Expect(testEnv.Client.Create(ctx, machine)).To(Succeed())
	machine.Status.NodeRef.Name = name
	machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "127.0.0.1"}}
	Expect(testEnv.Client.Status().Update(ctx, machine)).To(Succeed())
}

// startEtcd starts a member whose certificate the cluster's own CA signed.
func (r *rig) startEtcd(ctx context.Context, authority pki.Authority, cluster client.ObjectKey) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	files, err := authority.ControlPlaneFiles(ctx, cluster)
	Expect(err).NotTo(HaveOccurred())
	var caPEM, caKeyPEM []byte
	for _, f := range files {
		switch f.Path {
		case "/etc/kubernetes/pki/etcd/ca.crt":
			caPEM = f.Content
		case "/etc/kubernetes/pki/etcd/ca.key":
			caKeyPEM = f.Content
		}
	}
	block, _ := pem.Decode(caPEM)
	ca, err := x509.ParseCertificate(block.Bytes)
	Expect(err).NotTo(HaveOccurred())
	caKey, err := keyutil.ParsePrivateKeyPEM(caKeyPEM)
	Expect(err).NotTo(HaveOccurred())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: machineName}, DNSNames: []string{machineName},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), caKey)
	Expect(err).NotTo(HaveOccurred())
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	Expect(err).NotTo(HaveOccurred())
	for name, content := range map[string][]byte{
		"ca.crt": caPEM, "etcd.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "etcd.key": keyPEM,
	} {
		Expect(os.WriteFile(filepath.Join(dir, name), content, 0o600)).To(Succeed())
	}
	programs, err := tools.Paths(ctx, GinkgoWriter, "etcd")
	Expect(err).NotTo(HaveOccurred())
	r.etcd = freeAddress(ctx)
	peer, lost := freeAddress(ctx), freeAddress(ctx)
	initial := machineName + "=http://" + peer
	run := func(name, address, peer string) *exec.Cmd {
		member := exec.Command(programs["etcd"], "--name", name, "--data-dir", filepath.Join(dir, name), "--unsafe-no-fsync", "--log-level", "error",
			"--heartbeat-interval", "50", "--election-timeout", "500",
			"--listen-client-urls", "https://"+address, "--advertise-client-urls", "https://"+address, "--client-cert-auth",
			"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", initial,
			"--cert-file", filepath.Join(dir, "etcd.crt"), "--key-file", filepath.Join(dir, "etcd.key"), "--trusted-ca-file", filepath.Join(dir, "ca.crt"))
		member.Stderr = GinkgoWriter
		member.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		Expect(member.Start()).To(Succeed())
		DeferCleanup(func() { kill(member) })
		return member
	}
	if !r.lonely {
		r.member = run(machineName, r.etcd, peer)
		r.awaitLeader(ctx, authority, cluster, true)
		return
	}
	initial += ",lost=http://" + lost
	r.member = run(machineName, r.etcd, peer)
	other := run("lost", freeAddress(ctx), lost)
	r.awaitLeader(ctx, authority, cluster, true)
	kill(other)
	r.awaitLeader(ctx, authority, cluster, false)
}

// awaitLeader waits until the member has a leader, or has none any more.
func (r *rig) awaitLeader(ctx context.Context, authority pki.Authority, cluster client.ObjectKey, want bool) {
	GinkgoHelper()
	credentials, err := pki.EtcdTLS(ctx, authority, cluster, "test")
	Expect(err).NotTo(HaveOccurred())
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", r.etcd)
	}
	Eventually(func(g Gomega) {
		health, err := etcd.Observe(ctx, dial, credentials, []string{machineName})
		g.Expect(err).NotTo(HaveOccurred())
		if want {
			g.Expect(health.Members).To(ContainElement(HaveField("Answers", true)))
		} else {
			g.Expect(health.Members).To(HaveEach(HaveField("Answers", false)))
		}
	}).Should(Succeed())
}

// kill kills a process, if it runs.
func kill(process *exec.Cmd) {
	if process.ProcessState == nil {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
}

func (r *rig) killEtcd() { kill(r.member) }

func freeAddress(ctx context.Context) string {
	GinkgoHelper()
	address, err := ports.FreeAddress(ctx)
	Expect(err).NotTo(HaveOccurred())
	return address
}

func (r *rig) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: r.namespace, Name: name}
}

func (r *rig) controlPlane(ctx context.Context) *controlplanev1.NovaControlPlane {
	GinkgoHelper()
	cp := &controlplanev1.NovaControlPlane{}
	Expect(testEnv.Client.Get(ctx, r.key(clusterName), cp)).To(Succeed())
	return cp
}
