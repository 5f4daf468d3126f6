// Command cert-manager-webhook is cert-manager's webhook.
package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"github.com/cert-manager/cert-manager/internal/webhook"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"

	"github.com/cert-manager/cert-manager/nova/start"
)

func main() {
	config, err := options.NewWebhookConfiguration()
	if err != nil {
		logf.Log.Error(err, "creating configuration")
		os.Exit(1)
	}
	start.Main("cert-manager-webhook", &config.Logging, func(flags *pflag.FlagSet) { options.AddConfigFlags(flags, config) },
		func(ctx context.Context, _ []string) error {
			server, err := webhook.NewCertManagerWebhookServer(logf.FromContext(ctx), *config)
			if err != nil {
				return err
			}
			return server.Run(ctx)
		})
}
