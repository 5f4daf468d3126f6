// Package start runs a program of cert-manager.
package start

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	logf "github.com/cert-manager/cert-manager/pkg/logs"
)

// Main parses the flags of a program and runs it until it gets a signal. add adds its flags, and
// those of the log.
func Main(name string, logging *logsapi.LoggingConfiguration, add func(*pflag.FlagSet), run func(ctx context.Context, args []string) error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	logf.InitLogs()
	defer logf.FlushLogs()
	flags := pflag.NewFlagSet(name, pflag.ExitOnError)
	add(flags)
	err := flags.Parse(os.Args[1:])
	if err == nil {
		err = logf.ValidateAndApply(logging)
	}
	if err == nil {
		err = run(logf.NewContext(ctx, logf.Log, name), flags.Args())
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, err)
		os.Exit(1)
	}
}
