package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/front"
)

// probed is a Cluster that is probed.
func probed(namespace string) *clusterv1.Cluster {
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: clusterName,
		}},
	}
}

// These probes have short periods and the timeouts of a slow machine.
const (
	quick   = 300 * time.Millisecond
	patient = time.Second
)

// view is a result for matchers, which see exported fields only.
type view struct {
	Known, Answers, Endpoint bool
	Problem, Holder          string
}

// runProbe creates a Cluster and probes it until the spec ends.
func runProbe(ctx context.Context, namespace string, changed func()) (p *Probe, stopped chan struct{}) {
	GinkgoHelper()
	Expect(testEnv.Client.Create(ctx, probed(namespace))).To(Succeed())
	p = newProbe(client.ObjectKey{Namespace: namespace, Name: clusterName}, testEnv.Client, testEnv.Client, changed)
	p.period, p.timeout = quick, patient
	running, cancel := context.WithCancel(context.Background())
	stopped = make(chan struct{})
	go func() {
		defer close(stopped)
		p.run(running)
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(stopped).Should(BeClosed())
	})
	return p, stopped
}

var _ = Describe("The health probe of a workload cluster", func() {
	var (
		f         *front.Front
		p         *Probe
		namespace string
		changes   atomic.Int32
		stopped   chan struct{}
	)
	last := func() view {
		b := p.Last()
		return view{Known: b.Known, Answers: b.Answers, Endpoint: b.endpoint, Problem: b.Problem, Holder: b.holder}
	}
	BeforeEach(func(ctx SpecContext) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		Expect(testEnv.Client.Create(ctx, ns)).To(Succeed())
		namespace = ns.Name
		f = front.New()
		Expect(testEnv.Client.Create(ctx, f.Kubeconfig(namespace, clusterName, "first"))).To(Succeed())
		changes.Store(0)
		p, stopped = runProbe(ctx, namespace, func() { changes.Add(1) })
		Eventually(last).Should(And(HaveField("Known", true), HaveField("Answers", true), HaveField("Holder", "n1")))
		Expect(changes.Load()).To(BeEquivalentTo(1))
	})

	It("continues with a renewed kubeconfig without a failure", func(ctx SpecContext) {
		renewed := f.Kubeconfig(namespace, clusterName, "second")
		f.Token.Store("second")
		Expect(testEnv.Client.Update(ctx, renewed)).To(Succeed())
		Eventually(func() string { return p.RestConfig().BearerToken }).Should(Equal("second"))
		Consistently(last, 5*quick).Should(HaveField("Answers", true))
		Expect(changes.Load()).To(BeEquivalentTo(1))
	})

	It("reports that the API server rejects the certificate", func() {
		f.Token.Store("another")
		Eventually(last).Should(And(
			HaveField("Answers", false), HaveField("Endpoint", true), HaveField("Problem", ContainSubstring("rejects the certificate of Secret c-kubeconfig"))))
	})

	It("reads another object from an API server without leases", func() {
		f.NoLeases.Store(true)
		Eventually(last).Should(And(HaveField("Answers", true), HaveField("Holder", "")))
		f.Hangs.Store("/api/v1/")
		Eventually(last).Should(And(
			HaveField("Answers", false), HaveField("Endpoint", true), HaveField("Problem", ContainSubstring("cannot read from etcd"))))
		f.Hangs.Store("")
		Eventually(last).Should(HaveField("Answers", true))
	})

	It("distinguishes an API server without etcd from an unreachable one", func() {
		f.Hangs.Store("/apis/")
		Eventually(last).Should(And(
			HaveField("Answers", false), HaveField("Endpoint", true), HaveField("Problem", ContainSubstring("cannot read from etcd"))))
		f.Hangs.Store("")
		Eventually(last).Should(And(HaveField("Answers", true), HaveField("Problem", "")))
	})

	It("names the API servers that answer at their own addresses", func() {
		other := front.New()
		p.SetMembers(map[string]string{"m1": other.Server.Listener.Addr().String(), "m2": "127.0.0.1:1"}, false)
		f.Hangs.Store("/")
		Eventually(last).Should(HaveField("Answers", false))
		Expect(last()).To(And(HaveField("Endpoint", false), HaveField("Holder", "n1"), HaveField("Problem", And(
			ContainSubstring("cannot be reached"), ContainSubstring("At its own address an API server answers on m1"), Not(ContainSubstring("m2"))))))
	})

	It("reports a closed port, and ends with the kubeconfig", func(ctx SpecContext) {
		f.Server.CloseClientConnections()
		Expect(f.Server.Listener.Close()).To(Succeed())
		Eventually(last).Should(And(HaveField("Endpoint", false), HaveField("Problem", And(ContainSubstring("cannot be reached"), Not(ContainSubstring("refused"))))))
		problem := last().Problem
		Consistently(func() string { return last().Problem }, 5*quick).Should(Equal(problem), "the message is the same for each probe")
		Expect(testEnv.Client.Delete(ctx, f.Kubeconfig(namespace, clusterName, ""))).To(Succeed())
		Eventually(stopped).Should(BeClosed())
	})

	It("ends with the Cluster, which a user's kubeconfig outlives", func(ctx SpecContext) {
		Expect(testEnv.Client.Delete(ctx, probed(namespace))).To(Succeed())
		Eventually(stopped).Should(BeClosed())
		Expect(testEnv.Client.Get(ctx, p.secret, &corev1.Secret{})).To(Succeed())
	})
})

var _ = Describe("A Secret that holds no kubeconfig", func() {
	It("makes the workload cluster unreachable until it is replaced", func(ctx SpecContext) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		Expect(testEnv.Client.Create(ctx, ns)).To(Succeed())
		f := front.New()
		made := f.Kubeconfig(ns.Name, clusterName, "first")
		good := made.Data[secret.KubeconfigDataName]
		made.Data[secret.KubeconfigDataName] = []byte("garbage")
		Expect(testEnv.Client.Create(ctx, made)).To(Succeed())
		p, _ := runProbe(ctx, ns.Name, func() {})
		last := func() view {
			b := p.Last()
			return view{Known: b.Known, Answers: b.Answers, Endpoint: b.endpoint, Problem: b.Problem}
		}
		Eventually(last).Should(And(
			HaveField("Known", true), HaveField("Answers", false), HaveField("Problem", ContainSubstring("Secret c-kubeconfig cannot be used: the kubeconfig is refused: value is not a kubeconfig"))))
		made.Data[secret.KubeconfigDataName] = good
		Expect(testEnv.Client.Update(ctx, made)).To(Succeed())
		Eventually(last).Should(And(HaveField("Answers", true), HaveField("Problem", "")))
	})
})

func TestConfirmHolder(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason      string
		after       time.Duration
		renews      bool
		confirmed   bool
		unconfirmed bool
	}{
		"AtOnce":   {reason: "the new holder has not taken the address yet", renews: true},
		"InTime":   {reason: "the previous holder has released the address", after: timelimits.KubeVIPHandover, renews: true, confirmed: true},
		"Silent":   {reason: "the new one has not renewed the lease", after: timelimits.KubeVIPHandover},
		"TooLong":  {reason: "the new one does not take it", after: timelimits.StaleAfter, unconfirmed: true},
		"Late":     {reason: "it does after all", after: timelimits.StaleAfter, renews: true, confirmed: true},
		"NotQuite": {reason: "the one before may still have it", after: timelimits.KubeVIPHandover - time.Second, renews: true},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			p := &Probe{changed: func() { calls++ }}
			see := func(holder string, renewed time.Time, after time.Duration) Result {
				var b Result
				p.updateHolder(&b, holder, renewed, start.Add(after))
				return b
			}
			if b := see("n1", start, 0); b.confirmed || b.before != "" {
				t.Error("a holder that is observed for the first time may be new")
			}
			// The lease has the time of this manager's transfer, which is later
			// than any renewal by n1.
			given := start.Add(time.Minute)
			p.Moved("n2", given, start)
			if p.Last().holder != "n2" || calls != 1 {
				t.Error("the new holder is reported immediately")
			}
			renewed := given
			if tc.renews {
				renewed = given.Add(time.Second)
			}
			if b := see("n2", renewed, tc.after); b.confirmed != tc.confirmed || b.unconfirmed != tc.unconfirmed || b.before != "n1" {
				t.Errorf("%s: got %+v", tc.reason, b)
			}
			p.Moved("n3", given, start.Add(tc.after))
			want := "n1"
			if tc.renews {
				want = "n2"
			}
			if got := p.Last().before; got != want {
				t.Errorf("%s: before n3 it was with %s, got %s", tc.reason, want, got)
			}
			if b := see("n1", renewed, tc.after); b.confirmed || b.unconfirmed {
				t.Error("another holder starts over")
			}
		})
	}
}

func TestPause(t *testing.T) {
	const shortest, longest = 2 * time.Second, 5 * time.Second
	calm := Result{Known: true, Answers: true}
	for name, tc := range map[string]struct {
		last    Result
		busy    bool
		calm    time.Duration
		longest time.Duration
		want    time.Duration
	}{
		"Unknown":       {last: Result{}, calm: time.Hour, want: shortest},
		"Silent":        {last: Result{Known: true}, calm: time.Hour, want: shortest},
		"Busy":          {last: calm, busy: true, calm: time.Hour, want: shortest},
		"JustChanged":   {last: calm, want: shortest},
		"CalmForAWhile": {last: calm, calm: 30 * time.Second, want: 3 * time.Second},
		"Calm":          {last: calm, calm: time.Hour, want: longest},
		"AddressMoves":  {last: Result{Known: true, Answers: true, holder: "n1"}, calm: time.Hour, want: shortest},
		"AddressIsHeld": {last: Result{Known: true, Answers: true, holder: "n1", confirmed: true}, calm: time.Hour, want: longest},
		"ShorterFlag":   {last: Result{}, calm: time.Hour, longest: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pause(tc.last, tc.busy, tc.calm, shortest, cmp.Or(tc.longest, longest)); got != tc.want {
				t.Errorf("want %s, got %s", tc.want, got)
			}
		})
	}
}

// A change ends a long pause immediately.
func TestPauseEnds(t *testing.T) {
	p := newProbe(client.ObjectKey{}, nil, nil, func() {})
	woken := func() bool {
		select {
		case <-p.wake:
			return true
		default:
			return false
		}
	}
	p.SetMembers(nil, false)
	if woken() {
		t.Error("nothing changed")
	}
	p.SetMembers(nil, true)
	if !woken() {
		t.Error("a machine comes")
	}
	p.SetMembers(nil, true)
	if woken() {
		t.Error("the machine was known to come")
	}
	p.Moved("n2", time.Now(), time.Now())
	if !woken() {
		t.Error("the address moves")
	}
}

func TestPlainly(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, refused := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	_, foreign := (&tls.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	// All of these have the same message in the condition.
	for name, err := range map[string]error{
		"Refused": refused, "Timeout": context.DeadlineExceeded, "Foreign": foreign, "Other": http.ErrServerClosed, "Denied": endpoints.ErrDenied,
	} {
		if got, want := coarseReason(err), "it cannot be reached, or its certificate is not the cluster's"; got != want {
			t.Errorf("%s: want %q, got %q", name, want, got)
		}
	}
	if got, want := coarseReason(apierrors.NewInternalError(errors.New("the server's own text"))), "it answers with an error"; got != want {
		t.Errorf("an error of the server: want %q, got %q", want, got)
	}
}
