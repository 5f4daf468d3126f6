package follow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
)

const (
	// pause is the time between two watches, and retry the time after a failure:
	// also until the manager has given the node the permission.
	pause = 5 * time.Second
	retry = 20 * time.Second
	// failedRetry is the time until settings that failed are applied again, at most
	// maxFailedRetry: each attempt may restart containerd and the kubelet.
	failedRetry    = 3 * time.Minute
	maxFailedRetry = 30 * time.Minute
	// changeTimeout limits one attempt to apply settings.
	changeTimeout = 10 * time.Minute
	// maxText limits the text in the condition, in bytes.
	maxText = 512
)

// follower applies the settings of one node.
type follower struct {
	m      *machine.Machine
	record *record
	client *cluster.Client
	// reported is the last report.
	reported cluster.Condition
	// failed is the last change that failed.
	failed failure
}

// failure is the failure to apply a revision.
type failure struct {
	id, text string
	// delay is the time until the next attempt, at next.
	delay time.Duration
	next  time.Time
}

// Run follows the desired settings of the node until the context ends.
func Run(ctx context.Context, m *machine.Machine) error {
	r, err := load(m)
	if err != nil {
		return err
	}
	f := &follower{m: m, record: r}
	for ctx.Err() == nil {
		wait := pause
		if err := f.once(ctx); err != nil {
			m.Logf("%v", err)
			wait = retry
		}
		if m.Sleep(ctx, wait) != nil {
			return nil //nolint:nilerr // the service is stopped
		}
	}
	return nil
}

// once follows the settings until a watch ends.
func (f *follower) once(ctx context.Context) (err error) {
	// The Node may be another one since the last report.
	f.reported = cluster.Condition{}
	if f.m.Exists(keptDir) {
		// Only restored manifests may let the API server of this node start.
		f.m.Logf("Restoring the manifests of components: their change was interrupted")
		if err := restoreManifests(ctx, f.m); err != nil {
			return err
		}
		// kubeadm compares the running components, so the kubelet starts them first.
		if err := f.m.Sleep(ctx, retry); err != nil {
			return err
		}
	}
	if f.m.Exists(formerDir) {
		f.m.Logf("Restoring the former version of Kubernetes: its change was interrupted")
		if err := restoreVersion(ctx, f.m); err != nil {
			return err
		}
		// As for manifests.
		if err := f.m.Sleep(ctx, retry); err != nil {
			return err
		}
	}
	// The kubelet renews its certificate, so it is read each time.
	if f.client, err = cluster.Load(f.m.At(kubeconfig)); err != nil {
		return err
	}
	if len(f.record.Started) == 0 {
		if err := f.reportApplied(ctx); err != nil {
			return err
		}
	}
	watching := ctx
	if delay := f.failed.next.Sub(f.m.Now()); delay > 0 {
		// A watch sends settings when it begins, so it ends when they are repeated.
		var cancel context.CancelFunc
		watching, cancel = context.WithTimeout(ctx, delay)
		defer cancel()
	}
	secret := cluster.SecretKey{Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName(f.record.Node.Name)}
	return f.client.WatchSecret(watching, secret, nodeconfig.SettingsKey, func(packed []byte) error { return f.handle(ctx, packed) })
}

// handle applies desired settings.
func (f *follower) handle(ctx context.Context, packed []byte) error {
	settings, id, err := nodeconfig.Unpack(packed)
	if err != nil {
		return f.report(ctx, false, nodeconfig.RejectedReason, id, err.Error())
	}
	if id == f.record.Applied.ID && len(f.record.Started) == 0 {
		return f.reportApplied(ctx)
	}
	if why := f.record.rejected(settings); why != "" {
		return f.report(ctx, false, nodeconfig.RejectedReason, id, why)
	}
	if id == f.failed.id && f.m.Now().Before(f.failed.next) {
		return f.report(ctx, false, nodeconfig.FailedReason, id, f.failed.text)
	}
	f.record.Node.fill(settings)
	f.m.Logf("Applying revision %s of the settings", id)
	wanted := revision{ID: id, Settings: settings}
	if err := f.apply(ctx, wanted); err != nil {
		if reported := f.report(ctx, false, nodeconfig.FailedReason, id, err.Error()); reported != nil {
			f.m.Logf("%v", reported)
		}
		return err
	}
	f.record.Applied, f.record.Started, f.failed = wanted, nil, failure{}
	if err := f.record.save(ctx, f.m); err != nil {
		return err
	}
	f.m.Logf("Revision %s of the settings is applied", id)
	return f.reportApplied(ctx)
}

// apply applies a revision. Labels are first: a failure to set them has restarted
// no service, so it does not delay the next attempt.
func (f *follower) apply(ctx context.Context, wanted revision) error {
	former := f.record.former()
	if err := f.record.begin(ctx, f.m, wanted); err != nil {
		return err
	}
	if labels := labelChanges(former, wanted.Settings); len(labels) > 0 {
		if err := f.client.LabelNode(ctx, f.record.Node.Name, labels); err != nil {
			return fmt.Errorf("changing labels: %w", err)
		}
	}
	if err := f.report(ctx, false, nodeconfig.ApplyingReason, wanted.ID, "the settings are being applied"); err != nil {
		return err
	}
	if err := f.change(ctx, former, wanted); err != nil {
		f.fail(wanted.ID, err.Error())
		return err
	}
	return nil
}

// fail records that a revision failed. The delay grows with each attempt.
func (f *follower) fail(id, text string) {
	delay := failedRetry
	if f.failed.id == id {
		delay = min(2*f.failed.delay, maxFailedRetry) //nolint:mnd // twice as long
	}
	f.failed = failure{id: id, text: text, delay: delay, next: f.m.Now().Add(delay)}
}

// change changes the machine to a revision. A panic is its failure.
func (f *follower) change(ctx context.Context, former []*nodeconfig.Settings, to revision) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			f.m.Logf("%s", debug.Stack())
			err = fmt.Errorf("the host agent failed: %v", problem)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	upgrade, err := fetchVersion(ctx, f.m, f.client, to.Settings)
	if err != nil {
		return fmt.Errorf("getting Kubernetes %s: %w", to.Settings.Kubernetes.Version, err)
	}
	defer func() { err = errors.Join(err, upgrade.forget()) }()
	if err := prepare.Change(ctx, f.m, machines(former), &to.Settings.Machine); err != nil {
		return err
	}
	// Before the components: they may not start while a change of the CAs is interrupted.
	if f.client, err = changeAuthorities(ctx, f.m, f.client, f.record.Node, to.Settings); err != nil {
		return fmt.Errorf("changing CAs: %w", err)
	}
	if upgrade != nil {
		upgrade.client = f.client
	} else {
		// Their settings change with the version.
		if err := changeComponents(ctx, f.m, f.client, former, to.Settings); err != nil {
			return fmt.Errorf("changing control plane components: %w", err)
		}
	}
	if err := renewCertificates(ctx, f.m, f.client, f.record.Node, to.Settings); err != nil {
		return fmt.Errorf("renewing certificates: %w", err)
	}
	// Before the kubelet changes: it may not start with other hardware.
	if err := changeHardware(ctx, f.m, f.client, former, to.Settings); err != nil {
		return fmt.Errorf("adding hardware: %w", err)
	}
	if upgrade != nil {
		if err := upgrade.apply(ctx, former, to.Settings); err != nil {
			return fmt.Errorf("changing to Kubernetes %s: %w", to.Settings.Kubernetes.Version, err)
		}
		return nil
	}
	if err := changeKubelet(ctx, f.m, former, to.Settings); err != nil {
		return fmt.Errorf("changing kubelet: %w", err)
	}
	return nil
}

func (f *follower) reportApplied(ctx context.Context) error {
	return f.report(ctx, true, nodeconfig.AppliedReason, f.record.Applied.ID, "the settings are applied")
}

// report sets the condition of the Node, unless it was reported already.
func (f *follower) report(ctx context.Context, good bool, reason, id, text string) error {
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "")
	condition := cluster.Condition{Type: nodeconfig.ConfiguredCondition, True: good, Reason: reason, Message: nodeconfig.ReportMessage(id, text)}
	if f.reported == condition {
		return nil
	}
	if err := f.client.SetNodeCondition(ctx, f.record.Node.Name, condition); err != nil {
		return err
	}
	f.reported = condition
	return nil
}
