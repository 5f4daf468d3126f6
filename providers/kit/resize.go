package kit

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// maxDiskGiB is the largest disk of the API. Hypervisors and their storage have lower
// limits.
const maxDiskGiB = 63488

// Size is a size of a VM that runs.
type Size struct {
	hypervisor.Resizable

	// Want is the size in the spec of the machine; zero if the spec sets none.
	Want int64
}

// BootDisk returns the size of a boot disk in bytes. A reason why it cannot be increased
// may be empty.
func BootDisk(bytes, want int64, reason string) Size {
	s := Size{Want: want, Resizable: hypervisor.Resizable{Field: resize.BootDisk, Size: bytes >> 30, MaxSize: maxDiskGiB, Message: reason}}
	if reason != "" {
		s.MaxSize = 0
	}
	return s
}

// WithField returns the size of a field among others.
func WithField(sizes []Size, field string) (Size, bool) {
	for _, s := range sizes {
		if s.Field == field {
			return s, true
		}
	}
	return Size{}, false
}

// Increases returns the sizes that are to be increased: those that are smaller than
// in the spec of a machine that Cluster API updates in place. It returns an Error if
// the hypervisor cannot increase one of them while the VM runs.
func Increases(m metav1.Object, sizes []Size) ([]Size, error) {
	if _, updating := m.GetAnnotations()[clusterv1.UpdateInProgressAnnotation]; !updating || !m.GetDeletionTimestamp().IsZero() {
		return nil, nil
	}
	due := slices.DeleteFunc(slices.Clone(sizes), func(s Size) bool { return s.Want <= s.Size })
	for _, s := range due {
		if why := resize.Field(s.Resizable).Refusal(s.Want); why != "" {
			return due, InvalidSpec("%s: %s", s.Field, why)
		}
	}
	return due, nil
}

// IncreaseText describes the increase of sizes, for messages.
func IncreaseText(due []Size) string {
	texts := make([]string, 0, len(due))
	for _, s := range due {
		texts = append(texts, SizeText(s))
	}
	return "Increasing " + strings.Join(texts, " and ")
}

// SizeText describes the increase of a size.
func SizeText(s Size) string { return fmt.Sprintf("%s from %d to %d", s.Field, s.Size, s.Want) }

// ReportSizes adds the sizes of a VM that runs to out, and the increase that is due.
func ReportSizes(m metav1.Object, sizes []Size, out *hypervisor.VM) {
	for _, s := range sizes {
		out.Resizable = append(out.Resizable, s.Resizable)
	}
	due, _ := Increases(m, sizes)
	if len(due) == 0 {
		return
	}
	out.ToSync = append(out.ToSync, hypervisor.Resize)
	if out.OutOfSync == "" {
		out.OutOfSync = IncreaseText(due)
	}
}
