package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// haError is the state of a VM that the HA manager has given up, and haGaveUp the steps that restart it.
const (
	haError  = "error"
	haGaveUp = "The HA manager of Proxmox VE does not restart the VM: it is in the state error there. Set it to disabled, correct the cause, and set it to started"
)

// ha is the path of the HA manager.
func ha(rest ...string) []string { return append([]string{"cluster", "ha"}, rest...) }

// wantedHA returns the mark of the settings that a VM must have in the HA manager, and
// whether it has them. It needs no request: the list has the tags, and which guests the HA
// manager manages.
func (d *driver) wantedHA(m *proxmoxv1.NovaProxmoxMachine, v *view) (mark string, same bool) {
	mark = plan.HAMark(d.clusterID(), &d.cluster.Spec, m)
	return mark, v.Mark.HA == mark && (mark == "" || v.VM.HAState != "")
}

// syncHA adds a VM to the HA manager with its rules, or removes it. The last request writes
// the tag with the mark of the settings. If an earlier one fails, all of them are repeated.
func (d *driver) syncHA(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err != nil || v.state != hypervisor.Running || !v.Complete {
		return err
	}
	key := hypervisor.KeyOf(m)
	if !d.session.RuleQueue.Acquire(key) {
		return hypervisor.Waiting(infrav1.RequestQueuedReason, "Queued: another machine is changing rules of the HA manager")
	}
	defer d.session.RuleQueue.Done(key)
	mark, same := d.wantedHA(m, &v)
	if same {
		return nil
	}
	// A VM whose settings are invalid stays in the HA manager as it is.
	var rules []plan.HARule
	if mark != "" {
		if rules, err = d.haRules(m, &v); err != nil {
			return err
		}
	}
	// The removal also takes the VM out of its former rules.
	if err := d.leaveHA(ctx, &v); err != nil {
		return err
	}
	state := ""
	if v.Mark.HA = mark; mark != "" {
		state = "started"
		if err := d.joinHA(ctx, m, &v, rules); err != nil {
			return err
		}
	}
	wanted, _ := plan.WantedTags(d.clusterID(), &d.cluster.Spec, m, v.Mark, v.VM.TagList())
	return d.setTags(ctx, &v, wanted, url.Values{}, state)
}

// haRules returns the rules of a VM in the HA manager.
func (d *driver) haRules(m *proxmoxv1.NovaProxmoxMachine, v *view) ([]plan.HARule, error) {
	s, err := plan.SettingsOf(&d.cluster.Spec, &m.Spec, plan.ZoneOf(&d.cluster.Spec, &v.Mark))
	if err != nil {
		return nil, err
	}
	group, required := plan.GroupOf(d.clusterID(), &d.cluster.Spec, m)
	if !required {
		group = ""
	}
	_, version := d.session.Info()
	return s.HARules(d.session.Site(), &d.bounds, &v.Mark, v.VM, group, version)
}

// joinHA adds a VM to the HA manager, and to its rules.
func (d *driver) joinHA(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, v *view, rules []plan.HARule) error {
	err := d.session.Do(ctx, pve.Request{Method: http.MethodPost, Path: ha("resources"), Form: plan.HAResource(&m.Spec.HighAvailability, v.VM.VMID)})
	if err != nil {
		return fmt.Errorf("adding VM to the HA manager: %w", err)
	}
	for _, rule := range rules {
		err = d.session.Do(ctx, pve.Request{Method: http.MethodPut, Path: ha("rules", rule.Name), Form: rule.Form})
		if pve.IsMissing(err) {
			rule.Form.Set("rule", rule.Name)
			err = d.session.Do(ctx, pve.Request{Method: http.MethodPost, Path: ha("rules"), Form: rule.Form})
		}
		if err != nil {
			return fmt.Errorf("writing rule %s of the HA manager: %w", rule.Name, err)
		}
	}
	return nil
}

// leaveHA removes a VM from the HA manager, which would start it again. The list may show
// its state there for some seconds after that.
func (d *driver) leaveHA(ctx context.Context, v *view) error {
	if v.Mark.HA == "" && (v.VM.HAState == "" || v.VM.HAState == "ignored") {
		return nil
	}
	err := d.session.Do(ctx, pve.Request{Method: http.MethodDelete, Path: ha("resources", plan.HAResourceID(v.VM.VMID))})
	if err != nil && !pve.IsUnmanaged(err) {
		return fmt.Errorf("removing VM from the HA manager: %w", err)
	}
	return nil
}
