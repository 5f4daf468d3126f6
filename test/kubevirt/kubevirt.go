package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

const (
	// finalizer keeps a VirtualMachine until its host is deleted.
	finalizer = "foregroundDeleteVirtualMachine"
	interval  = 500 * time.Millisecond
)

// KubeVirt runs the hosts of all VirtualMachines of a management cluster.
type KubeVirt struct {
	client client.Client
	guests *host.Guests[*guest]

	mu sync.Mutex
	// on are the names of the disks of running hosts.
	on map[string]bool
}

// Start runs hosts until the context ends. End waits until it has ended.
func Start(ctx context.Context, c client.Client, runner *host.Runner) (end func()) {
	k := &KubeVirt{client: c, guests: host.NewGuests[*guest](runner, time.Minute), on: map[string]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (k *KubeVirt) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			log.Printf("kubevirt: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sync makes one step for each VirtualMachine.
func (k *KubeVirt) sync(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(version.WithKind(machineKind + "List"))
	if err := k.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing VirtualMachines: %w", err)
	}
	var errs []error
	for i := range list.Items {
		vm := &list.Items[i]
		if err := k.step(ctx, vm); err != nil {
			errs = append(errs, fmt.Errorf("VirtualMachine %s/%s: %w", vm.GetNamespace(), vm.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// step deletes the host of a VirtualMachine that is being deleted, or creates it.
func (k *KubeVirt) step(ctx context.Context, vm *unstructured.Unstructured) error {
	disk := string(vm.GetUID())
	if vm.GetDeletionTimestamp() != nil {
		if err := k.guests.PowerOff(ctx, disk, false); err != nil {
			return fmt.Errorf("stopping host: %w", err)
		}
		if err := k.guests.Destroy(ctx, disk); err != nil {
			return fmt.Errorf("deleting disk: %w", err)
		}
		k.setOn(disk, false)
		if err := client.IgnoreNotFound(k.client.Delete(ctx, instanceOf(vm))); err != nil {
			return fmt.Errorf("deleting instance: %w", err)
		}
		controllerutil.RemoveFinalizer(vm, finalizer)
		return client.IgnoreNotFound(k.client.Update(ctx, vm))
	}
	if controllerutil.AddFinalizer(vm, finalizer) {
		return k.client.Update(ctx, vm)
	}
	if k.isOn(disk) {
		return nil
	}
	spec, err := k.hostOf(ctx, vm)
	if err != nil {
		return err
	}
	instance := instanceOf(vm)
	instance.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(vm, version.WithKind(machineKind))})
	instance.Object["status"] = map[string]any{"phase": "Scheduled"}
	if err := k.client.Create(ctx, instance); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating instance: %w", err)
	}
	if err := k.guests.PowerOn(ctx, spec, &guest{client: k.client, instance: client.ObjectKeyFromObject(vm), mac: spec.MACs[0]}); err != nil {
		return err
	}
	k.setOn(disk, true)
	return nil
}

func (k *KubeVirt) isOn(disk string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.on[disk]
}

func (k *KubeVirt) setOn(disk string, on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.on[disk] = on
}

// instanceOf returns the VirtualMachineInstance of a VirtualMachine, without a status.
func instanceOf(vm *unstructured.Unstructured) *unstructured.Unstructured {
	instance := &unstructured.Unstructured{Object: map[string]any{}}
	instance.SetGroupVersionKind(version.WithKind(instanceKind))
	instance.SetNamespace(vm.GetNamespace())
	instance.SetName(vm.GetName())
	return instance
}

// machineSpec are the fields of a VirtualMachine that this package reads.
type machineSpec struct {
	RunStrategy string `json:"runStrategy"`
	Template    struct {
		Spec struct {
			Domain struct {
				Devices struct {
					Disks []struct {
						Name string `json:"name"`
					} `json:"disks"`
					Interfaces []struct {
						Name string `json:"name"`
					} `json:"interfaces"`
				} `json:"devices"`
			} `json:"domain"`
			Networks []struct {
				Name string `json:"name"`
			} `json:"networks"`
			Volumes []struct {
				Name          string `json:"name"`
				ContainerDisk *struct {
					Image string `json:"image"`
				} `json:"containerDisk"`
				CloudInit *struct {
					Secret struct {
						Name string `json:"name"`
					} `json:"secretRef"`
				} `json:"cloudInitConfigDrive"`
			} `json:"volumes"`
		} `json:"spec"`
	} `json:"template"`
}

// userData returns the name of the Secret with the bootstrap data. It rejects the specs that
// KubeVirt rejects, with disks without a volume or interfaces without a network, and those that
// are not simulated.
func (s *machineSpec) userData() (secret string, err error) {
	in := &s.Template.Spec
	var volumes, networks []string
	image := ""
	for _, v := range in.Volumes {
		volumes = append(volumes, v.Name)
		if v.CloudInit != nil {
			secret = v.CloudInit.Secret.Name
		}
		if v.ContainerDisk != nil {
			image = v.ContainerDisk.Image
		}
	}
	for _, n := range in.Networks {
		networks = append(networks, n.Name)
	}
	for _, d := range in.Domain.Devices.Disks {
		if !slices.Contains(volumes, d.Name) {
			return "", fmt.Errorf("disk %s has no volume", d.Name)
		}
	}
	for _, i := range in.Domain.Devices.Interfaces {
		if !slices.Contains(networks, i.Name) {
			return "", fmt.Errorf("interface %s has no network", i.Name)
		}
	}
	if s.RunStrategy != "Always" || secret == "" || image == "" || len(in.Domain.Devices.Interfaces) != 1 {
		return "", errors.New("it needs the runStrategy Always, a containerDisk, a cloudInitConfigDrive with a Secret, and one interface")
	}
	return secret, nil
}

// hostOf returns the host of a VirtualMachine.
func (k *KubeVirt) hostOf(ctx context.Context, vm *unstructured.Unstructured) (host.Spec, error) {
	var spec machineSpec
	data, err := json.Marshal(vm.Object["spec"])
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if err != nil {
		return host.Spec{}, fmt.Errorf("reading spec: %w", err)
	}
	secret, err := spec.userData()
	if err != nil {
		return host.Spec{}, err
	}
	drive, err := k.drive(ctx, vm, secret)
	if err != nil {
		return host.Spec{}, err
	}
	uid := strings.ReplaceAll(string(vm.GetUID()), "-", "")
	return host.Spec{
		Name: vm.GetName(), Disk: string(vm.GetUID()), Seeds: map[string]map[string][]byte{"config-2": drive},
		MACs: []string{fmt.Sprintf("02:%s:%s:%s:%s:%s", uid[0:2], uid[2:4], uid[4:6], uid[6:8], uid[8:10])},
		DMI:  map[string]string{"sys_vendor": "KubeVirt", "product_name": "None", "product_uuid": string(vm.GetUID()), "product_serial": ""},
	}, nil
}

// drive returns the files of the configuration drive. KubeVirt reads the key userdata.
func (k *KubeVirt) drive(ctx context.Context, vm *unstructured.Unstructured, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: vm.GetNamespace(), Name: name}, secret); err != nil {
		return nil, fmt.Errorf("reading user data: %w", err)
	}
	data, found := secret.Data["userdata"]
	if !found {
		return nil, fmt.Errorf("no user-data in Secret %s", name)
	}
	metadata, err := json.Marshal(map[string]any{
		"instance_id": vm.GetName() + "." + vm.GetNamespace(), "hostname": vm.GetName(), "local_hostname": vm.GetName(), "uuid": string(vm.GetUID()),
	})
	if err != nil {
		return nil, fmt.Errorf("writing metadata: %w", err)
	}
	return map[string][]byte{"openstack/latest/user_data": data, "openstack/latest/meta_data.json": metadata}, nil
}

// guest reports the state of a running host.
type guest struct {
	client   client.Client
	instance client.ObjectKey
	mac      string
}

// Addressed reports the addresses, and that the instance is ready.
func (g *guest) Addressed(ctx context.Context, _ *host.Host, addresses []host.Address) error {
	var all []any
	for _, a := range addresses {
		if a.Prefix.Addr().Is4() && strings.EqualFold(a.MAC, g.mac) {
			all = append(all, a.Prefix.Addr().String())
		}
	}
	if len(all) == 0 {
		return nil
	}
	return g.set(ctx, map[string]any{
		"phase":      "Running",
		"interfaces": []any{map[string]any{"name": "nodes", "mac": g.mac, "ipAddress": all[0], "ipAddresses": all}},
		"conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "lastProbeTime": nil, "lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339)},
			map[string]any{
				"type": "LiveMigratable", "status": "False", "reason": "InterfaceNotLiveMigratable", "message": "the interface is connected by a bridge",
				"lastProbeTime": nil, "lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
			},
		},
	})
}

// Looked has nothing to report: the guest agent is optional in KubeVirt.
func (*guest) Looked(context.Context, *host.Host) error { return nil }

// Stopped reports that the guest ended.
func (g *guest) Stopped() error {
	return g.set(context.Background(), map[string]any{"phase": "Succeeded"})
}

func (g *guest) set(ctx context.Context, status map[string]any) error {
	instance := &unstructured.Unstructured{}
	instance.SetGroupVersionKind(version.WithKind(instanceKind))
	if err := g.client.Get(ctx, g.instance, instance); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := instance.DeepCopy()
	instance.Object["status"] = status
	return g.client.Patch(ctx, instance, client.MergeFrom(before))
}
