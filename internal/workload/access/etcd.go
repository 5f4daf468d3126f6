package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// etcdAnswer is the last response of etcd.
type etcdAnswer struct {
	fingerprint string
	at          time.Time
	health      *etcd.Health
	problem     string
}

// target is a node whose member of etcd can be queried.
type target struct {
	name string
	// forward is true if the API server can forward to its pod.
	forward bool
	// address is the node's own address; empty if unknown.
	address string
}

// targets returns the control plane nodes and how to connect to them. A kubelet
// that is not ready and an unreachable API server forward nothing, but the
// member may still work. So may the member of a machine that was deleted while
// it joined: it never becomes a node, but its vote counts.
func targets(machines []*clusterv1.Machine, nodes []facts.Node, answers bool) []target {
	var found []target
	for _, node := range nodes {
		if node.ControlPlane {
			found = append(found, target{name: node.Name, forward: answers && node.Ready, address: node.Address})
		}
	}
	for _, machine := range machines {
		if address := machineAddress(machine); answers && deletingWithoutNode(machine, nodes) && address != "" {
			found = append(found, target{name: machine.Name, address: address})
		}
	}
	if answers || len(found) > 0 {
		return found
	}
	// No nodes were observed yet, as after a start of this process.
	for _, machine := range machines {
		if machine.Status.NodeRef.IsDefined() {
			found = append(found, target{name: machine.Status.NodeRef.Name, address: machineAddress(machine)})
		}
	}
	return found
}

func machineAddress(machine *clusterv1.Machine) string {
	for _, kind := range []clusterv1.MachineAddressType{clusterv1.MachineInternalIP, clusterv1.MachineExternalIP} {
		for _, a := range machine.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}
	return ""
}

// apiServers returns the API servers' own addresses, by machine.
func apiServers(machines []*clusterv1.Machine, nodes []facts.Node) map[string]string {
	found := map[string]string{}
	for _, machine := range machines {
		node := facts.NodeOf(machine, nodes)
		switch {
		case node != nil && node.Address != "" && node.APIServerPort != "":
			found[machine.Name] = net.JoinHostPort(node.Address, node.APIServerPort)
		case machine.Status.NodeRef.IsDefined() && machineAddress(machine) != "":
			found[machine.Name] = net.JoinHostPort(machineAddress(machine), "6443")
		}
	}
	return found
}

// queryEtcd queries etcd, unless the last response is valid: fresh is how long
// the response of a healthy etcd is valid if nothing changed. It does not wait
// for a slow etcd: then it returns the last response for a limited time, and an
// event follows when the new response arrives.
func (t *Clusters) queryEtcd(ctx context.Context, cluster client.ObjectKey, fingerprint string, of []target, fresh, timeout time.Duration) etcdAnswer {
	var last etcdAnswer
	var done chan struct{}
	names := targetNames(of)
	t.withState(cluster, func(m *clusterState) {
		last = m.etcd
		counts := timelimits.ShortPoll
		if healthy(last.health, names) {
			counts = fresh
		}
		if last.fingerprint == fingerprint && time.Since(last.at) < counts {
			return
		}
		if done = m.querying; done == nil {
			done = make(chan struct{})
			m.querying = done
			t.start(func(ctx context.Context) { t.answer(ctx, cluster, fingerprint, of, done, timeout) })
		}
	})
	if done == nil {
		return last
	}
	select {
	case <-done:
		t.withState(cluster, func(m *clusterState) { last = m.etcd })
		return last
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	if last.health == nil || time.Since(last.at) > timelimits.StaleAfter {
		return etcdAnswer{problem: "etcd did not answer in time"}
	}
	return last
}

// answer queries etcd and stores the response.
func (t *Clusters) answer(ctx context.Context, cluster client.ObjectKey, fingerprint string, of []target,
	done chan struct{}, timeout time.Duration,
) {
	begun := time.Now()
	answer := t.observeEtcd(ctx, cluster, of)
	answer.fingerprint = fingerprint
	t.withState(cluster, func(m *clusterState) { m.etcd, m.querying = answer, nil })
	close(done)
	if time.Since(begun) >= timeout {
		// The caller has continued without the response.
		t.probes.Changed(cluster)
	}
}

func (t *Clusters) observeEtcd(ctx context.Context, cluster client.ObjectKey, of []target) etcdAnswer {
	ctx, cancel := context.WithTimeout(ctx, timelimits.ConnectTimeout)
	defer cancel()
	answer := etcdAnswer{}
	dial, config, err := t.reachEtcd(ctx, cluster, of)
	if err == nil {
		answer.health, err = etcd.Observe(ctx, dial, config, targetNames(of))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Querying etcd failed", "Cluster", cluster.String(), "error", err.Error())
		answer.problem = "No member of etcd answers"
	}
	answer.at = time.Now()
	etcdObservations.WithLabelValues(result(err)).Inc()
	return answer
}

// invalidateEtcd deletes the response of etcd, because etcd has to be queried again.
func (t *Clusters) invalidateEtcd(cluster client.ObjectKey) {
	t.withState(cluster, func(m *clusterState) { m.etcd = etcdAnswer{} })
}

// RemoveMember implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) RemoveMember(ctx context.Context, cluster client.ObjectKey, nodes []facts.Node, id uint64) error {
	of := reachableTargets(nodes)
	dial, config, err := t.reachEtcd(ctx, cluster, of)
	if err != nil {
		return err
	}
	// The last response is outdated, even if the response of this request is
	// lost.
	defer t.invalidateEtcd(cluster)
	return etcd.RemoveMember(ctx, dial, config, targetNames(of), id)
}

// MoveLeader implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) MoveLeader(ctx context.Context, cluster client.ObjectKey, node string, to uint64) error {
	of := []target{{name: node, forward: true}}
	t.withState(cluster, func(m *clusterState) {
		for _, known := range m.nodes {
			if known.Name == node {
				of[0].address = known.Address
			}
		}
	})
	dial, config, err := t.reachEtcd(ctx, cluster, of)
	if err != nil {
		return err
	}
	defer t.invalidateEtcd(cluster)
	return etcd.MoveLeader(ctx, dial, config, node, to)
}

// reachableTargets returns the nodes whose members can receive requests: nodes that are
// ready first.
func reachableTargets(nodes []facts.Node) []target {
	of := targets(nil, nodes, true)
	slices.SortStableFunc(of, func(a, b target) int { return rank(b.forward) - rank(a.forward) })
	return of
}

func rank(is bool) int {
	if is {
		return 1
	}
	return 0
}

// reachEtcd returns the connection to a workload cluster's etcd: through the
// API server, or else at the nodes' own addresses.
func (t *Clusters) reachEtcd(ctx context.Context, cluster client.ObjectKey, of []target) (etcd.Dial, *tls.Config, error) {
	var forward etcd.Dial
	if slices.ContainsFunc(of, func(one target) bool { return one.forward }) {
		// The configuration of the health probe is as new as the kubeconfig.
		config := t.probes.Of(cluster).RestConfig()
		if config == nil {
			return nil, nil, errors.New("reaching API server: no kubeconfig was read yet")
		}
		var err error
		if forward, err = etcd.PortForward(config); err != nil {
			return nil, nil, err
		}
	}
	config, err := pki.EtcdTLS(ctx, t.authority, cluster, t.user.Name)
	return dialer(t.forwards, forward, of), config, err
}

// dialer dials the members on nodes.
func dialer(forwards forwardLimiter, forward etcd.Dial, of []target) etcd.Dial {
	return func(ctx context.Context, node string) (net.Conn, error) {
		at := slices.IndexFunc(of, func(one target) bool { return one.name == node })
		if at < 0 {
			return nil, fmt.Errorf("node %s is not known", node)
		}
		var errs []error
		if of[at].forward && forward != nil {
			conn, err := forwards.dial(ctx, forward, node)
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		if of[at].address == "" {
			return nil, errors.Join(append(errs, fmt.Errorf("node %s has no address", node))...)
		}
		conn, err := (&net.Dialer{Timeout: timelimits.DirectTimeout, Control: endpoints.Control}).DialContext(ctx, "tcp", net.JoinHostPort(of[at].address, etcd.Port))
		if err != nil {
			return nil, errors.Join(append(errs, err)...)
		}
		return conn, nil
	}
}

// dialForward limits the time of the connection through the API server. A call
// has CallTimeout in all: the wait for a slot before this connection and the
// direct connection after it have DirectTimeout each. A connection that is opened
// later is closed.
func dialForward(ctx context.Context, forward etcd.Dial, node string) (net.Conn, error) {
	type dialled struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		conn, err := forward(ctx, node)
		done <- dialled{conn: conn, err: err}
	}()
	select {
	case d := <-done:
		return d.conn, d.err
	case <-time.After(timelimits.CallTimeout - 2*timelimits.DirectTimeout):
	case <-ctx.Done():
	}
	go func() {
		if d := <-done; d.err == nil {
			_ = d.conn.Close()
		}
	}()
	return nil, fmt.Errorf("forwarding to etcd on %s takes too long", node)
}

func targetNames(of []target) []string {
	names := make([]string, 0, len(of))
	for _, one := range of {
		names = append(names, one.name)
	}
	return names
}

// healthy reports whether etcd has no problems.
func healthy(health *etcd.Health, names []string) bool {
	return health != nil && len(health.Problems(names)) == 0
}

// etcdHealthy reports whether etcd has no problems.
func etcdHealthy(health *etcd.Health, nodes []facts.Node) bool {
	return healthy(health, facts.ControlPlaneNodes(nodes))
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// expiry is when an API server's certificate expires.
type expiry struct {
	expires, queried time.Time
}

// expiries reads the certificates of the API servers in the background if that
// is due.
func (t *Clusters) expiries(cluster client.ObjectKey, nodes []facts.Node) {
	var due []facts.Node
	t.withState(cluster, func(m *clusterState) {
		if m.expiring {
			return
		}
		for _, node := range nodes {
			if !node.ControlPlane || !node.Ready || node.Components.APIServer.State != facts.Running {
				continue
			}
			known := m.expiries[node.Name]
			fresh := timelimits.Fresh
			if !known.expires.IsZero() {
				fresh = 6 * timelimits.Hourly
			}
			if time.Since(known.queried) > fresh {
				due = append(due, node)
			}
		}
		m.expiring = len(due) > 0
		maps.DeleteFunc(m.expiries, func(name string, _ expiry) bool {
			return !slices.ContainsFunc(nodes, func(n facts.Node) bool { return n.Name == name })
		})
	})
	if len(due) > 0 {
		t.start(func(ctx context.Context) { t.readExpiries(ctx, cluster, due) })
	}
}

func (t *Clusters) readExpiries(ctx context.Context, cluster client.ObjectKey, nodes []facts.Node) {
	found := false
	for _, node := range nodes {
		answer := expiry{queried: time.Now()}
		if at, err := t.readExpiry(ctx, cluster, node); err == nil {
			answer.expires, found = at, true
		}
		t.withState(cluster, func(m *clusterState) {
			if answer.expires.IsZero() {
				answer.expires = m.expiries[node.Name].expires
			}
			m.expiries[node.Name] = answer
		})
	}
	t.withState(cluster, func(m *clusterState) { m.expiring = false })
	if found {
		t.probes.Changed(cluster)
	}
}

// readExpiry reads the serving certificate of the API server on one node.
// kubeadm issues all of a node's certificates at once, so its expiry holds for
// all.
func (t *Clusters) readExpiry(ctx context.Context, cluster client.ObjectKey, node facts.Node) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timelimits.CallTimeout)
	defer cancel()
	config := t.probes.Of(cluster).RestConfig()
	if config == nil {
		return time.Time{}, errors.New("no kubeconfig was read yet")
	}
	forward, err := etcd.ForwardTo(config, facts.APIServerName, node.APIServerPort)
	if err != nil {
		return time.Time{}, err
	}
	conn, err := t.forwards.dial(ctx, forward, node.Name)
	if err != nil {
		conn, err = (&net.Dialer{Timeout: timelimits.DirectTimeout, Control: endpoints.Control}).DialContext(ctx, "tcp", net.JoinHostPort(node.Address, node.APIServerPort))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reaching the API server on %s: %w", node.Name, err)
	}
	ca, err := t.authority.ClusterCA(ctx, cluster)
	if err != nil {
		return time.Time{}, errors.Join(err, conn.Close())
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	// The API server's certificate contains this service name in every cluster.
	secured := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "kubernetes"})
	if err := secured.HandshakeContext(ctx); err != nil {
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil {
			// An expired certificate is a result too.
			return invalid.Cert.NotAfter, conn.Close()
		}
		return time.Time{}, errors.Join(err, conn.Close())
	}
	defer func() { _ = secured.Close() }()
	return secured.ConnectionState().PeerCertificates[0].NotAfter, nil
}
