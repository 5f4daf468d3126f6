package hypervisor

import (
	"strings"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// userData returns the behaviors of the bootstrap data. All behaviors check
// that it is in no error and no log.
func userData[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "the bootstrap data is kept until the node has joined", check: func(e env) {
			m := e.machine("m")
			vm := e.untilOf(e.connector, m, false, stepUp)
			e.Expect(vm.UserData).To(BeTrue())
			e.Expect(hasUserData(e.vm("m"))).To(BeTrue())
			e.Expect(e.sync(e.driver(m), m, false)).To(Succeed())
			e.becomes(m, hypervisor.Running)
			e.Expect(hasUserData(e.vm("m"))).To(BeTrue())
		}},
		{name: "the bootstrap data is removed after the node has joined", check: func(e env) {
			m := e.machine("m")
			e.untilOf(e.connector, m, false, stepUp)
			e.network.reset()
			e.Expect(e.until(m, stepUp).UserData).To(BeFalse())
			e.Expect(hasUserData(e.vm("m"))).To(BeFalse())
			requests := traits(e.adapter).UserDataRequests
			e.Expect(e.network.writes()).To(Equal(requests), "%v", e.network.count())
			e.Expect(e.sync(e.driver(m), m, true)).To(Succeed())
			e.Expect(e.network.writes()).To(Equal(requests))
			e.restart()
			e.Expect(e.becomes(m, hypervisor.Running).UserData).To(BeFalse())
		}},
		{name: "the bootstrap data is removed although a tag cannot be added", check: func(e env) {
			e.untilOf(e.connector, e.machine("m"), false, stepUp)
			e.Expect(hasUserData(e.vm("m"))).To(BeTrue())
			m := e.machine("m", Fields{Tag: "none"})
			var failed error
			e.Eventually(func(g Gomega) {
				_, _, err := e.reconcile(e.connector, m, true)
				if err != nil && !hypervisor.IsTransient(err) {
					failed = err
				}
				found := e.named("m")
				g.Expect(found).To(HaveLen(1))
				g.Expect(failed).To(HaveOccurred())
				g.Expect(hasUserData(found[0])).To(BeFalse())
			}).Should(Succeed())
			e.Expect(failed).To(MatchError(ContainSubstring("none")))
		}},
		{name: "the data of Ignition is removed after the node has joined", check: func(e env) {
			m := e.machine("m")
			e.Expect(e.driver(m).Create(e.ctx(), m, hypervisor.CreateOptions{
				UserData: []byte(`{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"` + bootstrapSecret + `"}]}}`), Format: "ignition",
			})).To(Succeed())
			e.Expect(e.untilOf(e.connector, m, false, stepUp).UserData).To(BeTrue())
			e.Expect(e.until(m, stepUp).UserData).To(BeFalse())
			e.Expect(hasUserData(e.vm("m"))).To(BeFalse())
		}},
		{name: "bootstrap data of an unknown format is rejected for good", check: func(e env) {
			m := e.machine("m")
			for _, o := range []hypervisor.CreateOptions{
				{UserData: []byte("x"), Format: "talos"}, {UserData: []byte("x"), Format: "jinja"},
			} {
				err := e.record(e.driver(m).Create(e.ctx(), m, o))
				e.Expect(hypervisor.IsTerminal(err)).To(BeTrue())
				e.Expect(err).To(HaveField("Reason", infrav1.InvalidSpecReason))
			}
			e.Expect(e.named("m")).To(BeEmpty())
		}},
		{name: "bootstrap data that is too large is rejected for good", check: func(e env) {
			m := e.machine("m")
			var noise strings.Builder
			noise.WriteString("#cloud-config\n#")
			for n := uint64(1); noise.Len() < 2<<20; {
				n = n*6364136223846793005 + 1442695040888963407
				noise.WriteByte(byte('!' + n>>58))
			}
			err := e.record(e.driver(m).Create(e.ctx(), m, hypervisor.CreateOptions{UserData: []byte(noise.String()), Format: "cloud-config"}))
			e.Expect(hypervisor.IsTerminal(err)).To(BeTrue(), "%v", err)
			e.Expect(err).To(HaveField("Reason", infrav1.InvalidSpecReason))
			e.Expect(e.named("m")).To(BeEmpty())
		}},
	}
}
