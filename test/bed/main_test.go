package bed

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	// The message that no logger is set would hide the failures.
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
