package follow

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

func TestRestarts(t *testing.T) {
	t.Parallel()
	all := []string{kubelet, etcd, "kube-apiserver", controllerManager, "kube-scheduler", "kube-vip"}
	trust := func(list ...certificates.Authority) map[certificates.Authority]bool {
		changed := map[certificates.Authority]bool{}
		for _, a := range list {
			changed[a] = true
		}
		return changed
	}
	for name, tc := range map[string]struct {
		reason string
		is     difference
		left   []string
		want   []string
	}{
		"None":           {reason: "nothing has changed"},
		"AllTrust":       {reason: "all programs trust another CA", is: difference{trust: trust(certificates.Authorities()...)}, want: all},
		"Etcd":           {reason: "etcd and its client read its CA", is: difference{trust: trust(certificates.Etcd)}, want: []string{etcd, "kube-apiserver"}},
		"FrontProxy":     {reason: "the API server reads this CA again", is: difference{trust: trust(certificates.FrontProxy)}},
		"Kubernetes":     {reason: "etcd does not trust this CA", is: difference{trust: trust(certificates.Kubernetes)}, want: slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == etcd })},
		"EtcdServer":     {reason: "etcd reads its certificates for each connection", is: difference{certificates: []string{"etcd-server", "etcd-peer", "etcd-healthcheck-client"}}},
		"EtcdClient":     {reason: "the API server reads it once", is: difference{certificates: []string{"apiserver-etcd-client"}}, want: []string{"kube-apiserver"}},
		"APIServer":      {reason: "the API server reads it again", is: difference{certificates: []string{"apiserver", "front-proxy-client"}}},
		"KubeletClient":  {reason: "the kubelet reads it once, and pods have both CAs", is: difference{certificates: []string{certificates.KubeletClient}}, want: []string{kubelet, pods}},
		"KubeletServer":  {reason: "the kubelet requests another one", is: difference{certificates: []string{"kubelet-server"}}, want: []string{kubelet}},
		"Kubeconfigs":    {reason: "clients read kubeconfigs once", is: difference{certificates: []string{"admin", "controller-manager", "scheduler"}}, want: []string{controllerManager, "kube-scheduler", "kube-vip"}},
		"Signs":          {reason: "it must not sign any more", is: difference{signs: true}, want: []string{controllerManager}},
		"Interrupted":    {reason: "an interrupted change has left two", left: []string{"kube-vip", "kube-scheduler"}, want: []string{"kube-scheduler", "kube-vip"}},
		"Abort":          {reason: "other settings follow an interrupted change", is: difference{trust: trust(certificates.Etcd)}, left: []string{"kube-vip"}, want: []string{etcd, "kube-apiserver", "kube-vip"}},
		"UnknownProgram": {reason: "the record is damaged", left: []string{"x"}},
	} {
		if got := tc.is.restarts(tc.left); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s: %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

// cas are the former and the next CAs of a cluster.
type cas struct {
	former, next map[certificates.Authority]*agenttest.CA
	// cross are the certificates of the next CAs that the former ones have signed.
	cross map[certificates.Authority]string
}

// rotated is a control plane node of a cluster whose former CAs are on the node, with their
// keys.
type rotated struct {
	*agenttest.Machine
	*apiServer
	cas
}

const (
	conf       = "etc/kubernetes/"
	clientFile = "var/lib/kubelet/pki/kubelet-client-current.pem"
	serverFile = "var/lib/kubelet/pki/kubelet-server-current.pem"
	manager    = "etc/kubernetes/manifests/kube-controller-manager.yaml"
)

func newCAs(t *testing.T) cas {
	t.Helper()
	c := cas{former: map[certificates.Authority]*agenttest.CA{}, next: map[certificates.Authority]*agenttest.CA{}, cross: map[certificates.Authority]string{}}
	for _, a := range certificates.Authorities() {
		// kubeadm gives all CAs of Kubernetes the same name.
		c.former[a], c.next[a] = agenttest.NewCA(t, string(a)), agenttest.NewCA(t, string(a))
		c.cross[a] = c.next[a].Cross(t, c.former[a])
	}
	return c
}

// settings of the stages. The first CA signs.
func (c cas) settings(controlPlane bool, id string, bundle func(a certificates.Authority) string) *nodeconfig.Settings {
	s := booted()
	s.Authorities = &nodeconfig.Authorities{ID: id, Kubernetes: bundle(certificates.Kubernetes)}
	if controlPlane {
		s.Components, s.ComponentsVersion = "1", "v1.36.3"
		s.Authorities.Etcd, s.Authorities.FrontProxy = bundle(certificates.Etcd), bundle(certificates.FrontProxy)
		s.Certificates = &nodeconfig.Certificates{Endpoint: "https://10.0.0.1:6443", Port: 6443, ValiditySeconds: 7200}
	}
	return s
}

func (c cas) both(a certificates.Authority) string { return c.former[a].PEM() + c.next[a].PEM() }

func (c cas) swapped(a certificates.Authority) string {
	return c.next[a].PEM() + c.former[a].PEM() + c.cross[a]
}

func (c cas) last(a certificates.Authority) string { return c.next[a].PEM() }

// signers are the CAs by the names of the signers of requests.
func signers(of map[certificates.Authority]*agenttest.CA) map[string]*agenttest.CA {
	all := map[string]*agenttest.CA{"kubernetes.io/kube-apiserver-client-kubelet": of[certificates.Kubernetes]}
	for a, ca := range of {
		all[a.Signer()] = ca
	}
	return all
}

func startRotation(t *testing.T, c cas, controlPlane bool) *rotated {
	t.Helper()
	n, server := start(t)
	r := &rotated{Machine: n, apiServer: server, cas: c}
	server.SignedBy(t, c.former[certificates.Kubernetes], "")
	server.requests = agenttest.NewRequests(t, signers(c.former))
	server.pods = []corev1.Pod{runningPod("web"), runningPod("bare"), runningPod("offline"), runningPod("done"), runningPod("fresh")}
	server.pods[1].OwnerReferences = nil
	server.pods[2].Spec.Volumes = nil
	server.pods[3].Status.Phase = corev1.PodSucceeded
	server.pods[4].Status.StartTime = &metav1.Time{Time: time.Now().Add(time.Hour)}
	n.Put(conf+"kubelet.conf", server.Kubeconfig())
	n.Put(keysDir+"ca.crt", c.former[certificates.Kubernetes].PEM())
	n.Put("var/lib/kubelet/pki/kubelet-client-1.pem", c.former[certificates.Kubernetes].SignForKubelet(t, "blue-1"))
	n.Put("var/lib/kubelet/pki/kubelet-server-1.pem", c.former[certificates.Kubernetes].SignForKubelet(t, "blue-1"))
	for _, name := range []string{"client", "server"} {
		if err := n.Link("/var/lib/kubelet/pki/kubelet-"+name+"-current.pem", "kubelet-"+name+"-1.pem"); err != nil {
			t.Fatal(err)
		}
	}
	if !controlPlane {
		if err := n.Remove(manifestsDir); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for a, ca := range c.former {
		n.Put(keysDir+a.File(), ca.PEM())
		n.Put(keysDir+strings.TrimSuffix(a.File(), "crt")+"key", "key")
	}
	n.Put(keysDir+"sa.key", "key")
	for _, name := range []string{"admin", "super-admin", "controller-manager", "scheduler"} {
		n.Put(conf+name+".conf", server.Kubeconfig())
	}
	n.Put(conf+"webhook.conf", server.Kubeconfig())
	for _, name := range append(slices.Clone(components), etcd, "kube-vip") {
		n.Put("etc/kubernetes/manifests/"+name+".yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: "+name+`
spec:
  priority: 1
  containers:
  - command: [program, --a=b, --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt, --cluster-signing-key-file=/etc/kubernetes/pki/ca.key]
  - image: sidecar
`)
	}
	// The kubelet runs the manifests.
	server.annotations = func(component string) map[string]any {
		var p struct {
			Metadata struct{ Annotations map[string]any }
		}
		if err := yaml.Unmarshal([]byte(n.Get("etc/kubernetes/manifests/"+component+".yaml")), &p); err != nil {
			t.Error(err)
		}
		return p.Metadata.Annotations
	}
	return r
}

// runningPod is a pod that has the CAs as a file, and runs for an hour.
func runningPod(name string) corev1.Pod {
	volume := corev1.Volume{Name: "kube-api-access"}
	volume.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
	}}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{Volumes: []corev1.Volume{volume}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: time.Now().Add(-time.Hour)}},
	}
}

// apply applies settings to a node whose components have not changed.
func (r *rotated) apply(t *testing.T, s *nodeconfig.Settings) {
	t.Helper()
	r.want(s)
	if err := applyRenewal(t, r.Machine); err != nil {
		t.Fatalf("%v\n%s", err, r.Log)
	}
}

// restarted returns the programs that were restarted since the last call.
func (r *rotated) restarted(t *testing.T) []string {
	t.Helper()
	var names []string
	if strings.Contains(r.Get("calls"), "systemctl restart kubelet\n") {
		names = append(names, kubelet)
	}
	r.Put("calls", "")
	for _, p := range restartable {
		file := "etc/kubernetes/manifests/" + p.name + ".yaml"
		if at := r.annotationOf(p.name); at != nil && at != r.Get("seen-"+p.name) {
			names = append(names, p.name)
			r.Put("seen-"+p.name, at.(string))
		}
		if r.There(file) && !strings.Contains(r.Get(file), "priority: 1") {
			t.Errorf("%s has another manifest:\n%s", p.name, r.Get(file))
		}
	}
	return names
}

func (r *rotated) annotationOf(component string) any {
	return r.annotations(component)[restartedAnnotation]
}

// check requires that the node has CAs, and that one of them has signed its certificates.
func (r *rotated) check(t *testing.T, id string, bundle func(certificates.Authority) string, signing map[certificates.Authority]*agenttest.CA) {
	t.Helper()
	controlPlane := r.There(conf + "admin.conf")
	if !strings.HasPrefix(r.condition(), "True Applied") || r.labels[nodeconfig.AuthoritiesLabel] != id {
		t.Errorf("%s, labels %v", r.condition(), r.labels)
	}
	if r.There(strings.TrimPrefix(changingFile, "/")) {
		t.Error("the change has not ended")
	}
	if ca := signing[certificates.Kubernetes]; !ca.Has(t, r.Get(clientFile)) || r.There(serverFile) && !ca.Has(t, r.Get(serverFile)) {
		t.Error("the kubelet has a certificate of another CA")
	}
	if link, err := os.Readlink(r.Dir(clientFile)); err != nil || strings.Contains(link, "/") {
		t.Errorf("the kubelet cannot renew its certificate: %s, %v", link, err)
	}
	confs := []string{"kubelet.conf"}
	if controlPlane {
		confs = append(confs, "admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf")
	}
	for _, name := range confs {
		config, err := clientcmd.Load([]byte(r.Get(conf + name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range config.Clusters {
			if string(c.CertificateAuthorityData) != bundle(certificates.Kubernetes) {
				t.Errorf("%s has another CA", name)
			}
		}
	}
	for _, a := range certificates.Authorities() {
		if (controlPlane || a == certificates.Kubernetes) && r.Get(keysDir+a.File()) != bundle(a) {
			t.Errorf("%s has other certificates", a.File())
		}
	}
	if controlPlane {
		r.checkPlane(t, signing)
	}
}

// checkPlane requires that a control plane node has certificates of these CAs, and no key
// of a CA.
func (r *rotated) checkPlane(t *testing.T, signing map[certificates.Authority]*agenttest.CA) {
	t.Helper()
	for _, c := range certificates.Of(false, false) {
		content := r.Get(keysDir + c.File + ".crt")
		if c.Kubeconfig != "" {
			config, err := clientcmd.Load([]byte(r.Get(conf + c.Kubeconfig)))
			if err != nil {
				t.Fatal(err)
			}
			content = string(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData)
		}
		if !signing[c.Authority].Has(t, content) {
			t.Errorf("the certificate %s is of another CA", c.Name)
		}
	}
	for _, name := range []string{"ca.key", "etcd/ca.key", "front-proxy-ca.key"} {
		if r.There(keysDir + name) {
			t.Errorf("the key %s stays", name)
		}
	}
	if !r.There(keysDir + "sa.key") {
		t.Error("the key of service accounts was removed")
	}
	if got := r.Get(manager); strings.Contains(got, "pki/ca.") || !strings.Contains(got, "- --cluster-signing-key-file=\n") || !strings.Contains(got, "--a=b") || strings.Contains(got, "command: []") {
		t.Errorf("kube-controller-manager signs:\n%s", got)
	}
}

// A control plane node applies all stages, and restarts in each one the programs that
// need it.
func TestAuthoritiesRotate(t *testing.T) {
	c := newCAs(t)
	r := startRotation(t, c, true)
	webhook := r.Get(conf + "webhook.conf")

	r.apply(t, c.settings(true, "1", c.both))
	r.check(t, "1", c.both, c.former)
	every := []string{kubelet, etcd, "kube-apiserver", controllerManager, "kube-scheduler", "kube-vip"}
	if got := r.restarted(t); !slices.Equal(got, every) {
		t.Errorf("trusting both restarts %v", got)
	}
	if len(r.evicted) > 0 {
		t.Errorf("pods were evicted before all nodes trust both CAs: %v", r.evicted)
	}
	if client := c.former[certificates.Kubernetes]; !r.There(serverFile) || !client.Has(t, r.Get(serverFile)) {
		t.Error("the serving certificate of the kubelet was replaced")
	}

	// The managers sign with the other CA before they store the settings.
	r.requests.CAs = signers(c.next)
	r.apply(t, c.settings(true, "2", c.swapped))
	r.check(t, "2", c.swapped, c.next)
	if got := r.restarted(t); !slices.Equal(got, slices.DeleteFunc(slices.Clone(every), func(name string) bool { return name == etcd })) {
		t.Errorf("other certificates restart %v", got)
	}
	if r.There(serverFile) {
		t.Error("the kubelet keeps its serving certificate")
	}
	if !slices.Equal(r.evicted, []string{"default/web"}) || !strings.Contains(r.Log.String(), "Pods without a controller keep the CAs that they have read: default/bare\n") {
		t.Errorf("evicted %v\n%s", r.evicted, r.Log)
	}
	if got := r.Get(keysDir + "apiserver.crt"); !strings.HasSuffix(got, c.cross[certificates.Kubernetes]) {
		t.Error("clients that trust the former CA do not accept the API server")
	}
	if got := r.Get(keysDir + "etcd/server.crt"); strings.Count(got, "BEGIN") != 1 {
		t.Error("etcd has a chain")
	}

	// The API server has its certificate, and the agent trusts the CA that has signed it.
	r.SignedBy(t, c.next[certificates.Kubernetes], "")
	count := r.requests.Count()
	r.apply(t, c.settings(true, "3", c.last))
	r.check(t, "3", c.last, c.next)
	if got := r.restarted(t); !slices.Equal(got, every) {
		t.Errorf("trusting one restarts %v", got)
	}
	if r.requests.Count() != count || len(r.evicted) > 1 {
		t.Error("certificates were requested, or pods evicted, without need")
	}
	if got := r.Get(keysDir + "apiserver.crt"); strings.Count(got, "BEGIN") != 1 {
		t.Error("clients that trust only the former CA accept the API server")
	}
	if r.Get(conf+"webhook.conf") != webhook {
		t.Error("a kubeconfig for something else was changed")
	}
	// Other settings with the same CAs restart nothing.
	other := c.settings(true, "3", c.last)
	other.Machine.Files[0].Text = "x"
	r.apply(t, other)
	if got := r.restarted(t); len(got) > 0 {
		t.Errorf("the same CAs restart %v", got)
	}
}

// A rotation is aborted by the settings of an earlier stage.
func TestRotationIsAborted(t *testing.T) {
	c := newCAs(t)
	r := startRotation(t, c, true)
	r.apply(t, c.settings(true, "1", c.both))
	r.requests.CAs = signers(c.next)
	r.apply(t, c.settings(true, "2", c.swapped))
	r.requests.CAs = signers(c.former)
	r.apply(t, c.settings(true, "1", c.both))
	r.check(t, "1", c.both, c.former)
	if got := r.Get(keysDir + "apiserver.crt"); strings.Count(got, "BEGIN") != 1 {
		t.Error("the API server sends the certificate of another CA")
	}
}

// The API server of another node has its certificate of the next CA already. A node that was
// off until then trusts it by the certificate that the former CA has signed, and skips a
// stage.
func TestNodeSkipsAStage(t *testing.T) {
	for name, controlPlane := range map[string]bool{"ControlPlane": true, "Worker": false} {
		t.Run(name, func(t *testing.T) {
			c := newCAs(t)
			r := startRotation(t, c, controlPlane)
			r.SignedBy(t, c.next[certificates.Kubernetes], c.cross[certificates.Kubernetes])
			r.requests.CAs = signers(c.next)
			// Meanwhile another API server gets the requests, which has no such certificate.
			r.Config.SetKeepAlivesEnabled(false)
			annotations := r.annotations
			r.annotations = func(component string) map[string]any {
				r.SignedBy(t, c.next[certificates.Kubernetes], "")
				return annotations(component)
			}
			r.apply(t, c.settings(controlPlane, "2", c.swapped))
			r.check(t, "2", c.swapped, c.next)
			if got := r.restarted(t); controlPlane != slices.Contains(got, etcd) || !slices.Contains(got, kubelet) || strings.Contains(r.Log.String(), etcd) != controlPlane {
				t.Errorf("restarted %v\n%s", got, r.Log)
			}
		})
	}
}

// Whichever command is the last one before a reset, the next start completes the change, and
// restarts all programs.
func TestRotationContinuesAfterAReset(t *testing.T) {
	c := newCAs(t)
	var r *rotated
	begin := func(t *testing.T) (*agenttest.Machine, *apiServer) {
		t.Helper()
		r = startRotation(t, c, true)
		r.requests.CAs = signers(c.next)
		r.Put("count", "0")
		return r.Machine, r.apiServer
	}
	settings := func() *nodeconfig.Settings { return c.settings(true, "2", c.swapped) }
	const atLeast = 20
	failAtEach(t, atLeast, begin, settings, applyRenewal, func(t *testing.T, _ *agenttest.Machine, _ *apiServer, _ string) {
		t.Helper()
		r.check(t, "2", c.swapped, c.next)
		for _, p := range restartable[1 : len(restartable)-1] {
			if r.annotationOf(p.name) == nil {
				t.Errorf("%s was not restarted", p.name)
			}
		}
		if !slices.Equal(r.evicted, []string{"default/web"}) {
			t.Errorf("evicted %v", r.evicted)
		}
	})
	for _, broken := range []string{etcd, "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-vip"} {
		t.Run(broken, func(t *testing.T) {
			n, server := begin(t)
			server.want(settings())
			server.broken = broken
			if err := applyRenewal(t, n); err == nil || !strings.Contains(server.condition(), "changing CAs: restarting "+broken+": pod "+broken+"-blue-1 is not ready") {
				t.Fatalf("%v, %s", err, server.condition())
			}
			if r.labels[nodeconfig.AuthoritiesLabel] != nil || r.annotationOf("kube-vip") != nil && broken != "kube-vip" {
				t.Errorf("the change continued, labels %v", r.labels)
			}
			r.Put("calls", "")
			server.broken = ""
			if err := applyRenewal(t, n); err != nil {
				t.Fatalf("%v\n%s", err, n.Log)
			}
			r.check(t, "2", c.swapped, c.next)
			if strings.Contains(r.Get("calls"), "systemctl restart kubelet\n") {
				t.Error("a program that was ready was restarted again")
			}
		})
	}
}

// A node does not have the label, for which the next stage waits, before its pods are
// restarted.
func TestPodsAreAwaited(t *testing.T) {
	c := newCAs(t)
	r := startRotation(t, c, false)
	r.requests.CAs, r.budget = signers(c.next), true
	r.want(c.settings(false, "2", c.swapped))
	if err := applyRenewal(t, r.Machine); err == nil || !strings.Contains(r.condition(), "changing CAs: restarting pods: evicting pod default/web: ") {
		t.Fatalf("%v, %s", err, r.condition())
	}
	if r.labels[nodeconfig.AuthoritiesLabel] != nil {
		t.Errorf("labels %v", r.labels)
	}
	r.Put("calls", "")
	r.budget = false
	r.apply(t, c.settings(false, "2", c.swapped))
	r.check(t, "2", c.swapped, c.next)
	if !slices.Equal(r.evicted, []string{"default/web"}) || strings.Contains(r.Get("calls"), "restart kubelet") {
		t.Errorf("evicted %v, %s", r.evicted, r.Get("calls"))
	}
}

// Nothing is changed if the certificates are not signed, or by another CA than the first one.
func TestAuthoritiesFail(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*rotated)
		broken func(*nodeconfig.Settings)
		want   string
	}{
		"Malformed":    {broken: func(s *nodeconfig.Settings) { s.Authorities.Kubernetes = "x" }, want: "reading the certificates of a CA"},
		"Missing":      {broken: func(s *nodeconfig.Settings) { s.Authorities.Etcd = "" }, want: "etcd: reading the certificates of a CA"},
		"Denied":       {change: func(r *rotated) { r.requests.Denied = certificates.KubeletClient }, want: "was refused: not this one"},
		"FormerSigner": {change: func(r *rotated) { r.requests.CAs = signers(r.former) }, want: "checking the certificate kubelet-client that was signed: the CA of the cluster did not sign it"},
		"NotSigned":    {change: func(r *rotated) { r.requests.Ignored = true }, want: "1 of 1 are not signed in time"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCAs(t)
			r := startRotation(t, c, true)
			r.requests.CAs = signers(c.next)
			s := c.settings(true, "2", c.swapped)
			if tc.change != nil {
				tc.change(r)
			}
			if tc.broken != nil {
				tc.broken(s)
			}
			r.want(s)
			if err := applyRenewal(t, r.Machine); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if !r.There(keysDir+"ca.key") || r.Get(keysDir+"ca.crt") != c.former[certificates.Kubernetes].PEM() || len(r.restarted(t)) > 0 || r.labels[nodeconfig.AuthoritiesLabel] != nil {
				t.Error("a part of the change was applied")
			}
			if r.Waits(2*time.Second) > 200 {
				t.Errorf("the agent waited %d times", r.Waits(2*time.Second))
			}
		})
	}
}
