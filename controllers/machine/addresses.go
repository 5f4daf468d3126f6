package machine

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// addresser claims, reads and releases the addresses of machines.
type addresser[M Object] struct {
	Client    client.Client
	APIReader client.Reader
	resolver  Resolver
	lookups   *lookups
}

func (r *Reconciler[M]) addresser() addresser[M] {
	return addresser[M]{Client: r.Client, APIReader: r.APIReader, resolver: r.Resolver, lookups: &r.lookups}
}

// addressManager is the field manager of IPAddressClaims.
const addressManager = "nova-addresses"

// claimName returns the name of the IPAddressClaim of one interface of a machine for one of its pools.
// The name depends on the machine alone, so a crash does not lead to a second claim.
func claimName(machine string, nic, pool int) string {
	return fmt.Sprintf("%s-%d-%d", machine, nic, pool)
}

// addresses returns the addresses that the pools gave to each interface, and the claims that it
// created. While an address is missing, addresses sets s.waiting and returns no addresses.
func (r addresser[M]) addresses(ctx context.Context, s *scope[M]) (given [][]hypervisor.Address, claimed []string, err error) {
	var missing []string
	for nic, addressing := range s.addressing() {
		for i, pool := range addressing.AddressesFromPools {
			name := claimName(s.infra.GetName(), nic, i)
			claim, made, err := r.claim(ctx, s, name, pool)
			if err != nil {
				return nil, nil, err
			}
			if made {
				claimed = append(claimed, name)
			}
			address, problem, err := r.address(ctx, claim)
			if err != nil {
				return nil, nil, err
			}
			if problem != "" {
				missing = append(missing, fmt.Sprintf("IPAddressClaim %q on %s %q: %s", name, pool.Kind, pool.Name, problem))
				continue
			}
			for len(given) <= nic {
				given = append(given, nil)
			}
			given[nic] = append(given[nic], address)
		}
	}
	if len(missing) > 0 {
		s.waiting, s.detail = forAddressPool, "Waiting for "+strings.Join(missing, "; ")
		return nil, claimed, nil
	}
	return given, claimed, nil
}

// claim returns the IPAddressClaim of a name and whether this call created it.
func (r addresser[M]) claim(ctx context.Context, s *scope[M], name string, pool ipamv1.IPPoolReference) (*ipamv1.IPAddressClaim, bool, error) {
	claim := &ipamv1.IPAddressClaim{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.infra.GetNamespace(), Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		claim, err = r.applyClaim(ctx, s, name, pool)
		return claim, true, err
	case err != nil:
		return nil, false, fmt.Errorf("reading address claim: %w", err)
	case !metav1.IsControlledBy(claim, s.infra):
		return nil, false, &hypervisor.Error{
			Reason: infrav1.NameConflictReason,
			Err:    fmt.Errorf("claiming an address: the IPAddressClaim %q exists and does not belong to this machine", name),
		}
	case !claim.DeletionTimestamp.IsZero():
		// No VM has the address of this claim yet, so another claim can replace it.
		return claim, false, r.releaseClaim(ctx, claim)
	case !controllerutil.ContainsFinalizer(claim, infrav1.AddressClaimFinalizer):
		claim, err = r.applyClaim(ctx, s, name, pool)
		return claim, false, err
	}
	return claim, false, nil
}

// applyClaim creates an IPAddressClaim. Its finalizer keeps it until the VM is deleted. Its owner
// reference deletes it with the machine.
func (r addresser[M]) applyClaim(ctx context.Context, s *scope[M], name string, pool ipamv1.IPPoolReference) (*ipamv1.IPAddressClaim, error) {
	gvk, err := apiutil.GVKForObject(s.infra, r.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("finding kind of machine: %w", err)
	}
	claim := &ipamv1.IPAddressClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  s.infra.GetNamespace(),
			Name:       name,
			Labels:     map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			Finalizers: []string{infrav1.AddressClaimFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: s.infra.GetName(), UID: s.infra.GetUID(),
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: ipamv1.IPAddressClaimSpec{ClusterName: s.cluster.Name, PoolRef: pool},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
	if err != nil {
		return nil, fmt.Errorf("converting address claim: %w", err)
	}
	delete(fields, "status")
	desired := &unstructured.Unstructured{Object: fields}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(addressManager), client.ForceOwnership)
	if err != nil {
		return nil, fmt.Errorf("claiming an address: %w", err)
	}
	// The watch triggers a reconcile when the IPAM provider updates the claim.
	return claim, nil
}

// address returns the address of an IPAddressClaim. While the claim has no address, it returns the
// reason in lack.
func (r addresser[M]) address(ctx context.Context, claim *ipamv1.IPAddressClaim) (address hypervisor.Address, problem string, err error) {
	name := claim.Status.AddressRef.Name
	switch {
	case !claim.DeletionTimestamp.IsZero():
		return address, "it is being deleted and will be created again", nil
	case name == "":
		return address, claimProblem(claim), nil
	}
	found := &ipamv1.IPAddress{}
	// A single read does not justify caching every IPAddress in memory.
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, found); err != nil {
		if apierrors.IsNotFound(err) {
			return address, fmt.Sprintf("its IPAddress %q does not exist", name), nil
		}
		return address, "", fmt.Errorf("reading address: %w", err)
	}
	address, err = parseAddress(claim.Name, found)
	return address, "", err
}

// claimProblem returns why a claim has no address, in the words of its IPAM provider.
func claimProblem(claim *ipamv1.IPAddressClaim) string {
	ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
	switch {
	case ready == nil || ready.Status == metav1.ConditionTrue:
		return "it has no address yet, and its provider reports no condition; check that the pool exists and is not paused"
	case ready.Message == "":
		return ready.Reason
	default:
		return ready.Message
	}
}

// parseAddress validates an IPAddress and converts it to the type that drivers use.
func parseAddress(claim string, from *ipamv1.IPAddress) (hypervisor.Address, error) {
	refuse := func(format string, args ...any) (hypervisor.Address, error) {
		return hypervisor.Address{}, &hypervisor.Error{
			Reason: infrav1.AddressInvalidReason,
			Err:    fmt.Errorf("reading IPAddress %q: %w", from.Name, fmt.Errorf(format, args...)),
		}
	}
	if from.Spec.ClaimRef.Name != claim {
		return refuse("it belongs to the claim %q, not to %q", from.Spec.ClaimRef.Name, claim)
	}
	ip, err := netip.ParseAddr(from.Spec.Address)
	if err != nil || ip.Zone() != "" {
		return refuse("%q is not an IP address", from.Spec.Address)
	}
	if from.Spec.Prefix == nil || int(*from.Spec.Prefix) > ip.BitLen() {
		return refuse("%d is not a valid prefix length for %s", ptr.Deref(from.Spec.Prefix, 0), ip)
	}
	address := hypervisor.Address{Prefix: netip.PrefixFrom(ip, int(*from.Spec.Prefix))}
	if from.Spec.Gateway == "" {
		return address, nil
	}
	address.Gateway, err = netip.ParseAddr(from.Spec.Gateway)
	switch {
	case err != nil:
		return refuse("its gateway %q is not an IP address", from.Spec.Gateway)
	case address.Gateway.Is4() != ip.Is4():
		return refuse("its gateway %s is of another family than %s", address.Gateway, ip)
	}
	return address, nil
}

// releaseAddresses releases the addresses of a deleted VM. It reads the claims from the API server,
// because the cache may miss a claim that was created just before a crash.
func (r addresser[M]) releaseAddresses(ctx context.Context, s *scope[M]) error {
	for nic := range s.infra.Addressing("") {
		// The failure domain of a deleted Machine is not known any more.
		for i := range s.infra.MostPools(nic) {
			claim := &ipamv1.IPAddressClaim{}
			key := client.ObjectKey{Namespace: s.infra.GetNamespace(), Name: claimName(s.infra.GetName(), nic, i)}
			if err := r.APIReader.Get(ctx, key, claim); err != nil {
				if apierrors.IsNotFound(err) {
					continue
				}
				return fmt.Errorf("reading address claim: %w", err)
			}
			if !metav1.IsControlledBy(claim, s.infra) {
				continue
			}
			if err := r.releaseClaim(ctx, claim); err != nil {
				return err
			}
			uid := client.Preconditions{UID: ptr.To(claim.UID)}
			if err := client.IgnoreNotFound(r.Client.Delete(ctx, claim, uid)); err != nil {
				return fmt.Errorf("deleting address claim: %w", err)
			}
		}
	}
	return nil
}

// releaseClaim removes our finalizer from a claim.
func (r addresser[M]) releaseClaim(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	before := claim.DeepCopy()
	if !controllerutil.RemoveFinalizer(claim, infrav1.AddressClaimFinalizer) {
		return nil
	}
	// The optimistic lock keeps finalizers that other controllers added in the meantime.
	err := r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing address claim: %w", err)
	}
	return nil
}
