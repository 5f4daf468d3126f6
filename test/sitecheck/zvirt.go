package sitecheck

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// ZVirtTarget is an engine of oVirt or zVirt, and the names that a NovaZVirtCluster
// and its machines will have. A name that is not set is not checked.
type ZVirtTarget struct {
	// Server is host or host:port.
	Server, Username, Password string
	// CABundle is in PEM. Without it, the system's CAs verify the certificate, and
	// with Thumbprint (SHA-256, as in AB:CD:…) only that certificate is accepted.
	CABundle, Thumbprint string
	// Filter is that of a NovaZVirtIdentity.
	Filter bool

	Datacenter, Cluster, StorageDomain, Quota, Template string
	VNICProfiles                                        []string
}

const (
	oldestEngine = "4.4.0"
	// maxRoles is how many roles of a user are read.
	maxRoles = 50
	// firstPage is how many VMs the driver lists with one request.
	firstPage = "500"
)

// zvirt is a check of an engine under way.
type zvirt struct {
	*Report

	target ZVirtTarget
	client *ovirt.Client
	names  *ovirt.Directory
	root   engineRoot
	// granted are the permits of the user, by the ID of the object that they were
	// given on. Those of the key "" hold everywhere. It is nil if they are not known.
	granted map[string][]string
}

// engineRoot is the entry point of an engine's API.
type engineRoot struct {
	Product struct {
		Name    string `xml:"name"`
		Version struct {
			Full string `xml:"full_version"`
		} `xml:"version"`
		ID string `xml:"instance_id"`
	} `xml:"product_info"`
	Time time.Time     `xml:"time"`
	User *ovirt.Object `xml:"authenticated_user"`
	VMs  struct {
		Active int `xml:"active"`
		Total  int `xml:"total"`
	} `xml:"summary>vms"`
}

// ZVirt checks an engine. Each failure is in the report.
func ZVirt(ctx context.Context, t ZVirtTarget) Report {
	var report Report
	z := &zvirt{Report: &report, target: t}
	if !z.connect(ctx) {
		return report
	}
	defer func() { _ = z.client.Logout(context.WithoutCancel(ctx)) }()
	z.permissions(ctx)
	z.objects(ctx)
	z.inventory(ctx)
	return report
}

// connect checks the certificate, logs in, and checks version, clock and latency.
func (z *zvirt) connect(ctx context.Context) bool {
	trust := endpoints.Trust{CABundle: z.target.CABundle, Thumbprint: z.target.Thumbprint}
	config, err := trust.Config()
	if z.failed("certificate", err) {
		return false
	}
	address := z.target.Server
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "443")
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if z.failed("connection", err) {
		return false
	}
	_ = conn.Close()
	z.addf(OK, "certificate", "is trusted")
	z.client, err = ovirt.NewClient(ovirt.Endpoint{
		Server: z.target.Server, Username: z.target.Username, Password: z.target.Password, Trust: trust, Filter: z.target.Filter,
	}, transport.Meter{Request: func(string, string, string, time.Duration) {}, Connections: func(int) {}})
	if z.failed("connection", err) {
		return false
	}
	z.names = ovirt.NewDirectory(z.client)
	began := time.Now()
	if _, err := z.client.Login(ctx, ""); z.failed("login", err) {
		return false
	}
	z.addf(OK, "login", "took %s", time.Since(began).Round(time.Millisecond))
	return z.entry(ctx)
}

// entry reads the entry point of the API several times.
func (z *zvirt) entry(ctx context.Context) bool {
	const tries = 10
	var took []time.Duration
	for range tries {
		began := time.Now()
		if z.failed("API", z.read(ctx, &z.root, nil)) {
			return false
		}
		took = append(took, time.Since(began))
	}
	product := z.root.Product
	level := OK
	if has, err := version.ParseGeneric(product.Version.Full); err != nil || !has.AtLeast(version.MustParseGeneric(oldestEngine)) {
		level = Fail
	}
	z.addf(level, "version", "%s %s, instance %s", product.Name, product.Version.Full, product.ID)
	if product.ID == "" {
		z.addf(Warn, "version", "the engine has no ID: another engine at its address is not noticed")
	}
	z.clock(z.root.Time)
	z.percentiles(took)
	return true
}

// read sends a request that changes nothing.
func (z *zvirt) read(ctx context.Context, into any, query url.Values, path ...string) error {
	return z.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: path, Query: query, Into: into})
}

// permits are those of docs/zvirt.md, by the object they are needed on.
var permits = map[string][]string{
	"cluster": {
		"login", "create_vm", "delete_vm", "edit_vm_properties", "configure_vm_network", "configure_vm_storage",
		"stop_vm", "shut_down_vm", "run_vm", "manipulate_affinity_groups",
	},
	"storage domain": {"create_disk", "attach_disk", "edit_disk_properties", "delete_disk", "attach_disk_profile"},
	"template":       {"create_vm"},
}

// permissions reads which permits the user has, and on which objects.
func (z *zvirt) permissions(ctx context.Context) {
	const check = "permissions"
	if z.root.User == nil {
		z.addf(Warn, check, "the engine does not report the user of the session: the permissions are not checked")
		return
	}
	var all struct {
		Permissions []struct {
			Role          *ovirt.Object `xml:"role"`
			DataCenter    *ovirt.Object `xml:"data_center"`
			Cluster       *ovirt.Object `xml:"cluster"`
			StorageDomain *ovirt.Object `xml:"storage_domain"`
			Template      *ovirt.Object `xml:"template"`
			VM            *ovirt.Object `xml:"vm"`
			Disk          *ovirt.Object `xml:"disk"`
			Host          *ovirt.Object `xml:"host"`
			Pool          *ovirt.Object `xml:"vm_pool"`
		} `xml:"permission"`
	}
	if err := z.read(ctx, &all, nil, "users", z.root.User.ID, "permissions"); err != nil {
		z.addf(Warn, check, "cannot be read, so they are not checked: %v", err)
		return
	}
	roles := map[string][]string{}
	granted := map[string][]string{}
	for _, p := range all.Permissions {
		if p.Role == nil {
			continue
		}
		names, known := roles[p.Role.ID]
		if !known && len(roles) < maxRoles {
			var role ovirt.List
			if err := z.read(ctx, &role, nil, "roles", p.Role.ID, "permits"); err != nil {
				z.addf(Warn, check, "the permits of a role cannot be read, so they are not checked: %v", err)
				return
			}
			for _, permit := range role.Items {
				names = append(names, permit.Name)
			}
			roles[p.Role.ID] = names
		}
		on := ""
		for _, o := range []*ovirt.Object{p.DataCenter, p.Cluster, p.StorageDomain, p.Template, p.VM, p.Disk, p.Host, p.Pool} {
			if o != nil {
				on = o.ID
			}
		}
		granted[on] = append(granted[on], names...)
	}
	z.granted = granted
	z.addf(Info, check, "%d, with %d roles", len(all.Permissions), len(roles))
	if slices.Contains(granted[""], "create_user") {
		z.addf(Warn, check, "the user is an administrator of the whole engine: use one with the documented role")
	}
}

// found notes an object, and the permits that the user lacks on it. Those on the
// objects above it count, too.
func (z *zvirt) found(kind, name string, on ...string) {
	if z.granted == nil {
		z.addf(OK, kind, "%s", name)
		return
	}
	lacking := slices.DeleteFunc(slices.Clone(permits[kind]), func(permit string) bool {
		return slices.ContainsFunc(append(on, ""), func(id string) bool { return slices.Contains(z.granted[id], permit) })
	})
	if len(lacking) > 0 {
		z.addf(Fail, kind, "%s: the user lacks %s", name, strings.Join(lacking, ", "))
	} else {
		z.addf(OK, kind, "%s, permits are complete", name)
	}
}

// objects looks for the objects that are named.
func (z *zvirt) objects(ctx context.Context) {
	dc, err := z.names.Find(ctx, ovirt.DataCenters, z.target.Datacenter, ovirt.Any)
	if z.failed("data center", err) {
		return
	}
	inside := func(o ovirt.Object) bool {
		return o.DataCenter != nil && o.DataCenter.ID == dc.ID ||
			o.DataCenters != nil && slices.ContainsFunc(o.DataCenters.Items, func(d ovirt.Object) bool { return d.ID == dc.ID })
	}
	var quotas struct {
		Mode string `xml:"quota_mode"`
	}
	if z.failed("data center", z.read(ctx, &quotas, nil, "datacenters", dc.ID)) {
		return
	}
	z.addf(OK, "data center", "%s, quota mode %s", dc.Name, quotas.Mode)
	z.quota(ctx, dc.ID, quotas.Mode)
	if cl, err := z.names.Find(ctx, ovirt.Clusters, z.target.Cluster, inside); !z.failed("cluster", err) {
		z.found("cluster", cl.Name, cl.ID, dc.ID)
		z.hosts(ctx, cl.ID)
	}
	domain := z.domain(ctx, dc.ID, inside)
	for _, name := range z.target.VNICProfiles {
		if _, err := z.names.Profile(ctx, name, dc.ID); !z.failed("vNIC profile", err) {
			z.addf(OK, "vNIC profile", "%s", name)
		}
	}
	z.template(ctx, dc.ID, domain)
}

// quota checks the quota of a data center.
func (z *zvirt) quota(ctx context.Context, dc, mode string) {
	if z.target.Quota == "" {
		if mode == "enabled" {
			z.addf(Fail, "quota", "the data center enforces quotas: set placement.quota")
		}
		return
	}
	if o, err := z.names.Find(ctx, ovirt.Quotas(dc), z.target.Quota, ovirt.Any); !z.failed("quota", err) {
		z.addf(OK, "quota", "%s", o.Name)
	}
}

// hosts counts the hosts of a cluster, which users without an administrative role
// do not see.
func (z *zvirt) hosts(ctx context.Context, cluster string) {
	var all struct {
		Hosts []struct {
			Status  string        `xml:"status"`
			Cluster *ovirt.Object `xml:"cluster"`
		} `xml:"host"`
	}
	if err := z.read(ctx, &all, nil, "hosts"); err != nil {
		z.addf(Warn, "hosts", "cannot be read: %v", err)
		return
	}
	up, total := 0, 0
	for _, h := range all.Hosts {
		if h.Cluster == nil || h.Cluster.ID != cluster {
			continue
		}
		total++
		if h.Status == "up" {
			up++
		}
	}
	z.addf(levelOf(up > 0), "hosts", "%d of %d are up", up, total)
}

// domain checks the storage domain, and returns its ID.
func (z *zvirt) domain(ctx context.Context, dc string, inside func(ovirt.Object) bool) string {
	if z.target.StorageDomain == "" {
		return ""
	}
	const check = "storage domain"
	o, err := z.names.Find(ctx, ovirt.StorageDomains, z.target.StorageDomain, inside)
	if z.failed(check, err) {
		return ""
	}
	var state struct {
		Available int64  `xml:"available"`
		Type      string `xml:"type"`
		Storage   string `xml:"storage>type"`
	}
	if z.failed(check, z.read(ctx, &state, nil, "storagedomains", o.ID)) {
		return ""
	}
	z.found(check, o.Name, o.ID, dc)
	if state.Type != "data" {
		z.addf(Fail, check, "%s is of type %s, and only data domains hold disks", o.Name, state.Type)
	}
	z.addf(Info, check, "%s: %s, %d GiB free", o.Name, state.Storage, state.Available>>30)
	return o.ID
}

// template checks the template, and whether the storage domain has its disks.
func (z *zvirt) template(ctx context.Context, dc, domain string) {
	if z.target.Template == "" {
		return
	}
	t, err := z.names.Template(ctx, "", z.target.Template, 0, dc)
	if z.failed("template", err) {
		return
	}
	z.found("template", t.Name, t.ID, dc)
	var disks []ovirt.DiskAttachment
	if t.DiskAttachments != nil {
		disks = t.DiskAttachments.Attachments
	}
	z.addf(levelOf(t.Status == "ok" && len(disks) > 0), "template", "version %d, status %s, %d disks, %d MiB", t.Version.Number, t.Status, len(disks), t.Memory>>20)
	for _, a := range disks {
		if domain == "" || a.Disk == nil || a.Disk.StorageDomains == nil {
			continue
		}
		if !slices.ContainsFunc(a.Disk.StorageDomains.Domains, func(o ovirt.Object) bool { return o.ID == domain }) {
			z.addf(Warn, "template", "the storage domain has no copy of disk %s: VMs can be cloned there, but not be thin", a.Disk.Alias)
		}
	}
}

// inventory lists VMs as the driver does every few seconds.
func (z *zvirt) inventory(ctx context.Context) {
	if !z.target.Filter {
		z.addf(Info, "inventory", "%d VMs, %d of them run", z.root.VMs.Total, z.root.VMs.Active)
	}
	began := time.Now()
	var vms ovirt.VMs
	err := z.read(ctx, &vms, url.Values{"search": {`comment="nova*" sortby name page 1`}, "max": {firstPage}}, "vms")
	if z.failed("search", err) {
		return
	}
	took := time.Since(began)
	level := OK
	if took > time.Second {
		level = Warn
	}
	z.addf(level, "search", "%d VMs with a comment of this project, listed in %s", len(vms.VMs), took.Round(time.Millisecond))
}
