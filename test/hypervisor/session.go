package hypervisor

import (
	"fmt"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// session returns the behaviors of credentials, sessions and endpoints.
func session[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "a wrong password is rejected once and a right one works", check: func(e env) {
			e.options.Lockout = true
			e.restart()
			_, right := e.sim.Credentials()
			e.secrets = append(e.secrets, "quite-wrong")
			m := e.up("m")
			e.network.reset()
			e.connector.Close()
			if !traits(e.adapter).NoLogout {
				e.Eventually(e.network.writes).Should(BeNumerically(">=", 1), "the logout")
			}
			e.connector = e.connect()
			e.setSecret(clusterName, "quite-wrong")
			e.network.reset()
			e.Expect(e.fails(m, infrav1.CredentialsInvalidReason)).To(HaveOccurred())
			e.Consistently(func() error { _, err := e.observe(m); return err }, time.Second, interval).Should(HaveOccurred())
			e.Expect(e.network.writes()).To(Equal(1), "an account is not locked out: %v", e.network.count())
			e.setSecret(clusterName, right)
			e.becomes(m, hypervisor.Running)
		}},
		{name: "wrong passwords of many clusters do not lock a user out", check: func(e env) {
			e.options.Lockout = true
			e.restart()
			e.inspects(e.cluster)
			e.network.reset()
			for i := range 10 {
				name := fmt.Sprintf("wrong-%d", i)
				c := e.addCluster(name, e.network)
				e.setSecret(name, name)
				e.Eventually(func() string {
					_, err := e.connector.Inspect(e.ctx(), c)
					return hypervisor.ReasonFor(e.record(err), "")
				}).Should(Equal(infrav1.CredentialsInvalidReason))
			}
			e.Expect(e.network.writes()).To(BeNumerically("<", 5), "%v", e.network.count())
		}},
		{name: "a password that is changed has no effect on VMs", check: func(e env) {
			m := e.up("m")
			e.sim.SetPassword("rotated")
			e.secrets = append(e.secrets, "rotated")
			e.setSecret(clusterName, "rotated")
			vm := e.becomes(m, hypervisor.Running)
			spec, _ := m.Common()
			e.Expect(vm.ProviderID).To(Equal(spec.ProviderID))
			e.up("next")
			e.gone(m)
		}},
		{name: "a Secret that is missing is named", check: func(e env) {
			e.updateCluster(func(c *infrav1.ClusterSpec) { c.IdentityRef.Name = "none" })
			err := e.fails(e.machine("m"), infrav1.CredentialsInvalidReason)
			e.Expect(err).To(MatchError(ContainSubstring(`Secret "none" with the credentials does not exist`)))
		}},
		{name: "a session that expired is replaced", check: func(e env) {
			e.up("first")
			m := e.machine("m")
			d := e.driver(m)
			e.sim.ExpireSessions()
			e.Expect(e.record(d.Create(e.ctx(), m, createOptions))).To(Succeed(), "the driver logs in again and repeats the request")
			e.until(m, stepUp)
			e.Expect(e.named("m")).To(HaveLen(1))
			e.gone(m)
		}},
		{name: "a certificate that is not trusted is rejected", check: func(e env) {
			m := e.machine("m")
			for _, trust := range []infrav1.Trust{
				{}, {CABundle: e.sim.CABundle()}, {Thumbprint: "00:11"},
			} {
				e.updateCluster(func(c *infrav1.ClusterSpec) { c.TLS = trust })
				e.Expect(e.fails(m, infrav1.EndpointUnreachableReason)).To(MatchError(endpoints.ErrUntrusted))
			}
			e.Expect(e.network.requests()).To(BeEmpty(), "no password is sent")
			e.updateCluster(func(c *infrav1.ClusterSpec) { c.TLS = infrav1.Trust{Thumbprint: e.network.thumbprint()} })
			e.becomes(m, hypervisor.Absent)
			site := e.inspects(e.cluster)
			e.Expect(site.Thumbprint).To(Equal(e.network.thumbprint()))
			e.Expect(site.CABundle).To(BeEmpty())
		}},
		{name: "a CA certificate that is replaced ends the session", check: func(e env) {
			m := e.up("m")
			e.updateCluster(func(c *infrav1.ClusterSpec) { c.TLS.CABundle = e.sim.CABundle() })
			e.Expect(e.fails(m, infrav1.EndpointUnreachableReason)).To(MatchError(endpoints.ErrUntrusted))
			e.updateCluster(func(c *infrav1.ClusterSpec) { c.TLS.CABundle = e.sim.CABundle() + e.network.caBundle() })
			e.becomes(m, hypervisor.Running)
		}},
		{name: "an endpoint that is down is unreachable and its VMs are not missing", check: func(e env) {
			m := e.up("m")
			e.inspects(e.cluster)
			machines, clusters := e.connector.Changes(), e.connector.EndpointChanges()
			drain(clusters)
			e.network.setDown(true)
			e.Eventually(clusters).Should(Receive(Equal(hypervisor.KeyOf(e.cluster))))
			err := e.fails(m, infrav1.EndpointUnreachableReason)
			e.Expect(hypervisor.IsTransient(err)).To(BeFalse())
			e.Expect(err.Error()).NotTo(MatchRegexp(`:\d+->`), "ports of connections differ each time")
			began := time.Now()
			_, err = e.observe(m)
			e.Expect(err).To(HaveOccurred())
			e.Expect(time.Since(began)).To(BeNumerically("<", time.Second), "no caller waits for a session that is down")
			e.Eventually(func() string {
				_, err := e.connector.Inspect(e.ctx(), e.cluster)
				return hypervisor.ReasonFor(e.record(err), "")
			}).Should(Equal(infrav1.EndpointUnreachableReason))
			drain(machines)
			e.network.setDown(false)
			e.Eventually(clusters).Should(Receive(Equal(hypervisor.KeyOf(e.cluster))))
			e.Eventually(machines).Should(Receive(Equal(hypervisor.KeyOf(m))))
			e.becomes(m, hypervisor.Running)
			e.sim.PowerOffVM(e.vm("m").ID)
			e.becomes(m, hypervisor.Stopped)
			e.gone(m)
		}},
		{name: "an action during an outage fails and is repeated later", check: func(e env) {
			m := e.up("m")
			away := deleting(m)
			d := e.driver(away)
			e.network.setDown(true)
			e.Expect(e.record(d.Delete(e.ctx(), away))).To(HaveField("Reason", infrav1.EndpointUnreachableReason))
			e.Expect(e.vm("m").On).To(BeTrue())
			e.network.setDown(false)
			e.gone(m)
		}},
		{name: "an endpoint that does not respond does not delay other endpoints", check: func(e env) {
			m := e.up("m")
			hanging := newNetwork(e.t, e.sim.Server(), e.adapter.Request)
			hanging.setHanging(true)
			e.addCluster("hanging", hanging)
			stuck := e.machine("stuck")
			stuck.GetLabels()[clusterv1.ClusterNameLabel] = "hanging"
			sent, start := make(chan error, 1), time.Now()
			go func() { _, err := e.observe(stuck); sent <- err }()
			for range 20 {
				began := time.Now()
				e.becomes(m, hypervisor.Running)
				e.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
			}
			var err error
			e.Eventually(sent).Should(Receive(&err))
			e.Expect(err).To(HaveField("Reason", infrav1.EndpointUnreachableReason))
			e.Expect(hypervisor.IsTransient(err)).To(BeTrue(), "it may only be slow")
			e.Expect(time.Since(start)).To(BeNumerically("<", 4*time.Second))
			hanging.setHanging(false)
			e.Eventually(e.connector.Changes()).Should(Receive(Equal(hypervisor.KeyOf(stuck))))
			e.becomes(stuck, hypervisor.Absent)
		}},
		{name: "the ID of an endpoint stays over a restart of the manager", check: func(e env) {
			site := e.inspects(e.cluster)
			e.Expect(site.ID).NotTo(BeEmpty())
			e.Expect(site.Version).NotTo(BeEmpty())
			e.Expect(site.Server).To(Equal(e.network.address()))
			e.Expect(site.CABundle).To(Equal(e.network.caBundle()))
			e.restart()
			e.Expect(e.inspects(e.cluster).ID).To(Equal(site.ID))
			e.Expect(e.endpointID()).To(Equal(site.ID))
		}},
		{name: "inspecting an open session sends no request", check: func(e env) {
			e.options.Quiet = true
			e.restart()
			e.inspects(e.cluster)
			e.up("m")
			e.Eventually(func() map[string]int {
				e.network.reset()
				for range 5 {
					e.inspects(e.cluster)
				}
				return e.network.count()
			}).Should(BeEmpty())
		}},
		{name: "an endpoint that is replaced at its address has another ID", check: func(e env) {
			m := e.up("m")
			before := e.inspects(e.cluster).ID
			e.Expect(e.endpointID()).To(Equal(before))
			d := e.driver(m)
			other := e.adapter.Start(e.t, SimulatorOptions{})
			e.network.setTarget(other.Server())
			e.Eventually(func() (string, error) {
				site, err := e.connector.Inspect(e.ctx(), e.cluster)
				return site.ID, e.record(err)
			}).ShouldNot(Or(Equal(before), BeEmpty()))
			now := e.inspects(e.cluster).ID
			e.Eventually(e.endpointID).Should(Equal(now))
			vm, err := d.Observe(e.ctx(), m)
			e.Expect(e.record(err)).To(HaveField("Reason", infrav1.EndpointUnreachableReason), "a reconcile that began before the replacement: %v", vm.State)
			e.becomes(m, hypervisor.Absent)
			e.network.setTarget(e.sim.Server())
			e.Eventually(e.endpointID).Should(Equal(before))
			e.becomes(m, hypervisor.Running)
		}},
		{name: "the VMs of a cluster are listed without its machines", check: func(e env) {
			e.up("worker-1")
			e.up("worker-2")
			e.sim.ForeignVM("foreign", false)
			names := func() (all []string) {
				site, err := e.connector.Inspect(e.ctx(), e.cluster)
				if e.record(err) != nil {
					return nil
				}
				for _, vm := range site.VMs {
					e.Expect(vm.ID).To(Equal(e.vm(vm.Machine).ID))
					all = append(all, vm.Machine)
				}
				return all
			}
			e.Eventually(names).Should(ConsistOf("worker-1", "worker-2"))
			e.restart()
			e.Eventually(names).Should(ConsistOf("worker-1", "worker-2"))
			e.cluster.GetAnnotations()[infrav1.ClusterIDAnnotation] = "7b0c8f1e-59b1-4b7a-a2a9-7b1f6a2a3c55"
			e.Expect(names()).To(BeEmpty())
		}},
		{name: "a VM with another name than its machine is listed by the machine's name", check: func(e env) {
			named := func(machine, template string) M {
				m := e.machine(machine)
				spec, _ := m.Common()
				spec.Naming.Template = template
				return m
			}
			m := named("worker-1", "K8S-{{ .machine.name }}")
			vm := e.until(m, stepUp)
			e.Expect(vm.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "worker-1"}), "the node has the machine's name")
			id := e.vm("K8S-worker-1").ID
			e.restart()
			e.Eventually(func() []hypervisor.OwnedVM {
				site, err := e.connector.Inspect(e.ctx(), e.cluster)
				e.Expect(e.record(err)).NotTo(HaveOccurred())
				return site.VMs
			}).Should(Equal([]hypervisor.OwnedVM{{Machine: "worker-1", ID: id}}))
			unpublished := m.DeepCopyObject().(M)
			spec, _ := unpublished.Common()
			spec.ProviderID = ""
			e.becomes(unpublished, hypervisor.Running)
			e.Expect(e.fails(named("worker-2", "K8S-worker-1"), infrav1.NameConflictReason)).To(MatchError(ContainSubstring(id)))
			e.until(deleting(m), stepDeleted)
			e.Expect(e.named("K8S-worker-1")).To(BeEmpty())
		}},
		{name: "closed sessions are logged out", check: func(e env) {
			e.up("m")
			e.network.reset()
			e.connector.Close()
			if traits(e.adapter).NoLogout {
				e.Expect(e.network.writes()).To(BeZero(), "the API has no such request")
				return
			}
			e.Eventually(e.network.writes).Should(BeNumerically(">=", 1))
		}},
		{name: "an identity is usable in the namespaces that it allows", check: func(e env) {
			identity := e.useIdentity(infrav1.AllowedNamespaces{List: []string{"others"}})
			m := e.machine("m")
			e.network.reset()
			e.Expect(e.fails(m, infrav1.CredentialsInvalidReason)).To(MatchError(ContainSubstring("does not allow the namespace")))
			e.Expect(e.network.requests()).To(BeEmpty())
			identity(infrav1.AllowedNamespaces{List: []string{namespace}})
			e.until(m, stepUp)
			identity(infrav1.AllowedNamespaces{})
			e.Expect(e.fails(m, infrav1.CredentialsInvalidReason)).To(HaveOccurred())
		}},
		{name: "the credentials of an identity are not sent to another server", check: func(e env) {
			e.useIdentity(infrav1.AllowedNamespaces{List: []string{namespace}})
			evil := newNetwork(e.t, e.sim.Server(), e.adapter.Request)
			e.network.reset()
			for _, set := range []func(*infrav1.ClusterSpec){
				func(c *infrav1.ClusterSpec) {
					c.Server, c.TLS = evil.address(), infrav1.Trust{CABundle: evil.caBundle()}
				},
				func(c *infrav1.ClusterSpec) { c.Server, c.TLS = "", infrav1.Trust{CABundle: evil.caBundle()} },
			} {
				e.updateCluster(set)
				e.Expect(e.fails(e.machine("m"), infrav1.CredentialsInvalidReason)).To(MatchError(ContainSubstring("they come from the identity")))
				_, err := e.connector.Inspect(e.ctx(), e.cluster)
				e.Expect(err).To(MatchError(ContainSubstring("they come from the identity")))
			}
			e.Expect(evil.connections()).To(BeZero())
			e.Expect(e.network.connections()).To(BeZero())
		}},
	}
}

// inspects calls Inspect until it succeeds.
func (e *environment[M, C]) inspects(c C) (site hypervisor.Endpoint) {
	e.t.Helper()
	e.Eventually(func() (err error) {
		site, err = e.connector.Inspect(e.ctx(), c)
		return e.record(err)
	}).Should(Succeed())
	return site
}

// endpointID returns the ID of the hypervisor that a driver reads from.
func (e *environment[M, C]) endpointID() string {
	d, err := e.connector.Connect(e.ctx(), e.machine("m"))
	if e.record(err) != nil {
		return ""
	}
	return d.(hypervisor.EndpointIdentifier).EndpointID()
}

// useIdentity makes the cluster use an identity, and returns a function that
// changes the namespaces of the identity.
func (e *environment[M, C]) useIdentity(allowed infrav1.AllowedNamespaces) func(infrav1.AllowedNamespaces) {
	e.t.Helper()
	user, password := e.sim.Credentials()
	e.addSecret(managerNamespace, "account", user, password)
	spec := infrav1.IdentitySpec{
		Server: e.network.address(), TLS: infrav1.Trust{CABundle: e.network.caBundle()},
		CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "account"}, AllowedNamespaces: allowed,
	}
	identity := e.adapter.Identity(spec)
	identity.SetName("shared")
	e.Expect(e.objects.Create(e.ctx(), identity)).To(Succeed())
	kind, err := e.objects.GroupVersionKindFor(identity)
	e.Expect(err).NotTo(HaveOccurred())
	e.updateCluster(func(c *infrav1.ClusterSpec) {
		c.IdentityRef = infrav1.IdentityReference{Kind: kind.Kind, Name: "shared"}
		c.Server, c.TLS = "", infrav1.Trust{}
	})
	return func(allowed infrav1.AllowedNamespaces) {
		spec.AllowedNamespaces = allowed
		changed := e.adapter.Identity(spec)
		changed.SetName("shared")
		e.Expect(e.objects.Delete(e.ctx(), identity)).To(Succeed())
		e.Expect(e.objects.Create(e.ctx(), changed)).To(Succeed())
		identity = changed
	}
}
