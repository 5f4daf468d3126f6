package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// rotationTest replaces the CAs of a cluster on hosts, and counts the failures meanwhile.
type rotationTest struct {
	upgradeBench
	mode, pki string
	// kill kills programs in each stage, and off powers hosts off in some.
	kill, off bool
	// killed are the times at which the managers were killed.
	killed []time.Time
	// issuing is when the new CAs began to sign.
	issuing time.Time
}

// Values of the flag pki: CAs in Secrets, and a cluster that moves from there to a vault.
const (
	managedPKI  = "managed"
	toStarVault = "move"
)

func rotateCommand() *cobra.Command {
	n := rotationTest{}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the CAs of a cluster on hosts, and count the requests that fail meanwhile",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.out = cmd.OutOrStdout()
			return n.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&n.name, "name", "rotate", "name of the test environment")
	flags.StringVar(&n.mode, "in-place", string(bootstrapv1.InPlaceNever), "rollout.inPlace of the cluster: Never, Prefer or Only")
	flags.StringVar(&n.pki, "pki", managedPKI, "where the keys of the CAs are: managed, starvault, or move to replace CAs in Secrets by those of a vault")
	flags.BoolVar(&n.kill, "kill", false, "kill the managers in each stage, the vault, and with updates in place a host agent")
	flags.BoolVar(&n.off, "off", false, "power off a worker in the first stage, and with updates in place a control plane machine in the next one")
	flags.IntVar(&n.controlPlanes, "control-planes", 3, "number of control plane machines")
	flags.IntVar(&n.workers, "workers", 2, "number of workers")
	flags.DurationVar(&n.timeout, "timeout", time.Hour, "timeout for the creation of the cluster, and for the rotation")
	return cmd
}

// inPlace reports whether machines are changed in place.
func (n *rotationTest) inPlace() bool { return n.mode != string(bootstrapv1.InPlaceNever) }

func (n *rotationTest) run(ctx context.Context) (err error) {
	inPlace := n.inPlace()
	options := bed.Options{Name: n.name, Log: n.out, Hypervisors: []string{bed.VSphere}, Unobserved: true, InPlace: inPlace}
	switch n.pki {
	case managedPKI:
	case starVault, toStarVault:
		options.Vault = "bao"
	default:
		return fmt.Errorf("--pki %s is unknown: set managed, starvault or move", n.pki)
	}
	n.bed, err = bed.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.bed.Stop(context.WithoutCancel(ctx))) }()
	if inPlace {
		if err := n.bed.RegisterExtension(ctx); err != nil {
			return err
		}
	}
	if err := n.rotate(ctx, bed.Cluster{Name: "rotated", Namespace: "rotated", ControlPlanes: n.controlPlanes, Workers: n.workers, Endpoint: "10.77.0.10"}); err != nil {
		return errors.Join(err, n.bed.CollectArtifacts(context.WithoutCancel(ctx), filepath.Join(tools.Root(), "_artifacts", n.name)))
	}
	return nil
}

// rotate creates a cluster and replaces its CAs.
func (n *rotationTest) rotate(ctx context.Context, c bed.Cluster) error {
	if err := n.createCluster(ctx, &c); err != nil {
		return err
	}
	pods, err := n.deployPods(ctx, c)
	if err != nil {
		return err
	}
	former, err := n.bed.TenantConfig(ctx, c.Key())
	if err != nil {
		return err
	}
	api := prober.Start(ctx, 500*time.Millisecond, 2*time.Second, func(ctx context.Context) error {
		check, err := n.bed.EndpointCheck(ctx, c)
		if err != nil {
			return err
		}
		return check(ctx)
	})
	etcd := prober.Start(ctx, time.Second, 4*time.Second, func(ctx context.Context) error { return n.checkEtcd(ctx, c) })
	started := time.Now()
	err = n.replace(ctx, c, func(from time.Time) {
		fmt.Fprintf(n.out, "  requests in this stage: api: %s; etcd: %s\n", api.Since(from), etcd.Since(from))
	})
	took, apiReport, etcdReport := time.Since(started), api.Stop(), etcd.Stop()
	if err != nil {
		return err
	}
	failed, err := pods(ctx)
	if err != nil {
		return err
	}
	accepted, err := n.accepted(ctx, c, former)
	if err != nil {
		return err
	}
	n.printRequests("api", apiReport)
	n.printRequests("etcd", etcdReport)
	killFailed := n.failedAfterKills(apiReport)
	if n.kill {
		fmt.Fprintf(n.out, "managers were killed %d times, requests to the endpoint that failed within %s: %d\n", len(n.killed), killWindow, killFailed)
	}
	fmt.Fprintf(n.out, "rotate: stages=5 seconds=%.0f api_failed=%d etcd_failed=%d pod_failed=%d old_leaf_accepted=%t",
		took.Seconds(), apiReport.Failures, etcdReport.Failures, failed, accepted)
	keys, err := n.keysOutside(ctx, c)
	fmt.Fprintln(n.out)
	err = errors.Join(err, n.checkPods(ctx, c))
	if accepted {
		err = errors.Join(err, errors.New("a certificate of the former CA is accepted"))
	}
	if killFailed > 0 {
		err = errors.Join(err, errors.New("requests to the endpoint failed when managers were killed"))
	}
	if len(keys) > 0 {
		err = errors.Join(err, fmt.Errorf("keys of CAs are outside of the vault: %s", strings.Join(keys, ", ")))
	}
	return err
}

// printRequests prints how many requests failed, and when and why.
func (n *rotationTest) printRequests(to string, r prober.Report) {
	fmt.Fprintf(n.out, "%s: %s\n", to, r)
	for _, o := range r.Outages {
		fmt.Fprintf(n.out, "  %s: %d requests in %.1f s: %v\n", o.From.Format(time.TimeOnly), o.Failures, o.Length.Seconds(), o.Cause)
	}
}

// createCluster creates the cluster, with a vault if its CAs are there from the beginning.
// The identity of a vault is that which it has after the rotation.
func (n *rotationTest) createCluster(ctx context.Context, c *bed.Cluster) (err error) {
	identity := ""
	if n.pki != managedPKI {
		if identity, err = n.bed.PrepareVault(ctx, c.Namespace); err != nil {
			return err
		}
	}
	if n.pki == starVault {
		c.StarVault = identity
	}
	if err := n.create(ctx, *c, bootstrapv1.InPlaceMode(n.mode)); err != nil {
		return err
	}
	c.StarVault = identity
	return nil
}

// keysOutside returns the places outside of the vault that have the keys of the new CAs, and
// prints their number.
func (n *rotationTest) keysOutside(ctx context.Context, c bed.Cluster) ([]string, error) {
	if c.StarVault == "" {
		return nil, nil
	}
	keys, err := n.bed.CAKeys(ctx, c, bed.VaultName)
	fmt.Fprintf(n.out, " ca_keys_outside_vault=%d", len(keys))
	return keys, err
}

// replace requests other CAs and waits until all machines trust only them. It reports the
// requests of each stage.
func (n *rotationTest) replace(ctx context.Context, c bed.Cluster, report func(from time.Time)) error {
	plane := &controlplanev1.NovaControlPlane{}
	if err := n.change(ctx, &c, plane, c.Name+"-control-plane", func() {
		plane.Spec.Rollout.AuthoritiesAfter = ptr.To(metav1.Now())
		plane.Spec.Platform.PKI.StarVault.IdentityName = c.StarVault
	}); err != nil {
		return err
	}
	started, stage := time.Now(), ""
	began := started
	var left []disturbance
	var problem error
	err := n.await(ctx, "the rotation of "+c.Name+" does not end", func(ctx context.Context) bool {
		plane, err := n.bed.ControlPlane(ctx, c)
		if err != nil {
			return false
		}
		is := conditions.Get(plane, controlplanev1.AuthoritiesRotatedCondition)
		if is == nil {
			return false
		}
		if is.Reason != stage {
			if len(left) > 0 {
				problem = fmt.Errorf("%s ended before %s", stage, left[0].name)
				return true
			}
			if stage != "" {
				report(began)
			}
			stage, left, began = is.Reason, nil, time.Now()
			if stage == controlplanev1.AuthoritiesIssuingNewReason {
				n.issuing = began
			}
			fmt.Fprintf(n.out, "%s after %.0f s\n", stage, time.Since(started).Seconds())
			if is.Status == metav1.ConditionFalse {
				left = n.disturbances(c, stage)
			}
		}
		left = n.disturb(ctx, left, is.Message)
		return is.Status == metav1.ConditionTrue && n.bed.CheckCluster(ctx, c) == nil
	})
	return errors.Join(problem, err)
}

// checkEtcd queries the members, as the managers do, and fails without a quorum.
func (n *rotationTest) checkEtcd(ctx context.Context, c bed.Cluster) error {
	members, err := n.bed.Etcd(ctx, c)
	if err != nil {
		return err
	}
	health, err := members.Health(ctx)
	if err != nil {
		return err
	}
	if !health.Quorum() {
		return errors.New("etcd has no quorum")
	}
	return nil
}

// accepted reports whether an API server accepts a client certificate of the former CA,
// or has a server certificate that the former CA has signed.
func (n *rotationTest) accepted(ctx context.Context, c bed.Cluster, former *rest.Config) (bool, error) {
	pair, err := tls.X509KeyPair(former.CertData, former.KeyData)
	if err != nil {
		return false, fmt.Errorf("reading former kubeconfig: %w", err)
	}
	now, err := n.bed.TenantConfig(ctx, c.Key())
	if err != nil {
		return false, err
	}
	old := rest.CopyConfig(now)
	old.CertData, old.KeyData = former.CertData, former.KeyData
	if denied, err := client.New(old, client.Options{}); err == nil {
		err = denied.Get(ctx, client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{})
		if err == nil {
			return true, nil
		}
		fmt.Fprintf(n.out, "with a certificate of the former CA: %v\n", err)
	}
	machines, _, err := n.bed.Machines(ctx, c)
	if err != nil {
		return false, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(former.CAData)
	for i := range machines {
		for _, port := range []int{6443, 2379, 10250} {
			conn, err := n.bed.Dial(ctx, "tcp", net.JoinHostPort(bed.InternalIP(&machines[i]), strconv.Itoa(port)))
			if err != nil {
				return false, fmt.Errorf("connecting to port %d of %s: %w", port, machines[i].Name, err)
			}
			server := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: machines[i].Name, Certificates: []tls.Certificate{pair}})
			err = server.HandshakeContext(ctx)
			_ = server.Close()
			if err == nil {
				fmt.Fprintf(n.out, "port %d of %s has a certificate of the former CA\n", port, machines[i].Name)
				return true, nil
			}
		}
	}
	return false, nil
}

// probeName is the name of the pods that read from the API server.
const probeName = "api-probe"

// deployPods runs a pod on each worker that reads from the API server all the time, with
// its service account and the CA that its node gives it. The result counts failures.
func (n *rotationTest) deployPods(ctx context.Context, c bed.Cluster) (func(context.Context) (int, error), error) {
	tenant, err := n.bed.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	dns := &appsv1.Deployment{}
	if err := tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, dns); err != nil {
		return nil, fmt.Errorf("finding an image: %w", err)
	}
	labels := map[string]string{"app": probeName}
	probes := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: probeName}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: probeName, Image: dns.Spec.Template.Spec.Containers[0].Image, ImagePullPolicy: corev1.PullNever, Args: []string{"-dns.port", "1053"},
				VolumeMounts: []corev1.VolumeMount{{Name: "programs", MountPath: "/programs", ReadOnly: true}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/programs/kubectl", "get", "--raw", "/readyz"}}},
					PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 1,
				},
			}},
			Volumes: []corev1.Volume{{Name: "programs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/usr/bin"}}}},
		}},
	}}
	if err := tenant.Create(ctx, probes); err != nil {
		return nil, fmt.Errorf("deploying pods: %w", err)
	}
	ready := func(ctx context.Context) bool {
		tenant, err := n.bed.TenantClient(ctx, c.Key())
		if err != nil || tenant.Get(ctx, client.ObjectKeyFromObject(probes), probes) != nil {
			return false
		}
		return probes.Status.DesiredNumberScheduled == int32(n.workers) && probes.Status.NumberReady == int32(n.workers)
	}
	if err := n.await(ctx, "pods that read from the API server are not ready", ready); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (int, error) {
		if err := n.await(ctx, "pods that read from the API server are not ready after the rotation", ready); err != nil {
			return 0, err
		}
		return n.failures(ctx, c)
	}, nil
}

// checkPods fails if a pod has the CA as a file, and could have read it before the new CA
// was there.
func (n *rotationTest) checkPods(ctx context.Context, c bed.Cluster) error {
	tenant, err := n.bed.TenantClient(ctx, c.Key())
	if err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := tenant.List(ctx, pods); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		reads := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") })
		if reads && p.Status.StartTime != nil && p.Status.StartTime.Time.Before(n.issuing) {
			errs = append(errs, fmt.Errorf("pod %s/%s is older than the new CAs", p.Namespace, p.Name))
		}
	}
	return errors.Join(errs...)
}

// failures counts how often a pod was not ready because of a certificate. A pod that
// begins or ends is not ready for other reasons.
func (n *rotationTest) failures(ctx context.Context, c bed.Cluster) (int, error) {
	tenant, err := n.bed.TenantClient(ctx, c.Key())
	if err != nil {
		return 0, err
	}
	events := &corev1.EventList{}
	if err := tenant.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return 0, fmt.Errorf("listing events: %w", err)
	}
	failed := 0
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason == "Unhealthy" && (strings.Contains(e.Message, "x509") || strings.Contains(e.Message, "certificate") || strings.Contains(e.Message, "Unauthorized")) {
			failed += int(max(e.Count, 1))
			fmt.Fprintf(n.out, "%s: %s\n", e.InvolvedObject.Name, e.Message)
		}
	}
	return failed, nil
}
