package host

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxNICs and maxDataDisks are how many network cards and data disks a host may
// have.
const (
	maxNICs      = 8
	maxDataDisks = 8
)

//go:embed files/launch.sh
var launchScript string

// ErrRunning is returned for a disk that a running host uses.
var ErrRunning = errors.New("the host is running")

// Spec contains the settings of a host from its virtual machine.
type Spec struct {
	// Name is the name of the virtual machine, for people. The host takes its
	// own name from its metadata.
	Name string
	// MACs are the hardware addresses of the network cards eth0, eth1, and so on.
	MACs []string
	// DMI are the tables of the BIOS as the kernel shows them: sys_vendor,
	// product_name, product_uuid, product_serial.
	DMI map[string]string
	// GuestInfo are the settings that the guest can read and write, such as
	// guestinfo.userdata.
	GuestInfo map[string]string
	// Seeds are drives with the settings of the first boot by their volume
	// label, config-2 or cidata, each with its files by path. They are there
	// for as long as the host is on.
	Seeds map[string]map[string][]byte `json:",omitempty"`
	// Kubernetes is the version that the disk has: one that the runner's
	// Assets were prepared for, KubernetesVersion when empty.
	Kubernetes string `json:",omitempty"`
	// Renderer boots an image whose cloud-init sets the network up with this
	// renderer, and whose cards are not called as the guest is to call them.
	Renderer string `json:",omitempty"`
	// Ignition boots an image that is set up by Ignition, in its initial RAM
	// disk, and not by cloud-init. A seed is then a drive.
	Ignition bool `json:",omitempty"`
	// DataDisksGiB are the sizes of further disks, /dev/sdb and so on. They are
	// empty at first, and go with Disk.
	DataDisksGiB []int64 `json:",omitempty"`
	// Disk identifies the disk, which keeps its contents when the host is off.
	Disk string
}

// Runner powers the hosts of one bed on.
type Runner struct {
	// Bed is the name of the bed.
	Bed string
	// Dir holds a directory a disk.
	Dir string
	// Assets are the files from which hosts boot.
	Assets Assets
	// Netns is the network namespace with the bridge. If not set, it is the
	// namespace of the bed. Bridge is the bridge to which hosts are connected. If
	// not set, it is the value of Bridge.
	Netns, Bridge string

	mu sync.Mutex
}

// PowerOn boots a host. Its disk is made when there is none.
func (r *Runner) PowerOn(ctx context.Context, spec Spec) (*Host, error) {
	if err := r.check(spec); err != nil {
		return nil, fmt.Errorf("powering on %q: %w", spec.Name, err)
	}
	h, err := r.host(spec)
	if err != nil {
		return nil, fmt.Errorf("powering on %q: %w", spec.Name, err)
	}
	if err := r.claim(h); err != nil {
		return nil, fmt.Errorf("powering on %q: %w", spec.Name, err)
	}
	if err := r.boot(ctx, h); err != nil {
		r.release(h)
		return nil, fmt.Errorf("powering on %q: %w", spec.Name, err)
	}
	return h, nil
}

// boot prepares a claimed host and starts it.
func (r *Runner) boot(ctx context.Context, h *Host) error {
	if pid, err := h.findInit(); err != nil {
		return err
	} else if pid != 0 {
		return ErrRunning
	}
	// A launch that died half-way may have left processes.
	if err := h.clear(ctx); err != nil {
		return err
	}
	if err := r.prepareDisk(h); err != nil {
		return fmt.Errorf("preparing the disk: %w", err)
	}
	if err := h.writeSettings(); err != nil {
		return fmt.Errorf("writing the settings of the host: %w", err)
	}
	cmd, err := h.launch()
	if err != nil {
		return errors.Join(err, h.clear(ctx))
	}
	go h.run(cmd)
	return nil
}

// Adopt finds running hosts whose process, which powered them on, has ended. A
// reboot ends an adopted host: only the parent of a process receives the reason
// for its end.
func (r *Runner) Adopt(_ context.Context) ([]*Host, error) {
	if err := requireRoot(); err != nil {
		return nil, err
	}
	disks, err := fileNames(r.Dir)
	if err != nil {
		return nil, err
	}
	var hosts []*Host
	var errs []error
	for _, disk := range disks {
		if checkName("disk", disk) != nil {
			continue
		}
		h, running, err := r.adopt(disk)
		if err != nil {
			errs = append(errs, fmt.Errorf("adopting %s: %w", disk, err))
		}
		if running {
			hosts = append(hosts, h)
		}
	}
	return hosts, errors.Join(errs...)
}

// adopt takes over the host with this disk, if one runs that is not ours.
func (r *Runner) adopt(disk string) (_ *Host, running bool, _ error) {
	data, err := os.ReadFile(filepath.Join(r.Dir, disk, specFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var spec Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, false, fmt.Errorf("reading the settings of the host: %w", err)
	}
	if err := r.check(spec); err != nil {
		return nil, false, err
	}
	h, err := r.host(spec)
	if err != nil {
		return nil, false, err
	}
	if err := r.claim(h); errors.Is(err, ErrRunning) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	pid, err := h.findInit()
	if err == nil && pid != 0 {
		err = h.attach(pid)
	}
	if err != nil || pid == 0 {
		r.release(h)
		return nil, false, err
	}
	go h.run(nil)
	return h, true, nil
}

// Destroy removes a disk for good. It refuses one in use.
func (r *Runner) Destroy(_ context.Context, disk string) error {
	if err := checkName("disk", disk); err != nil {
		return err
	}
	h, err := r.host(Spec{Disk: disk})
	if err != nil {
		return fmt.Errorf("destroying disk %s: %w", disk, err)
	}
	if err := r.claim(h); err != nil {
		return fmt.Errorf("destroying disk %s: %w", disk, err)
	}
	defer r.release(h)
	pid, err := h.findInit()
	if err == nil && pid != 0 {
		err = ErrRunning
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(h.dir), os.Remove(r.lockPath(h)))
	}
	if err != nil {
		return fmt.Errorf("destroying disk %s: %w", disk, err)
	}
	return nil
}

// check refuses a spec that no host can be made from.
func (r *Runner) check(spec Spec) error {
	if err := requireRoot(); err != nil {
		return err
	}
	if err := errors.Join(checkName("bed", r.Bed), checkName("disk", spec.Disk), checkSeeds(spec.Seeds)); err != nil {
		return err
	}
	if len(spec.DataDisksGiB) > maxDataDisks {
		return fmt.Errorf("%d data disks: %d at most", len(spec.DataDisksGiB), maxDataDisks)
	}
	if len(spec.MACs) > maxNICs {
		return fmt.Errorf("%d network cards: %d at most", len(spec.MACs), maxNICs)
	}
	for _, mac := range spec.MACs {
		if _, err := net.ParseMAC(mac); err != nil {
			return err
		}
	}
	for _, keys := range []map[string]string{spec.DMI, spec.GuestInfo} {
		for key := range keys {
			if key == "" || strings.HasPrefix(key, ".") || strings.ContainsAny(key, "/\x00") {
				return fmt.Errorf("setting %q: the name has to be a file name", key)
			}
		}
	}
	// These separate the layers and options of the root file system's mount.
	if strings.ContainsAny(r.Dir+r.Assets.Node+r.Assets.Debian+r.Assets.Ignition, ":,|\\ \n") {
		return errors.New("the directories of the bed and of the cache may have no blank, colon, comma, bar or backslash in their names")
	}
	return nil
}

// host returns the host of a spec, not running.
func (r *Runner) host(spec Spec) (*Host, error) {
	bed, err := bedGroup(r.Bed)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(r.Dir, spec.Disk))
	if err != nil {
		return nil, err
	}
	lower, err := r.Assets.lower(spec)
	if err != nil {
		return nil, err
	}
	h := &Host{
		spec:    spec,
		dir:     dir,
		group:   bed.child(spec.Disk),
		lower:   lower,
		netns:   r.Netns,
		bridge:  r.Bridge,
		pidfd:   -1,
		done:    make(chan struct{}),
		changes: make(chan []Address, 1),
	}
	if spec.Ignition {
		h.ignition = filepath.Join(r.Assets.Ignition, "ignition")
	}
	if h.netns == "" {
		h.netns = bedName(r.Bed)
	}
	if h.bridge == "" {
		h.bridge = Bridge
	}
	h.ended = func() { r.release(h) }
	return h, nil
}

// claim reserves the disk of h for it, among all runners of the machine: two
// that look after one host would each clean up after it. The claim of a
// process that dies dies with it.
func (r *Runner) claim(h *Host) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(r.lockPath(h), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrRunning
		}
		return err
	}
	h.lock = lock
	return nil
}

// release lets others have the disk of h.
func (r *Runner) release(h *Host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = h.lock.Close()
}

func (r *Runner) lockPath(h *Host) string {
	return filepath.Join(r.Dir, "."+h.spec.Disk+".lock")
}

// prepareDisk makes the disk of a host unless it is there.
func (r *Runner) prepareDisk(h *Host) error {
	dir := h.dir
	if exists(filepath.Join(dir, diskFile)) {
		return nil
	}
	// Half a disk is no disk.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"up/etc", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	// An image with a renderer keeps its own.
	if h.spec.Renderer == "" {
		resolv := []byte("nameserver " + Gateway + "\n")
		if err := writeFile(filepath.Join(dir, "up/etc/resolv.conf"), resolv, 0o644); err != nil {
			return err
		}
	}
	if err := linkTree(r.Assets.Containerd, filepath.Join(dir, "containerd")); err != nil {
		return err
	}
	if err := makeDataDisks(dir, h.spec.DataDisksGiB); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, diskFile), nil, 0o644)
}
