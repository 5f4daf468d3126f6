package bed

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	// Its complaint that nobody takes its logs would hide the failures.
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
