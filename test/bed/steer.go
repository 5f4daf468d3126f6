package bed

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Control steers the bed's vCenter: delays, faults, counters.
func (b *Bed) Control() *vcenter.Control { return vcenter.NewControl(controlSocket(b.Name, VSphere)) }

// Vim logs in to the bed's vCenter as a person would who changes VMs behind
// the providers' back.
func (b *Bed) Vim(ctx context.Context) (*govmomi.Client, error) {
	center, err := b.VCenter(ctx)
	if err != nil {
		return nil, err
	}
	info, err := b.Control().Info(ctx)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(info.CABundle)) {
		return nil, errors.New("reading certificate of vCenter: no PEM")
	}
	transport := soap.NewClient(&url.URL{Scheme: "https", Host: center.Server, Path: "/sdk"}, false)
	// A vCenter that does not answer ends a test with an error, not with its time.
	transport.Timeout = time.Minute
	t := transport.DefaultTransport()
	t.TLSClientConfig.RootCAs = roots
	t.DialContext = b.Dial
	// The SDK's own would leave the bed's network, and so would a proxy.
	t.DialTLSContext, t.Proxy = nil, nil
	vim, err := vim25.NewClient(ctx, transport)
	if err != nil {
		return nil, fmt.Errorf("connecting to vCenter: %w", err)
	}
	c := &govmomi.Client{Client: vim, SessionManager: session.NewManager(vim)}
	if err := c.Login(ctx, url.UserPassword(center.Username, center.Password)); err != nil {
		return nil, fmt.Errorf("logging in to vCenter: %w", err)
	}
	return c, nil
}

// FindVM finds a VM or template of that name, wherever it lies in vCenter.
func FindVM(ctx context.Context, vim *govmomi.Client, name string) (*object.VirtualMachine, error) {
	kind := []string{"VirtualMachine"}
	all, err := view.NewManager(vim.Client).CreateContainerView(ctx, vim.ServiceContent.RootFolder, kind, true)
	if err != nil {
		return nil, fmt.Errorf("finding VM %s: %w", name, err)
	}
	defer func() { _ = all.Destroy(ctx) }()
	refs, err := all.Find(ctx, kind, property.Match{"name": name})
	if err != nil {
		return nil, fmt.Errorf("finding VM %s: %w", name, err)
	}
	if len(refs) != 1 {
		return nil, fmt.Errorf("finding VM %s: there are %d", name, len(refs))
	}
	return object.NewVirtualMachine(vim.Client, refs[0]), nil
}

// withVM logs in to vCenter and calls do with the VM or template of a name.
func (b *Bed) withVM(ctx context.Context, name string, do func(*object.VirtualMachine) error) error {
	vim, err := b.Vim(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = vim.Logout(context.WithoutCancel(ctx)) }()
	vm, err := FindVM(ctx, vim, name)
	if err != nil {
		return err
	}
	return do(vm)
}

// SetConnected connects vCenter to the host of a VM, or disconnects it: the VM can
// neither be started nor powered off nor deleted then.
func (b *Bed) SetConnected(ctx context.Context, name string, connected bool) error {
	state := "connected"
	if !connected {
		state = "disconnected"
	}
	return b.withVM(ctx, name, func(vm *object.VirtualMachine) error {
		return b.Control().SetConnectionState(ctx, vm.Reference().Value, state)
	})
}
