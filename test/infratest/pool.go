package infratest

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Pool gives addresses, as an IPAM provider does.
type Pool struct {
	// Client reads and writes.
	Client client.Client
	// Namespace is where claims are served, and Name the pool they name.
	Namespace, Name string
	// First is the first address that is given, with the length of its
	// network, and Gateway the network's; none, if invalid.
	First   netip.Prefix
	Gateway netip.Addr
	// Size is how many addresses there are.
	Size int

	given map[string]netip.Addr
}

const poolFinalizer = "ipam.example.test/pool"

// Ref is the reference of a machine to the pool.
func (p *Pool) Ref() ipamv1.IPPoolReference {
	return ipamv1.IPPoolReference{APIGroup: "ipam.example.test", Kind: "TestPool", Name: p.Name}
}

// Run serves claims until ctx is done or something fails.
func (p *Pool) Run(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := p.Serve(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Serve processes all claims once.
func (p *Pool) Serve(ctx context.Context) error {
	list := &ipamv1.IPAddressClaimList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Spec.PoolRef != p.Ref() {
			continue
		}
		serve := p.fulfil
		if !claim.DeletionTimestamp.IsZero() {
			serve = p.takeBack
		}
		// Another client wrote meanwhile: the next round reads it.
		if err := serve(ctx, claim); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("serving claim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// fulfil gives a claim an address.
func (p *Pool) fulfil(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	if claim.Status.AddressRef.Name != "" {
		return nil
	}
	before := claim.DeepCopy()
	if controllerutil.AddFinalizer(claim, poolFinalizer) {
		return p.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	ip, ok := p.next(claim.Name)
	ready := metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"}
	if ok {
		if err := p.Client.Create(ctx, p.address(claim, ip)); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		claim.Status.AddressRef.Name = claim.Name
	} else {
		ready.Status, ready.Reason = metav1.ConditionFalse, ipamv1.IPAddressClaimReadyPoolExhaustedReason
		ready.Message = fmt.Sprintf("all %d addresses are taken", p.Size)
	}
	conditions.Set(claim, ready)
	return p.Client.Status().Patch(ctx, claim, client.MergeFrom(before))
}

func (p *Pool) address(claim *ipamv1.IPAddressClaim, ip netip.Addr) *ipamv1.IPAddress {
	a := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef,
			Address: ip.String(), Prefix: ptr.To(int32(p.First.Bits())),
		},
	}
	if p.Gateway.IsValid() {
		a.Spec.Gateway = p.Gateway.String()
	}
	return a
}

// next returns the address of a claim, a free one if it has none yet.
func (p *Pool) next(claim string) (netip.Addr, bool) {
	if ip, ok := p.given[claim]; ok {
		return ip, true
	}
	taken := map[netip.Addr]bool{}
	for _, ip := range p.given {
		taken[ip] = true
	}
	ip := p.First.Addr()
	for range p.Size {
		if !taken[ip] {
			if p.given == nil {
				p.given = map[string]netip.Addr{}
			}
			p.given[claim] = ip
			return ip, true
		}
		ip = ip.Next()
	}
	return netip.Addr{}, false
}

// takeBack releases the address of a claim that is being deleted, once no other finalizer is left.
func (p *Pool) takeBack(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	if len(claim.Finalizers) != 1 || claim.Finalizers[0] != poolFinalizer {
		return nil
	}
	delete(p.given, claim.Name)
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	if err := client.IgnoreNotFound(p.Client.Delete(ctx, address)); err != nil {
		return err
	}
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, poolFinalizer)
	return p.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
