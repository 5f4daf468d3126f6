package proxmox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
)

// Create takes the next step of a creation: it clones the template, or prepares the
// clone for its first boot.
func (d *driver) Create(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, l hypervisor.CreateOptions) error {
	v, err := d.look(m)
	if err != nil || v.state != hypervisor.Absent {
		return err
	}
	s, err := plan.SettingsOf(&d.cluster.Spec, &m.Spec, l.Zone)
	if err != nil {
		return err
	}
	seed, err := plan.NewSeed(d.clusterID(), &d.cluster.Spec, m, &s, l, v.id)
	if err != nil {
		return err
	}
	if v.VM == nil {
		return d.clone(ctx, m, &v, &s, &seed)
	}
	return d.prepare(ctx, m, &v, &s, &seed)
}

// clone sends the request that creates the VM.
func (d *driver) clone(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, v *view, s *plan.Settings, seed *plan.Seed) error {
	if v.Rejected {
		confirmed, err := d.session.ConfirmUnseen(v.id)
		switch {
		case err != nil:
			return err
		case !confirmed:
			return hypervisor.Waiting(infrav1.VMBusyReason, "checking whether the guest with the ID %d is the VM of this machine", v.Free)
		}
		d.session.SetTaken(v.id, v.Free) // the machine is delivered with the next ID
		return nil
	}
	found := d.session.Site()
	if err := found.CheckConflicts(&seed.Mark, m.Spec.VMName(m), s.Pool, v.Free); err != nil {
		return err
	}
	if v.Free == 0 {
		return hypervisor.Failure(infrav1.InsufficientResourcesReason, "other guests have all the IDs that the VM of this machine can have: the range of the IDs of VMs is too small")
	}
	host, config, err := d.host(ctx, m, found, s)
	if err != nil {
		return err
	}
	if err := d.check(ctx, m, found, s, host.Node); err != nil {
		return err
	}
	if _, _, err := seed.SetStorage(found, s, &d.bounds, host.Node, ""); err != nil {
		return err
	}
	form, err := plan.Clone(m, s, host, v.Free, &seed.Mark, config)
	if err != nil {
		return err
	}
	key := hypervisor.KeyOf(m)
	if !d.session.CreationQueue.Acquire(key) {
		return hypervisor.Waiting(infrav1.RequestQueuedReason, "Queued: the maximum number of VMs is being cloned; this VM is number %d in the queue of its namespace", d.session.CreationQueue.Position(key))
	}
	err = d.session.Act(ctx, v.id, site.Action{
		Verb: site.Clone, VMID: v.Free, Node: host.Template.Node,
		Request: pve.Request{Method: http.MethodPost, Path: site.VMPath(host.Template.Node, host.Template.VMID, "clone"), Form: form},
		Planned: plan.Planned{VMID: v.Free, Node: host.Node, Group: seed.Mark.Group, Memory: plan.Memory(&m.Spec, host.Template)}, Mark: seed.Mark, Config: config,
	})
	switch {
	case err == nil || pve.IsAmbiguous(err):
		return err
	case pve.IsExisting(err):
		// The list may be older than the guest, or the user cannot see it.
		d.session.CreationQueue.Done(key)
		d.session.SetActive(v.id, true)
		return hypervisor.Failure(infrav1.VMBusyReason, "a guest has the ID %d: %w", v.Free, err)
	}
	d.session.CreationQueue.Done(key)
	return err
}

// host chooses the template and the node, and returns the configuration of the template.
func (d *driver) host(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, found *plan.Site, s *plan.Settings) (plan.Host, plan.Config, error) {
	templates, err := s.Templates(found, &d.bounds)
	if err != nil {
		return plan.Host{}, nil, err
	}
	storages := map[int][]string{}
	for _, t := range templates {
		c, err := d.session.KeptConfig(ctx, t.Node, t.VMID)
		if err != nil {
			return plan.Host{}, nil, fmt.Errorf("reading template: %w", err)
		}
		storages[t.VMID] = c.Storages()
	}
	group, required := plan.GroupOf(d.clusterID(), &d.cluster.Spec, m)
	host, err := s.Host(found, &d.bounds, templates, group, required, func(t *pve.Resource) []string { return storages[t.VMID] })
	if err != nil {
		return plan.Host{}, nil, err
	}
	c, err := d.session.KeptConfig(ctx, host.Template.Node, host.Template.VMID)
	return host, c, err
}

// check returns an error if an object that the machine references does not exist on its
// node.
func (d *driver) check(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, found *plan.Site, s *plan.Settings, node string) error {
	if err := s.CheckBounds(&d.bounds, &m.Spec.Hardware); err != nil {
		return err
	}
	names := []string{s.Storage}
	for i := range m.Spec.Disks.Data {
		names = append(names, m.Spec.Disks.Data[i].Storage)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if err := found.CheckStorage(&d.bounds, node, name, "images"); err != nil {
			return err
		}
	}
	networks, err := d.session.Networks(ctx, node, s.Networks())
	if err != nil {
		return fmt.Errorf("listing networks: %w", err)
	}
	return s.CheckNetworks(node, networks)
}

// prepare takes the next step before the first boot.
func (d *driver) prepare(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, v *view, s *plan.Settings, seed *plan.Seed) error {
	found := d.session.Site()
	if err := d.check(ctx, m, found, s, v.VM.Node); err != nil {
		return err
	}
	storage, volume, err := seed.SetStorage(found, s, &d.bounds, v.VM.Node, cmp.Or(v.Image.Storage, found.StorageNamed(v.VM.Node, v.Mark.ISO)))
	if err != nil {
		return err
	}
	// A request that changes disks must not be executed twice, so it has the digest of
	// the configuration that it was made for.
	read := d.session.KeptConfig
	if plan.ChangesDisks(m) {
		read = d.session.Config
	}
	config, err := read(ctx, v.VM.Node, v.VM.VMID)
	if err != nil {
		return fmt.Errorf("reading VM: %w", err)
	}
	act := func(verb site.Verb, r pve.Request) error {
		return d.session.Act(ctx, v.id, site.Action{Verb: verb, VMID: v.VM.VMID, Node: v.VM.Node, Request: r})
	}
	if form, smaller := plan.Resize(m, config); smaller && !v.machine.Resized {
		return act(site.Resize, pve.Request{Method: http.MethodPut, Path: site.VMPath(v.VM.Node, v.VM.VMID, "resize"), Form: form})
	}
	if !v.machine.Uploaded {
		sum := sha256.Sum256(seed.Image)
		return d.session.Act(ctx, v.id, site.Action{Verb: site.Upload, VMID: v.VM.VMID, Node: v.VM.Node, Storage: storage, Request: pve.Request{
			Method: http.MethodPost, Path: []string{"nodes", v.VM.Node, "storage", storage, "upload"},
			Form: url.Values{"content": {"iso"}, "checksum": {hex.EncodeToString(sum[:])}, "checksum-algorithm": {"sha256"}}, File: seed.Image, FileName: plan.ImageName(v.id),
		}})
	}
	form, err := plan.Configuration(m, s, &seed.Mark, config, v.VM.TagList(), volume)
	if err != nil {
		return err
	}
	return act(site.Configure, pve.Request{Method: http.MethodPost, Path: site.VMPath(v.VM.Node, v.VM.VMID, "config"), Form: form})
}

// Start sends a request to power the VM of m on.
func (d *driver) Start(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err != nil || v.state != hypervisor.Stopped || !v.Complete {
		return err
	}
	if v.VM.HAState == haError {
		// The HA manager would accept the request and do nothing.
		return hypervisor.Failure(infrav1.HypervisorErrorReason, haGaveUp)
	}
	return d.power(ctx, &v, site.Start, "start", url.Values{})
}

// power sends a request that changes the power of a VM.
func (d *driver) power(ctx context.Context, v *view, verb site.Verb, command string, form url.Values) error {
	return d.session.Act(ctx, v.id, site.Action{
		Verb: verb, VMID: v.VM.VMID, Node: v.VM.Node,
		Request: pve.Request{Method: http.MethodPost, Path: site.VMPath(v.VM.Node, v.VM.VMID, "status", command), Form: form},
	})
}
