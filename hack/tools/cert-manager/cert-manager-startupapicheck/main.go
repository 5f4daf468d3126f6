// Command cert-manager-startupapicheck waits until cert-manager's API works.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"

	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util/cmapichecker"

	"github.com/cert-manager/cert-manager/nova/start"
)

const interval = 5 * time.Second

func main() {
	logging := logsapi.NewLoggingConfiguration()
	var timeout time.Duration
	start.Main("cert-manager-startupapicheck", logging, func(flags *pflag.FlagSet) {
		logf.AddFlagsNonDeprecated(logging, flags)
		// The chart sets it without a value.
		flags.Lookup("v").NoOptDefVal = "2"
		flags.DurationVar(&timeout, "wait", 0, "how long to wait")
	}, func(ctx context.Context, args []string) error {
		if !slices.Equal(args, []string{"check", "api"}) {
			return fmt.Errorf("unknown command %v", args)
		}
		config, err := rest.InClusterConfig()
		if err != nil {
			return err
		}
		checker, err := cmapichecker.New(config, os.Getenv("POD_NAMESPACE"))
		if err != nil {
			return err
		}
		var last error
		err = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
			last = checker.Check(ctx)
			return last == nil, nil
		})
		if last != nil {
			return last
		}
		return err
	})
}
