package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	var opts ovirtsim.Options
	var inventory string
	flags := flag.NewFlagSet("ovirtsim", flag.ContinueOnError)
	flags.StringVar(&opts.ListenAddress, "listen", "127.0.0.1:8443", "host:port to serve on")
	flags.StringVar(&opts.CertDir, "certs", "", "directory to keep the certificates in")
	flags.StringVar(&opts.Username, "username", ovirtsim.DefaultUsername, "who is let in")
	flags.StringVar(&opts.Password, "password", ovirtsim.DefaultPassword, "with which password")
	flags.StringVar(&opts.Version, "version", ovirtsim.DefaultVersion, "the engine's version")
	flags.StringVar(&opts.ControlSocket, "control", "", "path of a unix socket to steer the server by")
	flags.StringVar(&opts.Language, "language", "", "language of faults for requests without Accept-Language, ru or en; ru, if empty")
	flags.DurationVar(&opts.TokenLifetime, "token-lifetime", 0, "how long a token lasts; 100 hours, if zero")
	flags.StringVar(&inventory, "inventory", "", "JSON file with the objects of the engine at the start")
	opts.Timings = map[string]time.Duration{}
	flags.Func("timing", "NAME=DURATION of an operation, such as powering-up=60s; may be repeated", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		d, err := time.ParseDuration(value)
		opts.Timings[name] = d
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if inventory != "" {
		data, err := os.ReadFile(inventory)
		if err != nil {
			return fmt.Errorf("reading the inventory: %w", err)
		}
		if err := json.Unmarshal(data, &opts.Inventory); err != nil {
			return fmt.Errorf("reading the inventory: %w", err)
		}
	}
	server, err := ovirtsim.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Fprintf(out, "OVIRT_URL=%s\nOVIRT_USERNAME=%s\n", server.URL, opts.Username)
	if opts.CertDir != "" {
		fmt.Fprintf(out, "OVIRT_CA_FILE=%s\n", filepath.Join(opts.CertDir, "ca.crt"))
	}
	<-ctx.Done()
	return nil
}
