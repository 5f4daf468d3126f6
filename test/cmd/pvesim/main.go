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

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
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
	opts := pvesim.Options{Timings: map[string]time.Duration{}}
	var listen, inventory string
	flags := flag.NewFlagSet("pvesim", flag.ContinueOnError)
	flags.StringVar(&listen, "listen", "127.0.0.1:8006", "addresses of the nodes, separated by commas")
	flags.StringVar(&opts.CertDir, "certs", "", "directory to keep the certificates in")
	flags.StringVar(&opts.Username, "username", pvesim.DefaultUsername, "user with all privileges")
	flags.StringVar(&opts.Password, "password", pvesim.DefaultPassword, "password of the user and of root@pam")
	flags.StringVar(&opts.TokenSecret, "token-secret", pvesim.DefaultTokenSecret, "secret of the user's API token nova")
	flags.StringVar(&opts.ControlSocket, "control", "", "path of a unix socket to control the server by")
	flags.StringVar(&inventory, "inventory", "", "JSON file with the objects of the cluster at the start")
	flags.Func("timing", "NAME=DURATION of an operation, such as full-clone=60s; may be repeated", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		d, err := time.ParseDuration(value)
		opts.Timings[name] = d
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	opts.Listen = strings.Split(listen, ",")
	if inventory != "" {
		data, err := os.ReadFile(inventory)
		if err == nil {
			err = json.Unmarshal(data, &opts.Inventory)
		}
		if err != nil {
			return fmt.Errorf("reading the inventory: %w", err)
		}
	}
	server, err := pvesim.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer server.Stop()
	_, _ = fmt.Fprintf(out, "PROXMOX_URLS=%s\nPROXMOX_USERNAME=%s\n", strings.Join(server.URLs, ","), opts.Username)
	if opts.CertDir != "" {
		_, _ = fmt.Fprintf(out, "PROXMOX_CA_FILE=%s\n", filepath.Join(opts.CertDir, "ca.crt"))
	}
	<-ctx.Done()
	return nil
}
