package sitecheck

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
)

// VSphereTarget is a vCenter, and the names that a NovaVSphereCluster and its
// machines will have. A name that is not set is not checked.
type VSphereTarget struct {
	// Server is host or host:port.
	Server, Username, Password string
	// CABundle is in PEM. Without it, the system's CAs verify the certificate, and
	// with Thumbprint (SHA-256, as in AB:CD:…) only that certificate is accepted.
	CABundle, Thumbprint string

	Datacenter, ComputeCluster, ResourcePool, Folder, Datastore, Template string
	Networks                                                              []string
}

// Limits of acceptable values.
const (
	oldestVCenter = "7.0.0"
	// maxEvents is how many events are read.
	maxEvents = 200
)

// vsphere is a check of a vCenter under way.
type vsphere struct {
	*Report

	target VSphereTarget
	client *vim25.Client
	finder *find.Finder
}

// VSphere checks a vCenter. Each failure is in the report.
func VSphere(ctx context.Context, t VSphereTarget) Report {
	var report Report
	v := &vsphere{Report: &report, target: t}
	if !v.connect(ctx) {
		return report
	}
	users := session.NewManager(v.client)
	began := time.Now()
	if v.failed("login", users.Login(ctx, url.UserPassword(t.Username, t.Password))) {
		return report
	}
	defer func() { _ = users.Logout(context.WithoutCancel(ctx)) }()
	v.addf(OK, "login", "took %s", time.Since(began).Round(time.Millisecond))
	v.latency(ctx)
	v.rest(ctx)
	v.objects(ctx)
	v.inventory(ctx)
	v.tasks(ctx)
	v.events(ctx)
	return report
}

// connect opens a connection, and checks certificate and versions.
func (v *vsphere) connect(ctx context.Context) bool {
	u, err := soap.ParseURL(v.target.Server)
	if v.failed("server", err) {
		return false
	}
	u.User = nil
	sc := soap.NewClient(u, false)
	transport := sc.DefaultTransport()
	if v.failed("certificate", v.trust(transport.TLSClientConfig)) {
		return false
	}
	sc.UserAgent = "nova-site-check"
	v.client, err = vim25.NewClient(ctx, sc)
	if v.failed("connection", err) {
		return false
	}
	about := v.client.ServiceContent.About
	v.addf(OK, "certificate", "is trusted")
	if v.client.ServiceContent.About.ApiType != "VirtualCenter" {
		v.addf(Fail, "version", "%s is a single host and no vCenter", about.FullName)
		return false
	}
	level := OK
	if has, err := version.ParseGeneric(about.Version); err != nil || !has.AtLeast(version.MustParseGeneric(oldestVCenter)) {
		level = Fail
	}
	v.addf(level, "version", "%s, API %s, instance %s", about.FullName, about.ApiVersion, about.InstanceUuid)
	if err := v.client.UseServiceVersion(); err != nil {
		v.addf(Warn, "API versions", "vCenter does not list them: %v", err)
	} else {
		v.addf(Info, "API versions", "newest is %s", v.client.Version)
	}
	return true
}

// trust sets which certificate is accepted.
func (v *vsphere) trust(config *tls.Config) error {
	switch {
	case v.target.Thumbprint != "":
		want := strings.ToUpper(v.target.Thumbprint)
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			if got := soap.ThumbprintSHA256(cs.PeerCertificates[0]); got != want {
				return fmt.Errorf("the SHA-256 thumbprint is %s", got)
			}
			return nil
		}
	case v.target.CABundle != "":
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(v.target.CABundle)) {
			return errors.New("the CA bundle holds no certificate")
		}
	}
	return nil
}

// latency measures small requests, and compares the clocks.
func (v *vsphere) latency(ctx context.Context) {
	const tries = 10
	var took []time.Duration
	for range tries {
		began := time.Now()
		res, err := methods.CurrentTime(ctx, v.client, &types.CurrentTime{This: vim25.ServiceInstance})
		if v.failed("latency", err) {
			return
		}
		if took = append(took, time.Since(began)); len(took) > 1 {
			continue
		}
		v.clock(res.Returnval)
	}
	v.percentiles(took)
}

// rest logs in at the REST API, which tags and content libraries need.
func (v *vsphere) rest(ctx context.Context) {
	c := rest.NewClient(v.client)
	if err := c.Login(ctx, url.UserPassword(v.target.Username, v.target.Password)); err != nil {
		v.addf(Warn, "REST API", "tags and content libraries cannot be used: %v", err)
		return
	}
	_ = c.Logout(ctx)
	v.addf(OK, "REST API", "login succeeded")
}

// privileges are those of docs/vsphere.md, by the object they are needed on.
var privileges = map[string][]string{
	"template": {"VirtualMachine.Provisioning.DeployTemplate"},
	"folder": {
		"VirtualMachine.Inventory.CreateFromExisting", "VirtualMachine.Inventory.Delete",
		"VirtualMachine.Config.CPUCount", "VirtualMachine.Config.Memory", "VirtualMachine.Config.Resource", "VirtualMachine.Config.Settings",
		"VirtualMachine.Config.AdvancedConfig", "VirtualMachine.Config.AddRemoveDevice", "VirtualMachine.Config.EditDevice",
		"VirtualMachine.Config.AddNewDisk", "VirtualMachine.Config.DiskExtend", "VirtualMachine.Config.RemoveDisk",
		"VirtualMachine.Config.Annotation", "VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff",
	},
	"resource pool": {"Resource.AssignVMToPool"},
	"datastore":     {"Datastore.AllocateSpace"},
	"network":       {"Network.Assign"},
}

// optional are privileges without which a part does not work: see docs/vsphere.md.
var optional = map[string][]string{"compute cluster": {"Host.Inventory.EditCluster"}}

// objects looks for the objects that are named, and for the account's privileges
// on each.
func (v *vsphere) objects(ctx context.Context) {
	v.finder = find.NewFinder(v.client, true)
	dc, err := v.finder.DatacenterOrDefault(ctx, v.target.Datacenter)
	if v.failed("datacenter", err) {
		return
	}
	v.finder.SetDatacenter(dc)
	v.addf(OK, "datacenter", "%s", dc.InventoryPath)
	v.cluster(ctx)
	if pool, err := v.finder.ResourcePoolOrDefault(ctx, v.pool()); !v.failed("resource pool", err) {
		v.found(ctx, "resource pool", pool.InventoryPath, pool.Reference())
	}
	if folder, err := v.finder.FolderOrDefault(ctx, v.target.Folder); !v.failed("folder", err) {
		v.found(ctx, "folder", folder.InventoryPath, folder.Reference())
	}
	v.datastore(ctx)
	for _, name := range v.target.Networks {
		if network, err := v.finder.Network(ctx, name); !v.failed("network", err) {
			v.found(ctx, "network", network.GetInventoryPath(), network.Reference())
		}
	}
	v.template(ctx)
}

// pool is the path of the resource pool that is named.
func (v *vsphere) pool() string {
	switch {
	case v.target.ResourcePool == "" && v.target.ComputeCluster != "":
		return v.target.ComputeCluster + "/Resources"
	default:
		return v.target.ResourcePool
	}
}

// found notes an object, and the privileges that the account lacks on it.
func (v *vsphere) found(ctx context.Context, kind, path string, at types.ManagedObjectReference) {
	lacking := v.lacking(ctx, kind, at, privileges[kind])
	if len(lacking) > 0 {
		v.addf(Fail, kind, "%s: the account lacks %s", path, strings.Join(lacking, ", "))
	} else {
		v.addf(OK, kind, "%s, privileges are complete", path)
	}
}

// lacking are the privileges that the account does not have on an object.
func (v *vsphere) lacking(ctx context.Context, kind string, at types.ManagedObjectReference, wanted []string) (lacking []string) {
	user, err := session.NewManager(v.client).UserSession(ctx)
	if err != nil || user == nil || v.client.ServiceContent.AuthorizationManager == nil {
		v.addf(Warn, kind, "the privileges cannot be read: %v", err)
		return nil
	}
	res, err := methods.HasPrivilegeOnEntities(ctx, v.client, &types.HasPrivilegeOnEntities{
		This: *v.client.ServiceContent.AuthorizationManager, Entity: []types.ManagedObjectReference{at},
		SessionId: user.Key, PrivId: wanted,
	})
	if err != nil {
		v.addf(Warn, kind, "the privileges cannot be read: %v", err)
		return nil
	}
	for _, entity := range res.Returnval {
		for _, p := range entity.PrivAvailability {
			if !p.IsGranted {
				lacking = append(lacking, p.PrivId)
			}
		}
	}
	return lacking
}

// cluster checks the compute cluster: its hosts, DRS and HA.
func (v *vsphere) cluster(ctx context.Context) {
	if v.target.ComputeCluster == "" {
		return
	}
	found, err := v.finder.ClusterComputeResource(ctx, v.target.ComputeCluster)
	if v.failed("compute cluster", err) {
		return
	}
	var c mo.ClusterComputeResource
	if v.failed("compute cluster", found.Properties(ctx, found.Reference(), []string{"summary", "configurationEx"}, &c)) {
		return
	}
	summary := c.Summary.GetComputeResourceSummary()
	v.addf(Info, "compute cluster", "%s: %d hosts, %d of them can run VMs", found.InventoryPath, summary.NumHosts, summary.NumEffectiveHosts)
	if lacking := v.lacking(ctx, "compute cluster", found.Reference(), optional["compute cluster"]); len(lacking) > 0 {
		v.addf(Warn, "compute cluster", "set antiAffinity: None, or give the account %s", strings.Join(lacking, ", "))
	}
	config, ok := c.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		v.addf(Warn, "DRS and HA", "the account cannot read the settings of the cluster")
		return
	}
	drs := ptr.Deref(config.DrsConfig.Enabled, false)
	v.addf(levelOf(drs), "DRS", "enabled: %t, %s", drs, config.DrsConfig.DefaultVmBehavior)
	ha := ptr.Deref(config.DasConfig.Enabled, false)
	v.addf(levelOf(ha), "HA", "enabled: %t", ha)
}

// datastore checks the datastore: its privileges and its free space.
func (v *vsphere) datastore(ctx context.Context) {
	if v.target.Datastore == "" {
		return
	}
	found, err := v.finder.Datastore(ctx, v.target.Datastore)
	if v.failed("datastore", err) {
		return
	}
	v.found(ctx, "datastore", found.InventoryPath, found.Reference())
	var ds mo.Datastore
	if v.failed("datastore", found.Properties(ctx, found.Reference(), []string{"summary"}, &ds)) {
		return
	}
	if ds.Summary.MaintenanceMode != string(types.DatastoreSummaryMaintenanceModeStateNormal) && ds.Summary.MaintenanceMode != "" {
		v.addf(Fail, "datastore", "%s: maintenance mode is %s", found.InventoryPath, ds.Summary.MaintenanceMode)
	}
	v.addf(Info, "datastore", "%s: %s, %d GiB free", found.InventoryPath, ds.Summary.Type, ds.Summary.FreeSpace>>30)
}

// template checks the template, and how vCenter names a single setting of a VM.
func (v *vsphere) template(ctx context.Context) {
	if v.target.Template == "" {
		return
	}
	found, err := v.finder.VirtualMachine(ctx, v.target.Template)
	if v.failed("template", err) {
		return
	}
	v.found(ctx, "template", found.InventoryPath, found.Reference())
	var vm mo.VirtualMachine
	if v.failed("template", found.Properties(ctx, found.Reference(), []string{"config", "snapshot"}, &vm)) {
		return
	}
	if vm.Config == nil {
		v.addf(Fail, "template", "vCenter cannot read its settings: its host or datastore is out of reach")
		return
	}
	devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
	v.addf(Info, "template", "%s, firmware %s, guest %s, %d disks, %d network interfaces, snapshot: %t, OVA properties: %t",
		vm.Config.Version, vm.Config.Firmware, vm.Config.GuestId, len(devices.SelectByType((*types.VirtualDisk)(nil))),
		len(devices.SelectByType((*types.VirtualEthernetCard)(nil))), vm.Snapshot != nil, vm.Config.VAppConfig != nil)
	if vm.Config.KeyId != nil || len(devices.SelectByType((*types.VirtualTPM)(nil))) > 0 {
		v.addf(Warn, "template", "it is encrypted or has a virtual TPM: the account needs privileges of the group Cryptographic operations")
	}
	for _, option := range vm.Config.ExtraConfig {
		if o := option.GetOptionValue(); o.Key == "isolation.tools.setinfo.disable" && strings.EqualFold(fmt.Sprint(o.Value), "true") {
			v.addf(Warn, "template", "%s is set: nodes cannot report their first boot, nor clear their bootstrap data", o.Key)
		}
	}
	v.setting(ctx, found.Reference(), vm.Config.ExtraConfig)
}

// setting reads one setting by its key. The driver follows four settings of a VM
// in this way.
func (v *vsphere) setting(ctx context.Context, at types.ManagedObjectReference, all []types.BaseOptionValue) {
	const check = "single settings"
	if len(all) == 0 {
		v.addf(Info, check, "the template has no setting to try it with")
		return
	}
	path := fmt.Sprintf("config.extraConfig[%q]", all[0].GetOptionValue().Key)
	collector := property.DefaultCollector(v.client)
	res, err := collector.RetrieveProperties(ctx, types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{{
		ObjectSet: []types.ObjectSpec{{Obj: at}},
		PropSet:   []types.PropertySpec{{Type: at.Type, PathSet: []string{path}}},
	}}})
	switch {
	case err != nil:
		v.addf(Fail, check, "vCenter does not take %s: %v", path, err)
	case len(res.Returnval) != 1 || len(res.Returnval[0].PropSet) != 1:
		v.addf(Fail, check, "vCenter returns nothing for %s", path)
	case res.Returnval[0].PropSet[0].Name != path:
		v.addf(Warn, check, "vCenter returns %s for %s", res.Returnval[0].PropSet[0].Name, path)
	default:
		v.addf(OK, check, "vCenter returns %T for %s", res.Returnval[0].PropSet[0].Val, path)
	}
}

// inventory reads the names and UUIDs of all VMs, as the driver does after each
// login.
func (v *vsphere) inventory(ctx context.Context) {
	all, err := view.NewManager(v.client).CreateContainerView(ctx, v.client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if v.failed("inventory", err) {
		return
	}
	defer func() { _ = all.Destroy(ctx) }()
	began := time.Now()
	var vms []mo.VirtualMachine
	if v.failed("inventory", all.Retrieve(ctx, []string{"VirtualMachine"}, []string{"name", "config.instanceUuid"}, &vms)) {
		return
	}
	v.addf(Info, "inventory", "%d VMs, read in %s", len(vms), time.Since(began).Round(time.Millisecond))
}

// tasks counts the recent tasks of all users, which the driver follows.
func (v *vsphere) tasks(ctx context.Context) {
	var manager mo.TaskManager
	err := property.DefaultCollector(v.client).RetrieveOne(ctx, *v.client.ServiceContent.TaskManager, []string{"recentTask"}, &manager)
	if v.failed("tasks", err) {
		return
	}
	v.addf(Info, "tasks", "%d recent tasks of all users", len(manager.RecentTask))
}

// events looks whether vCenter writes the values of settings into its events: the
// removal of bootstrap data would then leave it there. Values are not printed.
func (v *vsphere) events(ctx context.Context) {
	const check = "events"
	found, err := event.NewManager(v.client).QueryEvents(ctx, types.EventFilterSpec{
		EventTypeId: []string{"VmReconfiguredEvent"}, MaxCount: maxEvents,
	})
	if err != nil {
		v.addf(Warn, check, "cannot be read: %v", err)
		return
	}
	settings, secrets := 0, 0
	for _, e := range found {
		reconfigured, ok := e.(*types.VmReconfiguredEvent)
		if !ok || reconfigured.ConfigChanges == nil {
			continue
		}
		changes := reconfigured.ConfigChanges
		text := changes.Modified + changes.Added + changes.Deleted
		if strings.Contains(text, "extraConfig(") {
			settings++
		}
		if strings.Contains(text, `extraConfig("guestinfo.userdata")`) {
			secrets++
		}
	}
	switch {
	case secrets > 0:
		v.addf(Warn, check, "%d of %d reconfigurations name guestinfo.userdata: look whether its value is in them", secrets, len(found))
	case settings > 0:
		v.addf(Warn, check, "%d of %d reconfigurations have values of settings: old values stay there as long as events are kept", settings, len(found))
	default:
		v.addf(Info, check, "none of %d reconfigurations has values of settings", len(found))
	}
}
