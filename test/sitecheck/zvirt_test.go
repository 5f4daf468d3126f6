package sitecheck

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const (
	engineUser     = "nova@internal"
	enginePassword = "least-Test-1"
)

// documented returns the permits that a check knows.
func documented() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(permits))...))))
}

// engineSite is a simulated engine with a user that has the documented permits, and
// the names of its objects.
func engineSite(t *testing.T, change ...func(*ovirtsim.Options)) (*ovirtsim.Server, ZVirtTarget) {
	t.Helper()
	o := ovirtsim.Options{
		Users:     []ovirtsim.UserSpec{{Name: engineUser, Password: enginePassword, Permits: documented(), On: []string{"data_center/Default"}}},
		Inventory: ovirtsim.Inventory{Templates: []ovirtsim.TemplateSpec{{Name: "node", DiskGiB: 10}}},
	}
	for _, f := range change {
		f(&o)
	}
	s, err := ovirtsim.Start(context.Background(), o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Stop)
	return s, ZVirtTarget{
		Server:   strings.TrimSuffix(strings.TrimPrefix(s.URL, "https://"), "/ovirt-engine/api"),
		Username: engineUser, Password: enginePassword, CABundle: s.CABundle,
		Datacenter: "Default", Cluster: "Default", StorageDomain: "data1", Template: "node", VNICProfiles: []string{"ovirtmgmt/ovirtmgmt"},
	}
}

func TestZVirt(t *testing.T) {
	g := NewWithT(t)
	engine, target := engineSite(t)
	report := ZVirt(t.Context(), target)
	g.Expect(report.with(Fail)).To(BeEmpty())
	g.Expect(report.with(Warn)).To(BeEmpty())
	g.Expect(report.with(OK)).To(ContainElements(
		HavePrefix("login: "), MatchRegexp(`^version: oVirt Engine 4\.5\.4`), HavePrefix("clock: "), HavePrefix("latency: "),
		"cluster: Default, permits are complete", "storage domain: data1, permits are complete", "template: node, permits are complete",
		"vNIC profile: ovirtmgmt/ovirtmgmt", "hosts: 2 of 2 are up", HavePrefix("search: 0 VMs"),
	))
	g.Expect(report.with(Info)).To(ContainElement(MatchRegexp(`^storage domain: data1: nfs, \d+ GiB free`)))
	for request := range engine.Requests() {
		g.Expect(request).To(Or(HavePrefix("GET "), HaveSuffix("/sso/oauth/token"), HaveSuffix("/services/sso-logout")), "it reads only")
	}
	g.Expect(engine.Tokens()).To(BeZero(), "it logs out")
	var text strings.Builder
	g.Expect(report.Write(&text)).To(Succeed())
	g.Expect(text.String()).To(MatchRegexp(`site-check: ok=\d+ info=\d+ warn=0 fail=0\n$`))
	g.Expect(text.String()).NotTo(ContainSubstring(enginePassword))
}

func TestZVirtFailures(t *testing.T) {
	without := func(permit string) []string {
		return slices.DeleteFunc(documented(), func(p string) bool { return p == permit })
	}
	for _, tt := range []struct {
		name   string
		engine func(*ovirtsim.Options)
		target func(*ZVirtTarget)
		level  Level
		finds  string
	}{
		{"password", nil, func(t *ZVirtTarget) { t.Password = "other" }, Fail, "login: .*password is incorrect"},
		{"login", func(o *ovirtsim.Options) { o.Users[0].Permits = without("login") }, nil, Fail, "login: .*not authorized to perform login"},
		{"CA", nil, func(t *ZVirtTarget) { t.CABundle = "" }, Fail, "connection: .*certificate"},
		{"bundle", nil, func(t *ZVirtTarget) { t.CABundle = "none" }, Fail, "certificate: .*holds no certificate"},
		{"thumbprint", nil, func(t *ZVirtTarget) { t.Thumbprint = "00:11" }, Fail, "connection: .*thumbprint of the certificate is [0-9A-F]{2}:"},
		{"version", func(o *ovirtsim.Options) { o.Version = "4.3.10.4" }, nil, Fail, "version: oVirt Engine 4.3.10"},
		{"data center", nil, func(t *ZVirtTarget) { t.Datacenter = "none" }, Fail, `data center: "none" does not exist`},
		{"cluster", nil, func(t *ZVirtTarget) { t.Cluster = "none" }, Fail, `cluster: "none" does not exist`},
		{"storage domain", nil, func(t *ZVirtTarget) { t.StorageDomain = "none" }, Fail, `storage domain: "none" does not exist`},
		{"profile", nil, func(t *ZVirtTarget) { t.VNICProfiles = []string{"ovirtmgmt/none"} }, Fail, `vNIC profile: "ovirtmgmt/none" does not exist`},
		{"template", nil, func(t *ZVirtTarget) { t.Template = "none" }, Fail, `template: "none" does not exist`},
		{"copy", nil, func(t *ZVirtTarget) { t.StorageDomain = "data2" }, Warn, "template: the storage domain has no copy of disk"},
		{"no quota", quotas, nil, Fail, "quota: the data center enforces quotas"},
		{"quota", quotas, func(t *ZVirtTarget) { t.Quota = "none" }, Fail, `quota: "none" does not exist`},
		{"good quota", quotas, func(t *ZVirtTarget) { t.Quota = "tenants" }, OK, "quota: tenants$"},
		{"permit", func(o *ovirtsim.Options) { o.Users[0].Permits = without("run_vm") }, nil, Fail, "cluster: Default: the user lacks run_vm$"},
		{"object", func(o *ovirtsim.Options) { o.Users[0].On = []string{"cluster/Default", "template/node"} }, nil, Fail,
			"storage domain: data1: the user lacks create_disk, attach_disk, "},
		{"user role", func(o *ovirtsim.Options) { o.Users[0].UserRole = true }, nil, Fail, "data center: .*insufficient permissions"},
		{"administrator", nil, func(t *ZVirtTarget) { t.Username, t.Password = ovirtsim.DefaultUsername, ovirtsim.DefaultPassword }, Warn, "permissions: .*administrator"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.engine == nil {
				tt.engine = func(*ovirtsim.Options) {}
			}
			_, target := engineSite(t, tt.engine)
			if tt.target != nil {
				tt.target(&target)
			}
			report := ZVirt(t.Context(), target)
			NewWithT(t).Expect(report.with(tt.level)).To(ContainElement(MatchRegexp(tt.finds)), "%v", report)
		})
	}
}

func quotas(o *ovirtsim.Options) {
	o.Inventory.Quotas = []ovirtsim.QuotaSpec{{Name: "tenants"}}
}

// The documents list the permits that are checked, and no others.
func TestPermitsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../docs/zvirt.md")
	g.Expect(err).NotTo(HaveOccurred())
	row := regexp.MustCompile(`(?m)^\| the data center, or .*$`).FindString(string(text))
	var listed []string
	for _, match := range regexp.MustCompile("`([a-z_]+)` \\d+").FindAllStringSubmatch(row, -1) {
		listed = append(listed, match[1])
	}
	g.Expect(listed).To(ConsistOf(documented()))
}
