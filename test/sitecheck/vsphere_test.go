package sitecheck

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// site is a simulated vCenter, and the names of its objects.
func site(t *testing.T) (*vcenter.Server, VSphereTarget) {
	t.Helper()
	vc, err := vcenter.Start(context.Background(), vcenter.Options{Inventory: vcenter.Inventory{
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, ExtraConfig: map[string]string{"nova.test": "here"}}},
	}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		vc.Stop()
		NewWithT(t).Expect(vc.Violations()).To(BeEmpty())
	})
	return vc, VSphereTarget{
		Server: vc.Address, Username: vcenter.DefaultUsername, Password: vcenter.DefaultPassword, CABundle: string(vc.CABundle),
		Datacenter: "DC0", ComputeCluster: "DC0_C0", Folder: vcenter.DefaultFolder, Datastore: "LocalDS_0", Template: vcenter.DefaultTemplate,
		Networks: []string{"VM Network", "DC0_DVPG0"},
	}
}

// with returns the findings of a level, each as "check: detail".
func (r *Report) with(level Level) (found []string) {
	for _, f := range *r {
		if f.Level == level {
			found = append(found, f.Check+": "+f.Detail)
		}
	}
	return found
}

func TestVSphere(t *testing.T) {
	g := NewWithT(t)
	vc, target := site(t)
	report := VSphere(t.Context(), target)
	g.Expect(report.with(Fail)).To(BeEmpty())
	g.Expect(report.with(OK)).To(ContainElements(
		HavePrefix("login: "), HavePrefix("version: "), HavePrefix("folder: /DC0/vm/nova, privileges are complete"),
		HavePrefix("network: /DC0/network/DC0_DVPG0"), HavePrefix("single settings: "), HavePrefix("REST API: "),
	))
	g.Expect(report.with(Info)).To(ContainElement(MatchRegexp(`^template: vmx-\d+, .* 1 disks, 1 network interfaces`)))
	for method := range vc.Requests() {
		g.Expect(method).NotTo(HaveSuffix("_Task"), "it reads only")
	}
	var text strings.Builder
	g.Expect(report.Write(&text)).To(Succeed())
	g.Expect(text.String()).To(MatchRegexp(`site-check: ok=\d+ info=\d+ warn=\d+ fail=0\n$`))
	g.Expect(text.String()).NotTo(ContainSubstring(vcenter.DefaultPassword))
}

func TestVSphereFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*vcenter.Server, *VSphereTarget)
		fails  string
	}{
		{"password", func(_ *vcenter.Server, t *VSphereTarget) { t.Password = "other" }, "login: .*incorrect user name or password"},
		{"CA", func(_ *vcenter.Server, t *VSphereTarget) { t.CABundle = "" }, "connection: .*certificate"},
		{"thumbprint", func(_ *vcenter.Server, t *VSphereTarget) { t.Thumbprint = "00:11" }, "connection: .*thumbprint is [0-9A-F]{2}:"},
		{"template", func(_ *vcenter.Server, t *VSphereTarget) { t.Template = "none" }, "template: .*'none' not found"},
		{"network", func(_ *vcenter.Server, t *VSphereTarget) { t.Networks = []string{"none"} }, "network: .*'none' not found"},
		{"privilege", func(vc *vcenter.Server, _ *VSphereTarget) {
			vc.SetPrivileges(slices.DeleteFunc(slices.Concat(privileges["folder"], privileges["template"]), func(p string) bool {
				return p == "VirtualMachine.Config.DiskExtend"
			})...)
		}, "folder: .*the account lacks VirtualMachine.Config.DiskExtend$"},
		{"API", func(vc *vcenter.Server, _ *VSphereTarget) {
			vc.InjectCallFault("CreateContainerView", 0, &types.NoPermission{PrivilegeId: "System.View"}, "")
		}, "inventory: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vc, target := site(t)
			tt.change(vc, &target)
			report := VSphere(t.Context(), target)
			NewWithT(t).Expect(report.with(Fail)).To(ContainElement(MatchRegexp(tt.fails)))
		})
	}
}

// The documents list the privileges that are checked.
func TestPrivilegesAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../docs/vsphere.md")
	g.Expect(err).NotTo(HaveOccurred())
	for _, list := range []map[string][]string{privileges, optional} {
		for _, names := range list {
			for _, name := range names {
				g.Expect(string(text)).To(ContainSubstring("`" + name + "`"))
			}
		}
	}
}
